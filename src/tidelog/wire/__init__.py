"""Kafka's protocol without IO: bytes become requests and responses, and back, for every version that Kafka 4.3 has.

This room knows no socket, no file and no clock, and keeps no state but compiled codecs.
It imports only `tidelog.errors`; the broker, the client and the tests all speak through it.
Read `frame.py` first, then `messages/produce.py` for what a message looks like, then `codec.py`.
"""
