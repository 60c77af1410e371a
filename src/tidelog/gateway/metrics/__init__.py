"""What /metrics tells: topics and groups as Kafka's own APIs know them, brokers and all other parts as they report
in `__tidelog.status`.

It asks as the request's user and tells what that user may see; it keeps nothing between two scrapes, and works beside
any broker, without the brokers' own figures where there is no such topic. Read `table.py` first (every metric), then
`collecting.py` (where each comes from) and `exposition.py` (how they are written).
"""
