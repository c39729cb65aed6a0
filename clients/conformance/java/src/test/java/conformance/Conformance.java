package conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** An official client against the gateway and against the server, with equal answers. */
abstract class Conformance {
    /** Steps in which atomicity changes the answer, or which the gateway refuses. */
    private static final Map<String, String> DIFFERENT = Map.of(
            "bulk with a conflict", "error 409 version_conflict_engine_exception",
            "bulk with an update of a missing document", "error 409 version_conflict_engine_exception",
            "ingester with a conflict", "error 409 version_conflict_engine_exception",
            "half of a refused ingester", "false",
            "external version", "error 400");

    /** Steps whose refusal some clients return as an answer with errors. */
    private static final Set<String> DECODED = Set.of(
            "bulk with a conflict", "bulk with an update of a missing document", "ingester with a conflict");

    @TempDir
    Path folder;

    private Process process;
    private String gateway;

    /** The variable with the address of the server. */
    abstract String variable();

    /** Whether the client returns the items of a refused bulk. Otherwise it throws an exception. */
    abstract boolean isDecoding();

    /** Connects a client for the steps in a new index. */
    abstract Steps connect(String url);

    @BeforeEach
    void startGateway() throws Exception {
        String program = System.getenv("TXN_GATEWAY_PROGRAM");
        if (program == null) {
            throw new IllegalStateException("set TXN_GATEWAY_PROGRAM to the path of the program txn");
        }
        String address;
        try (ServerSocket listener = new ServerSocket(0)) {
            address = "127.0.0.1:" + listener.getLocalPort();
        }
        gateway = "http://" + address;
        process = new ProcessBuilder(
                new File(program).getAbsolutePath(), "serve", "--listen", address, "--elastic-product")
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

    private boolean isReady() throws InterruptedException {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(gateway + "/readyz")).build();
            HttpResponse<Void> answer =
                    HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding());
            return answer.statusCode() == 200;
        } catch (IOException error) {
            return false;
        }
    }

    @AfterEach
    void stopGateway() throws InterruptedException {
        process.destroy();
        process.waitFor();
    }

    @Test
    void answers_are_equal() throws Exception {
        Map<String, String> answers = record(gateway, false);
        DIFFERENT.forEach((name, answer) -> {
            if (isDecoding() && DECODED.contains(name)) {
                assertTrue(answers.get(name).contains(" 409 ") || answers.get(name).startsWith("0 of"), name);
            } else {
                assertEquals(answer, answers.get(name), name);
            }
        });
        assertEquals("error 409 version_conflict_engine_exception", answers.get("create an existing document"));
        assertEquals("1200 of 1200", answers.get("ingester"));
        String server = System.getenv(variable());
        if (server == null) {
            return;
        }
        Map<String, String> expected = record(server, true);
        for (String name : DIFFERENT.keySet()) {
            assertNotEquals(answers.remove(name), expected.remove(name), name);
        }
        expected.forEach((name, answer) -> assertEquals(answer, answers.get(name), name));
        assertEquals(List.copyOf(expected.keySet()), List.copyOf(answers.keySet()));
    }

    private Map<String, String> record(String url, boolean removes) throws Exception {
        try (Steps steps = connect(url)) {
            try {
                return steps.record();
            } finally {
                if (removes) {
                    steps.removeIndex();
                }
            }
        }
    }
}
