import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Joins of the table of flights by foreign keys: BOOTSTRAP NAME STATE_DIRECTORY. */
public final class Foreign {
    private static final Serde<String> KEYS = Serdes.String();
    private static final Consumed<String, JsonNode> READ = Consumed.with(KEYS, Json.NODES);
    private static final Produced<String, JsonNode> WRITTEN = Produced.with(KEYS, Json.NODES);
    private static final Map<String, String> FIELDS =
            Map.of("planes", "tailnum", "airlines", "carrier", "airports", "dest");

    public static void main(String[] arguments) throws InterruptedException {
        Compared.Topics topics = new Compared.Topics(arguments[1]);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, JsonNode> flights = builder.table(topics.input("flights"), READ);
        FIELDS.forEach(
                (name, field) -> {
                    KTable<String, JsonNode> rows = builder.table(topics.input(name), READ);
                    Function<JsonNode, String> key =
                            value -> value.get(field).isNull() ? null : value.get(field).asText();
                    flights.join(rows, key, Foreign::both, kept())
                            .toStream()
                            .to(topics.output(name + ".inner"), WRITTEN);
                    flights.leftJoin(rows, key, Foreign::both, kept())
                            .toStream()
                            .to(topics.output(name + ".left"), WRITTEN);
                });
        Properties properties =
                Compared.properties(arguments[0], arguments[1], "foreign", arguments[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    streams.close();
                                    stopped.countDown();
                                }));
        streams.start();
        stopped.await();
    }

    private static Materialized<
                    String,
                    JsonNode,
                    org.apache.kafka.streams.state.KeyValueStore<
                            org.apache.kafka.common.utils.Bytes, byte[]>>
            kept() {
        return Materialized.with(KEYS, Json.NODES);
    }

    private static JsonNode both(JsonNode left, JsonNode right) {
        ObjectNode result = Json.MAPPER.createObjectNode();
        result.set("left", left);
        result.set("right", right);
        return result;
    }
}
