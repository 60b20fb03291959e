import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.Stores;

/** Joins of departures and landings, by aircraft. */
final class Joins {
    private static final Serde<String> KEYS = Serdes.String();
    private static final Consumed<String, JsonNode> READ = Consumed.with(KEYS, Json.NODES);
    private static final Produced<String, JsonNode> WRITTEN = Produced.with(KEYS, Json.NODES);
    private static final Duration BEFORE = Duration.ZERO;
    private static final Duration AFTER = Duration.ofHours(8);

    /** Stream and stream. */
    static void pairs(StreamsBuilder builder, Compared.Topics topics) {
        KStream<String, JsonNode> departures = builder.stream(topics.input("departures"), READ);
        KStream<String, JsonNode> landings = builder.stream(topics.input("landings"), READ);
        JoinWindows within =
                JoinWindows.ofTimeDifferenceAndGrace(AFTER, Compared.GRACE).before(BEFORE);
        departures
                .join(landings, Joins::both, within, streams("inner"))
                .to(topics.output("pairs.inner"), WRITTEN);
        departures
                .leftJoin(landings, Joins::both, within, streams("left"))
                .to(topics.output("pairs.left"), WRITTEN);
        departures
                .outerJoin(landings, Joins::both, within, streams("outer"))
                .to(topics.output("pairs.outer"), WRITTEN);
    }

    /** Stream and table. */
    static void lookups(StreamsBuilder builder, Compared.Topics topics) {
        KStream<String, JsonNode> departures = builder.stream(topics.input("departures"), READ);
        KTable<String, JsonNode> current = builder.table(topics.input("rows"), READ);
        Joined<String, JsonNode, JsonNode> joined = Joined.with(KEYS, Json.NODES, Json.NODES);
        departures.join(current, Joins::both, joined).to(topics.output("lookup.inner"), WRITTEN);
        departures.leftJoin(current, Joins::both, joined).to(topics.output("lookup.left"), WRITTEN);
    }

    /** Stream and versioned table. */
    static void versions(StreamsBuilder builder, Compared.Topics topics) {
        KStream<String, JsonNode> departures = builder.stream(topics.input("departures"), READ);
        KTable<String, JsonNode> rows =
                builder.table(
                        topics.input("rows"),
                        READ,
                        Materialized.<String, JsonNode>as(
                                        Stores.persistentVersionedKeyValueStore(
                                                "rows", Compared.HISTORY))
                                .withKeySerde(KEYS)
                                .withValueSerde(Json.NODES));
        Joined<String, JsonNode, JsonNode> joined = Joined.with(KEYS, Json.NODES, Json.NODES);
        departures.join(rows, Joins::both, joined).to(topics.output("versions.inner"), WRITTEN);
        departures.leftJoin(rows, Joins::both, joined).to(topics.output("versions.left"), WRITTEN);
    }

    /** Table and table. */
    static void tables(StreamsBuilder builder, Compared.Topics topics) {
        KTable<String, JsonNode> departed = builder.table(topics.input("departed"), READ);
        KTable<String, JsonNode> landed = builder.table(topics.input("rows"), READ);
        departed.join(landed, Joins::both)
                .toStream()
                .to(topics.output("tables.inner"), WRITTEN);
        departed.leftJoin(landed, Joins::both)
                .toStream()
                .to(topics.output("tables.left"), WRITTEN);
        departed.outerJoin(landed, Joins::both)
                .toStream()
                .to(topics.output("tables.outer"), WRITTEN);
    }

    private static JsonNode both(JsonNode left, JsonNode right) {
        ObjectNode result = Json.MAPPER.createObjectNode();
        result.set("left", left);
        result.set("right", right);
        return result;
    }

    private static StreamJoined<String, JsonNode, JsonNode> streams(String name) {
        return StreamJoined.with(KEYS, Json.NODES, Json.NODES).withName(name).withStoreName(name);
    }
}
