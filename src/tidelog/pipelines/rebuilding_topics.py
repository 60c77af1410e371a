"""`tidelog rebuild TOPIC`: a derived topic from the start of its inputs, aside, then the switch to the new name.

    begin      the catalog says that T.vN is being built; topics are there
    building   as a view is (`building_aside.py`), until nobody writes the old one and the new one has read no less
    switch     one record: T.vN is the topic. Or, in place, T is, and what is aside is put into it (`in_place.py`)
    done       whoever runs the app goes on with the new generation and its checkpoint (`handover.py`)

Rules: docs/decisions/derived_topics_have_generations.md. A number whose topic is somebody else's is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control import derived, marks
from tidelog.control.catalog import Catalog, Editor, find_derived, read_catalog, topics_editor
from tidelog.control.derived import DIFFERENCE, ROWS, Derived, TopicGeneration
from tidelog.control.marks import Ends
from tidelog.errors import UsageError
from tidelog.pipelines import generations, in_place
from tidelog.pipelines.building_aside import Begun, BuildingAside, clear_up, is_kept
from tidelog.pipelines.collisions import check_settled
from tidelog.pipelines.generations import Way
from tidelog.pipelines.going_on import state_of
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.placing import (
    ensure_topic,
    is_there,
    partitions_of,
    place_questions,
    topic_name,
    topic_target,
    topics_of,
)
from tidelog.pipelines.placing_topics import How, code_now, configs_of
from tidelog.pipelines.view_readers import check_readers, of_others
from tidelog.pipelines.view_topic import check_result, is_keyed
from tidelog.schema.declaration import FEED_HORIZON_MS


@dataclass(frozen=True, slots=True)
class BegunTopic(Begun):
    entry: Derived

    @property
    def is_switched(self) -> bool:
        """Whether a rebuild in place was interrupted after its switch: what is left is to end it."""
        return self.entry.live == self.target.generation


# Beginning ------------------------------------------------------------------------------------------------------------


def way_of(entry: Derived, node: Node, put: str, *, again: bool, kept: bool) -> Way:
    """`put`: how it is put in place, if it is. `kept`: as views have it (`generations.py`). Pure."""
    building = entry.building
    if building is None:
        return Way.BEGIN
    if again:
        return Way.ANEW
    if not node.is_code_of(building):
        raise UsageError(
            f"generation {building.number} of topic {entry.name} is being built by other code; wait for it, or give it"
            " up and begin with this one: --again"
        )
    if building.in_place != put:
        how = "in place" if building.in_place else "beside the old one"
        raise UsageError(
            f"generation {building.number} of topic {entry.name} is being built {how}; go on in that way, or give it up"
            " and start over: --again"
        )
    return Way.CONTINUE if kept else Way.ANEW


def begun(entry: Derived, way: Way, made: TopicGeneration, is_taken: Callable[[str], bool]) -> Derived:
    """The record with a generation to build, which is the last one."""
    if way is Way.CONTINUE:
        return entry
    if way is Way.ANEW:
        assert entry.building is not None
        entry = derived.forget(entry, entry.building.number)
    after = derived.begin(entry, made)
    while is_taken(after.generations[-1].topic):
        after = derived.begin(replace(entry, newest=after.newest), made)
    return after


def put_of(entry: Derived, *, keyed: bool, is_in_place: bool) -> str:
    """How it is put in place; empty where it is not."""
    if not is_in_place:
        return ""
    if entry.current.fingerprint and entry.current.keyed != keyed:
        now, was = (
            ("replace each other by key", "did not") if keyed else ("stand for themselves", "replaced each other")
        )
        raise UsageError(
            f"rows of topic {entry.name} {now}, and {was} before: one topic cannot have both; rebuild it without"
            " --in-place"
        )
    return DIFFERENCE if keyed else ROWS


class RebuildTopic(BuildingAside):
    """Of a derived topic."""

    def begin(self, *, again: bool = False, with_readers: bool = False, is_in_place: bool = False) -> BegunTopic:
        node, graph = self.node, self._reader.graph
        frame = self._reader.result(node)
        check_result(node.output, frame)
        check_settled(node.output, frame)
        self._check_folder()
        if node.asked:
            place_questions(self._cluster, graph, node)
        how = How(is_keyed(node.output, frame), state_of(frame, node.fingerprint))
        begun = self._begin(how, again=again, with_readers=with_readers, is_in_place=is_in_place)
        if not begun.is_switched:
            clear_up(self._cluster, begun.target.part)
        self._say(begun.way.value, topic=node.name, generation=begun.target.generation, into=begun.target.topic)
        return begun

    def _begin(self, how: How, *, again: bool, with_readers: bool, is_in_place: bool) -> BegunTopic:
        cluster, graph, node, settings = self._cluster, self._reader.graph, self.node, self._settings
        interrupted = _own(topics_editor(cluster, graph.app.name), graph, node)
        if interrupted.current.aside and (found := self._ended(interrupted, is_in_place=is_in_place)) is not None:
            return found
        known, editor = read_catalog(cluster), topics_editor(cluster, graph.app.name)
        before = _own(editor, graph, node)
        current = before.current
        put = put_of(before, keyed=how.keyed, is_in_place=is_in_place)
        if put != DIFFERENCE:
            outputs = [one.name for one in graph.nodes]
            check_readers(known, before, app=graph.app.name, outputs=outputs, rebuilt=with_readers)
        made = replace(code_now(graph, node, known, how), in_place=put)
        building = None if before.building is None else topic_target(graph, node, settings.checkpoints, before.building)
        way = way_of(before, node, put, again=again, kept=building is None or is_kept(cluster, known, building))
        after = begun(before, way, made, is_taken=_taken(cluster, graph, known, node))
        if put and not is_there(cluster, current.topic):
            raise UsageError(f"topic {current.topic} is not there: nothing to put in place of; leave out --in-place")
        partitions = len(cluster.partitions(current.topic)) if put else partitions_of(cluster, graph, node)
        built = _write_begun(cluster, editor, node, before, after, partitions)
        return BegunTopic(topic_target(graph, node, settings.checkpoints, built), way, current.sink, after)

    def _ended(self, entry: Derived, *, is_in_place: bool) -> BegunTopic | None:
        """One that was interrupted after its switch, to be put in place now. What other code has built is, at once, and
        then this code begins anew: None.
        """
        if not is_in_place:
            raise UsageError(
                f"generation {entry.live} of topic {entry.name} is being put in place, and is not whole; end that"
                " first: the same command with --in-place"
            )
        if not self.node.is_code_of(entry.current):
            self.place(entry)
            return None
        target = topic_target(self._reader.graph, self.node, self._settings.checkpoints, entry.current)
        return BegunTopic(target, Way.CONTINUE, "", entry)

    # The switch

    def switch(self, begun: BegunTopic, ends: Ends) -> Derived:
        """To the new name; or, in place, to what will be put in, which is done then."""
        editor = topics_editor(self._cluster, begun.entry.app)
        entry = _own(editor, self._reader.graph, self.node)
        number = begun.target.generation
        if entry.live != number:
            live = self._ends_of(entry.topic) if begun.entry.generations[-1].in_place else ends
            inputs = tuple(topic_name(one) for one in self.node.reads)
            entry = replace(derived.switch(entry, number, live, int(time.time() * 1000)), inputs=inputs)
            self._check_fenced(begun)
            editor.write(entry)
        self._switched = True
        self._say("switched", topic=entry.name, generation=number, into=entry.topic)
        return entry

    def place(self, entry: Derived) -> Derived:
        """In place: what is aside is put into the topic. What was done before it was interrupted is not done again."""
        if not entry.current.aside:
            return entry
        self._say("put in place", topic=entry.name, generation=entry.live)
        begins = in_place.put(self._cluster, entry.current)
        in_place.delete_before(self._cluster, entry.current, begins)
        editor = topics_editor(self._cluster, entry.app)
        placed = derived.placed(_own(editor, self._reader.graph, self.node))
        editor.write(placed)
        in_place.delete_aside(self._cluster, entry.current)
        if not self._paused:  # by this process: a run that was, by one that was interrupted
            clear_up(self._cluster, f"{entry.app}.{entry.name}")
        return placed

    def _ends_of(self, topic: str) -> Ends:
        found = list_offsets(self._cluster, dict.fromkeys(self._cluster.partitions(topic), LATEST))
        return {at: one.offset for at, one in found.items()}

    def drop_old(self, *, at_once: bool) -> list[int]:
        """Generations that are old for longer than seven days; all that are old, where that was asked for."""
        editor = topics_editor(self._cluster, self._reader.graph.app.name)
        entry = _own(editor, self._reader.graph, self.node)
        now_ms = int(time.time() * 1000)
        gone = derived.old_ones(entry) if at_once else derived.outlived(entry, FEED_HORIZON_MS, now_ms)
        if not gone:
            return []
        after = entry
        for one in gone:
            after = derived.forget(after, one.number)
        editor.write(after)
        for one in gone:
            generations.delete_topics(self._cluster, one, but=topics_of(after))
        return [one.number for one in gone]

    def left(self) -> list[str]:
        """Who reads it in another app: they are stopped there, until that rebuilds them."""
        known = read_catalog(self._cluster)
        entry = known.get(("topic", self.node.name))
        if not isinstance(entry, Derived) or entry.current.in_place == DIFFERENCE:
            return []
        return of_others(known, entry, self._reader.graph.app.name)


def _own(editor: Editor, graph: Graph, node: Node) -> Derived:
    return _checked(editor.derived(node.name), graph, node)


def check_begin_topic(known: Catalog, graph: Graph, node: Node, *, with_readers: bool) -> None:
    """What the catalog tells of a rebuild before Spark has planned it."""
    entry = _checked(find_derived(known, node.name), graph, node)
    outputs = [one.name for one in graph.nodes]
    check_readers(known, entry, app=graph.app.name, outputs=outputs, rebuilt=with_readers)


def _checked(found: Derived | None, graph: Graph, node: Node) -> Derived:
    if found is None:
        raise UsageError(f"topic {node.name} is not in the catalog; `tidelog run` declares it, and writes it first")
    if found.app != graph.app.name:
        raise UsageError(f"{node.output.place}: topic {node.name!r} belongs to app {found.app}; call it otherwise")
    return found


def _taken(cluster: Cluster, graph: Graph, known: Catalog, node: Node) -> Callable[[str], bool]:
    """Whether a topic is somebody's: of the app, of the catalog, or one with records."""
    names: set[str] = {one.topic for one in graph.app.inputs.values()} | {
        one.name for one in graph.app.outputs.values()
    }
    for entry in known.values():
        if entry.name != node.name:
            names |= {one.topic for one in entry.generations}

    def is_taken(topic: str) -> bool:
        return topic in names or (is_there(cluster, topic) and _has_records(cluster, topic))

    return is_taken


def _has_records(cluster: Cluster, topic: str) -> bool:
    found = list_offsets(cluster, dict.fromkeys(cluster.partitions(topic), LATEST))
    return any(one.offset for one in found.values())


def _write_begun(
    cluster: Cluster, editor: Editor, node: Node, before: Derived, after: Derived, partitions: int
) -> TopicGeneration:
    """Makes the topics of the generation that is to be built, and writes the record."""
    built = after.generations[-1]
    ensure_topic(cluster, built.topic, partitions, configs_of(node, keyed=built.keyed))
    marks.ensure_topic(cluster, built.sink)
    if after != before:
        editor.write(after)
        for gone in _gone(before, after):
            generations.delete_topics(cluster, gone, but=topics_of(after))
    return built


def _gone(before: Derived, after: Derived) -> Collection[TopicGeneration]:
    there = {one.number for one in after.generations}
    return [one for one in before.generations if one.number not in there]
