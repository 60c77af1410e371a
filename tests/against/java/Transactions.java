import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * The Java producer's transactions, and what the AdminClient is told of them.
 *
 * Arguments: bootstrap, scenario, topic, group. One JSON object on stdout says what was seen; the Python test judges it.
 */
public final class Transactions {
    private final String bootstrap;
    private final String topic;
    private final String group;
    private final TopicPartition zero;
    private final Map<String, Object> seen = new LinkedHashMap<>();

    private Transactions(String bootstrap, String topic, String group) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
        this.zero = new TopicPartition(topic, 0);
    }

    public static void main(String[] arguments) throws Exception {
        Transactions run = new Transactions(arguments[0], arguments[2], arguments[3]);
        switch (arguments[1]) {
            case "ends" -> run.ends();
            case "fencing" -> run.fencing();
            case "many" -> run.many();
            case "epochs" -> run.epochs();
            case "administration" -> run.administration();
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.out.println(Records.JSON.writeValueAsString(run.seen));
    }

    private KafkaProducer<byte[], byte[]> producer(String name) {
        KafkaProducer<byte[], byte[]> producer =
            Records.producer(bootstrap, Map.of("transactional.id", name, "transaction.timeout.ms", "300000", "max.block.ms", "180000"));
        producer.initTransactions();
        return producer;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String value, int partition) {
        producer.send(new ProducerRecord<>(topic, partition, null, Records.bytes(value)));
    }

    private List<String> committed(int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = Records.consumer(bootstrap, Map.of("isolation.level", "read_committed"))) {
            consumer.assign(List.of(zero));
            consumer.seekToBeginning(List.of(zero));
            List<String> values = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : Records.read(consumer, count)) {
                values.add(Records.text(record.value()));
            }
            return values;
        }
    }

    private void ends() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            for (String value : List.of("a", "b", "c")) {
                producer.beginTransaction();
                send(producer, value, 0);
                send(producer, value, 1);
                Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(zero, new OffsetAndMetadata(value.charAt(0)));
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
                if (value.equals("b")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.abortTransaction();
        }
        seen.put("committed", committed(2));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            seen.put("offset", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(zero).offset());
        }
    }

    private void fencing() throws Exception {
        KafkaProducer<byte[], byte[]> first = producer(topic);
        first.beginTransaction();
        send(first, "of the first", 0);
        first.flush();
        try (KafkaProducer<byte[], byte[]> second = producer(topic)) {
            second.beginTransaction();
            send(second, "of the second", 0);
            second.commitTransaction();
        }
        try {
            first.commitTransaction();
            seen.put("first", "committed");
        } catch (RuntimeException fenced) {
            seen.put("first", fenced.getClass().getSimpleName());
        }
        first.close(Duration.ZERO);
        seen.put("committed", committed(1));
    }

    private void many() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            for (int number = 0; number < 200; number++) {
                producer.beginTransaction();
                send(producer, String.valueOf(number), 0);
                if (number % 3 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> values = committed(133);
        int wrong = 0;
        int expected = 0;
        for (String value : values) {
            expected += expected % 3 == 0 ? 1 : 0;
            wrong += value.equals(String.valueOf(expected)) ? 0 : 1;
            expected++;
        }
        seen.put("read", values.size());
        seen.put("wrong", wrong);
    }

    /** Its coordinator was brought near the last epoch before: here that is passed, by a producer that goes on and on. */
    private void epochs() throws Exception {
        KafkaProducer<byte[], byte[]> zombie = producer(topic);
        zombie.beginTransaction();
        send(zombie, "of the zombie", 0);
        zombie.flush();
        List<List<Long>> holders = new ArrayList<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
                KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            for (int number = 0; number < 12; number++) {
                producer.beginTransaction();
                send(producer, String.valueOf(number), 0);
                Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(zero, new OffsetAndMetadata(number));
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
                TransactionDescription found = admin.describeTransactions(List.of(topic)).description(topic).get();
                holders.add(List.of(found.producerId(), (long) found.producerEpoch()));
                if (number % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            seen.put("offset", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(zero).offset());
        }
        seen.put("holders", holders);
        try {
            zombie.commitTransaction();
            seen.put("zombie", "committed");
        } catch (RuntimeException fenced) {
            seen.put("zombie", fenced.getClass().getSimpleName());
        }
        zombie.close(Duration.ZERO);
        seen.put("committed", committed(8));
    }

    private void administration() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
                KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            producer.beginTransaction();
            send(producer, "open", 0);
            producer.flush();
            TransactionDescription found = admin.describeTransactions(List.of(topic)).description(topic).get();
            seen.put("described", List.of(found.state().toString(), found.topicPartitions().toString(), found.transactionTimeoutMs()));
            Map<String, String> states = new TreeMap<>();
            admin.listTransactions().all().get().stream().filter(one -> one.transactionalId().equals(topic))
                .forEach(one -> states.put(one.transactionalId(), one.state().toString()));
            seen.put("listed", states.get(topic));
            ProducerState state = admin.describeProducers(List.of(zero)).partitionResult(zero).get().activeProducers().get(0);
            seen.put("open_since", state.currentTransactionStartOffset().orElse(-1));
            admin.fenceProducers(List.of(topic)).all().get();
            try {
                producer.commitTransaction();
                seen.put("fenced", "committed");
            } catch (RuntimeException fenced) {
                seen.put("fenced", fenced.getClass().getSimpleName());
            }
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
                KafkaProducer<byte[], byte[]> producer = producer(topic + "-hanging")) {
            producer.beginTransaction();
            send(producer, "hanging", 0);
            producer.flush();
            ProducerState state = admin.describeProducers(List.of(zero)).partitionResult(zero).get().activeProducers().stream()
                .filter(one -> one.currentTransactionStartOffset().isPresent()).findFirst().get();
            admin.abortTransaction(new AbortTransactionSpec(zero, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0)))
                .all().get();
            boolean open = admin.describeProducers(List.of(zero)).partitionResult(zero).get().activeProducers().stream()
                .anyMatch(one -> one.currentTransactionStartOffset().isPresent());
            seen.put("still_open", open);
        } catch (RuntimeException closing) {
            seen.put("closing", closing.getClass().getSimpleName());
        }
    }
}
