package txn.gateway;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** A client of one gateway, for any number of threads. */
public final class TransactionClient implements TransactionOperations {
    private static final double SHORTEST_PAUSE = 10;
    private static final double LONGEST_PAUSE = 2_000;
    /** The first attempt that reserves its documents, unless the caller asks for all. */
    private static final int RESERVES_FROM = 2;
    /** The largest body that a gateway accepts. The answer to a larger body is lost. */
    private static final int LARGEST_BODY = 16 << 20;

    /** The settings of a client. */
    public record Options(String token, int attempts, Duration timeout, HttpClient http, ObjectMapper json) {
        public Options {
            if (token != null && !token.matches("[!-~]+")) {
                throw new IllegalArgumentException(
                        "the token is empty or has a character that no token has, such as a line break");
            }
        }

        /** No token, 30 runs of a closure, and 30 seconds for a whole transaction. */
        public Options() {
            this(null, 30, Duration.ofSeconds(30), HttpClient.newHttpClient(), new ObjectMapper());
        }

        /** Sends a bearer token with each request. */
        public Options withToken(String token) {
            return new Options(token, attempts, timeout, http, json);
        }

        /** Sets the maximum number of runs of a closure. */
        public Options withAttempts(int attempts) {
            return new Options(token, attempts, timeout, http, json);
        }

        /** Bounds a whole transaction. */
        public Options withTimeout(Duration timeout) {
            return new Options(token, attempts, timeout, http, json);
        }
    }

    /** The point at which a commit is answered. */
    public enum WaitFor {
        /** The commit. */
        COMMIT,
        /** The apply, if plain reads of the servers must see the commit. */
        APPLY,
        /** The refresh, if searches of the servers must see the commit. */
        REFRESH
    }

    /** The settings of one transaction. The timeout of the client counts if {@code timeout} is {@code null}. */
    public record TransactOptions(Duration timeout, WaitFor waitFor, boolean forUpdate) {
        /** The timeout of the client, an answer after the commit, and no reservations. */
        public TransactOptions() {
            this(null, WaitFor.COMMIT, false);
        }

        /** Bounds the whole transaction. */
        public TransactOptions withTimeout(Duration timeout) {
            return new TransactOptions(timeout, waitFor, forUpdate);
        }

        /** Sets the point at which the commit is answered. */
        public TransactOptions withWaitFor(WaitFor waitFor) {
            return new TransactOptions(timeout, waitFor, forUpdate);
        }

        /** Reserves the documents, as {@link TransactionClient#forUpdate} does. */
        public TransactOptions withForUpdate(boolean forUpdate) {
            return new TransactOptions(timeout, waitFor, forUpdate);
        }
    }

    /** A request that may be sent again. */
    record Call(String method, String path, byte[] body, String key) {}

    /** An answer. A lost one may belong to a request that was carried out. */
    private record Reply(int status, double after, JsonNode body, boolean isLost) {}

    private final String url;
    private final Options options;
    private final ObjectMapper json;

    public TransactionClient(String url) {
        this(url, new Options());
    }

    public TransactionClient(String url, Options options) {
        if (!url.matches("(?i)https?://[^/]+.*")) {
            throw new IllegalArgumentException(url + " is no address such as http://127.0.0.1:9280");
        }
        this.url = url.replaceAll("/+$", "");
        this.options = options;
        // Numbers keep their digits.
        this.json = options.json().copy().enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);
        this.json.configure(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES, false);
    }

    ObjectMapper json() {
        return json;
    }

    @Override
    public <T> T execute(TransactionCallback<T> action) {
        return execute(action, new TransactOptions());
    }

    /**
     * Returns operations whose closures reserve their documents for a moment, so that closures on a hot document follow
     * each other. The third attempt of each closure and all later ones do so in any case.
     */
    public TransactionOperations forUpdate() {
        return with(new TransactOptions().withForUpdate(true));
    }

    /** Returns operations whose transactions have these settings. */
    public TransactionOperations with(TransactOptions settings) {
        return new TransactionOperations() {
            @Override
            public <T> T execute(TransactionCallback<T> action) {
                return TransactionClient.this.execute(action, settings);
            }
        };
    }

    private <T> T execute(TransactionCallback<T> action, TransactOptions settings) {
        long deadline = settings.timeout() == null ? deadline() : deadline(settings.timeout());
        Transaction.Known known = new Transaction.Known();
        Set<Target> used = Set.of();
        for (int attempt = 0; attempt < options.attempts(); attempt++) {
            boolean reserves = settings.forUpdate() || attempt >= RESERVES_FROM;
            Transaction transaction = new Transaction(this, known, deadline, reserves);
            if (reserves) {
                transaction.reserve(used);
            }
            T value = null;
            RuntimeException failure = null;
            try {
                value = action.doInTransaction(transaction);
            } catch (GatewayException error) {
                throw error;
            } catch (RuntimeException error) {
                // An error may come from contents of different moments, which the gateway compares.
                failure = error;
            }
            used = transaction.used();
            if (transaction.commit(settings.waitFor(), failure != null)) {
                if (failure != null) {
                    throw failure;
                }
                return value;
            }
            if (!pause(attempt, 0, deadline)) {
                break;
            }
        }
        throw new GatewayException.Conflict("other transactions changed the documents in each attempt");
    }

    /** Returns {@code committed}, {@code aborted}, {@code unknown} while the transaction runs, or {@code forgotten}. */
    public String outcome(String tid) {
        String path = "/_txn/" + URLEncoder.encode(tid, StandardCharsets.UTF_8);
        return send(new Call("GET", path, new byte[0], null), deadline()).path("outcome").asText();
    }

    /** Sends a commit again, within 24 hours, and returns if the commit has its effect, once. */
    public void repeat(GatewayException.UnknownOutcome unknown) {
        if (send(unknown.call(), deadline()).has("changed")) {
            throw new GatewayException.Conflict("other transactions changed the documents, and nothing was changed");
        }
    }

    JsonNode send(String method, String path, ObjectNode body, String key, long deadline) {
        try {
            return send(new Call(method, path, json.writeValueAsBytes(body), key), deadline);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the transaction is no JSON", error);
        }
    }

    /** Sends a request until there is an answer other than a refusal that passes. */
    private JsonNode send(Call call, long deadline) {
        if (call.body().length > LARGEST_BODY) {
            String detail = "the transaction has more than " + LARGEST_BODY + " bytes";
            throw new GatewayException(detail, 413, "too_large");
        }
        JsonNode doubt = null;
        for (int repetition = 0; ; repetition++) {
            Reply reply = exchange(call, deadline);
            JsonNode body = reply.body();
            int status = reply.status();
            String code = body.path("code").asText("");
            String detail = body.path("detail").asText("the gateway answered " + status);
            if (call.key() != null && (reply.isLost() || code.equals("unknown"))) {
                doubt = body.has("tid") || doubt == null ? body : doubt;
            }
            if (code.equals("refused") || code.equals("exists")) {
                throw new GatewayException.Refused(detail, status, code);
            }
            if (status == 200 || code.equals("changed")) {
                return body;
            }
            boolean isConflict = code.equals("conflict");
            boolean passes = reply.isLost() || isConflict || Set.of(0, 429, 503).contains(status);
            if (passes && pause(repetition, reply.after(), deadline)) {
                continue;
            }
            if (doubt != null) {
                throw new GatewayException.UnknownOutcome(call, doubt);
            }
            if (isConflict) {
                throw new GatewayException.Conflict(detail);
            }
            throw passes ? new GatewayException.Unavailable(detail, status, code)
                    : new GatewayException(detail, status, code);
        }
    }

    private Reply exchange(Call call, long deadline) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + call.path()))
                .version(HttpClient.Version.HTTP_1_1)
                .timeout(Duration.ofNanos(Math.max(1_000_000, deadline - System.nanoTime())))
                .header("Content-Type", "application/json")
                .method(call.method(), HttpRequest.BodyPublishers.ofByteArray(call.body()));
        if (options.token() != null) {
            request.header("Authorization", "Bearer " + options.token());
        }
        if (call.key() != null) {
            request.header("Idempotency-Key", call.key());
        }
        try {
            HttpResponse<byte[]> response =
                    options.http().send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
            int status = response.statusCode();
            JsonNode body = parse(response.body(), status);
            if (status == 200 && body instanceof ObjectNode answer && !body.has("tid")) {
                response.headers().firstValue("X-Transaction-Id").ifPresent(tid -> answer.put("tid", tid));
            }
            boolean refuses = Set.of("unavailable", "closing").contains(body.path("code").asText());
            boolean isLost = status == 502 || status == 504 || (status == 503 && !refuses);
            String after = response.headers().firstValue("Retry-After").filter(it -> it.matches("\\d{1,9}")).orElse("0");
            return new Reply(status, 1_000 * Double.parseDouble(after), body, isLost);
        } catch (IOException error) {
            boolean isLost = !(error instanceof ConnectException || error instanceof HttpConnectTimeoutException);
            String detail = isLost ? "the answer was lost: " : "no connection to the gateway: ";
            return new Reply(0, 0, json.createObjectNode().put("detail", detail + error), isLost);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw call.key() == null ? new GatewayException("the thread was interrupted", 0, null)
                    : new GatewayException.UnknownOutcome(call, json.createObjectNode());
        }
    }

    /** Parses an answer. An error of a proxy may be no JSON. */
    private JsonNode parse(byte[] body, int status) throws IOException {
        try {
            return json.readTree(body);
        } catch (IOException error) {
            if (status == 200) {
                throw error;
            }
            return json.createObjectNode();
        }
    }

    private long deadline() {
        return deadline(options.timeout());
    }

    private static long deadline(Duration timeout) {
        return System.nanoTime() + timeout.toNanos();
    }

    /** Waits with full jitter, after the pause that the gateway asks for. Returns {@code false} at the deadline. */
    private static boolean pause(int repetition, double after, long deadline) {
        double longest = Math.min(LONGEST_PAUSE, SHORTEST_PAUSE * Math.pow(2, repetition));
        double pause = after + ThreadLocalRandom.current().nextDouble(longest);
        if (System.nanoTime() + pause * 1e6 - deadline >= 0) {
            return false;
        }
        try {
            Thread.sleep((long) pause);
            return true;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
