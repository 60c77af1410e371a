import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The Java share consumer: what it is given, what it says of it, and what it is given again.
 *
 * Arguments: bootstrap, scenario, topic, group. The topic has 10 records, 0 to 9. One JSON object on stdout says what was seen.
 */
public final class Queues {
    static final long PATIENCE_MILLISECONDS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[2], group = arguments[3];
        Map<String, Object> seen = new TreeMap<>();
        switch (arguments[1]) {
            case "acknowledge" -> acknowledge(bootstrap, topic, group, seen);
            case "renew" -> renew(bootstrap, topic, group, seen);
            case "two" -> two(bootstrap, topic, group, seen);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.out.println(new ObjectMapper().writeValueAsString(seen));
    }

    private static KafkaShareConsumer<String, String> consumer(String bootstrap, String topic, String group, String mode, int most) {
        Map<String, Object> settings = new TreeMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", mode, "max.poll.records", most));
        if (most == 1) settings.put("share.acquire.mode", "record_limit");
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    /** 3 is released and 5 rejected; so 3 comes once more, with a higher delivery count, and nothing else does. */
    private static void acknowledge(String bootstrap, String topic, String group, Map<String, Object> seen) {
        List<String> given = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer(bootstrap, topic, group, "explicit", 500)) {
            boolean failed = false;
            long deadline = System.currentTimeMillis() + PATIENCE_MILLISECONDS;
            while (given.size() < 11 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int count = record.deliveryCount().orElse((short) 0);
                    given.add(record.value() + "/" + count);
                    boolean again = count > 1;
                    AcknowledgeType type = record.offset() == 3 && !again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                    consumer.acknowledge(record, record.offset() == 5 ? AcknowledgeType.REJECT : type);
                }
                Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
                failed |= outcome.values().stream().anyMatch(Optional::isPresent);
            }
            seen.put("failed", failed);
            seen.put("more", consumer.poll(Duration.ofSeconds(2)).count());
        }
        seen.put("given", new TreeSet<>(given));
    }

    /** With locks of a second, a record that is renewed for three seconds is given to nobody else. */
    private static void renew(String bootstrap, String topic, String group, Map<String, Object> seen) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = consumer(bootstrap, topic, group, "explicit", 500);
            KafkaShareConsumer<String, String> other = consumer(bootstrap, topic, group, "implicit", 500)) {
            List<ConsumerRecord<String, String>> mine = new ArrayList<>();
            long deadline = System.currentTimeMillis() + PATIENCE_MILLISECONDS;
            while (mine.isEmpty() && System.currentTimeMillis() < deadline) consumer.poll(Duration.ofMillis(500)).forEach(mine::add);
            int others = 0;
            boolean failed = false;
            for (int turn = 0; turn < 10; turn++) {
                for (ConsumerRecord<String, String> record : mine) consumer.acknowledge(record, AcknowledgeType.RENEW);
                failed |= consumer.commitSync().values().stream().anyMatch(Optional::isPresent);
                for (ConsumerRecord<String, String> record : other.poll(Duration.ofMillis(300))) {
                    if (mine.stream().anyMatch(one -> one.offset() == record.offset())) others++;
                }
                int renewed = mine.size();
                mine.clear(); // what was renewed comes with the next poll, to be acknowledged again
                while (mine.size() < renewed && System.currentTimeMillis() < deadline) {
                    consumer.poll(Duration.ofMillis(100)).forEach(mine::add);
                }
            }
            for (ConsumerRecord<String, String> record : mine) consumer.acknowledge(record);
            failed |= consumer.commitSync().values().stream().anyMatch(Optional::isPresent);
            seen.put("lock", consumer.acquisitionLockTimeoutMs().orElse(-1));
            seen.put("others", others);
            seen.put("failed", failed);
        }
    }

    /** Two consumers of one partition, one record at a time: each record is given once, and both are given some. */
    private static void two(String bootstrap, String topic, String group, Map<String, Object> seen) {
        List<String> given = new ArrayList<>();
        int[] counts = new int[2];
        try (KafkaShareConsumer<String, String> one = consumer(bootstrap, topic, group, "implicit", 1);
            KafkaShareConsumer<String, String> two = consumer(bootstrap, topic, group, "implicit", 1)) {
            long deadline = System.currentTimeMillis() + PATIENCE_MILLISECONDS;
            while (given.size() < 10 && System.currentTimeMillis() < deadline) {
                int turn = 0;
                for (KafkaShareConsumer<String, String> consumer : List.of(one, two)) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        given.add(record.value());
                        counts[turn]++;
                    }
                    turn++;
                }
            }
        }
        seen.put("given", new TreeSet<>(given).size() + " of " + given.size());
        seen.put("both", counts[0] > 0 && counts[1] > 0);
    }
}
