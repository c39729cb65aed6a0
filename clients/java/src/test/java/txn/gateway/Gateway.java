package txn.gateway;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.Map;

/** {@code txn serve} with an embedded file in a temporary folder. */
final class Gateway {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private final Process process;
    final String url;

    Gateway(Path folder) throws IOException, InterruptedException {
        String program = System.getenv("TXN_GATEWAY_PROGRAM");
        if (program == null) {
            throw new IllegalStateException("set TXN_GATEWAY_PROGRAM to the path of the program txn");
        }
        String address = "127.0.0.1:" + freePort();
        url = "http://" + address;
        process = new ProcessBuilder(new File(program).getAbsolutePath(), "serve", "--listen", address)
                .directory(folder.toFile())
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
        while (!isReady()) {
            if (!process.isAlive()) {
                throw new IllegalStateException("the gateway has ended");
            }
            Thread.sleep(20);
        }
    }

    static int freePort() throws IOException {
        try (ServerSocket listener = new ServerSocket(0)) {
            return listener.getLocalPort();
        }
    }

    private boolean isReady() throws InterruptedException {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/readyz")).build();
            return HTTP.send(request, HttpResponse.BodyHandlers.discarding()).statusCode() == 200;
        } catch (IOException error) {
            return false;
        }
    }

    JsonNode request(String method, String path, Object body) {
        try {
            HttpRequest.BodyPublisher sent = body == null ? HttpRequest.BodyPublishers.noBody()
                    : HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body));
            HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
                    .header("Content-Type", "application/json")
                    .method(method, sent)
                    .build();
            HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() >= 300) {
                throw new IllegalStateException(response.body());
            }
            return JSON.readTree(response.body());
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    void put(String collection, String id, Map<String, ?> document) {
        request("PUT", "/" + collection + "/_doc/" + id, document);
    }

    JsonNode get(String collection, String id) {
        return request("GET", "/" + collection + "/_doc/" + id, null).get("_source");
    }

    void stop() throws InterruptedException {
        process.destroy();
        process.waitFor();
    }
}
