"""For the tests of programs that use Kafka, and for our own: a pytest plugin, a broker to test with, a breakable disk.

This room starts real brokers and never fakes one. It may import `broker` and `client`; nothing imports it. Read
`plugin.py` first.
"""
