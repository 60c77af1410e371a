"""Who has logged in and is a member of a watched group does not wait for it: it might wait for itself."""

from __future__ import annotations

from access import PASSWORD
from raw import batch_of, produce

from against.patience import eventually
from proving import proves
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

BLOCK = {"policy": "block", "groups": "movers", "records": "10"}


@proves("T5")
def test_a_member_of_the_watched_group_is_not_held_and_others_are(access_broker) -> None:
    broker = access_broker("PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0")
    configs = [CreatableTopicConfig(name=f"tidelog.overload.{key}", value=value) for key, value in BLOCK.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as alice:
        broker.add_user("alice", PASSWORD, by=admin)
        assert admin.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
        alice.login("alice", PASSWORD)

        def sent(client) -> int:
            reply = client.call(produce("t", batch_of(*[b"x"] * 15)), 9)
            return reply.responses[0].partition_responses[0].error_code

        def beat(epoch: int, **more: object) -> int:
            beat = ConsumerGroupHeartbeatRequest(group_id="movers", member_id="one", member_epoch=epoch, **more)
            return alice.call(beat, 1).member_epoch

        epoch = beat(0, subscribed_topic_names=["t"], rebalance_timeout_ms=60_000, topic_partitions=[])
        assert [sent(admin), sent(admin)] == [0, 0]
        assert sent(admin) == ErrorCode.NOT_ENOUGH_REPLICAS
        eventually(lambda: beat(epoch) and sent(alice), lambda code: code == 0)
        assert sent(admin) == ErrorCode.NOT_ENOUGH_REPLICAS
        beat(-1)
        eventually(lambda: sent(alice), lambda code: code == ErrorCode.NOT_ENOUGH_REPLICAS)
