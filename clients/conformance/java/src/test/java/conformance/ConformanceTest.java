package conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkIngester;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkListener;
import co.elastic.clients.elasticsearch._types.ElasticsearchException;
import co.elastic.clients.elasticsearch._types.Refresh;
import co.elastic.clients.elasticsearch._types.VersionType;
import co.elastic.clients.elasticsearch.core.BulkRequest;
import co.elastic.clients.elasticsearch.core.BulkResponse;
import co.elastic.clients.elasticsearch.core.GetResponse;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.ElasticsearchTransport;
import co.elastic.clients.transport.TransportException;
import co.elastic.clients.transport.Version;
import co.elastic.clients.transport.rest_client.RestClientTransport;
import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.http.HttpHost;
import org.elasticsearch.client.RestClient;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The official client against the gateway and against the server, with equal answers. */
class ConformanceTest {
    /** Steps in which atomicity changes the answer, or which the gateway refuses. */
    private static final Map<String, String> DIFFERENT = Map.of(
            "bulk with a conflict", "error 409 version_conflict_engine_exception",
            "bulk with an update of a missing document", "error 409 version_conflict_engine_exception",
            "ingester with a conflict", "error 409 version_conflict_engine_exception",
            "half of a refused ingester", "false",
            "external version", "error 400");

    /** Steps whose refusal the client of version 9 returns as an answer with errors. */
    private static final Set<String> DECODED = Set.of(
            "bulk with a conflict", "bulk with an update of a missing document", "ingester with a conflict");

    @FunctionalInterface
    private interface Call {
        Object send() throws IOException;
    }

    @TempDir
    Path folder;

    private Process process;
    private String gateway;

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
        boolean isNine = Version.VERSION.major() == 9;
        DIFFERENT.forEach((name, answer) -> {
            // The client of 9 returns the items of a refused bulk, that of 8 throws.
            if (isNine && DECODED.contains(name)) {
                assertTrue(answers.get(name).contains(" 409 ") || answers.get(name).startsWith("0 of"), name);
            } else {
                assertEquals(answer, answers.get(name), name);
            }
        });
        assertEquals("error 409 version_conflict_engine_exception", answers.get("create an existing document"));
        assertEquals("1200 of 1200", answers.get("ingester"));
        String server = System.getenv(isNine ? "TXN_ELASTICSEARCH9_URL" : "TXN_ELASTICSEARCH_URL");
        if (server == null) {
            return;
        }
        Map<String, String> expected = record(server, true);
        for (String name : DIFFERENT.keySet()) {
            assertNotEquals(answers.remove(name), expected.remove(name), name);
        }
        expected.forEach((name, answer) -> assertEquals(answer, answers.get(name), name));
    }

    private static Map<String, String> record(String url, boolean removes) throws Exception {
        String index = "conformance-" + UUID.randomUUID();
        RestClient rest = RestClient.builder(HttpHost.create(url)).build();
        try (ElasticsearchTransport transport = new RestClientTransport(rest, new JacksonJsonpMapper())) {
            ElasticsearchClient client = new ElasticsearchClient(transport);
            try {
                Recorder recorder = new Recorder(client, index);
                recorder.documents();
                recorder.updates();
                recorder.bulks();
                recorder.ingester();
                return recorder.answers;
            } finally {
                if (removes) {
                    client.indices().delete(it -> it.index(index));
                }
            }
        }
    }

    private static final class Recorder {
        private final ElasticsearchClient client;
        private final String index;
        private final Map<String, String> answers = new LinkedHashMap<>();

        Recorder(ElasticsearchClient client, String index) {
            this.client = client;
            this.index = index;
        }

        private void step(String name, Call call) throws IOException {
            String answer;
            try {
                answer = normalised(String.valueOf(call.send()));
            } catch (ElasticsearchException | IOException error) {
                answer = refusal(error);
            }
            assertEquals(null, answers.put(name, answer), name);
        }

        /** A refused request has one type for the gateway, and several for the servers. */
        private static String refusal(Throwable error) {
            int status = 0;
            String type = "";
            if (error instanceof ElasticsearchException known) {
                status = known.status();
                type = String.valueOf(known.error().type());
            } else if (error instanceof TransportException undecoded) {
                return "error " + undecoded.statusCode() + " undecoded";
            } else {
                // The client decodes no 409, and its exception has another type in each version.
                String message = String.valueOf(error.getMessage());
                Matcher found = Pattern.compile("HTTP/1.1 (\\d+)").matcher(message);
                status = found.find() ? Integer.parseInt(found.group(1)) : 0;
                found = Pattern.compile("\"type\":\"(\\w+_exception)\"").matcher(message);
                type = found.find() ? found.group(1) : message;
            }
            return status == 400 ? "error 400" : "error " + status + " " + type;
        }

        private String normalised(String answer) {
            return answer.replace(index, "INDEX")
                    .replaceAll("\"(_version|_seq_no|_primary_term|took)\":\\d+", "\"$1\":NUMBER")
                    .replaceAll("\"_shards\":\\{[^}]*\\},?", "")
                    .replaceAll("\"forced_refresh\":true,?", "")
                    .replaceAll("\"_id\":\"[^\"]{20,}\"", "\"_id\":\"GENERATED\"")
                    .replaceAll(",\\}", "}");
        }

        void documents() throws IOException {
            step("index", () -> client.index(it -> it.index(index).id("1").document(Map.of("a", 1))));
            step("index again", () -> client.index(it -> it.index(index).id("1").document(Map.of("a", 2))));
            step("index without id", () -> client.index(it -> it.index(index).document(Map.of("a", 1))));
            step("index and refresh", () -> client.index(
                    it -> it.index(index).id("2").document(Map.of("a", 1)).refresh(Refresh.WaitFor)));
            step("create", () -> client.create(it -> it.index(index).id("3").document(Map.of("a", 1))));
            step("create an existing document",
                    () -> client.create(it -> it.index(index).id("3").document(Map.of("a", 1))));
            step("get", () -> client.get(it -> it.index(index).id("1"), Map.class));
            step("get a missing document", () -> client.get(it -> it.index(index).id("none"), Map.class));
            step("get of a missing index", () -> client.get(it -> it.index(index + "-none").id("1"), Map.class));
            step("exists", () -> client.exists(it -> it.index(index).id("1")).value());
            step("exists not", () -> client.exists(it -> it.index(index).id("none")).value());
            step("id with special letters",
                    () -> client.index(it -> it.index(index).id("a/b c?ü+%").document(Map.of("a", 1))));
            step("delete", () -> client.delete(it -> it.index(index).id("2")));
            step("delete a missing document", () -> client.delete(it -> it.index(index).id("2")));
            step("external version", () -> client.index(it -> it.index(index).id("e").document(Map.of("a", 1))
                    .version(7L).versionType(VersionType.External)));
            GetResponse<?> read = client.get(it -> it.index(index).id("1"), Map.class);
            Call conditional = () -> client.index(it -> it.index(index).id("1").document(Map.of("a", 3))
                    .ifSeqNo(read.seqNo()).ifPrimaryTerm(read.primaryTerm()));
            step("conditional index", conditional);
            step("index with an old condition", conditional);
            step("delete with an old condition", () -> client.delete(
                    it -> it.index(index).id("1").ifSeqNo(read.seqNo()).ifPrimaryTerm(read.primaryTerm())));
        }

        private Object update(String id, Map<String, ?> doc, boolean isUpsert, Map<String, ?> upsert)
                throws IOException {
            return client.update(it -> it.index(index).id(id).doc(doc).upsert(upsert)
                    .docAsUpsert(isUpsert ? true : null), Map.class);
        }

        void updates() throws IOException {
            step("update", () -> update("1", Map.of("b", Map.of("c", 1)), false, null));
            step("updated document", () -> client.get(it -> it.index(index).id("1"), Map.class));
            step("update without effect", () -> update("1", Map.of("a", 3), false, null));
            step("update a missing document", () -> update("none", Map.of("a", 3), false, null));
            step("doc_as_upsert", () -> update("v", Map.of("a", 3), true, null));
            step("upsert", () -> update("w", Map.of("a", 3), false, Map.of("u", 3)));
            step("upserted document", () -> client.get(it -> it.index(index).id("w"), Map.class));
        }

        private BulkRequest.Builder bulk() {
            return new BulkRequest.Builder().index(index);
        }

        private Object send(BulkRequest.Builder bulk) throws IOException {
            BulkResponse answer = client.bulk(bulk.build());
            List<String> items = new ArrayList<>();
            answer.items().forEach(item -> items.add(item.operationType() + " " + item.id() + " " + item.status() + " "
                    + item.result() + " " + (item.error() == null ? "" : item.error().type())));
            return answer.errors() + " " + items;
        }

        void bulks() throws IOException {
            step("bulk", () -> send(bulk()
                    .operations(it -> it.index(op -> op.id("b1").document(Map.of("a", 1))))
                    .operations(it -> it.create(op -> op.id("b2").document(Map.of("a", 2))))
                    .operations(it -> it.update(op -> op.id("b1").action(to -> to.doc(Map.of("n", 1)))))
                    .operations(it -> it.delete(op -> op.id("b2")))
                    .operations(it -> it.delete(op -> op.id("none")))));
            step("bulk and refresh", () -> send(bulk().refresh(Refresh.True)
                    .operations(it -> it.index(op -> op.id("b3").document(Map.of("a", 1))))));
            step("bulk with a conflict", () -> send(bulk()
                    .operations(it -> it.index(op -> op.id("b4").document(Map.of("a", 1))))
                    .operations(it -> it.create(op -> op.id("b1").document(Map.of("a", 2))))));
            step("bulk with an update of a missing document", () -> send(bulk()
                    .operations(it -> it.index(op -> op.id("b4").document(Map.of("a", 1))))
                    .operations(it -> it.update(op -> op.id("none").action(to -> to.doc(Map.of("n", 1)))))));
        }

        /** Ingests documents, and returns the numbers of successful and of all items, or the error. */
        private String ingest(List<String> created, int indexed) {
            AtomicReference<String> failure = new AtomicReference<>();
            List<Boolean> items = Collections.synchronizedList(new ArrayList<>());
            BulkListener<Void> listener = new BulkListener<>() {
                @Override
                public void beforeBulk(long execution, BulkRequest request, List<Void> contexts) {}

                @Override
                public void afterBulk(long execution, BulkRequest request, List<Void> contexts, BulkResponse answer) {
                    answer.items().forEach(item -> items.add(item.error() == null));
                }

                @Override
                public void afterBulk(long execution, BulkRequest request, List<Void> contexts, Throwable error) {
                    failure.set(refusal(error instanceof CompletionException ? error.getCause() : error));
                }
            };
            try (BulkIngester<Void> ingester = BulkIngester.of(it -> it.client(client).listener(listener))) {
                for (int number = 0; number < indexed; number++) {
                    String id = "h" + number;
                    ingester.add(op -> op.index(to -> to.index(index).id(id).document(Map.of("a", 1))));
                }
                created.forEach(id -> ingester.add(
                        op -> op.create(to -> to.index(index).id(id).document(Map.of("a", 1)))));
            }
            long successful = items.stream().filter(it -> it).count();
            return failure.get() != null ? failure.get() : successful + " of " + items.size();
        }

        void ingester() throws IOException {
            step("ingester", () -> ingest(List.of(), 1_200));
            step("ingester with a conflict", () -> ingest(List.of("half", "b1"), 0));
            step("half of a refused ingester", () -> client.exists(it -> it.index(index).id("half")).value());
        }
    }
}
