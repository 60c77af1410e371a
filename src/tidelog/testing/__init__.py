"""For the tests of programs that use Kafka or Spark, and for our own: a pytest plugin, a broker to test with, a driver
that runs pipelines one step at a time, a breakable disk.

This room starts real brokers and a real Spark and never fakes one. It may import `broker`, `client`, `spark` and
`pipelines`; nothing imports it. Read `plugin.py` first, for pipelines `pipeline.py`.
"""
