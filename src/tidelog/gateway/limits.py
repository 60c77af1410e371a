"""Every limit of the HTTP server, by name. What is above one is refused and said, never waited for."""

from __future__ import annotations

# One request.
HEAD_MAX_BYTES = 32 << 10  # request line and headers
HEADERS_MAX = 100
TARGET_MAX_BYTES = 8 << 10  # path and query
BODY_MAX_BYTES = 1 << 20  # unless its route says otherwise
HEAD_WITHIN_S = 10.0  # from the first byte, or from the connection, to the end of the headers
BODY_WITHIN_S = 30.0
CALL_WITHIN_S = 30.0  # the handler, the wait for a thread included
SENT_WITHIN_S = 30.0  # for the client to take SENT_BYTES more of an answer
SENT_BYTES = 16 << 10
LINGER_BYTES = 4 << 20  # of a refused body that are thrown away, so that the answer arrives
LINGER_S = 1.0

# All of them.
CONNECTIONS_MAX = 1_000
KEEP_ALIVE_S = 60
EVICTED_AFTER_S = 1.0  # of waiting for its client, a connection may have to make place for another
CALLS_MAX = 16  # threads that talk to the broker
CALLS_PER_USER = 8  # of them: a slow user leaves some to others; all who have not proven who they are are one
PROVEN_MAX = 1_000  # users of whom it is remembered that they were let in
CALLS_WAITING_MAX = 256  # requests that wait for one of them
BODIES_MAX_BYTES = 64 << 20  # of all requests that are being received or worked on
STOP_WITHIN_S = 5

# Connections to the broker.
CLUSTERS_MAX = 64  # idle ones, of all users
CLUSTER_IDLE_S = 30.0
CLUSTER_AGE_MAX_S = 300.0  # then it logs in anew: a deleted user is out after that long at the latest
BROKER_TIMEOUT_S = 10.0
