"""Queues: share groups (KIP-932). Consumers of a share group get single records of a partition, not whole partitions.

Pure: `window` is the table of one partition's records, `state` the fold of `__tidelog.queues`, and every `decide_*`
takes the state, what is asked and the time. `broker/queue_coordinator.py` is their shell.
"""
