import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Aggregates of grouped tables. */
final class Groups {
    private static final Serde<String> KEYS = Serdes.String();
    private static final Consumed<String, JsonNode> READ = Consumed.with(KEYS, Json.NODES);

    static void declare(StreamsBuilder builder, Compared.Topics topics) {
        KTable<String, JsonNode> rows = builder.table(topics.input("grouped"), READ);
        KTable<String, JsonNode> others = builder.table(topics.input("others"), READ);
        KGroupedTable<String, JsonNode> groups = group(rows, "rows");
        KTable<String, Long> counts = groups.count(longs("count"));
        write(counts, topics.output("groups.count"));
        write(
                groups.aggregate(
                        () -> 0L,
                        (key, row, sum) -> sum + Compared.number(row, "miles"),
                        (key, row, sum) -> sum - Compared.number(row, "miles"),
                        longs("sum")),
                topics.output("groups.sum"));
        groups.reduce(
                        (one, other) -> added(one, other, 1),
                        (one, other) -> added(one, other, -1),
                        nodes("reduce"))
                .toStream()
                .to(topics.output("groups.reduce"), Produced.with(KEYS, Json.NODES));
        groups.aggregate(
                        Json.MAPPER::createObjectNode,
                        (key, row, seen) -> seen(seen, row, 1),
                        (key, row, seen) -> seen(seen, row, -1),
                        nodes("aggregate"))
                .toStream()
                .to(topics.output("groups.aggregate"), Produced.with(KEYS, Json.NODES));
        KTable<String, JsonNode> far =
                rows.filter((key, row) -> Compared.number(row, "miles") > 1000);
        write(group(far, "far").count(longs("far")), topics.output("groups.far"));
        KTable<String, JsonNode> joined = rows.join(others, (row, other) -> row);
        write(group(joined, "joined").count(longs("joined")), topics.output("groups.joined"));
        write(
                counts.groupBy(
                                (key, count) -> KeyValue.pair(Long.toString(count % 10), count),
                                Grouped.with("sizes", KEYS, Serdes.Long()))
                        .count(longs("sizes")),
                topics.output("groups.sizes"));
    }

    private static KGroupedTable<String, JsonNode> group(
            KTable<String, JsonNode> table, String name) {
        return table.groupBy(
                (key, row) -> KeyValue.pair(row.get("to").asText(null), row),
                Grouped.with(name, KEYS, Json.NODES));
    }

    private static JsonNode added(JsonNode one, JsonNode other, int sign) {
        ObjectNode result = Json.MAPPER.createObjectNode();
        result.put("n", Compared.number(other, "n"));
        result.put("miles", Compared.number(one, "miles") + sign * Compared.number(other, "miles"));
        return result;
    }

    private static JsonNode seen(JsonNode seen, JsonNode row, int sign) {
        ObjectNode result = seen.deepCopy();
        String miles = row.get("miles").asText();
        long count = result.path(miles).asLong(0) + sign;
        if (count == 0) {
            result.remove(miles);
        } else {
            result.put(miles, count);
        }
        return result.isEmpty() ? null : result;
    }

    private static void write(KTable<String, Long> table, String topic) {
        table.toStream()
                .mapValues(number -> (JsonNode) Json.MAPPER.getNodeFactory().numberNode(number))
                .to(topic, Produced.with(KEYS, Json.NODES));
    }

    private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> longs(String name) {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(name)
                .withKeySerde(KEYS)
                .withValueSerde(Serdes.Long());
    }

    private static Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> nodes(
            String name) {
        return Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as(name)
                .withKeySerde(KEYS)
                .withValueSerde(Json.NODES);
    }
}
