"""One module per API: the request, the response and their structs, as tables of fields and versions.

Written by `scripts/generate_messages.py`, never by hand; `tidelog.wire.api` loads a module when its API is first used.
These modules say what the fields are; how they become bytes is in `tidelog.wire.codec`.
Read `produce.py` first; what `field.int16("0+")` and the like mean is in `tidelog.wire.field`.
"""
