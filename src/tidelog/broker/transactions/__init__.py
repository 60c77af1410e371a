"""Transactions: which producer writes under which transactional id, and what its open transaction has touched.

A pure state machine without sockets, disk, clock or chance: commands and the time come in, records and outcomes go out.
It never does IO and never writes a marker; the shell (`broker.transaction_coordinator`, `broker.marking`) does. It
imports `broker.decision`, `wire`, and the patterns of `groups`. Read `states` first (the one table), then `state`.
"""
