"""Where the outputs of an app go: topics made, views entered in the catalog, before the first query starts.

    view V          topic and sink V.v<n>, checkpoint <checkpoints>/<app>/V.v<n>; n is the live generation
    derived topic T topic T, sink <app>.T, checkpoint <checkpoints>/<app>/T; rebuilt, T.v<n> each (`placing_topics.py`)

Rules:
- A view that nobody has declared is begun; one that is there goes on if it is declared as it was built, or has grown by
  columns; anything else is refused and names `tidelog rebuild` (rule 26 of the contract). That new columns are all that
  has changed no fingerprint can tell: who runs the app says so (`grown`), and a query with state has no place for them.
- A view that is there stays in its stores where nobody names one: the default is a file in the folder of whoever starts
  the app, and from another folder readers would be led away from the one that is whole.
- A view belongs to one app, and so does a derived topic. The topic of a new generation is nobody else's: it is not
  there, or empty, and nothing that the app reads. A derived topic is not called as a view's generation is.
- A topic is made with as many partitions as its largest input has, unless it is declared; it keeps what it has.
- A topic that is only read is never made here: its name may be misspelt.
- One that is written and has less than its sink's last mark says was deleted, or lost records, and is not made again or
  gone on with: who reads it from its beginning would take what is left for all.
- An output that takes questions has two topics beside its own (`views/asking.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from tidelog.client.admin import topics
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control import catalog, marks
from tidelog.control.catalog import Catalog, Editor, Generation, View, find_derived
from tidelog.control.derived import FIRST, Derived, TopicGeneration
from tidelog.control.status import take_away
from tidelog.errors import BrokerError, TidelogError, UsageError, ViewChanged
from tidelog.pipelines.app import TOPIC, VIEW, Input, Output
from tidelog.pipelines.fingerprints import said_difference
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.progress import GROUP_PREFIX
from tidelog.schema.declaration import Declaration
from tidelog.views import lifecycle
from tidelog.views.asking import NAME_MAX, QUESTIONS, REPLIES, SETTINGS, Pipeline
from tidelog.views.stores.opening import checked, name_of, open_store

APPLIER = "applier"
INTERNAL = "__tidelog."
NEAR = 0.7  # how much alike, of 1
DEFAULT_STORE = "sqlite:///tidelog-views/{app}.db"
NOTHING_READ: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """Where one output goes."""

    node: Node
    app: str
    topic: str
    sink: str
    checkpoint: str
    declared: Declaration | None = None  # of a view
    generation: int = 1
    stores: tuple[str, ...] = ()
    answers: bool = True  # if it takes questions: not before it is live, for until then its state is not whole
    changed: str | None = None  # why it cannot be run: it, or what it reads, is not what was built (`changed_views.py`)
    reads: Mapping[str, int] = field(default_factory=dict)  # generations of derived topics that it was begun with

    @property
    def name(self) -> str:
        """What the query is called."""
        return self.sink

    @property
    def group(self) -> str:
        """What its offsets are reported as."""
        return GROUP_PREFIX + self.name

    @property
    def part(self) -> str:
        """What its status is told as."""
        return f"{self.app}.{self.node.name}"


def stores_of(graph: Graph, output: Output, default: str | None) -> tuple[str, ...]:
    return output.stores or (checked(default or DEFAULT_STORE.format(app=graph.app.name)),)


def stays_elsewhere(graph: Graph, target: Target, default: str | None) -> bool:
    """Whether a view is kept in other stores than this run would have given it."""
    return bool(target.stores) and target.stores != stores_of(graph, target.node.output, default)


def check_stores(graph: Graph, default: str | None) -> None:
    """That an applier started here could open them: what is not installed, or not in the environment, is told before
    the queries run.
    """
    for output in (node.output for node in graph.nodes if node.output.kind == VIEW):
        for url in stores_of(graph, output, default):
            try:
                open_store(url, output.name).close()
            except UsageError as error:
                raise UsageError(f"{output.place}: view {output.name!r}: {error}") from None


def view_target(graph: Graph, node: Node, view: View, generation: Generation, checkpoints: str) -> Target:
    checkpoint = f"{checkpoints}/{graph.app.name}/{generation.sink}"
    return Target(
        node,
        graph.app.name,
        generation.topic,
        generation.sink,
        checkpoint,
        generation.declared,
        generation.number,
        view.stores,
        reads=generation.reads,
    )


def first_of(graph: Graph, node: Node) -> TopicGeneration:
    """Of a derived topic that nobody has rebuilt: by its own name."""
    return TopicGeneration(FIRST, node.name, f"{graph.app.name}.{node.name}", live={})


def topic_target(graph: Graph, node: Node, checkpoints: str, written: TopicGeneration | None = None) -> Target:
    """Of a derived topic; its first generation, unless another one is given."""
    app, one = graph.app.name, written or first_of(graph, node)
    checkpoint = f"{checkpoints}/{app}/{one.sink.removeprefix(f'{app}.')}"
    return Target(node, app, one.topic, one.sink, checkpoint, generation=one.number, reads=one.reads)


# The catalog ----------------------------------------------------------------------------------------------------------


def place_view(
    cluster: Cluster,
    graph: Graph,
    node: Node,
    declared: Declaration,
    checkpoints: str,
    default_store: str | None,
    why_not_grown: str | None = None,
    *,
    stays: bool = False,
) -> Target:
    """The live generation of a view, begun where there is none. `why_not_grown`: why new columns are not taken;
    `stays`: the default store is for new views alone.
    """
    editor = Editor(cluster, node.name)
    before = editor.view()
    partitions, reads = partitions_of(cluster, graph, node), generations_read(catalog.read_catalog(cluster), node)
    after = view_now(graph, node, before, declared, partitions, default_store, stays=stays, reads=reads)
    after = _as_read(cluster, before, after, reads)
    _check_growth(node, before, after, why_not_grown)
    current = after.current
    assert current is not None
    if before is None or current.number not in {one.number for one in before.generations}:
        _check_not_read(graph, node, current)
        check_unused(cluster, current)
    else:
        _check_whole(cluster, node, current)
    ensure_topic(cluster, current.topic, current.partitions, settings_of_view(declared))
    _check_partitions(cluster, node, current)
    marks.ensure_topic(cluster, current.sink, horizon_ms=declared.horizon_ms)
    if after != before:
        editor.write(after)
        _forget_appliers(cluster, node.name, set(before.stores if before is not None else ()) - set(after.stores))
    return view_target(graph, node, after, current, checkpoints)


def _forget_appliers(cluster: Cluster, view: str, left: Iterable[str]) -> None:
    """Of stores that the view has left: nobody starts them again, and they would be gone in the status. Who applies to
    one nevertheless tells of it again.
    """
    with suppress(TidelogError):  # status is a note
        for url in left:
            take_away(cluster, APPLIER, f"{view}.{name_of(url)}")


def view_now(
    graph: Graph,
    node: Node,
    before: View | None,
    declared: Declaration,
    partitions: int,
    default_store: str | None,
    *,
    stays: bool = False,
    reads: Mapping[str, int] = NOTHING_READ,
) -> View:
    """The view's record as this run would have it. `reads`: generations of derived topics, where it is begun. Pure."""
    name, stores = graph.app.name, stores_of(graph, node.output, default_store)
    inputs = [topic_name(read) for read in node.reads]
    if before is None or not before.generations:
        fresh = lifecycle.new_view(node.name, app=name, inputs=inputs, stores=stores)
        given = 0 if before is None else before.newest
        first = replace(fresh, newest=given)
        return lifecycle.begin(first, declared, node.fingerprint, partitions, code=node.parts, reads=reads)
    if before.app != name:
        raise UsageError(f"{node.output.place}: view {node.name!r} belongs to app {before.app}; call it otherwise")
    current = before.current
    assert current is not None, "a view that has generations has a live one"
    what = "" if node.is_code_of(current) else said_difference(current.code, node.parts)
    same = replace(current, fingerprint=node.fingerprint) if node.is_code_of(current) else current
    try:
        after = lifecycle.go_on(lifecycle.with_current(before, same), declared, node.fingerprint, node.parts, what)
    except ViewChanged as error:
        raise ViewChanged(f"{node.output.place}: {error}") from None
    kept = before.stores if stays and not node.output.stores else ()
    return replace(after, inputs=tuple(inputs), stores=kept or stores)


def _as_read(cluster: Cluster, before: View | None, after: View, reads: Mapping[str, int]) -> View:
    """One that has read nothing yet begins with what is live now, whatever was when it was entered."""
    current = after.current
    assert current is not None
    if before is None or current.reads == reads or marks.read_mark(cluster, current.sink) is not None:
        return after
    return lifecycle.with_current(after, replace(current, reads=dict(reads)))


def _check_growth(node: Node, before: View | None, after: View, why_not: str | None) -> None:
    if why_not is None or before is None or before.current is None or after.current is None:
        return
    old = before.current.declared.columns
    new = [column.name for column in after.current.declared.columns[len(old) :]]
    if new and after.live == before.live:
        raise ViewChanged(
            f"{node.output.place}: view {node.name} has new columns ({', '.join(new)}), {why_not}; `tidelog rebuild"
            f" {node.name} --app FILE` builds a new one beside it"
        )


def _check_not_read(graph: Graph, node: Node, new: Generation) -> None:
    """`orders.v1` is a good name for anybody's topic, and view `orders` would write to what it reads."""
    for one in graph.app.inputs.values():
        if one.topic == new.topic:
            raise UsageError(
                f"{node.output.place}: view {node.name!r} would be written to topic {new.topic}, which {one.kind}"
                f" {one.name!r} reads ({one.place}); call the view otherwise"
            )


def check_unused(cluster: Cluster, new: Generation) -> None:
    """A topic that is there and empty is left of a run that was killed. One with records is somebody else's: rows of
    the view would stand between theirs, and go with the generation when that is forgotten.
    """
    if not is_there(cluster, new.topic):
        return
    ends = list_offsets(cluster, dict.fromkeys(cluster.partitions(new.topic), LATEST))
    if any(found.offset for found in ends.values()):
        raise UsageError(
            f"topic {new.topic}, where a new generation of the view would be written, is there and has records; give"
            " the view another name, or delete the topic if it is not needed"
        )


def _check_whole(cluster: Cluster, node: Node, built: Generation) -> None:
    if (lost := lost_of(cluster, built.topic, built.sink)) is not None:
        raise ViewChanged(
            f"{node.output.place}: view {node.name}: {lost}; `tidelog rebuild {node.name} --app FILE` builds a new one"
            " beside it"
        )


def check_built(cluster: Cluster, node: Node, built: Generation) -> None:
    """What is there of a generation, before it is gone on with. Nothing is made: a topic that has lost nothing is made
    when the view is placed.
    """
    _check_whole(cluster, node, built)
    if is_there(cluster, built.topic):
        _check_partitions(cluster, node, built)


def _check_partitions(cluster: Cluster, node: Node, built: Generation) -> None:
    """Keys would be in other partitions than before, and readers of one partition would miss what became of them."""
    found = len(cluster.partitions(built.topic))
    if found != built.partitions:
        raise ViewChanged(
            f"{node.output.place}: topic {built.topic} of view {node.name} has {found} partitions, and was built with"
            f" {built.partitions}; `tidelog rebuild {node.name} --app FILE` builds a new one beside it"
        )


def topic_name(read: Input | Output) -> str:
    """As the catalog has it: a view's own name, whichever generation is live."""
    return read.topic if isinstance(read, Input) else read.name


def place_questions(cluster: Cluster, graph: Graph, node: Node) -> None:
    pipeline = Pipeline(graph.app.name, node.name)
    if len(pipeline.questions) > NAME_MAX:
        raise UsageError(f"{node.output.place}: {pipeline.questions} is too long for a topic's name; call it otherwise")
    ensure_topic(cluster, pipeline.questions, 1, SETTINGS[QUESTIONS])
    ensure_topic(cluster, pipeline.replies, 1, SETTINGS[REPLIES])


# Topics ---------------------------------------------------------------------------------------------------------------


def settings_of_view(declared: Declaration) -> dict[str, str]:
    horizon = str(declared.horizon_ms)
    return {"cleanup.policy": "compact", "min.compaction.lag.ms": horizon, "delete.retention.ms": horizon}


def lost_of(cluster: Cluster, topic: str, sink: str) -> str | None:
    """What the sink's last mark says of its topic, and the topic does not have."""
    mark = marks.read_mark(cluster, sink)
    said = {} if mark is None else {at: end for at, end in mark.ends.items() if at.topic == topic and end}
    if not said:
        return None
    cluster.forget()  # it may be another topic of the same name
    there = set(cluster.partitions(topic)) if is_there(cluster, topic) else set()
    now = list_offsets(cluster, dict.fromkeys(said.keys() & there, LATEST))
    short = sorted(at for at, end in said.items() if at not in now or now[at].offset < end)
    if not short:
        return None
    at = short[0]
    ends = f"ends at {now[at].offset}" if at in now else "is not there"
    return f"{at} {ends}, and its last mark says {said[at]}: the topic was deleted, or has lost records"


def is_there(cluster: Cluster, topic: str) -> bool:
    known = cluster.ask_metadata([topic]).topics.get(topic)
    return known is not None and known.led


def ensure_topic(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    topics.ensure(cluster, name, partitions=partitions, configs=configs)


def partitions_of(cluster: Cluster, graph: Graph, node: Node) -> int:
    if node.output.partitions is not None:
        return node.output.partitions
    return max(_partitions(cluster, one) for one in node.reads)


def check_inputs(cluster: Cluster, graph: Graph, nodes: Iterable[Node]) -> None:
    """That the topics are there that are only read: it can be told before Spark starts. What the app itself writes is
    made as it is placed.
    """
    for node in nodes:
        for read in node.reads:
            if isinstance(read, Input) and read.topic not in graph.app.outputs:
                _partitions(cluster, read)


def _partitions(cluster: Cluster, read: Input | Output) -> int:
    if is_view(read):
        found = catalog.read_catalog(cluster).get((catalog.VIEW, topic_name(read)))
        return found.current.partitions if isinstance(found, View) and found.current else 1
    topic = read.topic if isinstance(read, Input) else live_topic(cluster, read)
    try:
        return len(cluster.partitions(topic))
    except BrokerError as error:
        if error.code not in UNKNOWN_TOPIC:
            raise
        near = near_name(topic, topics.names(cluster))
        meant = "" if near is None else f"did you mean {near!r}? Or "
        raise UsageError(
            f"{read.place}: {read.kind} {read.name!r} reads topic {topic!r}, which is not there; {meant}make it first:"
            f" `tidelog topics create {topic}`"
        ) from None


def near_name(name: str, known: Iterable[str]) -> str | None:
    """What was perhaps meant."""
    others = [one for one in known if not one.startswith("__")]
    return next(iter(get_close_matches(name, others, n=1, cutoff=NEAR)), None)


def live_topic(cluster: Cluster, output: Output) -> str:
    """Where the rows of an output are read from."""
    if output.kind != TOPIC:
        return topic_of_view(cluster, output.name)
    found = find_derived(catalog.read_catalog(cluster), output.name)
    return output.name if found is None else found.topic


def derived_read(known: Catalog, read: Input | Output) -> Derived | None:
    """The derived topic that this is: of this app by its name, of any app by the topic of a generation."""
    if isinstance(read, Output):
        return find_derived(known, read.name) if read.kind == TOPIC else None
    if is_view(read):
        return None
    every = (one for one in known.values() if isinstance(one, Derived))
    return next((one for one in every if read.topic in topics_of(one)), None)


def topics_of(entry: Derived) -> set[str]:
    """Of all its generations."""
    return {entry.topic, *(one.topic for one in entry.generations)}


def generations_read(known: Catalog, node: Node) -> dict[str, int]:
    """Which generation of each derived topic is live that it reads."""
    found = [derived_read(known, read) for read in node.reads]
    return {one.name: one.live for one in found if one is not None}


def topic_of_view(cluster: Cluster, name: str) -> str:
    current = catalog.find_view(cluster, name).current
    assert current is not None
    return current.topic


def is_view(read: Input | Output) -> bool:
    """Of this app, or of another."""
    return read.start_from is not None if isinstance(read, Input) else read.kind == VIEW
