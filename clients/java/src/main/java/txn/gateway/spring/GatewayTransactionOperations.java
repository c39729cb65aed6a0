package txn.gateway.spring;

import org.springframework.transaction.support.TransactionCallback;
import org.springframework.transaction.support.TransactionOperations;

/**
 * Spring's {@link TransactionOperations} on a client of the gateway, for services that depend on Spring's interface.
 *
 * <p>The callback receives a {@link GatewayTransactionStatus}, which has the transaction. It may run several times. It
 * joins no transaction of another resource.
 */
public final class GatewayTransactionOperations implements TransactionOperations {
    /** Ends a closure whose result is returned without a commit. */
    private static final class RolledBack extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final transient Object result;

        RolledBack(Object result) {
            super(null, null, false, false);
            this.result = result;
        }
    }

    private final txn.gateway.TransactionOperations client;

    /** Uses a client, or {@code client.forUpdate()}. */
    public GatewayTransactionOperations(txn.gateway.TransactionOperations client) {
        this.client = client;
    }

    /** Runs the callback in a transaction. After {@code setRollbackOnly()} nothing is written. */
    @Override
    @SuppressWarnings("unchecked")
    public <T> T execute(TransactionCallback<T> action) {
        try {
            return client.execute(transaction -> {
                GatewayTransactionStatus status = new GatewayTransactionStatus(transaction);
                T result = action.doInTransaction(status);
                if (status.isRollbackOnly()) {
                    throw new RolledBack(result);
                }
                return result;
            });
        } catch (RolledBack rolledBack) {
            return (T) rolledBack.result;
        }
    }
}
