package example;

import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import txn.gateway.Transaction;
import txn.gateway.TransactionClient;
import txn.gateway.TransactionOperations;

/** Orders an apple: takes it from the stock and inserts the order, in one transaction. */
public final class Order {
    record Stock(int left) {}

    private Order() {}

    static int order(Transaction transaction) {
        Stock apple = transaction.get("stock", "apple", Stock.class)
                .filter(stock -> stock.left() > 0)
                .orElseThrow(() -> new IllegalStateException("sold out"));
        transaction.merge("stock", "apple", Map.of("left", apple.left() - 1));
        transaction.insert("orders", UUID.randomUUID().toString(), Map.of("item", "apple"));
        return apple.left() - 1;
    }

    public static int run(TransactionOperations transactions) {
        transactions.executeWithoutResult(transaction -> transaction.put("stock", "apple", new Stock(10)));
        return transactions.execute(Order::order);
    }

    public static void main(String[] arguments) {
        String url = Optional.ofNullable(System.getenv("TXN_GATEWAY_URL")).orElse("http://127.0.0.1:9280");
        System.out.println(run(new TransactionClient(url)) + " apples are left");
    }
}
