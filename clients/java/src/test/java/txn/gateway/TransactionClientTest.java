package txn.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import example.Order;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import txn.gateway.Proxy.Recorded;
import txn.gateway.Proxy.Rule;
import txn.gateway.TransactionClient.Options;
import txn.gateway.TransactionClient.TransactOptions;
import txn.gateway.TransactionClient.WaitFor;

/** The client against a gateway process. */
class TransactionClientTest extends GatewayTest {
    private static final String READ = "/_txn/read";
    private static final String COMMIT = "/_txn/commit";

    private Proxy proxy;
    private TransactionClient client;

    @BeforeEach
    void startProxy() throws Exception {
        proxy = new Proxy(gateway);
        client = new TransactionClient(proxy.url);
    }

    @AfterEach
    void stopProxy() {
        proxy.close();
    }

    private static int take(Transaction transaction) {
        Stock apple = transaction.get("stock", "apple", Stock.class).orElseThrow();
        transaction.put("stock", "apple", new Stock(apple.left() - 1));
        return apple.left() - 1;
    }

    /** A rule for the first commits. All other requests pass. */
    private static Function<Recorded, Rule> first(int times, Rule rule) {
        AtomicInteger commits = new AtomicInteger();
        return request -> request.path().equals(COMMIT) && commits.getAndIncrement() < times ? rule : Rule.PASS;
    }

    private static Rule answer(int status, String body) {
        return new Rule(status, null, body);
    }

    @Test
    void addresses_need_a_scheme() {
        for (String url : List.of("127.0.0.1:9280", "localhost:9280", "ftp://localhost", "http://")) {
            assertThrows(IllegalArgumentException.class, () -> new TransactionClient(url), url);
        }
    }

    @Test
    void concurrent_transfers_keep_the_sum() throws Exception {
        List<String> accounts = List.of("a", "b", "c");
        Map<String, Integer> expected = new HashMap<>();
        for (String account : accounts) {
            gateway.put("accounts", account, Map.of("balance", 100));
            expected.put(account, 100);
        }
        Options patient = new Options().withAttempts(1_000).withTimeout(Duration.ofMinutes(2));
        TransactionOperations transactions = new TransactionClient(gateway.url, patient);
        List<Callable<Void>> transfers = new ArrayList<>();
        for (int number = 0; number < 120; number++) {
            String source = accounts.get(number % 3);
            String target = accounts.get((number + 1 + number % 2) % 3);
            expected.merge(source, -1, Integer::sum);
            expected.merge(target, 1, Integer::sum);
            transfers.add(() -> {
                transactions.executeWithoutResult(transaction -> {
                    move(transaction, source, -1);
                    move(transaction, target, 1);
                });
                return null;
            });
        }
        ExecutorService threads = Executors.newFixedThreadPool(8);
        for (Future<Void> done : threads.invokeAll(transfers)) {
            done.get();
        }
        threads.shutdown();
        for (String account : accounts) {
            assertEquals(expected.get(account), gateway.get("accounts", account).get("balance").asInt());
        }
    }

    private static void move(Transaction transaction, String account, int amount) {
        int balance = transaction.get("accounts", account).orElseThrow().get("balance").asInt();
        transaction.put("accounts", account, Map.of("balance", balance + amount));
    }

    @Test
    void changed_contents_need_no_second_read() {
        List<Integer> seen = new ArrayList<>();
        int value = client.execute(transaction -> {
            int left = transaction.get("stock", "apple", Stock.class).orElseThrow().left();
            seen.add(left);
            if (seen.size() == 1) {
                gateway.put("stock", "apple", Map.of("left", 5));
            }
            transaction.merge("stock", "apple", Map.of("left", left - 1));
            return left - 1;
        });
        assertEquals(4, value);
        assertEquals(List.of(10, 5), seen);
        assertEquals(4, left());
        assertEquals(List.of(READ, COMMIT, COMMIT), proxy.paths());
        assertEquals(2, proxy.commits().stream().map(Recorded::key).distinct().count());
    }

    @Test
    void third_attempt_reads_for_update() {
        List<Integer> seen = new ArrayList<>();
        client.executeWithoutResult(transaction -> {
            int left = transaction.get("stock", "apple", Stock.class).orElseThrow().left();
            seen.add(left);
            if (seen.size() < 3) {
                gateway.put("stock", "apple", Map.of("left", seen.size()));
            }
            transaction.put("stock", "apple", new Stock(left + 10));
        });
        assertEquals(List.of(10, 1, 2), seen);
        assertEquals(12, left());
        assertEquals(List.of(READ, COMMIT, COMMIT, READ, COMMIT), proxy.paths());
    }

    @Test
    void closures_for_update_follow_each_other() throws Exception {
        List<Callable<Integer>> calls = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            calls.add(() -> client.forUpdate().execute(TransactionClientTest::take));
        }
        ExecutorService threads = Executors.newFixedThreadPool(8);
        for (Future<Integer> done : threads.invokeAll(calls)) {
            done.get();
        }
        threads.shutdown();
        assertEquals(-30, left());
        // Without reservations, 8 threads need several times as many commits.
        assertTrue(proxy.commits().size() < 80, () -> proxy.commits().size() + " commits");
    }

    @Test
    void closure_for_update_may_only_read() {
        Stock apple = client.forUpdate().execute(
                transaction -> transaction.get("stock", "apple", Stock.class).orElseThrow());
        assertEquals(new Stock(10), apple);
        // A commit without operations confirms contents that may be undecided.
        assertEquals(List.of(READ, COMMIT), proxy.paths());
        assertEquals(null, proxy.commits().get(0).key());
    }

    @Test
    void lost_answer_has_one_effect() {
        proxy.rule = first(2, Rule.CUT);
        client.executeWithoutResult(transaction -> transaction.add("stock", "apple", "/left", -1));
        assertEquals(9, left());
        assertEquals(3, proxy.commits().size());
        assertEquals(1, proxy.commits().stream().map(Recorded::key).distinct().count());
    }

    @Test
    void changed_answer_may_be_lost() {
        proxy.rule = first(1, Rule.CUT);
        List<Integer> runs = new ArrayList<>();
        client.executeWithoutResult(transaction -> {
            runs.add(take(transaction));
            if (runs.size() == 1) {
                gateway.put("stock", "apple", Map.of("left", 5));
            }
        });
        assertEquals(List.of(9, 4), runs);
        assertEquals(4, left());
    }

    /** Reads two documents. In the first attempt, other commits between the reads change both. */
    private static int sum(Transaction transaction, boolean isFirst) {
        int apple = transaction.get("stock", "apple", Stock.class).orElseThrow().left();
        if (isFirst) {
            gateway.put("stock", "apple", Map.of("left", 5));
            gateway.put("stock", "pear", Map.of("left", 5));
        }
        return apple + transaction.get("stock", "pear", Stock.class).orElseThrow().left();
    }

    @Test
    void lost_conflict_reads_again() {
        gateway.put("stock", "pear", Map.of("left", 10));
        proxy.rule = first(1, Rule.CUT);
        List<Integer> sums = new ArrayList<>();
        int value = client.execute(transaction -> {
            int sum = sum(transaction, sums.isEmpty());
            sums.add(sum);
            if (sums.size() == 1) {
                transaction.put("stock", "sum", new Stock(sum));
            }
            return sum;
        });
        assertEquals(10, value);
        assertEquals(List.of(15, 10), sums);
        // The repeated answer has no contents.
        assertEquals(List.of(READ, READ, COMMIT, COMMIT, READ, READ, COMMIT), proxy.paths());
        String lost = proxy.commits().get(0).key();
        assertNotNull(lost);
        assertEquals(lost, proxy.commits().get(1).key());
        assertNull(proxy.commits().get(2).key());
    }

    @Test
    void exception_of_stale_reads_is_not_raised() {
        gateway.put("stock", "pear", Map.of("left", 10));
        proxy.rule = first(1, answer(409, "{\"code\": \"changed\", \"changed\": []}"));
        List<Integer> sums = new ArrayList<>();
        client.executeWithoutResult(transaction -> {
            int sum = sum(transaction, sums.isEmpty());
            sums.add(sum);
            if (sums.size() == 2 && sum != 10) {
                throw new IllegalStateException("the second attempt used stale reads");
            }
            transaction.put("stock", "sum", new Stock(sum));
        });
        assertEquals(List.of(15, 10), sums);
        assertEquals(10, gateway.get("stock", "sum").get("left").asInt());
    }

    @Test
    void unknown_outcome_is_repeated_by_the_caller() {
        proxy.rule = first(Integer.MAX_VALUE, Rule.CUT);
        TransactionClient hasty = new TransactionClient(
                proxy.url, new Options().withTimeout(Duration.ofMillis(500)));
        var error = assertThrows(
                GatewayException.UnknownOutcome.class, () -> hasty.execute(TransactionClientTest::take));
        assertEquals(9, left());
        proxy.rule = request -> Rule.PASS;
        client.repeat(error);
        assertEquals(9, left());
    }

    @Test
    void doubt_outlives_refusals() {
        Iterator<Rule> answers = List.of(Rule.CUT).iterator();
        Rule full = new Rule(429, "60", "{\"code\": \"overloaded\"}");
        proxy.rule = request -> request.path().equals(READ) ? Rule.PASS : answers.hasNext() ? answers.next() : full;
        assertThrows(GatewayException.UnknownOutcome.class, () -> client.execute(TransactionClientTest::take));
        assertEquals(9, left());
    }

    @Test
    void commit_has_a_tid() {
        List<Transaction> runs = new ArrayList<>();
        TransactionClient direct = new TransactionClient(gateway.url);
        direct.execute(transaction -> runs.add(transaction) ? take(transaction) : 0);
        assertEquals("committed", direct.outcome(runs.get(0).tid().orElseThrow()));
    }

    @Test
    void unknown_outcome_has_a_tid() {
        Map<String, String> apple = Map.of("collection", "stock", "id", "apple");
        Map<String, String> pear = Map.of("collection", "stock", "id", "pear");
        List<Object> operations = List.of(
                Map.of("add", Map.of("target", apple, "path", "/left", "amount", 1)),
                Map.of("put", Map.of("target", pear, "document", Map.of())));
        String tid = gateway.request("POST", "/_txn", Map.of("operations", operations)).get("tid").asText();
        proxy.rule = first(1, answer(500, "{\"code\": \"unknown\", \"tid\": \"" + tid + "\"}"));
        var error = assertThrows(
                GatewayException.UnknownOutcome.class, () -> client.execute(TransactionClientTest::take));
        assertEquals(tid, error.tid());
        assertEquals("committed", client.outcome(tid));
        assertEquals(1, proxy.commits().size());
    }

    @Test
    void passing_refusals_are_repeated() {
        Iterator<Rule> answers = List.of(
                new Rule(429, "0", "{\"code\": \"overloaded\"}"),
                answer(503, "{\"code\": \"unavailable\"}"),
                answer(502, "a proxy"),
                answer(503, "{\"code\": \"unknown\"}"),
                answer(409, "{\"code\": \"conflict\"}")).iterator();
        proxy.rule = request -> answers.hasNext() ? answers.next() : Rule.PASS;
        assertEquals(9, client.execute(TransactionClientTest::take));
        assertEquals(9, left());
        assertEquals(7, proxy.requests.size());
    }

    @Test
    void retry_after_beyond_the_deadline_ends() {
        proxy.rule = request -> new Rule(503, "60", "{\"code\": \"unavailable\"}");
        assertThrows(GatewayException.Unavailable.class, () -> client.execute(TransactionClientTest::take));
        assertEquals(List.of(READ), proxy.paths());
    }

    @Test
    void missing_gateway_is_unavailable() throws Exception {
        TransactionClient lonely = new TransactionClient(
                "http://127.0.0.1:" + Gateway.freePort(), new Options().withTimeout(Duration.ofMillis(200)));
        assertThrows(GatewayException.Unavailable.class,
                () -> lonely.executeWithoutResult(transaction -> transaction.put("stock", "apple", Map.of())));
    }

    @Test
    void timeout_of_one_transaction_bounds_it() {
        proxy.rule = request -> new Rule(503, "2", "{\"code\": \"unavailable\"}");
        TransactionOperations hasty = client.with(new TransactOptions().withTimeout(Duration.ofSeconds(1)));
        assertThrows(GatewayException.Unavailable.class, () -> hasty.execute(TransactionClientTest::take));
        assertEquals(List.of(READ), proxy.paths());
    }

    @Test
    void commit_waits_as_asked() {
        for (WaitFor waitFor : WaitFor.values()) {
            client.with(new TransactOptions().withWaitFor(waitFor)).execute(TransactionClientTest::take);
        }
        client.with(new TransactOptions().withWaitFor(WaitFor.APPLY).withForUpdate(true))
                .execute(TransactionClientTest::take);
        assertEquals(6, left());
        List<String> commits = proxy.commits().stream().map(Recorded::path).toList();
        String apply = COMMIT + "?wait_for=apply";
        assertEquals(List.of(COMMIT, apply, COMMIT + "?wait_for=refresh", apply), commits);
    }

    @Test
    void refused_operation_changes_nothing() {
        var error = assertThrows(GatewayException.Refused.class, () -> client.executeWithoutResult(transaction -> {
            transaction.put("orders", "refused", Map.of("item", "apple"));
            transaction.add(new Target("stock", "apple"), "/left", -11, 0, null);
        }));
        assertEquals("refused", error.code());
        assertEquals(10, left());
        Optional<ObjectNode> order = client.execute(transaction -> transaction.get("orders", "refused"));
        assertTrue(order.isEmpty());
    }

    @Test
    void insert_of_an_existing_document_is_refused() {
        var error = assertThrows(GatewayException.Refused.class, () -> client.executeWithoutResult(
                transaction -> transaction.insert("stock", "apple", Map.of("left", 1))));
        assertEquals("exists", error.code());
        assertEquals(409, error.status());
        assertEquals(10, left());
    }

    @Test
    void exception_of_the_closure_writes_nothing() {
        assertThrows(ArithmeticException.class, () -> client.executeWithoutResult(transaction -> {
            take(transaction);
            throw new ArithmeticException("sold out");
        }));
        assertEquals(10, left());
        assertEquals(List.of(READ), proxy.paths());
    }

    @Test
    void exception_from_mixed_moments_is_not_raised() {
        gateway.put("stock", "pear", Map.of("left", 10));
        List<Stock> runs = new ArrayList<>();
        client.executeWithoutResult(transaction -> {
            Stock apple = transaction.get("stock", "apple", Stock.class).orElseThrow();
            runs.add(apple);
            if (runs.size() == 1) {
                gateway.put("stock", "apple", Map.of("left", 5));
                gateway.put("stock", "pear", Map.of("left", 5));
            }
            if (!transaction.get("stock", "pear", Stock.class).orElseThrow().equals(apple)) {
                throw new IllegalStateException("the contents are of different moments");
            }
        });
        assertEquals(List.of(new Stock(10), new Stock(5)), runs);
    }

    @Test
    void attempts_are_bounded() {
        AtomicInteger runs = new AtomicInteger();
        TransactionClient bounded = new TransactionClient(proxy.url, new Options().withAttempts(3));
        assertThrows(GatewayException.Conflict.class, () -> bounded.executeWithoutResult(transaction -> {
            take(transaction);
            gateway.put("stock", "apple", Map.of("left", 100 + runs.incrementAndGet()));
        }));
        assertEquals(3, runs.get());
        assertEquals(103, left());
    }

    @Test
    void reads_of_one_moment_need_no_commit() {
        List<Target> targets = List.of(new Target("stock", "apple"), new Target("stock", "none"));
        List<Optional<Stock>> found = client.execute(transaction -> transaction.getAll(targets, Stock.class));
        assertEquals(List.of(Optional.of(new Stock(10)), Optional.empty()), found);
        assertEquals(List.of(READ), proxy.paths());
    }

    @Test
    void absence_is_checked_at_the_commit() {
        List<Optional<Stock>> runs = new ArrayList<>();
        client.executeWithoutResult(transaction -> {
            runs.add(transaction.get("stock", "plum", Stock.class));
            if (runs.size() == 1) {
                gateway.put("stock", "plum", Map.of("left", 1));
            }
            transaction.put("stock", "apple", new Stock(runs.size()));
        });
        assertEquals(List.of(Optional.empty(), Optional.of(new Stock(1))), runs);
        assertEquals(2, left());
    }

    @Test
    void own_writes_are_read() {
        client.executeWithoutResult(transaction -> {
            transaction.put("stock", "apple", new Stock(3));
            assertEquals(Optional.of(new Stock(3)), transaction.get("stock", "apple", Stock.class));
            transaction.delete("stock", "apple");
            assertTrue(transaction.get("stock", "apple").isEmpty());
            transaction.insert("stock", "apple", Map.of("left", 1, "place", "a"));
            transaction.add("stock", "apple", "/left", 1);
            List<Map<String, String>> patch = List.of(Map.of("op", "remove", "path", "/place"));
            transaction.patch(new Target("stock", "apple"), patch);
            assertThrows(IllegalStateException.class, () -> transaction.get("stock", "apple"));
        });
        assertEquals("{\"left\":2}", gateway.get("stock", "apple").toString());
    }

    @Test
    void documents_belong_to_the_closure() {
        client.executeWithoutResult(transaction -> {
            ObjectNode apple = transaction.get("stock", "apple").orElseThrow();
            apple.put("left", 8);
            transaction.put("stock", "apple", apple);
            apple.put("left", -1);
            assertEquals(8, transaction.get("stock", "apple").orElseThrow().get("left").asInt());
        });
        assertEquals(8, left());
    }

    @Test
    void numbers_keep_their_digits() {
        JsonNode sent = client.execute(transaction -> {
            ObjectNode apple = transaction.get("stock", "apple").orElseThrow();
            apple.put("price", new java.math.BigDecimal("1.10"));
            transaction.put("stock", "apple", apple);
            return apple;
        });
        ObjectNode read = client.execute(transaction -> transaction.get("stock", "apple")).orElseThrow();
        assertEquals("1.10", read.get("price").asText());
        assertEquals(sent, read);
    }

    @Test
    void routing_is_part_of_the_address() {
        Target target = new Target("stock", "routed", "r");
        client.executeWithoutResult(transaction -> transaction.put(target, new Stock(1)));
        Optional<Stock> found = client.execute(transaction -> transaction.get(target, Stock.class));
        assertEquals(Optional.of(new Stock(1)), found);
    }

    @Test
    void large_request_is_refused() {
        Map<String, String> large = Map.of("text", "x".repeat(17 << 20));
        var error = assertThrows(GatewayException.class, () -> client.executeWithoutResult(
                transaction -> transaction.put("stock", "apple", large)));
        assertEquals("too_large", error.code());
        assertEquals(413, error.status());
        assertEquals(10, left());
    }

    @Test
    void too_many_operations_are_refused() {
        var error = assertThrows(GatewayException.class, () -> client.executeWithoutResult(transaction -> {
            for (int number = 0; number <= 5_000; number++) {
                transaction.put("stock", "" + number, Map.of());
            }
        }));
        assertEquals("too_large", error.code());
        assertEquals(413, error.status());
    }

    @Test
    void unfit_token_is_refused_and_not_shown() {
        for (String token : List.of("secret\n", "sec ret", "")) {
            var error = assertThrows(IllegalArgumentException.class, () -> new Options().withToken(token));
            assertFalse(error.getMessage().contains("secret"));
        }
    }

    @Test
    void token_is_sent() {
        new TransactionClient(proxy.url, new Options().withToken("secret")).execute(TransactionClientTest::take);
        Set<String> tokens = proxy.requests.stream().map(Recorded::authorization).collect(Collectors.toSet());
        assertEquals(new HashSet<>(List.of("Bearer secret")), tokens);
    }

    @Test
    void example_runs() {
        assertEquals(9, Order.run(client));
        assertEquals(9, left());
    }
}
