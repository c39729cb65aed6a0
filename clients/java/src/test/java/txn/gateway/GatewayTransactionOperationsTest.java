package txn.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.SimpleTransactionStatus;
import org.springframework.transaction.support.TransactionOperations;
import txn.gateway.spring.GatewayTransactionOperations;
import txn.gateway.spring.GatewayTransactionStatus;

/** Spring's interface against a gateway process. */
class GatewayTransactionOperationsTest extends GatewayTest {
    private TransactionOperations operations;

    @BeforeEach
    void open() {
        operations = new GatewayTransactionOperations(new TransactionClient(gateway.url));
    }

    private static int take(TransactionStatus status) {
        Transaction transaction = GatewayTransactionStatus.of(status);
        Stock apple = transaction.get("stock", "apple", Stock.class).orElseThrow();
        transaction.put("stock", "apple", new Stock(apple.left() - 1));
        return apple.left() - 1;
    }

    @Test
    void callback_commits() {
        assertEquals(9, operations.execute(GatewayTransactionOperationsTest::take));
        operations.executeWithoutResult(GatewayTransactionOperationsTest::take);
        assertEquals(8, left());
    }

    @Test
    void rollback_only_writes_nothing() {
        Integer result = operations.execute(status -> {
            int left = take(status);
            status.setRollbackOnly();
            return left;
        });
        assertEquals(9, result);
        assertEquals(10, left());
    }

    @Test
    void exception_writes_nothing() {
        assertThrows(IllegalStateException.class, () -> operations.executeWithoutResult(status -> {
            take(status);
            throw new IllegalStateException("sold out");
        }));
        assertEquals(10, left());
    }

    @Test
    void conflict_runs_the_callback_again() {
        AtomicInteger runs = new AtomicInteger();
        int left = operations.execute(status -> {
            int after = take(status);
            if (runs.getAndIncrement() == 0) {
                gateway.put("stock", "apple", Map.of("left", 5));
            }
            return after;
        });
        assertEquals(2, runs.get());
        assertEquals(4, left);
        assertEquals(4, left());
    }

    @Test
    void status_of_another_manager_is_refused() {
        assertThrows(IllegalArgumentException.class,
                () -> GatewayTransactionStatus.of(new SimpleTransactionStatus()));
    }
}
