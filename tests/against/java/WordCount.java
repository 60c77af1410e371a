import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * A Kafka Streams program as its users write it, exactly once: lines are copied as they are, and their words are counted.
 *
 * Arguments: bootstrap, application id, state folder, the topics of lines, copies and counts, then further settings as key=value. A count
 * needs a repartition topic (the word becomes the key), a store on disk and that store's changelog topic. No cache, so that every count of a
 * word is written. It says each state that it reaches on stdout, and ends when its stdin does.
 */
public final class WordCount {
    private static final Duration CLOSING = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        for (String setting : List.of(arguments).subList(6, arguments.length)) {
            settings.put(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        }
        StreamsBuilder topology = new StreamsBuilder();
        KStream<String, String> lines = topology.stream(arguments[3]);
        lines.to(arguments[4]);
        lines.flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .mapValues(String::valueOf)
            .toStream()
            .to(arguments[5]);
        run(new KafkaStreams(topology.build(), settings));
    }

    private static void run(KafkaStreams streams) throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((state, before) -> {
            System.out.println(state);
            if (state == KafkaStreams.State.NOT_RUNNING || state == KafkaStreams.State.ERROR) ended.countDown();
        });
        Thread asked = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // the same as its end
            }
            streams.close(CLOSING);
        });
        asked.setDaemon(true);
        asked.start();
        streams.start();
        ended.await();
        System.exit(streams.state() == KafkaStreams.State.NOT_RUNNING ? 0 : 1);
    }
}
