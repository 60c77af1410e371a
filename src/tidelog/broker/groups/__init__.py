"""Consumer groups: who reads which partition, and how far each group has read.

Two protocols, classic (JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the leading client assigns) and KIP-848
(ConsumerGroupHeartbeat; the broker assigns), and the offsets that both commit, all as pure state machines without
sockets, disk, clock or chance. This room never does IO, and imports only `broker.decision` and `wire`. Read `state`
first, then `phases` (the classic protocol's one table), then `consumer`, then `mixed` (members of both in one group).
"""
