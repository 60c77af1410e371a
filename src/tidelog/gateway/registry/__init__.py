"""A schema registry with Confluent's REST API, kept in the compacted topic `_schemas` in Confluent's own records.

So their serializers and tools use it unchanged, and a registry moves here and away with its topic. All state is a fold
of that topic; pure functions decide what to append, and the shell appends it by `client/`, one gateway at a time
(`control/owner.py`). Read `records.py` first (what the topic holds), then `state.py`, `registering.py`, `registry.py`.
"""
