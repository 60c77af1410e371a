"""What one request may take of the broker: the limits that cannot be set, all in one place.

They are named in docs/guide/limits.md. How much a request may name is bounded where it is decoded
(`wire.decoder.MAX_ELEMENTS`), how much of a connection may be under way in `connection`.
"""

from __future__ import annotations

REPLY_BYTES_MAX = 32 << 20  # a reply about many things; twenty thousand topics with their settings are less
STEP_S = 0.01  # how long the loop works on one long request before it serves others
WAITING_PARTS = 8  # parts of one long request that wait for the disk

KEYS_BYTES_MAX = 64 << 20  # what a batch for a compacted topic may become when it is decompressed
KEYS_RATIO_MAX = 100  # all such batches of one request may become 64 MiB too, or so many times what was sent
KEYS_BYTES_AT_ONCE = 1 << 20  # up to so much the loop decompresses itself for one request; the rest is for a thread
