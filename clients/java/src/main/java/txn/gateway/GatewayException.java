package txn.gateway;

import com.fasterxml.jackson.databind.JsonNode;

/** A failed request. Nothing was changed, except after {@link UnknownOutcome}. */
public class GatewayException extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final int status;
    private final String code;

    GatewayException(String detail, int status, String code) {
        super(detail);
        this.status = status;
        this.code = code;
    }

    /** The status of the answer; 0 without an answer. */
    public int status() {
        return status;
    }

    /** The code of the problem, or {@code null}. */
    public String code() {
        return code;
    }

    /** An operation was refused, such as the insert of a document that exists. */
    public static final class Refused extends GatewayException {
        private static final long serialVersionUID = 1L;

        Refused(String detail, int status, String code) {
            super(detail, status, code);
        }
    }

    /** Other transactions changed the documents in each attempt. */
    public static final class Conflict extends GatewayException {
        private static final long serialVersionUID = 1L;

        Conflict(String detail) {
            super(detail, 409, "conflict");
        }
    }

    /** The gateway did not answer, or had no capacity, until the deadline. */
    public static final class Unavailable extends GatewayException {
        private static final long serialVersionUID = 1L;

        Unavailable(String detail, int status, String code) {
            super(detail, status, code);
        }
    }

    /**
     * The transaction is committed or not, as a whole.
     *
     * <p>{@link TransactionClient#repeat} sends the commit again under its key, and {@link TransactionClient#outcome}
     * asks for the outcome of {@link #tid}.
     */
    public static final class UnknownOutcome extends GatewayException {
        private static final long serialVersionUID = 1L;
        private final transient TransactionClient.Call call;
        private final String tid;

        UnknownOutcome(TransactionClient.Call call, JsonNode problem) {
            super("the outcome of the transaction is unknown", 0, problem.path("code").asText(null));
            this.call = call;
            this.tid = problem.path("tid").asText(null);
        }

        /** The id of the transaction, or {@code null} if the gateway did not send it. */
        public String tid() {
            return tid;
        }

        TransactionClient.Call call() {
            return call;
        }
    }
}
