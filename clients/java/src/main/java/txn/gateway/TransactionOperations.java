package txn.gateway;

import java.util.function.Consumer;

/**
 * Runs closures in transactions, with the methods of the interface of this name in Spring.
 *
 * <p>Services depend on this interface, and tests replace it.
 */
public interface TransactionOperations {
    /**
     * Calls the closure and commits its operations, all or none. If documents have changed since the closure read them,
     * the closure runs again on the new contents. An exception of the closure writes nothing.
     */
    <T> T execute(TransactionCallback<T> action);

    /** Runs a closure without a result. */
    default void executeWithoutResult(Consumer<Transaction> action) {
        execute(transaction -> {
            action.accept(transaction);
            return null;
        });
    }
}
