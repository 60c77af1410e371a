"""Home timelines as a cache that is kept up to date: posts and who follows whom, two tables, joined as they change.

python examples/timeline_cache.py

After every round of posts, deletions, follows and unfollows the cache is compared with the SQL that it stands for.
Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import json
import sqlite3
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import PLACE, Table, as_changelog, join_tables

# Key and value; a key without a value is deleted.
ROUNDS = [
    {
        "posts": [
            ("1", {"sender": "ada", "text": "high tide", "at": 1}),
            ("2", {"sender": "bob", "text": "hi", "at": 2}),
        ],
        "follows": [("eve>ada", {"follower": "eve", "followee": "ada"})],
    },
    {
        "posts": [("3", {"sender": "ada", "text": "low tide", "at": 3})],
        "follows": [
            ("eve>bob", {"follower": "eve", "followee": "bob"}),
            ("dan>ada", {"follower": "dan", "followee": "ada"}),
        ],
    },
    {"posts": [("1", None), ("2", {"sender": "bob", "text": "hi again", "at": 2})], "follows": []},
    {"posts": [("4", {"sender": "bob", "text": "news", "at": 4})], "follows": [("eve>ada", None)]},
]
SQL = """
    select follows.follower, json_group_array(posts.text order by posts.at desc)
    from posts join follows on follows.followee = posts.sender
    group by follows.follower order by 1
"""
SQL_BEFORE_3_44 = """
    select follower, json_group_array(text) from (
        select follows.follower, posts.text from posts join follows on follows.followee = posts.sender
        order by posts.at desc
    ) group by follower order by 1
"""


def table(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    """The table that a topic is: the latest value of each key, as a changelog."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("tidelog").options(**options).load()
    value = F.from_json(F.col("value").cast("string"), schema).alias("row")
    named = rows.select(F.col("key").cast("string").alias(f"{topic}_key"), value, *PLACE)
    upserts = named.select(f"{topic}_key", "row.*", *PLACE)
    first = schema.split()[0]
    return upserts.transform(as_changelog(by=[f"{topic}_key"], order=PLACE, deleted=f"{first} is null"))


def produce(bootstrap: str, changes: dict[str, list[tuple[str, dict[str, object] | None]]]) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for topic, rows in changes.items():
            for key, row in rows:
                producer.send(topic, None if row is None else json.dumps(row).encode(), key=key.encode())


def by_sql(rounds: list[dict[str, list[tuple[str, dict[str, object] | None]]]]) -> dict[str, list[str]]:
    """What the query says of the tables as they are after these rounds."""
    latest = {topic: {key: row for one in rounds for key, row in one[topic]} for topic in ("posts", "follows")}
    with sqlite3.connect(":memory:") as sql:
        sql.execute("create table posts (sender, text, at)")
        sql.execute("create table follows (follower, followee)")
        sql.executemany("insert into posts values (:sender, :text, :at)", filter(None, latest["posts"].values()))
        sql.executemany("insert into follows values (:follower, :followee)", filter(None, latest["follows"].values()))
        text = SQL if sqlite3.sqlite_version_info >= (3, 44) else SQL_BEFORE_3_44
        return {follower: json.loads(texts) for follower, texts in sql.execute(text)}


cache = Table()


def keep(rows: DataFrame, _: int) -> None:
    cache.apply(row.asDict() for row in rows.collect())


def timelines() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in sorted(cache.to_list(), key=lambda row: (row["follower"], -row["at"])):
        found.setdefault(row["follower"], []).append(row["text"])
    return found


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        for topic in ("posts", "follows"):
            topics.create(cluster, topic, partitions=2, configs={"cleanup.policy": "compact"})
    spark = tidelog.spark_session(memory="1g", state_store="rocksdb")
    spark.sparkContext.setLogLevel("ERROR")
    posts = table(spark, broker.bootstrap, "posts", "sender string, text string, at int")
    follows = table(spark, broker.bootstrap, "follows", "follower string, followee string")
    joined = posts.transform(join_tables(follows, foreign_key={"sender": "followee"}))
    query = joined.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/checkpoint").start()
    for number, changes in enumerate(ROUNDS):
        produce(broker.bootstrap, changes)
        query.processAllAvailable()
        print(timelines(), "as SQL says:", timelines() == by_sql(ROUNDS[: number + 1]))
    query.stop()
    spark.stop()
