"""Every setting of brokers, topics and groups: its name, kind, default, who may change it, and what it does.

One table for topics (`topic.py`), one for the broker (`broker.py`, with `broker_stored.py` for what is kept and shown
only) and one for groups (`group.py`): DescribeConfigs, validation, the command line and docs/reference/settings.md are
all made from them. These modules never change the state of a broker and import nothing of it but each other; they may
import `tidelog.config` and the log's settings. Read `setting.py` first, then `describing.py`.
"""
