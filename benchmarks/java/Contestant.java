import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** A discipline in Kafka Streams with one thread; exactly_once_v2 unless told otherwise. */
public final class Contestant {
    private static final Map<String, String> GUARANTEES =
            Map.of(
                    "exactly_once", StreamsConfig.EXACTLY_ONCE_V2,
                    "at_least_once", StreamsConfig.AT_LEAST_ONCE);

    public static void main(String[] arguments) {
        Map<String, String> work = System.getenv();
        StreamsBuilder builder = new StreamsBuilder();
        Disciplines.declare(work.get("BENCH_DISCIPLINE"), builder, work);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties(work));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Properties properties(Map<String, String> work) {
        double commitSeconds = Double.parseDouble(work.get("BENCH_COMMIT_SECONDS"));
        String guarantee = work.getOrDefault("BENCH_GUARANTEE", "exactly_once");
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, work.get("BENCH_APPLICATION"));
        properties.put(
                StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, work.get("BENCH_BOOTSTRAP_SERVERS"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, GUARANTEES.get(guarantee));
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Math.round(commitSeconds * 1000));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, work.get("BENCH_STATE_DIRECTORY"));
        properties.put(
                StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG,
                work.getOrDefault("BENCH_TRANSACTIONAL_STORES", "false"));
        if (work.containsKey("BENCH_CACHE_BYTES")) {
            properties.put(
                    StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG,
                    Long.parseLong(work.get("BENCH_CACHE_BYTES")));
        }
        properties.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        return properties;
    }
}
