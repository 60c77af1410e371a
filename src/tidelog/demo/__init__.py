"""The demo: a small shop whose events flow through a pipeline on Spark into views, and one live page that shows them.

It uses the other rooms as a user would: an app, a producer, a route, stores that are read. Nothing of the product is in
here and no other room imports it but the command line. It may import all rooms but `cli` and `testing`. Read `shop.py`
first (what is declared), then `running.py` (who starts whom).
"""
