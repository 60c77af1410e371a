"""Nexmark's queries as views in SQL, over topics of its events whose records have the time of the event.

What SQL alone cannot say, and why:
- q9, the highest bid of each auction: Spark has no aggregate by key behind a join of two streams, since a join can only
  add rows. The SQL gives the bids that count, and `order=` of the view keeps the highest of each auction.
- q3, q8 and q20: nothing in the SQL says which of two rows of a key is the later one; `order=` does. In front of it
  Spark takes no join that is bounded in time, so what their joins have read is kept.
"""

from __future__ import annotations

from tidelog.pipelines.app import App

DELAY = {"event_time": "timestamp", "watermark_delay": "10 seconds"}


def nexmark(prefix: str = "") -> App:
    app = App("nexmark")
    person = "id long, name string, city string, state string, dateTime long"
    auction = "id long, itemName string, dateTime long, expires long, seller long, category long"
    bid = "auction long, bidder long, price long, dateTime long"
    for name, value in (("person", person), ("auction", auction), ("bid", bid)):
        app.stream(name, value=value, topic=f"{prefix}{name}", **DELAY)
    _of_bids(app)
    _of_auctions(app)
    return app


def _of_bids(app: App) -> None:
    app.view(
        "q5",
        key=("start", "auction"),
        mode="append",
        sql="""
        WITH counted AS (
            SELECT window, auction, count(*) AS n
            FROM bid
            GROUP BY window(timestamp, '10 seconds', '2 seconds'), auction
        ), gathered AS (
            SELECT window, collect_list(struct(auction, n)) AS auctions, max(n) AS most
            FROM counted
            GROUP BY window
        )
        SELECT unix_millis(window.start) AS start, one.auction, one.n
        FROM gathered LATERAL VIEW explode(filter(auctions, one -> one.n = most)) AS one
        """,
    )
    app.view(
        "q7",
        key="start",
        sql="""
        SELECT unix_millis(window.start) AS start, best.*
        FROM (
            SELECT window, max_by(struct(auction, bidder, price, dateTime), price) AS best
            FROM bid
            GROUP BY window(timestamp, '10 seconds')
        )
        """,
    )
    app.view(
        "q11",
        key=("bidder", "start"),
        mode="append",
        sql="""
        SELECT bidder, unix_millis(session_window.start) AS start, count(*) AS n
        FROM bid
        GROUP BY bidder, session_window(timestamp, '10001 milliseconds') -- a gap of more than 10 s, in milliseconds
        """,
    )
    app.view(
        "q18",
        key=("bidder", "auction"),
        sql="""
        SELECT bidder, auction, last.price, last.dateTime
        FROM (
            SELECT bidder, auction, max_by(struct(price, dateTime), dateTime) AS last
            FROM bid
            GROUP BY bidder, auction
        )
        """,
    )


def _of_auctions(app: App) -> None:
    app.view(
        "q3",
        key="id",
        order="id",
        sql="""
        SELECT auction.id, person.name, person.city, person.state
        FROM auction JOIN person ON auction.seller = person.id
        WHERE auction.category = 10 AND person.state IN ('OR', 'ID', 'CA')
        """,
    )
    app.view(
        "q8",
        key=("id", "start"),
        order="opened",
        sql="""
        SELECT person.id, person.name, person.dateTime - person.dateTime % 10000 AS start, auction.dateTime AS opened
        FROM person JOIN auction
          ON person.id = auction.seller AND person.dateTime DIV 10000 = auction.dateTime DIV 10000
        """,
    )
    app.view(
        "q9",
        key="auction",
        order="rank",
        sql="""
        SELECT bid.auction, bid.bidder, bid.price, bid.dateTime, auction.category,
               printf('%012d%013d', bid.price, 9999999999999 - bid.dateTime) AS rank
        FROM auction JOIN bid
          ON auction.id = bid.auction AND bid.dateTime BETWEEN auction.dateTime AND auction.expires
        """,
    )
    app.view(
        "q20",
        key=("auction", "bidder", "dateTime"),
        order="dateTime",
        sql="""
        SELECT bid.auction, bid.bidder, bid.price, bid.dateTime, auction.itemName, auction.seller, auction.expires
        FROM bid JOIN auction ON bid.auction = auction.id
        WHERE auction.category = 10
        """,
    )
