import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** JSON with Jackson. */
final class Json {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final Serde<JsonNode> NODES = serde(JsonNode.class);

    static <T> Serde<T> serde(Class<T> type) {
        return Serdes.serdeFrom((topic, value) -> encode(value), (topic, data) -> decode(data, type));
    }

    private static byte[] encode(Object value) {
        try {
            return value == null ? null : MAPPER.writeValueAsBytes(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <T> T decode(byte[] data, Class<T> type) {
        try {
            return data == null ? null : MAPPER.readValue(data, type);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
