import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * The applications that are compared, each with one thread: BOOTSTRAP NAME STATE_DIRECTORY
 * APPLICATION...
 *
 * <p>Results are forwarded as records are processed: without caches, and without the wall-clock
 * second for which Kafka Streams would withhold windows and unpaired records.
 */
public final class Compared {
    public static void main(String[] arguments) throws InterruptedException {
        String servers = arguments[0];
        String name = arguments[1];
        Topics topics = new Topics(name);
        Map<String, Consumer<StreamsBuilder>> applications =
                Map.of(
                        "windows", builder -> Windows.declare(builder, topics),
                        "unretained", builder -> Windows.declareUnretained(builder, topics),
                        "pairs", builder -> Joins.pairs(builder, topics),
                        "lookups", builder -> Joins.lookups(builder, topics),
                        "versions", builder -> Joins.versions(builder, topics),
                        "cogroups", builder -> Cogroups.declare(builder, topics),
                        "tables", builder -> Joins.tables(builder, topics),
                        "groups", builder -> Groups.declare(builder, topics));
        List<KafkaStreams> running = new ArrayList<>();
        for (int n = 3; n < arguments.length; n++) {
            StreamsBuilder builder = new StreamsBuilder();
            applications.get(arguments[n]).accept(builder);
            Properties properties = properties(servers, name, arguments[n], arguments[2]);
            running.add(new KafkaStreams(builder.build(properties), properties));
        }
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    running.forEach(KafkaStreams::close);
                                    stopped.countDown();
                                }));
        running.forEach(KafkaStreams::start);
        stopped.await();
    }

    static Properties properties(
            String servers, String name, String application, String directory) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, name + ".theirs." + application);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        // On a busy machine transactions timed out, and in-memory windows then lacked records.
        properties.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 600_000);
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 300_000);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        properties.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, 3000);
        properties.put(
                StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        properties.put(
                StreamsConfig.InternalConfig
                        .EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX,
                0L);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        return properties;
    }

    /** Names of topics, and how they are read and written. */
    record Topics(String name) {
        String input(String topic) {
            return name + ".in." + topic;
        }

        String output(String topic) {
            return name + ".theirs." + topic;
        }
    }

    static final Duration HOUR = Duration.ofHours(1);
    static final Duration GRACE = Duration.ofHours(2);
    static final Duration HISTORY = Duration.ofHours(12);

    static long number(JsonNode value, String field) {
        return value.get(field).asLong();
    }
}
