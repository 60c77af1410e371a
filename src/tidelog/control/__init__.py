"""What every long-running part needs of topics beyond bytes: read to the end and follow, marks, status, the catalog.

It works the same on Tidelog and on Apache Kafka, and blocks in the caller's thread. It may import `client`, what is
left of it, and `schema`; views, pipelines, gateway and commands are made of it. Read `reading.py` first, then
`marks.py`, `status.py` and `catalog.py`.
"""
