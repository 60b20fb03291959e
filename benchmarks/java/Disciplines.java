import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** What each discipline does. State is in RocksDB. */
final class Disciplines {
    private static final Serde<Bytes> BYTES = Serdes.Bytes();
    private static final Produced<Bytes, JsonNode> AS_JSON = Produced.with(BYTES, Json.NODES);

    static void declare(String discipline, StreamsBuilder builder, Map<String, String> work) {
        String source = work.get("BENCH_INPUT");
        String target = work.get("BENCH_OUTPUT");
        switch (discipline) {
            case "passthrough", "passthrough-1k" -> read(builder, source, BYTES).to(
                    target, Produced.with(BYTES, BYTES));
            case "json" -> read(builder, source, Json.NODES)
                    .mapValues(order -> multiplied(order, 2))
                    .to(target, AS_JSON);
            case "model" -> {
                Serde<Order> orders = Json.serde(Order.class);
                read(builder, source, orders)
                        .mapValues(Order::doubled)
                        .to(target, Produced.with(BYTES, orders));
            }
            case "fan-out" -> {
                KStream<Bytes, Bytes> orders = read(builder, source, BYTES);
                for (String suffix : new String[] {"", ".second", ".third"}) {
                    orders.to(target + suffix, Produced.with(BYTES, BYTES));
                }
            }
            case "count" -> count(read(builder, source, Json.NODES))
                    .to(target, Produced.with(BYTES, Serdes.Long()));
            case "window" -> countInWindows(read(builder, source, Json.NODES)).to(target, AS_JSON);
            case "join" -> join(builder, source, work.get("BENCH_TABLE")).to(target, AS_JSON);
            case "groups" -> Tables.groups(builder, source, target);
            case "foreign" -> Tables.foreign(builder, source, work.get("BENCH_TABLE"))
                    .to(target, AS_JSON);
            default -> throw new IllegalArgumentException("there is no discipline " + discipline);
        }
    }

    private static <T> KStream<Bytes, T> read(
            StreamsBuilder builder, String source, Serde<T> values) {
        return builder.stream(source, Consumed.with(BYTES, values));
    }

    private static KStream<Bytes, Long> count(KStream<Bytes, JsonNode> orders) {
        return orders.groupByKey(Grouped.with(BYTES, Json.NODES))
                .count(
                        Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                                .withKeySerde(BYTES)
                                .withValueSerde(Serdes.Long()))
                .toStream();
    }

    private static KStream<Bytes, JsonNode> countInWindows(KStream<Bytes, JsonNode> orders) {
        return orders.groupByKey(Grouped.with(BYTES, Json.NODES))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
                .count(
                        Materialized.<Bytes, Long, WindowStore<Bytes, byte[]>>as("counts")
                                .withKeySerde(BYTES)
                                .withValueSerde(Serdes.Long())
                                .withCachingDisabled())
                .toStream()
                .map(Disciplines::result);
    }

    private static KeyValue<Bytes, JsonNode> result(Windowed<Bytes> key, long count) {
        ObjectNode result = Json.MAPPER.createObjectNode();
        result.put("start", key.window().start());
        result.put("end", key.window().end());
        result.put("value", count);
        return KeyValue.pair(key.key(), result);
    }

    private static KStream<Bytes, JsonNode> join(
            StreamsBuilder builder, String source, String table) {
        KTable<Bytes, JsonNode> customers = builder.table(table, Consumed.with(BYTES, Json.NODES));
        return read(builder, source, Json.NODES)
                .join(
                        customers,
                        (order, customer) -> multiplied(order, customer.get("factor").asLong()),
                        Joined.with(BYTES, Json.NODES, Json.NODES));
    }

    static JsonNode multiplied(JsonNode order, long factor) {
        ((ObjectNode) order).put("amount", order.get("amount").asLong() * factor);
        return order;
    }
}
