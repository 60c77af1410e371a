"""Workers of queues: records of a share group become calls of a function, with retries and dead letters."""
