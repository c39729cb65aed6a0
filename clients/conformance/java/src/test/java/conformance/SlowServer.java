package conformance;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A server that answers no bulk until it is closed. Otherwise it is like a gateway of the program `counted`. */
final class SlowServer implements AutoCloseable {
    private final HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    /** One status 0 for each bulk. Only the server's own thread uses the list. */
    private final List<Integer> statuses = new ArrayList<>();

    SlowServer() throws IOException {
        server.createContext("/", this::handle);
        server.start();
    }

    String address() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private void handle(HttpExchange exchange) throws IOException {
        if (!exchange.getRequestURI().getPath().equals("/_counted")) {
            statuses.add(0);
            return;
        }
        byte[] body = statuses.toString().getBytes(StandardCharsets.UTF_8);
        statuses.clear();
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    @Override
    public void close() {
        server.stop(0);
    }
}
