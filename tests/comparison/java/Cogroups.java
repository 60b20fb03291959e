import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** Departures and landings of an aircraft in one aggregate, without windows and in hours. */
final class Cogroups {
    private static final Serde<String> KEYS = Serdes.String();

    /** Longer than the input: no window is forgotten. */
    private static final Duration RETENTION = Duration.ofDays(90);

    private static final TimeWindows TUMBLING =
            TimeWindows.ofSizeAndGrace(Compared.HOUR, Compared.GRACE);

    static void declare(StreamsBuilder builder, Compared.Topics topics) {
        KGroupedStream<String, JsonNode> departures = grouped(builder, topics.input("departures"));
        KGroupedStream<String, JsonNode> landings = grouped(builder, topics.input("landings"));
        CogroupedKStream<String, JsonNode> both =
                departures
                        .<JsonNode>cogroup((key, flight, met) -> added(met, "departures", flight))
                        .cogroup(landings, (key, flight, met) -> added(met, "landings", flight));
        both.aggregate(
                        Json.MAPPER::createObjectNode,
                        Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as("met")
                                .withKeySerde(KEYS)
                                .withValueSerde(Json.NODES))
                .toStream()
                .to(topics.output("cogroup"), Produced.with(KEYS, Json.NODES));
        write(
                topics.output("cogroup.tumbling.each"),
                both.windowedBy(TUMBLING)
                        .aggregate(Json.MAPPER::createObjectNode, windows("each")));
        write(
                topics.output("cogroup.tumbling.close"),
                both.windowedBy(TUMBLING)
                        .aggregate(Json.MAPPER::createObjectNode, windows("close"))
                        .suppress(
                                Suppressed.untilWindowCloses(BufferConfig.unbounded())));
    }

    private static KGroupedStream<String, JsonNode> grouped(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(KEYS, Json.NODES))
                .groupByKey(Grouped.with(KEYS, Json.NODES));
    }

    /** The number of flights of each kind, and the last one: the order of records shows. */
    private static JsonNode added(JsonNode met, String kind, JsonNode flight) {
        ObjectNode result = met.deepCopy();
        result.put(kind, met.path(kind).asLong() + 1);
        result.put("last", kind + " " + Compared.number(flight, "n"));
        return result;
    }

    private static Materialized<String, JsonNode, WindowStore<Bytes, byte[]>> windows(
            String store) {
        return Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as(store)
                .withKeySerde(KEYS)
                .withValueSerde(Json.NODES)
                .withRetention(RETENTION);
    }

    private static void write(String topic, KTable<Windowed<String>, JsonNode> results) {
        results.toStream()
                .map(
                        (key, value) -> {
                            ObjectNode result = Json.MAPPER.createObjectNode();
                            result.put("start", key.window().start());
                            result.put("end", key.window().end());
                            result.set("value", value);
                            return KeyValue.pair(key.key(), (JsonNode) result);
                        })
                .to(topic, Produced.with(KEYS, Json.NODES));
    }
}
