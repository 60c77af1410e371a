"""WriteTxnMarkers: Kafka's coordinators send it to the leaders of partitions; here, administrators alone.

v1    flexible                                v2    the transaction's version, which changes nothing here

It ends a transaction that *hangs*: open in a partition, and known to no coordinator. One that the coordinator knows is
not ended in one partition only: to abort it there aborts it everywhere, to commit it is refused with
INVALID_TXN_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.loading import find, when_loaded
from tidelog.broker.partition import Partition
from tidelog.broker.transaction_coordinator import OutcomeTicket
from tidelog.broker.transactions.outcome import TransactionOutcome
from tidelog.errors import StaleProducerEpoch, StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: WriteTxnMarkersRequest, call: Call) -> None:
    wanted = [
        (topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    when_loaded(broker, call, wanted, lambda: _Writing(broker, request, call).begin())


class _Writing:
    """Counts the markers that are not visible yet; the last one lets the reply go."""

    def __init__(self, broker: Broker, request: WriteTxnMarkersRequest, call: Call) -> None:
        self._broker = broker
        self._request = request
        self._call = call
        self._left = 1
        self._response = WriteTxnMarkersResponse()

    def begin(self) -> None:
        for marker in self._request.markers:
            topics = [
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[self._write(marker, topic.name, index) for index in topic.partition_indexes],
                )
                for topic in marker.topics
            ]
            self._response.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        self._one_less()

    def _write(self, marker: WritableTxnMarker, topic: str, index: int) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(partition_index=index)
        partition = find(self._broker, topic, index)
        known = self._broker.transactions.state.of_producer(marker.producer_id)
        if not isinstance(partition, Partition):
            result.error_code = partition
        elif known is not None and (topic, index) in known.partitions:
            self._end_known(marker, known.transactional_id, result)
        else:
            self._end_hanging(marker, partition, result)
        return result

    def _end_known(
        self, marker: WritableTxnMarker, transactional_id: str, result: WritableTxnMarkerPartitionResult
    ) -> None:
        if marker.transaction_result:
            result.error_code = ErrorCode.INVALID_TXN_STATE
            return

        def ended(outcome: TransactionOutcome) -> None:
            result.error_code = outcome.error_code
            self._one_less()

        self._left += 1
        self._broker.transactions.abort(transactional_id, OutcomeTicket(self._call, ended))

    def _end_hanging(
        self, marker: WritableTxnMarker, partition: Partition, result: WritableTxnMarkerPartitionResult
    ) -> None:
        log, now_ms = partition.log, self._broker.now().wall_ms
        try:
            log.append_marker(
                marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch, now_ms
            )
        except StaleProducerEpoch:
            result.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return
        except StorageError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return

        def visible(error: StorageError | None) -> None:
            if error is not None:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            self._one_less()

        self._left += 1
        log.when_visible(log.end_offset, visible)

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._call.reply(self._response)
