"""An IncrementalAlterConfigs that orders excisions: `tidelog.excise` of topics, and nothing else in the request.

Who may alter a topic's settings may order it (`access/rules.py` has looked by now): by retention.ms he could delete
everything. The reply leaves when the records are in no file any more, or when that was refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.config_changes import APPEND, SET
from tidelog.broker.excision.order import EXCISE, ExcisionOrder, parse, ranges_text
from tidelog.broker.excision.state import REFUSED, Excision
from tidelog.broker.loading import sentence, when_loaded
from tidelog.broker.topics import TOPIC_RESOURCE
from tidelog.errors import ConfigError, StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

ANONYMOUS = "ANONYMOUS"


def has_order(request: IncrementalAlterConfigsRequest) -> bool:
    return any(config.name == EXCISE for resource in request.resources for config in resource.configs)


def handle(broker: Broker, request: IncrementalAlterConfigsRequest, call: Call) -> None:
    under_way = _Answering(broker, request, call)
    orders: list[tuple[AlterConfigsResource, ExcisionOrder]] = []
    for resource in request.resources:
        try:
            orders.append((resource, _order_of(broker, resource)))
        except ConfigError as error:
            under_way.refuse(resource, ErrorCode.INVALID_CONFIG, str(error))
    if under_way.refused:  # all of it or nothing: what is done cannot be undone
        for resource, _ in orders:
            under_way.refuse(resource, ErrorCode.INVALID_REQUEST, "another order of this request is refused")
        under_way.reply()
        return
    places = [(resource.resource_name, index) for resource, order in orders for index in order.places]
    when_loaded(broker, call, places, lambda: under_way.check_and_begin(orders))


def _order_of(broker: Broker, resource: AlterConfigsResource) -> ExcisionOrder:
    name = resource.resource_name
    topic = broker.topics.by_name.get(name) if resource.resource_type == TOPIC_RESOURCE else None
    if [config.name for config in resource.configs] != [EXCISE]:
        raise ConfigError(f"{EXCISE} is an order, not a setting; send it in a request of its own")
    if topic is None:
        raise ConfigError(f"{EXCISE} is an order about a topic, and {name!r} is not one")
    if topic.own:
        raise ConfigError(
            f"records of {name} are the broker's own decisions, and are not excised; it would forget them"
        )
    (config,) = resource.configs
    if config.config_operation not in (SET, APPEND) or config.value is None:
        raise ConfigError(f"{EXCISE} is an order; use SET with a value")
    order = parse(config.value)
    unknown = [index for index in order.places if index >= topic.partitions]
    if unknown:
        raise ConfigError(f"{name} has no partition {unknown[0]}; it has 0 to {topic.partitions - 1}")
    return order


class _Answering:
    """One request until its reply."""

    def __init__(self, broker: Broker, request: IncrementalAlterConfigsRequest, call: Call) -> None:
        self._broker = broker
        self._call = call
        self._validate_only = request.validate_only
        self._responses = {
            (one.resource_type, one.resource_name): AlterConfigsResourceResponse(
                error_code=0, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        }
        self._left = 0
        self.refused = False

    def refuse(self, resource: AlterConfigsResource, code: int, message: str) -> None:
        self._fail(resource.resource_type, resource.resource_name, code, message)
        self.refused = True

    def _fail(self, kind: int, name: str, code: int, message: str) -> None:
        response = self._responses[kind, name]
        if not response.error_code:
            response.error_code, response.error_message = code, message

    def reply(self) -> None:
        self._call.reply(IncrementalAlterConfigsResponse(responses=list(self._responses.values())))

    def check_and_begin(self, orders: list[tuple[AlterConfigsResource, ExcisionOrder]]) -> None:
        wanted: list[Excision] = []
        now_ms, by = self._broker.now().wall_ms, f"User:{self._call.user or ANONYMOUS}"
        for resource, order in orders:
            topic = self._broker.topics.by_name.get(resource.resource_name)
            for index, ranges in order.places.items():
                if topic is None or (fault := self._fault(topic.name, index, ranges[-1][1])) is not None:
                    message = "the topic was deleted meanwhile" if topic is None else fault
                    self.refuse(resource, ErrorCode.INVALID_CONFIG, message or "")
                    continue
                place = topic.name, topic.topic_id, index, tuple(ranges)
                wanted.append(Excision(*place, order.reason, by, now_ms))
        if self.refused or self._validate_only:
            self.reply()
            return
        self._left = len(wanted)
        try:
            self._broker.excisions.order(wanted, self._told)
        except StorageError as error:
            for resource, _ in orders:
                self.refuse(resource, ErrorCode.KAFKA_STORAGE_ERROR, sentence(error))
            self.reply()

    def _fault(self, name: str, index: int, last: int) -> str | None:
        partition = self._broker.find_partition(name, index)
        if partition is None or not partition.log.known:
            return f"partition {index} of {name} cannot be read; the broker's log says why"
        end = partition.log.high_watermark
        return None if last < end else f"offset {last} is not in partition {index} of {name}, which ends at {end}"

    def _told(self, excision: Excision, error: StorageError | None) -> None:
        if error is not None:
            where = f"partition {excision.partition}, offsets {ranges_text(excision.offsets)}"
            name = excision.topic
            refused = excision.state == REFUSED
            code = ErrorCode.INVALID_CONFIG if refused else ErrorCode.KAFKA_STORAGE_ERROR
            self._fail(TOPIC_RESOURCE, name, code, f"{where}: {error if refused else sentence(error)}")
        self._left -= 1
        if not self._left:
            self.reply()
