import java.util.List;

/** The order as a model. */
public record Order(
        long order,
        String customer,
        String product,
        long amount,
        double price,
        String placed_at,
        boolean express,
        List<String> tags,
        String note) {
    Order doubled() {
        return new Order(
                order, customer, product, amount * 2, price, placed_at, express, tags, note);
    }
}
