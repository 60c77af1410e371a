"""Where views are kept, one module a kind, each found by its URL's scheme (`opening.py`).

A store has generations of views side by side, shows one of them, and takes whole stretches of a topic in one
transaction, with the ends that they reach. It reads no topic and knows no broker. Read `store.py` first (what every
store does, and what its contract suite checks), then `sqlite.py`.
"""
