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
CONNECTIONS_MAX = 2_000
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
BROKER_TIMEOUT_S = 10.0  # unless the gateway is told another; CALL_WITHIN_S at most

# Views.
CATALOGS_MAX = 256  # users whose reading of the catalog is kept
STORES_MAX = 64  # idle ones
STORE_DOWN_S = 10.0  # for which one that did not answer is asked after a view's others
PAGE_BYTES = 8 << 20  # of one answer; a page that would be larger ends before, and `next` goes on
READ_WITHIN_S = 10.0  # a store's own work for one page; less than CALL_WITHIN_S
AFTER_S = 10.0  # a query's wait for what was written, unless it says otherwise
WAITS_MAX = 64  # queries that wait so, each in a thread
WAITS_PER_USER = 32
AFTER_MAX_S = 25.0  # less than CALL_WITHIN_S: what it waits for is told by the query itself
WHERES_MAX = 64  # expressions of feeds whose events are made once for all who follow the same rows

# Who follows a view.
SUBSCRIBERS_MAX = 1_500  # less than CONNECTIONS_MAX: some are left for requests
SUBSCRIBERS_PER_USER = 1_200
FEEDS_MAX = 32  # threads, each of which reads one view as one user
FEED_READY_S = 20.0
FEED_LINGER_S = 10.0  # without subscribers
FEED_RENEW_S = 240.0  # less than CLUSTER_AGE_MAX_S
RING_BYTES = 4 << 20  # of events that all subscribers of a feed can still take
RING_CHANGES = 5_000
CHUNK_BYTES = 256 << 10  # of a slow subscriber, beside its socket's buffer
CHUNK_S = 2.0  # for reading one from the log
CATCHING_UP_THREADS = 4
RENDERING_THREADS = 1  # for expressions beyond WHERES_MAX: Python runs one at a time, and the loop is to have its turn
PAST_PAUSE_S = 0.1
HEARTBEAT_S = 15.0
TICK_S = 1.0
