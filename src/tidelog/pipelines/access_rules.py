"""Who must be allowed what of an app, where people log in: as rules of Kafka's. Pure.

    owners     run, rebuild and apply it: read its inputs; have the topics of its outputs with their generations and
               letters, their marks, transactional ids and groups; the catalog of views; status and commands
    readers    read its views and derived topics, wait for them, and see how its parts are: they write nothing

Rules:
- Names are those of today's file. What it reads of other apps is read, and not written.
- Beginnings of names stand for numbers: `revenue.v` for all generations of `revenue`.
- Rules only count where the broker has an authorizer. Whoever may do everything may do this as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.client.admin.access import CLUSTER_NAME, LITERAL, PREFIXED, Acl, allowing
from tidelog.control import marks
from tidelog.control.catalog import CATALOG, of_topics
from tidelog.control.catalog import OWNER_PREFIX as CATALOG_OWNER
from tidelog.control.dead_letters import topic_of_letters
from tidelog.control.status import COMMANDS, STATUS
from tidelog.pipelines.app import VIEW, Input, Output
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.progress import GROUP_PREFIX
from tidelog.pipelines.seeding import OWNER_PREFIX as SEED_SINK
from tidelog.pipelines.seeding import PREFIX as SEED_TOPIC
from tidelog.pipelines.seeding import parse_start
from tidelog.views.asking import Pipeline

GENERATIONS = ".v"  # what stands between a name and its number
ALL = ("all",)
OF_SINKS = (marks.TOPIC_PREFIX, marks.STAGING_PREFIX)
OF_SEEDS = (SEED_TOPIC, marks.TOPIC_PREFIX + SEED_SINK)


def rules(graph: Graph, *, owners: Sequence[str] = (), readers: Sequence[str] = ()) -> list[Acl]:
    found = [rule for user in owners for rule in _of_owner(graph, user)]
    return found + [rule for user in readers for rule in _of_reader(graph, user)]


def _of_owner(graph: Graph, user: str) -> Iterator[Acl]:
    for pattern, topic in _inputs(graph):
        yield from _topic(pattern, topic, user, ("read", "describe-configs"))
    for node in graph.nodes:
        yield from _of_written(graph.app.name, node, user)
    yield allowing("transactional-id", LITERAL, CATALOG_OWNER + of_topics(graph.app.name), user, "all")
    for topic in (CATALOG.topic, STATUS.topic, COMMANDS.topic):
        yield from _topic(LITERAL, topic, user, ("read", "write", "create", "describe-configs"))
    yield allowing("cluster", LITERAL, CLUSTER_NAME, user, "describe-configs")  # where HTTP is, to say it in the log


def _of_written(app: str, node: Node, user: str) -> Iterator[Acl]:
    """Of one output: all that its query, its rebuilds and its appliers write."""
    output, sink = node.output, _sinks(app, node.output)
    is_seeded = any(isinstance(one, Input) and one.start_from is not None for one in node.reads)
    prefixes = [prefix + sink for prefix in (*OF_SINKS, *(OF_SEEDS if is_seeded else ()))]
    topics = [*_outputs(output), *((PREFIXED, prefix) for prefix in prefixes)]
    if output.kind != VIEW:
        topics.append((LITERAL, topic_of_letters(node.name)))
        topics.append((PREFIXED, f"{marks.STAGING_PREFIX}{node.name}."))  # of what is written by `run --batch`
    if node.asked:
        topics += [(LITERAL, topic) for topic in (Pipeline(app, node.name).questions, Pipeline(app, node.name).replies)]
    for pattern, topic in topics:
        yield from _topic(pattern, topic, user, ALL)
    for prefix in (marks.OWNER_PREFIX, *((marks.OWNER_PREFIX + SEED_SINK,) if is_seeded else ())):
        yield allowing("transactional-id", PREFIXED, prefix + sink, user, "all")
    yield allowing("transactional-id", LITERAL, CATALOG_OWNER + node.name, user, "all")
    group = f"{node.name}." if output.kind == VIEW else sink  # a view has appliers, too
    yield allowing("group", PREFIXED, GROUP_PREFIX + group, user, "all")


def _of_reader(graph: Graph, user: str) -> Iterator[Acl]:
    for pattern, topic in _inputs(graph):
        yield from _topic(pattern, topic, user, ("describe",))  # a wait without a place is for where they end now
    for node in graph.nodes:
        for pattern, topic in _outputs(node.output):
            yield from _topic(pattern, topic, user, ("read",))
        yield from _topic(PREFIXED, marks.TOPIC_PREFIX + _sinks(graph.app.name, node.output), user, ("read",))
    for topic in (CATALOG.topic, STATUS.topic):
        yield from _topic(LITERAL, topic, user, ("read",))


# Names ----------------------------------------------------------------------------------------------------------------


def _inputs(graph: Graph) -> list[tuple[int, str]]:
    """What others write, each once."""
    own = {node.name for node in graph.nodes}
    found: dict[tuple[int, str], None] = {}
    for one in (one for node in graph.nodes for one in node.reads if one.name not in own):
        found |= dict.fromkeys(_read(one))
    return list(found)


def _read(one: Input | Output) -> list[tuple[int, str]]:
    if isinstance(one, Output):  # of this app, and run elsewhere (--only)
        return _outputs(one)
    if one.start_from is not None:
        return [(PREFIXED, parse_start(one.start_from, one.name)[1] + GENERATIONS)]
    return [(LITERAL, one.topic)]


def _outputs(one: Output) -> list[tuple[int, str]]:
    later = [(PREFIXED, one.name + GENERATIONS)]
    return later if one.kind == VIEW else [(LITERAL, one.name), *later]


def _sinks(app: str, one: Output) -> str:
    """What the names of its sinks begin with."""
    return one.name + GENERATIONS if one.kind == VIEW else f"{app}.{one.name}"


def _topic(pattern: int, name: str, user: str, operations: Sequence[str]) -> Iterator[Acl]:
    for operation in operations:
        yield allowing("topic", pattern, name, user, operation)
