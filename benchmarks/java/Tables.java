import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Works with the changes of the table of orders. */
final class Tables {
    private static final Serde<Bytes> BYTES = Serdes.Bytes();
    private static final Consumed<Bytes, JsonNode> READ = Consumed.with(BYTES, Json.NODES);

    static void groups(StreamsBuilder builder, String source, String target) {
        KGroupedTable<Bytes, JsonNode> groups =
                builder.table(source, READ)
                        .groupBy(
                                (key, order) -> KeyValue.pair(customer(order), order),
                                Grouped.with("customers", BYTES, Json.NODES));
        write(groups.count(longs("counts")), target);
        write(
                groups.aggregate(
                        () -> 0L,
                        (key, order, sum) -> sum + order.get("amount").asLong(),
                        (key, order, sum) -> sum - order.get("amount").asLong(),
                        longs("sums")),
                target + ".sum");
    }

    static KStream<Bytes, JsonNode> foreign(StreamsBuilder builder, String source, String table) {
        KTable<Bytes, JsonNode> customers = builder.table(table, READ);
        return builder.table(source, READ)
                .join(
                        customers,
                        Tables::customer,
                        (order, customer) ->
                                Disciplines.multiplied(order, customer.get("factor").asLong()))
                .toStream();
    }

    private static Bytes customer(JsonNode order) {
        return Bytes.wrap(order.get("customer").asText().getBytes(StandardCharsets.UTF_8));
    }

    private static void write(KTable<Bytes, Long> table, String topic) {
        table.toStream().to(topic, Produced.with(BYTES, Serdes.Long()));
    }

    private static Materialized<Bytes, Long, KeyValueStore<Bytes, byte[]>> longs(String name) {
        return Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as(name)
                .withKeySerde(BYTES)
                .withValueSerde(Serdes.Long());
    }
}
