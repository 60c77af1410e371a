"""Who may read a view decides the broker, by the rules for its topics; the gateway only asks, as the request's user."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from gateway.serving import Client, served
from gateway.views.shop import Follower, Shop, shop, wait_for
from proving import proves
from tidelog.client.admin import access, topics
from tidelog.client.admin.access import OPERATIONS, PERMISSIONS, PREFIXED, RESOURCES, Acl, AclFilter
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.client.security import SASL_PLAINTEXT, Security
from tidelog.control import catalog
from tidelog.control.catalog import CATALOG, View
from tidelog.errors import BrokerError, UsageError
from tidelog.gateway.gateway import Gateway
from tidelog.gateway.routes import ROUTES
from tidelog.views import lifecycle
from tidelog.views.feeds import Cursor, from_text, to_text
from tidelog.wire.error_code import ErrorCode
from views.writing import REVENUE

SECRET = "the same for all of them"
LOGIN = Security(SASL_PLAINTEXT, user="-", password="-")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PATHS = ("/views", "/views/revenue", "/views/revenue?key=tea", "/views/revenue/changes", "/parts", "/parts/query/x")


def basic(user: str, secret: str = SECRET) -> str:
    return "Basic " + b64encode(f"{user}:{secret}".encode()).decode()


class Guarded:
    def __init__(self, client: Client, sold: Shop, bootstrap: str) -> None:
        self.client = client
        self.sold = sold
        self.bootstrap = bootstrap

    def allow(self, user: str, operation: str, topic: str) -> None:
        rule = Acl(
            RESOURCES["topic"], PREFIXED, topic, f"User:{user}", "*", OPERATIONS[operation], PERMISSIONS["allow"]
        )
        access.create_acls(self.sold.cluster, [rule])

    def status(self, user: str, path: str) -> int:
        if path.endswith("changes"):
            with Follower(self.client, "revenue", auth=basic(user)) as follower:
                return follower.status
        return self.client("GET", path, Authorization=basic(user)).status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    with tidelog.Broker(folder / "data") as offline, Cluster(offline.bootstrap) as cluster:
        for user in ("admin", "alice", "bob", "carol", "dora", "emma", "fred"):
            access.set_password(cluster, user, SECRET, ("SCRAM-SHA-256",))
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "connection.failed.authentication.delay.ms": 1,
    }
    with tidelog.Broker(folder / "data", listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings) as broker:
        admin = Security(SASL_PLAINTEXT, user="admin", password=SECRET)
        with (
            shop(broker.bootstrap, folder, "revenue", security=admin) as sold,
            served(ROUTES, broker.bootstrap, LOGIN, stores=(f"sqlite:///{folder}/",)) as client,
        ):
            sold.applied(sold.batch({"tea": 1}))
            yield Guarded(client, sold, broker.bootstrap)


@proves("http", "hostile")
def test_who_is_nobody_gets_nothing(guarded: Guarded) -> None:
    for path in PATHS:
        assert guarded.client("GET", path).status == 401
        assert guarded.client("GET", path, Authorization=basic("alice", "guessed")).status == 401
        assert guarded.status("bob", path) == 403, path


@proves("http", "D7")
def test_each_right_opens_what_it_is_for_and_no_more(guarded: Guarded) -> None:
    def opened() -> list[str]:
        return [path for path in PATHS[:4] if guarded.status("alice", path) == 200]

    assert opened() == []
    guarded.allow("alice", "read", "__tidelog.views")
    wait_for(lambda: opened() == ["/views"])
    guarded.allow("alice", "describe", "revenue.v")
    assert opened() == ["/views"], "to know that a topic is there is not to read it"
    guarded.allow("alice", "read", "revenue.v")
    wait_for(lambda: opened() == list(PATHS[:3]))
    guarded.allow("alice", "read", "__tidelog.marks.revenue.v")
    wait_for(lambda: opened() == list(PATHS[:4]))
    assert guarded.status("alice", "/parts") == 403
    guarded.allow("alice", "read", "__tidelog.status")
    wait_for(lambda: guarded.status("alice", "/parts") == 200)


@proves("http", "hostile")
def test_nobody_follows_by_another_users_reader_and_who_may_no_more_is_cut_off(guarded: Guarded) -> None:
    for topic in ("__tidelog.views", "revenue.v", "__tidelog.marks.revenue.v"):
        guarded.allow("carol", "read", topic)
    wait_for(lambda: guarded.status("carol", "/views/revenue/changes") == 200)
    with Follower(guarded.client, "revenue", auth=basic("carol")) as follower:
        guarded.sold.batch({"tea": 2})
        assert follower.next().data["row"]["revenue"] == 2
        assert guarded.status("bob", "/views/revenue/changes") == 403
        access.delete_acls(guarded.sold.cluster, AclFilter(name="revenue.v", principal="User:carol"))
        wait_for(lambda: guarded.status("carol", "/views/revenue") == 403)
        guarded.sold.batch({"tea": 3})
        with pytest.raises(EOFError):
            follower.take(2)
    assert guarded.status("carol", "/views/revenue/changes") == 403


@proves("http", "hostile")
def test_who_writes_a_topic_of_his_own_into_the_catalog_gets_no_rows_of_anothers_store(guarded: Guarded) -> None:
    sold = guarded.sold
    for operation, topic in (("read", "__tidelog.views"), ("write", "__tidelog.views"), ("read", "fred-")):
        guarded.allow("fred", operation, topic)
    topics.create(sold.cluster, "fred-x", partitions=1)
    wait_for(lambda: guarded.status("fred", "/views") == 200)
    assert guarded.status("fred", "/views/revenue") == 403

    def write(view: View, user: str) -> None:
        who = Security(SASL_PLAINTEXT, user=user, password=SECRET)
        with Cluster(guarded.bootstrap, security=who) as cluster, Producer(cluster) as producer:
            key, value = catalog.encode(view)
            producer.send(CATALOG.topic, value, key=key, partition=CATALOG.partition)

    write(lifecycle.of_topic("revenue", "fred-x", REVENUE, 1, [sold.url]), "fred")
    try:
        for path in ("", "?key=tea", "?key=nothing", "?where=nothing+=+1", "?after=fred-x:0:0&timeout=0"):
            assert guarded.status("fred", f"/views/revenue{path}") == 403, path
        with Producer(sold.cluster) as producer:
            producer.send("fred-x", None, key=b"{}", partition=0, timestamp=1)
        old = to_text(Cursor("revenue", 1, (0,)))
        got = guarded.client("GET", f"/views/revenue/changes?cursor={old}", Authorization=basic("fred"))
        assert (got.status, from_text(got.headers["tidelog-cursor"], "revenue").offsets) == (410, (1,))
    finally:
        write(sold.view, "admin")


@proves("http", "hostile")
@pytest.mark.parametrize(
    "stores", [(), ("sqlite:////elsewhere/",), ("sqlite:////",), ("sqlite:///",)], ids=["none", "others", "root", "any"]
)
def test_where_users_log_in_only_stores_that_were_named_are_opened(guarded: Guarded, stores: tuple[str, ...]) -> None:
    with served(ROUTES, guarded.bootstrap, LOGIN, stores=stores) as client:
        answer = client("GET", "/views/revenue", Authorization=basic("admin"))
        assert answer.status == (200 if stores in (("sqlite:////",), ("sqlite:///",)) else 403)
        if answer.status == 403:
            assert "tidelog.http.stores" in answer.message


@proves("http", "hostile")
def test_a_name_is_whole_and_a_way_up_leads_nowhere() -> None:
    gateway = Gateway("127.0.0.1:1", ROUTES, LOGIN, stores=("sqlite:////var/views", "postgresql://db.example/"))
    assert gateway.may_open("sqlite:////var/views/shop.db")
    assert gateway.may_open("postgresql://db.example/shop") and gateway.may_open(
        "postgresql://db.example/a?schema=report"
    )
    for url in (
        "sqlite:////var/views-of-others/shop.db",
        "sqlite:////var/views/../../etc/passwd",
        "sqlite:////var/views/%2e%2E/secret.db",
        "postgresql://db.example.evil.example/shop",
        "postgresql://db.example@evil.example/shop",
        "postgresql://db.example/shop?HOST=evil.example",
        "postgresql://db.example/shop?%68ost=evil.example",
        "postgresql://db.example/shop?schema=a&Port=6543",
        "redis://db.example/",
    ):
        assert not gateway.may_open(url), url
    named = "redis://:${PASSWORD}@db.example/"
    gateway = Gateway("127.0.0.1:1", ROUTES, LOGIN, stores=("parquet:////var/views", named))
    assert gateway.may_open(f"{named}0") and gateway.may_open("parquet:////var/views/shop")
    assert not gateway.may_open("parquet:////var/views/${PASSWORD}"), "who sees the path sees it"
    assert not gateway.may_open(f"{named}0?prefix=${{OTHER}}")
    assert Gateway("127.0.0.1:1", ROUTES).may_open("sqlite:///anything.db")
    assert not Gateway("127.0.0.1:1", ROUTES, LOGIN).may_open("sqlite:///anything.db")


@proves("http", "hostile")
def test_where_nobody_logs_in_no_record_chooses_what_is_sent_and_where_either() -> None:
    gateway = Gateway("127.0.0.1:1", ROUTES)
    assert gateway.may_open("redis://127.0.0.1:6379/0?prefix=shop") and gateway.may_open("parquet:////var/views")
    for url in (
        "postgresql://evil:${AWS_SECRET_ACCESS_KEY}@127.0.0.1:5432/x",
        "postgresql://evil.example/x",
        "redis://evil.example/0",
        "sqlite:////srv/${AWS_SECRET_ACCESS_KEY}.db",
        "http://evil.example/",
    ):
        assert not gateway.may_open(url), url
    named = "postgresql://shop:${PGPASS}@db.example/shop"
    gateway = Gateway("127.0.0.1:1", ROUTES, stores=(named,))
    assert gateway.may_open(named) and gateway.may_open(f"{named}?schema=views")
    for name in ("dbname", "user", "options", "hostaddr", "service", "sslkey"):
        assert not gateway.may_open(f"{named}?{name}=x"), name
    assert not gateway.may_open("sqlite:///anything.db"), "who names stores means these"


@proves("sql", "hostile")
def test_sql_reads_a_views_store_for_whom_may_read_its_topic_alone(guarded: Guarded) -> None:
    dora = Security(SASL_PLAINTEXT, user="dora", password=SECRET)

    def rows() -> list[tuple[object, ...]] | None:
        try:
            return tidelog.sql(
                "select product from views.revenue", bootstrap=guarded.bootstrap, security=dora
            ).fetchall()
        except BrokerError as error:
            assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return None

    guarded.allow("dora", "read", "__tidelog.views")
    guarded.allow("dora", "describe", "revenue.v")
    assert rows() is None, "to know that a topic is there is not to read it"
    guarded.allow("dora", "read", "revenue.v")
    wait_for(lambda: rows() == [("tea",)])


@proves("sql", "hostile")
def test_a_topic_that_a_user_may_not_see_makes_no_name_ambiguous_and_is_told_to_nobody(guarded: Guarded) -> None:
    emma = Security(SASL_PLAINTEXT, user="emma", password=SECRET)

    def asked(name: str) -> str:
        try:
            question = tidelog.sql(f"select product from {name}", bootstrap=guarded.bootstrap, security=emma)
            return str(question.fetchall())
        except (BrokerError, UsageError) as error:
            return str(error).replace(name.removeprefix("topics."), "NAME")

    guarded.allow("emma", "read", "__tidelog.views")
    guarded.allow("emma", "read", "revenue.v")
    wait_for(lambda: asked("revenue") == "[('tea',)]")
    for name in ("revenue", "secrets"):
        topics.create(guarded.sold.cluster, name, partitions=1)
    assert asked("revenue") == "[('tea',)]", "the same as before there was such a topic"
    assert asked("secrets") == asked("nothing_"), "whether it exists is not to be known"
    assert asked("topics.secrets") == asked("topics.nothing_")
    guarded.allow("emma", "describe", "revenue")
    wait_for(lambda: 'could be topics."NAME" or views."NAME"; write which' in asked("revenue"))
    topics.delete(guarded.sold.cluster, "revenue")
