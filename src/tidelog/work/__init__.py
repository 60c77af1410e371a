"""Workers of queues: records of a share group become calls of a function, with retries and dead letters.

Read `job.py` first (what a function is given, and what its end means), then `worker.py` (one worker: a blocking loop),
`running.py` (several of them as parts), `queue.py` (the topic and the group) and `sending.py`.
"""
