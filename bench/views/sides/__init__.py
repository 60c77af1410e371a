"""Programs of others that do what `fresh_app.py` does: from a topic to a topic, each in an environment of its own.

Each is told by one argument, in JSON: `bootstrap`, `topic`, `output` and `folder`; it runs until it is ended. What it
writes are rows of `key`, `records` and `newest` as JSON, with the key as the record's key.
"""
