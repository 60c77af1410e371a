import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer with its defaults (idempotent, acks=all, 16 KB batches) and a consumer that is assigned by hand.
 *
 * Arguments: bootstrap, scenario, topic, then the scenario's own. One JSON object on stdout says what was seen; the Python test judges it.
 */
public final class Records {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration POLL = Duration.ofMillis(200);
    static final long PATIENCE_MILLISECONDS = 180_000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[2];
        Object seen = switch (arguments[1]) {
            case "payloads" -> payloads(bootstrap, topic);
            case "many" -> many(bootstrap, topic, Map.of("compression.type", arguments[3]), 2000);
            case "acks" -> many(bootstrap, topic, Map.of("acks", arguments[3], "enable.idempotence", "false"), 100);
            case "small_batches" -> many(bootstrap, topic, Map.of("batch.size", "100", "linger.ms", "0"), 1000);
            case "hurry" -> hurry(bootstrap, topic, Integer.parseInt(arguments[3]), arguments[4], arguments[5]);
            case "sizes" -> sizes(bootstrap, topic);
            case "places" -> places(bootstrap, topic);
            case "from" -> from(bootstrap, topic, Long.parseLong(arguments[3]), Long.parseLong(arguments[4]), Integer.parseInt(arguments[5]));
            default -> throw new IllegalArgumentException(arguments[1]);
        };
        System.out.println(JSON.writeValueAsString(seen));
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, Object> settings) {
        Map<String, Object> all = new TreeMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, Object> settings) {
        Map<String, Object> all = new TreeMap<>(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        all.put("bootstrap.servers", bootstrap);
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MILLISECONDS;
        while (records.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(POLL).forEach(records::add);
        }
        return records;
    }

    /** Sends as fast as it can, and counts what became of it. */
    private static Object hurry(String bootstrap, String topic, int count, String idempotent, String timeoutMs) {
        Map<String, Object> settings = Map.of(
            "enable.idempotence", idempotent, "delivery.timeout.ms", timeoutMs, "request.timeout.ms", "2000", "linger.ms", "0", "max.block.ms", "180000");
        Map<String, Integer> failed = new TreeMap<>();
        int[] acked = {0};
        String[] message = {""};
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, settings)) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes(String.format("%d %0100d", number, 0))), (metadata, error) -> {
                    synchronized (failed) {
                        if (error == null) {
                            acked[0]++;
                        } else {
                            failed.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                            message[0] = error.getMessage();
                        }
                    }
                });
            }
            producer.flush();
        }
        return Map.of("acked", acked[0], "failed", failed, "message", message[0]);
    }

    private static Object payloads(String bootstrap, String topic) throws Exception {
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of())) {
            List<Header> headers = List.of(
                new RecordHeader("a", bytes("1")), new RecordHeader("a", bytes("2")), new RecordHeader("none", null));
            for (ProducerRecord<byte[], byte[]> record : List.of(
                new ProducerRecord<>(topic, 0, 1_700_000_000_000L, bytes("key"), bytes("value"), headers),
                new ProducerRecord<>(topic, 0, 1_600_000_000_000L, (byte[]) null, bytes("no key")),
                new ProducerRecord<>(topic, 0, 1_700_000_000_001L, bytes("no value"), (byte[]) null),
                new ProducerRecord<>(topic, 0, 1_700_000_000_002L, bytes(""), bytes("")))) {
                offsets.add(producer.send(record).get().offset());
            }
        }
        List<Object> rows = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (ConsumerRecord<byte[], byte[]> record : read(consumer, 4)) {
                List<Object> headers = new ArrayList<>();
                record.headers().forEach(header -> headers.add(Arrays.asList(header.key(), text(header.value()))));
                rows.add(Arrays.asList(
                    record.offset(), record.timestamp(), text(record.key()), text(record.value()), headers,
                    record.leaderEpoch().orElse(-1)));
            }
        }
        return Map.of("acked", offsets, "read", rows);
    }

    /** Sends so many, reads as many, and counts those that are not the number their offset says. */
    private static Object many(String bootstrap, String topic, Map<String, Object> settings, int count) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, settings)) {
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, bytes("number " + number))));
            }
        }
        for (Future<RecordMetadata> one : sent) one.get();
        int wrong = 0;
        List<ConsumerRecord<byte[], byte[]>> records;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            records = read(consumer, count);
        }
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (!text(record.value()).equals("number " + record.offset())) wrong++;
        }
        return Map.of("sent", sent.size(), "read", records.size(), "wrong", wrong);
    }

    private static Object sizes(String bootstrap, String topic) throws Exception {
        List<String> outcomes = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of("max.request.size", 8_000_000))) {
            for (int size : new int[] {1_999_000, 2_000_001, 5}) {
                try {
                    outcomes.add("offset " + producer.send(new ProducerRecord<>(topic, 0, null, new byte[size])).get().offset());
                } catch (ExecutionException failed) {
                    outcomes.add(failed.getCause().getClass().getSimpleName());
                }
            }
        }
        List<Integer> sizes = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of("max.partition.fetch.bytes", 1000))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            read(consumer, 2).forEach(record -> sizes.add(record.value().length));
        }
        return Map.of("outcomes", outcomes, "read", sizes);
    }

    private static Object places(String bootstrap, String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = 1_700_000_000_000L;
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of("linger.ms", 50))) {
            for (int number = 0; number < 50; number++) {
                producer.send(new ProducerRecord<>(topic, 0, start + number * 1000L, null, bytes("" + number)));
            }
        }
        Map<String, Object> seen = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of("max.poll.records", 1, "auto.offset.reset", "none"))) {
            seen.put("beginning", consumer.beginningOffsets(List.of(partition)).get(partition));
            seen.put("end", consumer.endOffsets(List.of(partition)).get(partition));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, start + 30_500)).get(partition);
            seen.put("by_time", List.of(found.offset(), found.timestamp()));
            seen.put("after_all", consumer.offsetsForTimes(Map.of(partition, start + 60_000)).get(partition) == null);
            consumer.assign(List.of(partition));
            List<String> sought = new ArrayList<>();
            for (long offset : new long[] {31, 0, 49, 7}) {
                consumer.seek(partition, offset);
                sought.add(text(read(consumer, 1).get(0).value()));
            }
            seen.put("sought", sought);
            consumer.seek(partition, 1000);
            try {
                read(consumer, 1);
                seen.put("out_of_range", false);
            } catch (OffsetOutOfRangeException told) {
                seen.put("out_of_range", told.partitions().contains(partition));
            }
            seen.put("lag", consumer.currentLag(partition).isPresent());
            seen.put("partitions", consumer.partitionsFor(topic).size());
        }
        return seen;
    }

    private static Object from(String bootstrap, String topic, long start, long end, int fetchBytes) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<List<Object>> seen = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of("max.partition.fetch.bytes", fetchBytes))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, start);
            long deadline = System.currentTimeMillis() + PATIENCE_MILLISECONDS;
            while (consumer.position(partition) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    seen.add(Arrays.asList(record.offset(), text(record.key()), text(record.value())));
                }
            }
            if (consumer.position(partition) < end) {
                throw new IllegalStateException("stuck at " + consumer.position(partition) + " of " + end);
            }
        }
        return seen;
    }
}
