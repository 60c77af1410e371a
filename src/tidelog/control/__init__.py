"""What every long-running part needs of topics beyond bytes: read to the end and follow, marks, status, commands, lag.

It works the same on Tidelog and on Apache Kafka, and blocks in the caller's thread. It may import `client` and what is
left of it; views, pipelines, gateway and commands are made of it. Read `reading.py` first, then `marks.py` and
`status.py`.
"""
