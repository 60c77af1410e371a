"""`tidelog run` in a thread, its queries in the tests' own Spark; and what `tidelog rebuild` does beside it."""

from __future__ import annotations

import threading

from pipelines.app.driven import Driven
from tidelog.pipelines.changed_views import prepare_run
from tidelog.pipelines.handover import Handover
from tidelog.pipelines.parts import APPLIER
from tidelog.pipelines.rebuilding import Rebuild
from tidelog.pipelines.rebuilding_topics import RebuildTopic
from tidelog.pipelines.running import Run, parts_of, reader_of

ENDED_WITHIN_S = 900.0


def quietly(*_: object, **__: object) -> None:
    pass


class Running:
    """With a cluster of its own, as a process has it. Appliers, which are processes, run where they are asked for."""

    def __init__(self, driven: Driven, *, appliers: bool = False) -> None:
        settings = driven.settings
        self.cluster = settings.connect()
        reader = reader_of(driven.reader.spark, driven.graph, settings, self.cluster)
        self.targets = prepare_run(self.cluster, reader, settings)
        parts = [one for one in parts_of(self.targets, reader, settings) if appliers or one.kind != APPLIER]
        handover = Handover(self.cluster, driven.graph, settings.checkpoints)
        self.run = Run(driven.graph.app.name, parts, self.cluster, quietly, handover=handover)
        self.code: int | None = None
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        self.code = self.run.loop()

    def stop(self) -> int | None:
        """Its exit code."""
        self.run.stopping.set()
        self.thread.join(ENDED_WITHIN_S)
        self.cluster.close()
        return self.code


def rebuilt(driven: Driven, view: str, *, shown_within_s: float | None = None, with_readers: bool = False) -> Rebuild:
    """A view built anew and switched to; with `shown_within_s`, its stores show it, too."""
    rebuild = Rebuild(
        driven.cluster, driven.reader, driven.graph.node(view), driven.settings, say=quietly, tell=lambda _: None
    )
    begun = rebuild.begin(with_readers=with_readers)
    try:
        ends = rebuild.build(begun)
        assert ends is not None
        switched = rebuild.switch(begun, ends)
    finally:
        rebuild.resume(begun)
    if shown_within_s is not None:
        assert rebuild.show(begun, switched, shown_within_s) == []
    return rebuild


def rebuilt_topic(driven: Driven, topic: str, *, with_readers: bool = False, is_in_place: bool = False) -> RebuildTopic:
    """A derived topic built anew, and switched to or put in place."""
    rebuild = RebuildTopic(
        driven.cluster, driven.reader, driven.graph.node(topic), driven.settings, say=quietly, tell=lambda _: None
    )
    begun = rebuild.begin(with_readers=with_readers, is_in_place=is_in_place)
    try:
        ends = {} if begun.is_switched else rebuild.build(begun)
        assert ends is not None
        rebuild.place(rebuild.switch(begun, ends))
    finally:
        rebuild.resume(begun)
    return rebuild
