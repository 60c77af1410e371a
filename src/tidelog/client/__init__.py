"""The bytes-level client that no library offers: fetch batches as they lie in the log, produce them as encoded.

It blocks, runs in the caller's thread, starts none, and works the same against Tidelog and Apache Kafka. It never
decides what a broker should do and never imports `broker` or `log`; it may import `record`, `wire` and `errors`. Read
`connection.py` first (one socket), then `cluster.py` (all of them), then `consumer.py` and `producer.py`, then
`transactions.py`; `admin/` is the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.door import door

if TYPE_CHECKING:
    from tidelog.client.admin import access as access
    from tidelog.client.admin import brokers as brokers
    from tidelog.client.admin import configs as configs
    from tidelog.client.admin import groups as groups
    from tidelog.client.admin import share_groups as share_groups
    from tidelog.client.admin import topics as topics
    from tidelog.client.cluster import Cluster as Cluster
    from tidelog.client.consumer import Consumer as Consumer
    from tidelog.client.identity import ProducerIdentity as ProducerIdentity
    from tidelog.client.metadata import TopicPartition as TopicPartition
    from tidelog.client.offsets import EARLIEST as EARLIEST
    from tidelog.client.offsets import LATEST as LATEST
    from tidelog.client.offsets import list_offsets as list_offsets
    from tidelog.client.producer import Producer as Producer
    from tidelog.client.security import Security as Security
    from tidelog.client.share import ACCEPT as ACCEPT
    from tidelog.client.share import REJECT as REJECT
    from tidelog.client.share import RELEASE as RELEASE
    from tidelog.client.share import ShareReader as ShareReader
    from tidelog.client.transactions import Transactions as Transactions
    from tidelog.client.transactions import join as join
    from tidelog.control import lag as lag
    from tidelog.record.arrow import columns_to_arrow as columns_to_arrow

HOMES = {
    "access": "tidelog.client.admin.access",
    "brokers": "tidelog.client.admin.brokers",
    "configs": "tidelog.client.admin.configs",
    "groups": "tidelog.client.admin.groups",
    "share_groups": "tidelog.client.admin.share_groups",
    "topics": "tidelog.client.admin.topics",
    "Cluster": "tidelog.client.cluster",
    "Consumer": "tidelog.client.consumer",
    "ProducerIdentity": "tidelog.client.identity",
    "lag": "tidelog.control.lag",
    "TopicPartition": "tidelog.client.metadata",
    "EARLIEST": "tidelog.client.offsets",
    "LATEST": "tidelog.client.offsets",
    "list_offsets": "tidelog.client.offsets",
    "Producer": "tidelog.client.producer",
    "Security": "tidelog.client.security",
    "ACCEPT": "tidelog.client.share",
    "REJECT": "tidelog.client.share",
    "RELEASE": "tidelog.client.share",
    "ShareReader": "tidelog.client.share",
    "Transactions": "tidelog.client.transactions",
    "join": "tidelog.client.transactions",
    "columns_to_arrow": "tidelog.record.arrow",
}

__getattr__, __dir__ = door(__name__, HOMES)
