"""A game of chess in a topic: read as a stream it is all moves, read as a table it is where each piece stands.

python examples/chess.py

The key of a record is a piece, the value the square that it went to; a piece that was taken gets no value any more.
Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import tempfile

from pyspark.sql import DataFrame

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import Table, as_changelog, latest_by_key

START = {"white king": "e1", "white queen": "d1", "white bishop": "f1", "white pawn": "e2"}
START |= {"black king": "e8", "black knight": "b8", "black knight 2": "g8", "black pawn": "e7", "black pawn f": "f7"}
SCHOLARS_MATE = [
    ("white pawn", "e4"),
    ("black pawn", "e5"),
    ("white bishop", "c4"),
    ("black knight", "c6"),
    ("white queen", "h5"),
    ("black knight 2", "f6"),
    ("black pawn f", None),  # taken by the queen
    ("white queen", "f7"),
]
FIRST_MOVE = len(START)

board = Table(by=["piece"])


def keep(rows: DataFrame, _: int) -> None:
    board.apply(row.asDict() for row in rows.collect())


def standing(table: DataFrame) -> str:
    return ", ".join(f"{row.piece} {row.square}" for row in table.orderBy("piece").collect())


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, "game", partitions=1, configs={"retention.ms": "-1"})
        for piece, square in [*START.items(), *SCHOLARS_MATE]:
            producer.send("game", None if square is None else square.encode(), key=piece.encode())
    spark = tidelog.spark_session(memory="1g", state_store="rocksdb")
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "game", "startingOffsets": "earliest"}
    columns = ["cast(key as string) piece", "cast(value as string) square", "offset"]

    # As a stream: every move, and those of a piece or to a square.
    moves = spark.read.format("tidelog").options(**options).load().selectExpr(*columns).where(f"offset >= {FIRST_MOVE}")
    print("moves:", moves.where("square is not null").count())
    print(
        "the queen went to:", [row.square for row in moves.where("piece = 'white queen'").orderBy("offset").collect()]
    )
    print("who came to f7:", [row.piece for row in moves.where("square = 'f7'").collect()])

    # As a table: where each piece stands, now and after any move.
    game = spark.read.format("tidelog").options(**options).load().selectExpr(*columns)
    by_piece = latest_by_key(["piece"], order="offset", deleted="square is null")
    now = game.transform(by_piece)
    print("by piece:", standing(now.where("piece like 'white %'")))
    print("by square:", {row.square: row.piece for row in now.where("square in ('f7', 'e8')").collect()})
    second = game.where(f"offset < {FIRST_MOVE + 2}").transform(by_piece)
    print("after two moves:", standing(second.where("piece like '%pawn'")))

    # The same table, kept up to date by a query.
    live = spark.readStream.format("tidelog").options(**options).load().selectExpr(*columns)
    changes = live.transform(as_changelog(by=["piece"], order="offset", deleted="square is null"))
    query = changes.writeStream.foreachBatch(keep).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    squares = {row["piece"]: row["square"] for row in board.to_list()}
    print("kept by a query, the same:", squares == {row.piece: row.square for row in now.collect()})
    spark.stop()
