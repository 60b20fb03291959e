import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The work of `python -m benchmarks faults` in Kafka Streams, exactly_once_v2. */
public final class Faulted {
    private static final AtomicLong CALLS = new AtomicLong();
    private static final long PROCESS = ProcessHandle.current().pid();

    public static void main(String[] arguments) {
        Map<String, String> work = System.getenv();
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore("counts"), Serdes.Bytes(), Serdes.Long()));
        Path raise = Path.of(work.get("FAULTS_RAISE"));
        KStream<Bytes, JsonNode> counted = builder
                .stream(work.get("FAULTS_INPUT"), Consumed.with(Serdes.Bytes(), Json.NODES))
                .processValues(() -> new Counter(raise), "counts");
        for (String output : new String[] {"FAULTS_OUTPUT", "FAULTS_SECOND_OUTPUT"}) {
            counted.to(work.get(output), Produced.with(Serdes.Bytes(), Json.NODES));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), properties(work));
        streams.setUncaughtExceptionHandler(
                error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Properties properties(Map<String, String> work) {
        double commitSeconds = Double.parseDouble(work.get("FAULTS_COMMIT_SECONDS"));
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, work.get("FAULTS_GROUP"));
        properties.put(
                StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, work.get("FAULTS_BOOTSTRAP_SERVERS"));
        properties.put(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Math.round(commitSeconds * 1000));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, work.get("FAULTS_DIRECTORY"));
        properties.put(
                StreamsConfig.REPLICATION_FACTOR_CONFIG,
                Integer.parseInt(work.get("FAULTS_REPLICAS")));
        properties.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG),
                Integer.parseInt(work.get("FAULTS_SESSION_TIMEOUT_MS")));
        properties.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1000);
        properties.put(
                StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG),
                Integer.parseInt(work.get("FAULTS_TRANSACTION_TIMEOUT_MS")));
        return properties;
    }

    /** Stamps a record with its place among those of its key. */
    private static final class Counter implements FixedKeyProcessor<Bytes, JsonNode, JsonNode> {
        private final Path raise;
        private FixedKeyProcessorContext<Bytes, JsonNode> context;
        private KeyValueStore<Bytes, Long> counts;

        Counter(Path raise) {
            this.raise = raise;
        }

        @Override
        public void init(FixedKeyProcessorContext<Bytes, JsonNode> context) {
            this.context = context;
            this.counts = context.getStateStore("counts");
        }

        @Override
        public void process(FixedKeyRecord<Bytes, JsonNode> record) {
            if (Files.exists(raise)) {
                raise.toFile().delete();
                throw new IllegalStateException("the transform fails once, as it was asked to");
            }
            Long before = counts.get(record.key());
            long count = before == null ? 1 : before + 1;
            counts.put(record.key(), count);
            ObjectNode value = Json.MAPPER.createObjectNode();
            value.set("n", record.value().get("n"));
            value.put("by", PROCESS + "-" + CALLS.getAndIncrement());
            value.put("count", count);
            context.forward(record.withValue(value));
        }
    }
}
