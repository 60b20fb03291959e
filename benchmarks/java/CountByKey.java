import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** A count per key in Kafka Streams: exactly_once_v2, one thread, JSON with Jackson, RocksDB. */
public final class CountByKey {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) {
        Map<String, String> work = System.getenv();
        Serde<Bytes> bytes = Serdes.Bytes();
        Serde<JsonNode> json =
                Serdes.serdeFrom((topic, node) -> encode(node), (topic, data) -> decode(data));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(work.get("BENCH_INPUT"), Consumed.with(bytes, json))
                .groupByKey(Grouped.with(bytes, json))
                .count(
                        Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                                .withKeySerde(bytes)
                                .withValueSerde(Serdes.Long()))
                .toStream()
                .to(work.get("BENCH_OUTPUT"), Produced.with(bytes, Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties(work));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Properties properties(Map<String, String> work) {
        double commitSeconds = Double.parseDouble(work.get("BENCH_COMMIT_SECONDS"));
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, work.get("BENCH_APPLICATION"));
        properties.put(
                StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, work.get("BENCH_BOOTSTRAP_SERVERS"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Math.round(commitSeconds * 1000));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, work.get("BENCH_STATE_DIRECTORY"));
        if (work.containsKey("BENCH_CACHE_BYTES")) {
            properties.put(
                    StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG,
                    Long.parseLong(work.get("BENCH_CACHE_BYTES")));
        }
        properties.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        return properties;
    }

    private static byte[] encode(JsonNode node) {
        try {
            return MAPPER.writeValueAsBytes(node);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode decode(byte[] data) {
        try {
            return MAPPER.readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
