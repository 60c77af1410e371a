import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * The AdminClient's calls in the order in which a tool would make them, each answer a JSON line {"call", "answer"} or {"call", "error"}.
 *
 * Arguments: bootstrap, topic, group. The Python test judges the lines; nothing here expects anything.
 */
public final class Administration {
    private final Admin admin;
    private final String bootstrap;
    private final String topic;
    private final String group;
    private final TopicPartition zero;

    private Administration(String bootstrap, String topic, String group) {
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
        this.zero = new TopicPartition(topic, 0);
    }

    public static void main(String[] arguments) throws Exception {
        Administration run = new Administration(arguments[0], arguments[1], arguments[2]);
        run.cluster();
        run.topics();
        run.configs();
        run.records();
        run.groups();
        run.endings();
        run.admin.close(Duration.ofSeconds(60));
    }

    private void say(String call, Callable<Object> answer) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("call", call);
        try {
            line.put("answer", answer.call());
        } catch (ExecutionException failed) {
            line.put("error", failed.getCause().getClass().getSimpleName());
        }
        System.out.println(Records.JSON.writeValueAsString(line));
    }

    /** Apache Kafka takes a change before it counts. Whether it ever does is for what is asked next to say. */
    private static void until(Callable<Boolean> counts) throws Exception {
        long deadline = System.currentTimeMillis() + Records.PATIENCE_MILLISECONDS;
        while (!counts.call() && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
    }

    private void cluster() throws Exception {
        say("describeCluster", () -> {
            var cluster = admin.describeCluster();
            return Map.of(
                "id", cluster.clusterId().get(), "nodes", cluster.nodes().get().size(),
                "controller", cluster.controller().get().port());
        });
        say("describeFeatures", () -> new TreeSet<>(admin.describeFeatures().featureMetadata().get().supportedFeatures().keySet()));
    }

    private void topics() throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "86400000"));
        say("createTopics validate", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true));
            return made.numPartitions(topic).get();
        });
        say("createTopics", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(wanted));
            return Map.of(
                "partitions", made.numPartitions(topic).get(), "replicas", made.replicationFactor(topic).get(),
                "retention", made.config(topic).get().get("retention.ms").value(),
                "id", made.topicId(topic).get().toString());
        });
        until(() -> admin.listTopics().names().get().contains(topic));
        say("createTopics again", () -> admin.createTopics(List.of(wanted)).all().get());
        say("createTopics bad name", () -> admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all().get());
        say("createTopics replicas", () -> admin.createTopics(List.of(new NewTopic(topic + "-r", 1, (short) 3))).all().get());
        say("listTopics", () -> admin.listTopics().names().get().contains(topic));
        say("describeTopics", () -> {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return Map.of("partitions", found.partitions().size(), "id", found.topicId().toString(), "internal", found.isInternal());
        });
        say("describeTopics unknown", () -> admin.describeTopics(List.of(topic + "-no")).allTopicNames().get());
        say("createPartitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get());
        say("createPartitions fewer", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get());
    }

    private void configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        say("incrementalAlterConfigs", () -> alter(resource, Map.of("max.message.bytes", "2000000", "cleanup.policy", "delete")));
        until(() -> "2000000".equals(admin.describeConfigs(List.of(resource)).all().get().get(resource).get("max.message.bytes").value()));
        say("incrementalAlterConfigs bad", () -> alter(resource, Map.of("retention.ms", "soon")));
        say("describeConfigs topic", () -> {
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            Map<String, Object> entries = new TreeMap<>();
            config.entries().forEach(entry -> entries.put(entry.name(), List.of(String.valueOf(entry.value()), entry.source().name())));
            return entries;
        });
        say("describeConfigs broker", () -> {
            String node = String.valueOf(admin.describeCluster().nodes().get().iterator().next().id());
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
            Map<String, Object> entries = new TreeMap<>();
            admin.describeConfigs(List.of(broker)).all().get().get(broker).entries()
                .forEach(entry -> entries.put(entry.name(), String.valueOf(entry.value())));
            return entries;
        });
        say("listConfigResources", () -> {
            Set<ConfigResource.Type> kinds = Set.of(ConfigResource.Type.TOPIC);
            Collection<ConfigResource> all = admin.listConfigResources(kinds, new ListConfigResourcesOptions()).all().get();
            return all.contains(resource);
        });
    }

    private Object alter(ConfigResource resource, Map<String, String> values) throws Exception {
        Collection<AlterConfigOp> changes = values.entrySet().stream()
            .map(one -> new AlterConfigOp(new ConfigEntry(one.getKey(), one.getValue()), AlterConfigOp.OpType.SET)).toList();
        return admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    private void records() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = Records.producer(bootstrap, Map.of())) {
            for (int number = 0; number < 20; number++) {
                long stamp = 1_700_000_000_000L + number * 1000L;
                producer.send(new ProducerRecord<>(topic, 0, stamp, Records.bytes("k"), Records.bytes("" + number))).get();
            }
            say("describeProducers", () -> {
                List<ProducerState> active = admin.describeProducers(List.of(zero)).partitionResult(zero).get().activeProducers();
                return List.of(active.size(), active.get(0).lastSequence(), active.get(0).producerEpoch());
            });
        }
        say("listOffsets earliest", () -> at(OffsetSpec.earliest()));
        say("listOffsets latest", () -> at(OffsetSpec.latest()));
        say("listOffsets max", () -> at(OffsetSpec.maxTimestamp()));
        say("listOffsets time", () -> at(OffsetSpec.forTimestamp(1_700_000_000_000L + 4500)));
        say("deleteRecords", () -> admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(5))).lowWatermarks().get(zero).get().lowWatermark());
        say("deleteRecords beyond", () -> admin.deleteRecords(Map.of(zero, RecordsToDelete.beforeOffset(500))).all().get());
        say("listOffsets after", () -> at(OffsetSpec.earliest()));
        say("describeLogDirs", () -> {
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            LogDirDescription folder = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().iterator().next();
            return Map.of(
                "size", folder.replicaInfos().get(zero).size(), "total", folder.totalBytes().orElse(-1),
                "usable", folder.usableBytes().orElse(-1));
        });
    }

    private Object at(OffsetSpec spec) throws Exception {
        ListOffsetsResult.ListOffsetsResultInfo found = admin.listOffsets(Map.of(zero, spec)).partitionResult(zero).get();
        return List.of(found.offset(), found.timestamp(), found.leaderEpoch().orElse(-1));
    }

    private void groups() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String name = group + "-" + protocol;
            Map<String, Object> settings = Map.of("group.id", name, "group.protocol", protocol, "client.id", "me");
            try (KafkaConsumer<byte[], byte[]> consumer = Records.consumer(bootstrap, settings)) {
                consumer.subscribe(List.of(topic));
                Records.read(consumer, 15);
                consumer.commitSync(Map.of(zero, new OffsetAndMetadata(12, Optional.of(0), "note")));
                say("describeConsumerGroups " + protocol, () -> describe(name));
                say("deleteConsumerGroups busy " + protocol, () -> admin.deleteConsumerGroups(List.of(name)).all().get());
            }
            say("listGroups " + protocol, () -> admin.listGroups().all().get().stream()
                .filter(one -> one.groupId().equals(name))
                .map(one -> List.of(one.type().get().toString(), one.groupState().get().toString(), one.protocol())).findFirst().get());
            say("listConsumerGroupOffsets " + protocol, () -> offsets(name));
            say("alterConsumerGroupOffsets " + protocol, () ->
                admin.alterConsumerGroupOffsets(name, Map.of(zero, new OffsetAndMetadata(7, "moved"))).all().get());
            say("listConsumerGroupOffsets moved " + protocol, () -> offsets(name));
            say("deleteConsumerGroupOffsets " + protocol, () -> admin.deleteConsumerGroupOffsets(name, Set.of(zero)).all().get());
            say("listConsumerGroupOffsets deleted " + protocol, () -> offsets(name));
            say("deleteConsumerGroups " + protocol, () -> admin.deleteConsumerGroups(List.of(name)).all().get());
            say("describeConsumerGroups gone " + protocol, () -> describe(name));
        }
        removal();
    }

    private void removal() throws Exception {
        Map<String, Object> settings = Map.of("group.id", group + "-static", "group.instance.id", "stays", "session.timeout.ms", "45000");
        KafkaConsumer<byte[], byte[]> consumer = Records.consumer(bootstrap, settings);
        consumer.subscribe(List.of(topic));
        Records.read(consumer, 15);
        consumer.close();
        say("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup(
            group + "-static", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("stays")))).all().get());
        say("describeConsumerGroups removed", () -> describe(group + "-static"));
    }

    private Object describe(String name) throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        Map<String, Object> answer = new HashMap<>();
        answer.put("state", found.groupState().toString());
        answer.put("type", found.type().toString());
        answer.put("coordinator", found.coordinator().port());
        answer.put("members", found.members().size());
        if (!found.members().isEmpty()) {
            MemberDescription member = found.members().iterator().next();
            answer.put("client", member.clientId());
            answer.put("host", member.host());
            answer.put("partitions", member.assignment().topicPartitions().size());
        }
        return answer;
    }

    private Object offsets(String name) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
        OffsetAndMetadata kept = found.get(zero);
        return kept == null ? List.of() : List.of(kept.offset(), kept.metadata());
    }

    private void endings() throws Exception {
        say("deleteTopics", () -> admin.deleteTopics(List.of(topic)).all().get());
        say("deleteTopics again", () -> admin.deleteTopics(List.of(topic)).all().get());
    }
}
