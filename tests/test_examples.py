"""Every example runs as it stands and says what it is expected to say: in a process of its own, or, where it makes a
Spark session by `tidelog.spark_session`, in turns with others of that kind (`programs.Host`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from against.apache_kafka import ApacheKafka, Missing
from programs import Host, run
from proving import proves

EXAMPLES = Path(__file__).parent.parent / "examples"
# One of that kind, device_clocks.py, is a process of its own all the same.
IN_TURNS = {
    "chess.py",
    "cpu_load.py",
    "daily_report.py",
    "enrich_activity.py",
    "four_windows.py",
    "join_searches_and_clicks.py",
    "moving_average.py",
    "own_operator.py",
    "tax_rates.py",
    "timeline_cache.py",
    "visits_by_day.py",
    "website_sessions.py",
}
# What they show has shorter tests.
LONG = {
    "ask_pipeline.py",
    "chess.py",
    "consumer_group.py",
    "cpu_load.py",
    "daily_report.py",
    "device_clocks.py",
    "enrich_activity.py",
    "four_windows.py",
    "join_searches_and_clicks.py",
    "moving_average.py",
    "own_operator.py",
    "shop_app.py",
    "spark_exactly_once.py",
    "spark_topics.py",
    "tax_rates.py",
    "test_pipeline.py",
    "timeline_cache.py",
    "visits_by_day.py",
    "website_sessions.py",
}

# Above a second of CPU, and so not in `make test`.
SLOW = {"capture_postgres.py", "course_enrolment.py", "overload.py"}

# One of them at every change.
STORY = "spark_topics.py"

EXPECTED = {
    "any_broker.py": ["and 1", "comes 1", "goes 1", "the 2", "tide 2"],
    "device_clocks.py": [
        "right: 2026-03-01 10:00:00 (corrected)",
        "a day ahead: 2026-03-01 10:00:00 (corrected)",
        "still in 1970: 2026-03-01 10:00:00 (corrected)",
        "set back in between: 2026-03-01 10:00:05 (stepped)",
        "does not say: 2026-03-01 10:00:00 (unknown)",
    ],
    "view_feed.py": [
        "read: {'rum': 1, 'tea': 3}",
        "change {'product': 'milk', 'count': 7}",
        "shown: {'milk': 7, 'rum': 1, 'tea': 1}",
        "above 5: leave tea",
        "above 5: change milk",
    ],
    "dual_writes.py": [
        "a race: table {'tea': 'black, says Bob'}, index {'tea': 'green, says Ada'}, equal: False",
        "half a write: table {'rum': 'brown', 'tea': 'black, says Bob'}, index {'tea': 'green, says Ada'}, equal",
        "{'rum': 'brown', 'tea': 'green, says Ada'}, equal: True",
        "green: ['tea'], as of ",
    ],
    "ask_pipeline.py": [
        "ada, since 10:00: 2 visits, the last of /tides",
        'bob: 404, nothing is kept of the key {"user":"bob"}',
        "by topics alone: 2",
        "ada: 503, pipeline site.hours does not answer: it is stopped; `tidelog run` starts it",
    ],
    "exactly_once.py": ["fenced: True", "38 invoices were written for 30 orders", "committed: 30, each once: True"],
    "shop_app.py": ["PRODUCT  REVENUE  ORDERS", "cup      120.0         1", "tea      140.0         2"],
    "four_windows.py": [
        "a minute: 10:03:00.000000 to 10:04:00.000000 ada 2\na minute: 10:04:00.000000 to 10:05:00.000000 ada 1",
        "every minute: 10:02:00.000000 to 10:07:00.000000 ada 3\nfive minutes every minute: 10:03:00.000000 to 10:08",
        "every minute: 10:03:00.000000 to 10:08:00.000000 ada 4",
        "within 30 minutes: 10:08:00.000000 to 10:38:00.000000 bob 2",
        "within 30 minutes: 10:38:00.001000 to 11:08:00.001000 bob 1",
        "a session: 10:03:00.000000 to 10:37:59.999000 ada 4\na session: 10:08:00.000000 to 11:08:00.000000 bob 2",
        "a session: 11:08:00.001000 to 11:38:00.001000 bob 1",
    ],
    "bank_ledger.py": [
        "after batch 4: the ledger sums up to 0",
        "some transfers were refused: True",
        "a transfer that was sent again was done once: [True, True]",
        "the same after a restart: True",
        "nobody owes: True",
    ],
    "course_enrolment.py": [
        "captured rows                   events\nenrolments: added ada           Enrolled ada",
        "enrolments: deleted ada         Cancelled ada clash\nfeedback: added clash           Enrolled cleo",
        "by the rows:   ['test', 'ada'] (a guess)",
        "by the events: ['ada']",
        "both end with the same seats: True",
    ],
    "order_process.py": [
        "mail: o3 is paid",
        "o1 GivenUp(order='o1', why='nobody paid') by process payment",
        "o2 GivenUp(order='o2', why='sold out') by process payment",
        "o3 Paid(order='o3') by the customer",
    ],
    "seat_reservation.py": [
        "sold twice: []",
        "events in each history: [1]",
        "who bought a seat has it: True",
        "every other client was refused: True",
    ],
    "capture_postgres.py": [
        "cache: {1: 'tea, black leaves', 3: 'old rum, brown'}",
        "index: {1: 'tea, black leaves', 3: 'old rum, brown'} black: ['tea']",
        "warehouse: {1: 'tea, black leaves', 3: 'old rum, brown'}",
        "table: {1: 'tea, black leaves', 3: 'old rum, brown'}",
    ],
    "capture_sqlite.py": [
        "r None -> {'product': 'tea', 'count': 7}",
        "u {'product': 'tea', 'count': 7} -> {'product': 'tea', 'count': 6}",
        "d {'product': 'rum', 'count': 3} -> None",
        "the topic: {'tea': 6, 'milk': 12}",
        "the table: {'milk': 12, 'tea': 6}",
    ],
    "hello_broker.py": ["offset 0: hello", "offset 1: durable", "offset 2: world"],
    "erasure.py": [
        "before: ['Alice Liddell', 'Bob']",
        "after:  [ERASED, 'Bob']",
        "seats:  2",
        "files with the name: 0",
    ],
    "chess_moves.py": [
        "after 0 moves: white queen d1, white pawn e2, black pawn e7, white bishop f1, black pawn f7",
        "after 5 moves: white bishop c4, white pawn e4, black pawn e5, white queen f7",
        "the last move: squares.f7 black pawn -> white queen",
        "who moved: ['white', 'black', 'white', 'white', 'white']",
    ],
    "chess.py": [
        "moves: 7",
        "the queen went to: ['h5', 'f7']",
        "who came to f7: ['white queen']",
        "by piece: white bishop c4, white king e1, white pawn e4, white queen f7",
        "after two moves: black pawn e5, white pawn e4",
        "kept by a query, the same: True",
    ],
    "enrich_activity.py": [
        "10:59 ada read /boats in Kiel",
        "11:00 ada read /tides in Husum",
        "11:29 bob read /boats in Bonn",
        "11:31 bob read /tides in None",
    ],
    "join_searches_and_clicks.py": [
        "boats: 1 clicked on nothing",
        "tides: 2 clicked on /moon",
    ],
    "tax_rates.py": [
        "taxed as they were sold: {1: 70, 2: 50}",
        "replayed a year later: {1: 70, 2: 50} the same: True",
        "by the rate of today: {1: 90, 2: 90}",
    ],
    "timeline_cache.py": [
        "{'eve': ['high tide']} as SQL says: True",
        "{'dan': ['low tide', 'high tide'], 'eve': ['low tide', 'hi', 'high tide']} as SQL says: True",
        "{'dan': ['low tide'], 'eve': ['low tide', 'hi again']} as SQL says: True",
        "{'dan': ['low tide'], 'eve': ['news', 'hi again']} as SQL says: True",
    ],
    "sql_over_topics.py": [
        "by product: [('cup', 7.0), ('pot', 30.0), ('tea', 16.0)]",
        "by city: [('Lima', 16.0), ('Rome', 7.0)]",
        "the first two: [('ann', 0), ('bob', 1)]",
    ],
    "compacted_table.py": [
        "before: {'apple': '999', 'pear': '997'} from 1001",
        "after: {'pear': '997', 'apple': '999'} from",
    ],
    "consumer_group.py": ["after one left: 4 partitions", "workers and audit have each seen 40 jobs, none twice: True"],
    "workers.py": [
        "delivered: Ada, delivery 1; Bob, delivery 2; Cleo, delivery 1; Eve, delivery 1",
        "the last one: Eve, delivery 1",
        "dead letters: [b'nobody']",
    ],
    "work_queue.py": ["30 jobs done, released and done by the next: job 7"],
    "replay_from_time.py": ["read 10, last: reading 9", "offset 7: reading 7, reading 8, reading 9"],
    "schemas.py": ["refused: True", "offset 0: {'sensor': 'north', 'celsius': 7.0, 'unit': 'C'}", "versions: [1, 2]"],
    "overload.py": [
        "all: 0 of 3000 failed",
        "latest: billing lost 2000",
        "orders: 0 of 3000 failed, and billing was never more than",
    ],
    "memory_topic.py": ["payments: an ack means disk", "clicks: an ack means memory"],
    "secured_broker.py": ["orders: written", "salaries: TOPIC_AUTHORIZATION_FAILED"],
    "spark_exactly_once.py": [
        "invoices: 100",
        "after a crash before Spark's own commit: 100",
        "billing has read 100 orders",
    ],
    "spark_topics.py": ["again 1, and 2, comes 2, goes 1, the 2, tide 2"],
    "test_orders.py": ["2 passed"],
    "test_pipeline.py": ["6 passed"],
    "website_sessions.py": [
        "+I ada 10:00 to 10:40: 2 clicks, from / to /tides",
        "+I ada 11:00 to 11:30: 1 clicks, from /buy to /buy",
        "-D ada 10:00 to 10:40: 2 clicks, from / to /tides",
        "-D ada 11:00 to 11:30: 1 clicks, from /buy to /buy",
        "+I ada 10:00 to 11:30: 4 clicks, from / to /buy",
    ],
    "moving_average.py": ["10:04:00.000000 3.10 of 2", "10:10:00.001000 3.30 of 2", "10:30:00.000000 2.00 of 1"],
    "own_operator.py": [
        "not paid within an hour: 2 of 10:05\n",
        "still open: [4] counted: {'in': 6, 'late': 0, 'unpaid': 1}",
        "every hour is over: 2 of 10:05, 4 of 12:45",
    ],
    "daily_report.py": [
        "24 February to 03 March, airport: 0 sales, None",
        "02 March to 09 March, station: 1 sales, 80",
        "10 days, 30 lines",
    ],
    "cpu_load.py": [
        "10:03:00 to 10:07:59 web-1: 20 %, at most 20 %, 30 samples",
        "10:04:00 to 10:08:59 web-1: 32 %, at most 80 %, 30 samples",
    ],
    "transactions_by_hand.py": [
        "not transferred: account 1 has not so much",
        "two workers wrote 200 credits in one transaction",
        "the old owner is fenced",
        "debits: 2, credits: 201",
    ],
    "visits_by_day.py": [
        "Sun: 1000 visits (no day before), start 500",
        "Mon: 2000 visits (+1000 on the day before), start 1000",
        "Sat: 7000 visits (+1000 on the day before), start 3500",
    ],
    "waiting_consumer.py": ["woken 20 times, "],
}
ROWS = {
    "ask_pipeline.py": ("P6",),
    "view_feed.py": ("D7",),
    "any_broker.py": ("T10",),
    "device_clocks.py": ("P7",),
    "bank_ledger.py": ("E1", "E2", "E4"),
    "seat_reservation.py": ("E1", "E4"),
    "course_enrolment.py": ("E1", "D3"),
    "order_process.py": ("E3",),
    "capture_postgres.py": ("D1", "D3", "D6", "D8"),
    "capture_sqlite.py": ("D2", "D3"),
    "dual_writes.py": ("D6",),
    "exactly_once.py": ("F2", "F3"),
    "hello_broker.py": ("T1",),
    "erasure.py": ("E6",),
    "chess_moves.py": ("E5",),
    "chess.py": ("P9", "B1"),
    "enrich_activity.py": ("P9",),
    "join_searches_and_clicks.py": ("P9",),
    "tax_rates.py": ("P10", "B1"),
    "timeline_cache.py": ("P9",),
    "sql_over_topics.py": ("sql", "D5"),
    "compacted_table.py": ("D5", "T8"),
    "consumer_group.py": ("T3", "T7"),
    "work_queue.py": ("T4",),
    "workers.py": ("T4",),
    "replay_from_time.py": ("T7",),
    "memory_topic.py": ("T6",),
    "overload.py": ("T5",),
    "schemas.py": ("T10",),
    "secured_broker.py": ("T10", "T5"),
    "spark_exactly_once.py": ("P1", "F2", "eo.5", "eo.11"),
    "spark_topics.py": ("P1", "B1"),
    "shop_app.py": ("P1", "B1"),
    "test_orders.py": ("T1",),
    "test_pipeline.py": ("P1",),
    "website_sessions.py": ("P8", "P7"),
    "four_windows.py": ("P8",),
    "moving_average.py": ("P8",),
    "own_operator.py": ("P1", "P7"),
    "daily_report.py": ("P8",),
    "cpu_load.py": ("P8",),
    "transactions_by_hand.py": ("F2", "F3"),
    "visits_by_day.py": ("P2", "B1"),
    "waiting_consumer.py": ("T2",),
}

LEAVES = """
import os
import mine
import tidelog

os.environ["LEFT"] = "yes"
os.chdir("other")
tidelog.spark_session(settings={"spark.left": "yes"})
"""
FINDS = """
import os
import sys
from pathlib import Path
import tidelog

spark = tidelog.spark_session()
print(os.environ.get("LEFT"), "mine" in sys.modules, Path.cwd(), sys.argv[1:], spark.conf.get("spark.left", None))
spark.stop()
sys.exit(3)
"""


def words_of(example: str, folder: Path, *arguments: str) -> list[str]:
    path = str(EXAMPLES / example)
    pytest_alone = ["-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), path]
    return pytest_alone if example.startswith("test_") else [path, *arguments]


def param_of(example: str) -> Any:
    marks = [proves(*ROWS[example]), *([pytest.mark.full] if example in LONG else [])]
    marks += [pytest.mark.story] if example == STORY else [pytest.mark.slow] if example in SLOW else []
    return pytest.param(example, marks=marks, id=example)


@pytest.mark.parametrize("example", [param_of(name) for name in sorted(EXPECTED)])
def test_the_example_runs(example: str, host: Host, tmp_path: Path) -> None:
    words = words_of(example, tmp_path)
    done = host.run(words, tmp_path) if example in IN_TURNS else run([sys.executable, *words], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in EXPECTED[example]:
        assert line in done.stdout


@proves("T10")
@pytest.mark.external
@pytest.mark.story
def test_the_same_program_runs_on_apache_kafka(tmp_path: Path) -> None:
    try:
        kafka = ApacheKafka(tmp_path / "kafka").start()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        done = run([sys.executable, *words_of("any_broker.py", tmp_path, kafka.bootstrap)], tmp_path)
    finally:
        kafka.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == EXPECTED["any_broker.py"]


@proves("examples")
def test_no_example_is_left_out() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.full
@proves("examples")
def test_a_program_that_leaves_its_session_has_failed_and_the_next_one_finds_nothing_of_it(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "leaves.py").write_text(LEAVES)
    (tmp_path / "finds.py").write_text(FINDS)
    left = host.run([str(tmp_path / "leaves.py")], tmp_path)
    assert left.returncode == 1 and "has not stopped its Spark session" in left.stderr
    found = host.run([str(tmp_path / "finds.py"), "one"], tmp_path / "other")
    assert (found.returncode, found.stdout) == (3, f"None False {tmp_path / 'other'} ['one'] None\n"), found.stderr
