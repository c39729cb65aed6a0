package txn.gateway;

/**
 * A closure of a transaction. It may run several times, so it has no effects except through the transaction.
 *
 * @param <T> the type of the result
 */
@FunctionalInterface
public interface TransactionCallback<T> {
    T doInTransaction(Transaction transaction);
}
