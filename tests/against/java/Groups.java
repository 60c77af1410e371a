import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * The Java consumer in groups: members come, go and vanish; change their protocol; a pattern; static members.
 *
 * Arguments: bootstrap, scenario, topic, group, then key=value settings of the consumer. One JSON object on stdout says what was seen.
 * A member vanishes by closing without leaving, so that only its session's end tells the broker.
 */
public final class Groups {
    static final int PARTITIONS = 4;
    static final int ROUND = 40;
    /** Of a member that vanishes; under the consumer protocol the broker knows how long it lasts. */
    static final String BRIEF_SESSION = "10000";

    /** A consumer in a thread of its own, which commits what it has read before it reads on. */
    static final class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        final ConcurrentLinkedQueue<String> read = new ConcurrentLinkedQueue<>();
        volatile Set<TopicPartition> owned = Set.of();
        volatile int committed = 0;
        volatile CloseOptions.GroupMembershipOperation ending;
        volatile Exception failure;

        Member(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                while (ending == null) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        read.add(Records.text(record.value()));
                    }
                    owned = new HashSet<>(consumer.assignment());
                    if (committed < read.size()) {
                        consumer.commitSync();
                        committed = read.size();
                    }
                }
            } catch (Exception thrown) {
                failure = thrown;
            } finally {
                consumer.close(ending == null ? CloseOptions.timeout(Duration.ofSeconds(1)) : CloseOptions.groupMembershipOperation(ending));
            }
        }

        void end(CloseOptions.GroupMembershipOperation how) throws InterruptedException {
            ending = how;
            join(Records.PATIENCE_MILLISECONDS);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new TreeMap<>();
        for (String setting : Arrays.asList(arguments).subList(4, arguments.length)) {
            settings.put(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        }
        settings.put("group.id", arguments[3]);
        settings.put("metadata.max.age.ms", "500");
        Object seen = switch (arguments[1]) {
            case "come_go_and_crash" -> comeGoAndCrash(arguments[0], arguments[2], settings);
            case "roll" -> roll(arguments[0], arguments[2], settings);
            case "pattern" -> pattern(arguments[0], arguments[2], settings);
            case "static" -> staticMember(arguments[0], arguments[2], settings);
            default -> throw new IllegalArgumentException(arguments[1]);
        };
        System.out.println(Records.JSON.writeValueAsString(seen));
    }

    private static Object comeGoAndCrash(String bootstrap, String topic, Map<String, Object> settings) throws Exception {
        List<Member> members = new ArrayList<>();
        Set<String> expected = new HashSet<>();
        Member first = join(bootstrap, topic, settings, members);
        await("the first has all", () -> share(first));
        boolean isClassic = settings.containsKey("session.timeout.ms");
        Map<String, Object> brief = isClassic ? with(settings, "session.timeout.ms", BRIEF_SESSION) : settings;
        Member second = join(bootstrap, topic, brief, members);
        await("two share", () -> share(first, second));
        round(bootstrap, topic, "both", expected, members);
        second.end(CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP);
        await("the first takes over", () -> share(first));
        round(bootstrap, topic, "after crash", expected, members);
        Member third = join(bootstrap, topic, settings, members);
        await("the third shares", () -> share(first, third));
        first.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        await("the third takes over", () -> share(third));
        round(bootstrap, topic, "after leave", expected, members);
        third.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Member fourth = join(bootstrap, topic, settings, members);
        await("the fourth resumes", () -> share(fourth));
        round(bootstrap, topic, "resumed", expected, members);
        fourth.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        return outcome(expected, members);
    }

    /** Given classic settings: a member of the consumer protocol comes, the classic one goes, and then the other way round. */
    private static Object roll(String bootstrap, String topic, Map<String, Object> settings) throws Exception {
        List<Member> members = new ArrayList<>();
        Set<String> expected = new HashSet<>();
        Map<String, Object> later = new TreeMap<>(settings);
        later.keySet().removeAll(Set.of("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"));
        later.put("group.protocol", "consumer");
        Member first = join(bootstrap, topic, settings, members);
        await("the first has all", () -> share(first));
        Member second = join(bootstrap, topic, later, members);
        await("both protocols share", () -> share(first, second));
        round(bootstrap, topic, "both", expected, members);
        first.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        await("the second takes over", () -> share(second));
        round(bootstrap, topic, "consumer", expected, members);
        Member third = join(bootstrap, topic, settings, members);
        await("the third shares", () -> share(second, third));
        round(bootstrap, topic, "both again", expected, members);
        second.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        await("the third takes over", () -> share(third));
        round(bootstrap, topic, "classic", expected, members);
        third.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        return outcome(expected, members);
    }

    private static Object outcome(Set<String> expected, List<Member> members) {
        List<String> all = new ArrayList<>();
        List<String> failures = new ArrayList<>();
        for (Member member : members) {
            all.addAll(member.read);
            if (member.failure != null) failures.add(member.failure.toString());
        }
        return Map.of("expected", expected.size(), "read", all.size(), "distinct", new HashSet<>(all).size(), "failures", failures);
    }

    private static Object pattern(String bootstrap, String topic, Map<String, Object> settings) throws Exception {
        create(bootstrap, topic + ".first", 1);
        KafkaConsumer<byte[], byte[]> consumer = Records.consumer(bootstrap, settings);
        if ("consumer".equals(settings.get("group.protocol"))) {
            consumer.subscribe(new SubscriptionPattern(topic + "\\..*"));
        } else {
            consumer.subscribe(Pattern.compile(topic + "\\..*"));
        }
        Member member = new Member(consumer);
        await("the first topic", () -> topics(member).equals(Set.of(topic + ".first")));
        create(bootstrap, topic + ".second", 1);
        create(bootstrap, "other." + topic + ".third", 1);
        await("the new topic", () -> topics(member).equals(Set.of(topic + ".first", topic + ".second")));
        produce(bootstrap, topic + ".second", 1, "new");
        await("its records", () -> member.read.size() == ROUND);
        member.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        return Map.of("read", member.read.size(), "topics", new TreeSet<>(topics(member)));
    }

    private static Object staticMember(String bootstrap, String topic, Map<String, Object> settings) throws Exception {
        List<Member> members = new ArrayList<>();
        Member one = join(bootstrap, topic, with(settings, "group.instance.id", "one"), members);
        await("one has all", () -> share(one));
        Member two = join(bootstrap, topic, with(settings, "group.instance.id", "two"), members);
        await("two share", () -> share(one, two));
        Set<TopicPartition> before = two.owned;
        two.end(CloseOptions.GroupMembershipOperation.DEFAULT);
        Thread.sleep(500);
        boolean kept = one.owned.size() == PARTITIONS / 2;
        Member again = join(bootstrap, topic, with(settings, "group.instance.id", "two"), members);
        await("it is back", () -> again.owned.equals(before));
        boolean same = one.owned.size() == PARTITIONS / 2;
        again.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        one.end(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        return Map.of("kept_while_away", kept, "kept_after_return", same);
    }

    private static Map<String, Object> with(Map<String, Object> settings, String key, String value) {
        Map<String, Object> more = new TreeMap<>(settings);
        more.put(key, value);
        return more;
    }

    private static Member join(String bootstrap, String topic, Map<String, Object> settings, List<Member> members) {
        KafkaConsumer<byte[], byte[]> consumer = Records.consumer(bootstrap, settings);
        consumer.subscribe(List.of(topic));
        Member member = new Member(consumer);
        members.add(member);
        return member;
    }

    private static Set<String> topics(Member member) {
        Set<String> names = new TreeSet<>();
        member.owned.forEach(partition -> names.add(partition.topic()));
        return names;
    }

    private static boolean share(Member... members) {
        Set<TopicPartition> all = new HashSet<>();
        for (Member member : members) {
            if (member.owned.size() != PARTITIONS / members.length) return false;
            all.addAll(member.owned);
        }
        return all.size() == PARTITIONS;
    }

    private static void round(String bootstrap, String topic, String name, Set<String> expected, List<Member> members) throws Exception {
        expected.addAll(produce(bootstrap, topic, PARTITIONS, name));
        await("all of " + name, () -> {
            Set<String> read = new HashSet<>();
            for (Member member : members) {
                read.addAll(member.read);
                if (member.isAlive() && member.committed < member.read.size()) return false;
            }
            return read.containsAll(expected);
        });
    }

    private static Set<String> produce(String bootstrap, String topic, int partitions, String name) {
        Set<String> values = new HashSet<>();
        try (KafkaProducer<byte[], byte[]> producer = Records.producer(bootstrap, Map.of())) {
            for (int number = 0; number < ROUND; number++) {
                String value = name + " " + number;
                values.add(value);
                producer.send(new ProducerRecord<>(topic, number % partitions, null, Records.bytes(value)));
            }
        }
        return values;
    }

    private static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    private static void await(String what, BooleanSupplier reached) throws InterruptedException {
        long deadline = System.currentTimeMillis() + Records.PATIENCE_MILLISECONDS;
        while (!reached.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("not reached: " + what);
            Thread.sleep(20);
        }
    }
}
