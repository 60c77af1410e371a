"""A view's generations as a rebuild moves them: begun or gone on with, switched to, dropped. Decisions are pure.

    begin      a generation beside the live one; topics are made first, then the catalog says so
    continue   the one that a rebuild left, by the same code and with its checkpoint: it goes on where it was
    anew       the one that a rebuild left is given up, and the next number begun, in one record
    switch     "live" is where the new topic ended when its query had been stopped: nobody writes it at that moment
    drop       an old generation leaves the catalog, then its topics go; stores forget it by themselves

Rules:
- Each step takes the view's editor for itself and reads the record after that. So what a run writes meanwhile (columns
  that were added, stores) is kept, and of two rebuilds one finds that the other was there.
- An old generation goes when the next one has been live for the feed horizon: until then cursors of it are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum

from tidelog.client.admin import topics
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.control import marks
from tidelog.control.catalog import Editor, Generation, View
from tidelog.control.dead_letters import topic_of_letters
from tidelog.control.derived import TopicGeneration
from tidelog.control.marks import Ends
from tidelog.errors import BrokerError, UsageError
from tidelog.pipelines.placing import check_unused, ensure_topic, settings_of_view
from tidelog.pipelines.seeding import OWNER_PREFIX as SEED_SINK
from tidelog.pipelines.seeding import PREFIX as SEED_PREFIX
from tidelog.schema.declaration import Declaration
from tidelog.views import lifecycle
from tidelog.views.as_of import live_since
from tidelog.views.lifecycle import NOTHING


class Way(Enum):
    BEGIN = "begun"
    CONTINUE = "gone on with"
    ANEW = "begun again"


# Decisions ------------------------------------------------------------------------------------------------------------


def way_of(view: View, declared: Declaration, fingerprint: str, *, again: bool, kept: bool) -> Way:
    """`kept`: whether the checkpoint of what is being built is that of its last mark, or nothing is marked yet."""
    building = view.building
    if building is None:
        return Way.BEGIN
    if again:
        return Way.ANEW
    if (building.fingerprint, building.declared) != (fingerprint, declared):
        raise UsageError(
            f"generation {building.number} of view {view.name} is being built by other code; wait for it, or give it up"
            " and begin with this one: --again"
        )
    return Way.CONTINUE if kept else Way.ANEW


def begun(
    view: View,
    way: Way,
    declared: Declaration,
    fingerprint: str,
    partitions: int,
    *,
    code: Mapping[str, str] = NOTHING,
    reads: Mapping[str, int] = NOTHING,
) -> View:
    """The record with a generation to build, which is the last one."""
    building = view.building
    if way is Way.CONTINUE:
        return view
    if way is Way.ANEW:
        assert building is not None
        view = lifecycle.forget(view, building.number)
    return lifecycle.begin(view, declared, fingerprint, partitions, code=code, reads=reads)


def switched(view: View, number: int, ends: Ends) -> View:
    """The record after the switch; the same where it is done. Refused where the generation was given up meanwhile."""
    return view if view.live == number else lifecycle.switch(view, number, ends)


def old_ones(view: View) -> list[Generation]:
    """That were live and are no more."""
    return [one for one in view.generations if one.live is not None and one.number != view.live]


def outlived(view: View, since_ms: Mapping[int, int | None], now_ms: int) -> list[Generation]:
    """Old generations whose successor has been live for the horizon. `since_ms`: live since when, by number."""
    found = []
    for old in old_ones(view):
        later = [since_ms.get(one.number) for one in view.generations if one.number > old.number]
        first = next((since for since in later if since is not None), None)
        if first is not None and first < now_ms - old.declared.horizon_ms:
            found.append(old)
    return found


# The catalog ----------------------------------------------------------------------------------------------------------


def write_begun(cluster: Cluster, editor: Editor, before: View, after: View) -> Generation:
    """Makes the topics of the generation that is to be built, and writes the record."""
    built = after.generations[-1]
    if built.number not in {one.number for one in before.generations}:
        check_unused(cluster, built)
    ensure_topic(cluster, built.topic, built.partitions, settings_of_view(built.declared))
    marks.ensure_topic(cluster, built.sink, horizon_ms=built.declared.horizon_ms)
    if after != before:
        editor.write(after)
        for gone in before.generations:
            if gone.number not in {one.number for one in after.generations}:
                delete_topics(cluster, gone)
    return built


def switch(
    cluster: Cluster,
    name: str,
    number: int,
    ends: Ends,
    *,
    inputs: Collection[str] | None = None,
    stores: Collection[str] | None = None,
    check: Callable[[], None] | None = None,
) -> View:
    """With the inputs and the stores that the new code has. `check` has the last word before the record is written."""
    editor = Editor(cluster, name)
    view = editor.view()
    if view is None or not view.generations:
        raise UsageError(f"view {name} was taken out of the catalog; nothing to switch")
    after = switched(view, number, ends)
    after = replace(
        after,
        inputs=after.inputs if inputs is None else tuple(inputs),
        stores=after.stores if stores is None else tuple(stores),
    )
    if after != view:
        if check is not None:
            check()
        editor.write(after)
    return after


def drop(cluster: Cluster, name: str, numbers: Collection[int]) -> list[Generation]:
    """Generations that are not live. Returns those that were there."""
    editor = Editor(cluster, name)
    view = editor.view()
    gone = [] if view is None else [one for one in view.generations if one.number in numbers]
    if view is None or not gone:
        return []
    after = view
    for one in gone:
        after = lifecycle.forget(after, one.number)
    editor.write(after)
    for one in gone:
        delete_topics(cluster, one)
    return gone


def drop_outlived(cluster: Cluster, view: View, now_ms: int) -> list[Generation]:
    if not old_ones(view):
        return []
    since = {one.number: live_since(one, _marks(cluster, one)) for one in view.generations}
    return drop(cluster, view.name, {one.number for one in outlived(view, since, now_ms)})


def _marks(cluster: Cluster, one: Generation) -> Iterable[marks.Mark]:
    return marks.each_mark(cluster, one.sink, marks.end_of_marks(cluster, one.sink)) if one.sink else ()


def delete_topics(cluster: Cluster, one: Generation | TopicGeneration, *, but: Collection[str] = ()) -> None:
    """`but`: topics that are another one's, too."""
    if not one.sink:
        return  # somebody else's topic
    written = () if one.topic in but else (one.topic, topic_of_letters(one.topic))
    own = (*written, marks.topic_of(one.sink), marks.staging_topic_of(one.sink))
    for topic in (*own, *_seeds(cluster, one.sink)):
        try:
            topics.delete(cluster, topic)
        except BrokerError as error:
            if error.code not in UNKNOWN_TOPIC:
                raise


def _seeds(cluster: Cluster, sink: str) -> list[str]:
    """Of tables that it has started from stores (`seeding.py`): all rows of those stores, and their marks."""
    mark = marks.read_mark(cluster, sink)
    read = set() if mark is None else {at.topic for at in mark.sources.offsets}
    found = sorted(topic for topic in read if topic.startswith(f"{SEED_PREFIX}{sink}."))
    return [*found, *(marks.topic_of(SEED_SINK + topic.removeprefix(SEED_PREFIX)) for topic in found)]
