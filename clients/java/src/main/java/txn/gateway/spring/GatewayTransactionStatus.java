package txn.gateway.spring;

import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.SimpleTransactionStatus;
import txn.gateway.Transaction;

/** The status of a transaction of the gateway. It has no savepoints. */
public final class GatewayTransactionStatus extends SimpleTransactionStatus {
    private final Transaction transaction;

    GatewayTransactionStatus(Transaction transaction) {
        super(true);
        this.transaction = transaction;
    }

    /** Returns the handle for reads and writes. */
    public Transaction transaction() {
        return transaction;
    }

    /** Returns the handle of a status that a callback received. */
    public static Transaction of(TransactionStatus status) {
        if (status instanceof GatewayTransactionStatus own) {
            return own.transaction;
        }
        throw new IllegalArgumentException("the status belongs to another transaction manager");
    }
}
