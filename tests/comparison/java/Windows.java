import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Materialized.StoreType;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Aggregates of flights, by key and by window. */
final class Windows {
    private static final Serde<String> KEYS = Serdes.String();
    private static final EmitStrategy ON_CLOSE = EmitStrategy.onWindowClose();

    /** Longer than the input: no window is forgotten. */
    private static final Duration RETENTION = Duration.ofDays(90);

    private static final TimeWindows TUMBLING =
            TimeWindows.ofSizeAndGrace(Compared.HOUR, Compared.GRACE);
    private static final TimeWindows HOPPING =
            TimeWindows.ofSizeAndGrace(Duration.ofHours(2), Compared.GRACE)
                    .advanceBy(Duration.ofMinutes(30));
    private static final SlidingWindows SLIDING =
            SlidingWindows.ofTimeDifferenceAndGrace(Compared.HOUR, Compared.GRACE);
    private static final SessionWindows SESSION =
            SessionWindows.ofInactivityGapAndGrace(Duration.ofMinutes(30), Compared.GRACE);

    static void declare(StreamsBuilder builder, Compared.Topics topics) {
        KGroupedStream<String, JsonNode> flights =
                builder.stream(topics.input("flights"), Consumed.with(KEYS, Json.NODES))
                        .groupByKey(Grouped.with(KEYS, Json.NODES));
        Out out = new Out(topics);
        plain(flights, topics);

        out.write("tumbling.each", flights.windowedBy(TUMBLING).count(windows("te")));
        out.write(
                "tumbling.reduce.each",
                flights.windowedBy(TUMBLING).reduce(Windows::both, nodes("tre")));
        out.write(
                "tumbling.suppressed",
                flights.windowedBy(TUMBLING)
                        .count(windows("ts"))
                        .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
        out.write(
                "tumbling.close",
                flights.windowedBy(TUMBLING).emitStrategy(ON_CLOSE).count(windows("tc")));
        out.write("hopping.each", flights.windowedBy(HOPPING).count(windows("he")));
        out.write(
                "hopping.close",
                flights.windowedBy(HOPPING).emitStrategy(ON_CLOSE).count(windows("hc")));
        out.write("sliding.each", flights.windowedBy(SLIDING).count(windows("le")));
        out.write(
                "sliding.close",
                flights.windowedBy(SLIDING).emitStrategy(ON_CLOSE).count(windows("lc")));
        out.write("session.each", flights.windowedBy(SESSION).count(sessions("se")));
        out.write(
                "session.suppressed",
                flights.windowedBy(SESSION)
                        .count(sessions("ss"))
                        .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
        out.write(
                "session.close",
                flights.windowedBy(SESSION).emitStrategy(ON_CLOSE).count(sessions("sc")));
    }

    /** With the default retention, size and grace, and the default stores, on disk. */
    static void declareUnretained(StreamsBuilder builder, Compared.Topics topics) {
        KGroupedStream<String, JsonNode> flights =
                builder.stream(topics.input("few"), Consumed.with(KEYS, Json.NODES))
                        .groupByKey(Grouped.with(KEYS, Json.NODES));
        Out out = new Out(topics);
        out.write(
                "few.tumbling.close",
                flights.windowedBy(TUMBLING).emitStrategy(ON_CLOSE).count(onDisk()));
        out.write(
                "few.session.close",
                flights.windowedBy(SESSION).emitStrategy(ON_CLOSE).count(onDisk()));
    }

    private static void plain(KGroupedStream<String, JsonNode> flights, Compared.Topics topics) {
        Produced<String, Long> longs = Produced.with(KEYS, Json.serde(Long.class));
        flights.count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("count"))
                .toStream()
                .to(topics.output("count"), longs);
        flights.aggregate(
                        () -> 0L,
                        (key, flight, sum) -> sum + Compared.number(flight, "miles"),
                        Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("sum")
                                .withValueSerde(Serdes.Long()))
                .toStream()
                .to(topics.output("sum"), longs);
        flights.reduce(Windows::both)
                .toStream()
                .to(topics.output("reduce"), Produced.with(KEYS, Json.NODES));
    }

    /** The later one's number with the miles of both: the order of records shows. */
    private static JsonNode both(JsonNode former, JsonNode later) {
        ObjectNode result = Json.MAPPER.createObjectNode();
        result.put("n", Compared.number(later, "n"));
        result.put("miles", Compared.number(former, "miles") + Compared.number(later, "miles"));
        return result;
    }

    private static Materialized<String, Long, WindowStore<Bytes, byte[]>> windows(String store) {
        return Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(store)
                .withKeySerde(KEYS)
                .withValueSerde(Serdes.Long())
                .withRetention(RETENTION);
    }

    private static Materialized<String, JsonNode, WindowStore<Bytes, byte[]>> nodes(String store) {
        return Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as(store)
                .withKeySerde(KEYS)
                .withValueSerde(Json.NODES)
                .withRetention(RETENTION);
    }

    private static Materialized<String, Long, SessionStore<Bytes, byte[]>> sessions(String store) {
        return Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(store)
                .withKeySerde(KEYS)
                .withValueSerde(Serdes.Long())
                .withRetention(RETENTION);
    }

    private static <S extends StateStore> Materialized<String, Long, S> onDisk() {
        return Materialized.as(StoreType.ROCKS_DB);
    }

    private record Out(Compared.Topics topics) {
        <V> void write(String output, KTable<Windowed<String>, V> results) {
            results.toStream()
                    .map(Windows::result)
                    .to(topics.output(output), Produced.with(KEYS, Json.NODES));
        }
    }

    private static <V> KeyValue<String, JsonNode> result(Windowed<String> key, V value) {
        ObjectNode result = Json.MAPPER.createObjectNode();
        result.put("start", key.window().start());
        result.put("end", key.window().end());
        result.set("value", Json.MAPPER.valueToTree(value));
        return KeyValue.pair(key.key(), result);
    }
}
