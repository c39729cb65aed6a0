package txn.gateway;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;

/** Forwards requests to a gateway as a rule says, and records them. */
final class Proxy implements AutoCloseable {
    record Recorded(String path, String key, String authorization) {}

    /** Status 0 passes the answer of the gateway, and -1 loses it. Any other status replaces the answer. */
    record Rule(int status, String retryAfter, String body) {
        static final Rule PASS = new Rule(0, null, null);
        static final Rule CUT = new Rule(-1, null, null);
    }

    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final HttpClient http = HttpClient.newHttpClient();
    private final Gateway gateway;
    final List<Recorded> requests = new CopyOnWriteArrayList<>();
    volatile Function<Recorded, Rule> rule = request -> Rule.PASS;
    final String url;

    Proxy(Gateway gateway) throws IOException {
        this.gateway = gateway;
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.setExecutor(threads);
        server.createContext("/", this::handle);
        server.start();
        url = "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private void handle(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        String key = exchange.getRequestHeaders().getFirst("Idempotency-Key");
        String login = exchange.getRequestHeaders().getFirst("Authorization");
        Recorded request = new Recorded(exchange.getRequestURI().toString(), key, login);
        requests.add(request);
        Rule chosen = rule.apply(request);
        if (chosen.status() > 0) {
            if (chosen.retryAfter() != null) {
                exchange.getResponseHeaders().add("Retry-After", chosen.retryAfter());
            }
            reply(exchange, chosen.status(), chosen.body().getBytes(StandardCharsets.UTF_8));
            return;
        }
        HttpRequest.Builder forwarded = HttpRequest.newBuilder(URI.create(gateway.url + request.path()))
                .header("Content-Type", "application/json")
                .method(exchange.getRequestMethod(), HttpRequest.BodyPublishers.ofByteArray(body));
        if (key != null) {
            forwarded.header("Idempotency-Key", key);
        }
        try {
            HttpResponse<byte[]> answer = http.send(forwarded.build(), HttpResponse.BodyHandlers.ofByteArray());
            if (chosen == Rule.CUT) {
                // An exchange without an answer closes the connection.
                throw new IOException("the answer is lost");
            }
            reply(exchange, answer.statusCode(), answer.body());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void reply(HttpExchange exchange, int status, byte[] body) throws IOException {
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    List<String> paths() {
        return requests.stream().map(Recorded::path).toList();
    }

    List<Recorded> commits() {
        return requests.stream().filter(request -> request.path().startsWith("/_txn/commit")).toList();
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
