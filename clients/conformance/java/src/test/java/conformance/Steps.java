package conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The steps of one client in a new index, and their answers. */
abstract class Steps implements AutoCloseable {
    @FunctionalInterface
    interface Call {
        Object send() throws IOException;
    }

    /** The counters of a document that conditions name. */
    record Version(Long seqNo, Long primaryTerm) {
        static final Version ANY = new Version(null, null);
    }

    /** An action of a bulk. */
    record Action(String name, String id, Map<String, ?> document) {}

    /** The answers to an ingester, whose bulks run in other threads. */
    final class Ingested {
        private final List<Boolean> items = Collections.synchronizedList(new ArrayList<>());
        private volatile String failure;

        void add(boolean isSuccessful) {
            items.add(isSuccessful);
        }

        void fail(Throwable error) {
            failure = refusal(error instanceof CompletionException ? error.getCause() : error);
        }

        @Override
        public String toString() {
            long successful = items.stream().filter(it -> it).count();
            return failure != null ? failure : successful + " of " + items.size();
        }
    }

    final String index = "conformance-" + UUID.randomUUID();
    private final Map<String, String> answers = new LinkedHashMap<>();

    /** Indexes a document. The id may be {@code null}. */
    abstract Object index(String id, Map<String, ?> document, Version expected) throws IOException;

    abstract Object indexAndRefresh(String id, Map<String, ?> document) throws IOException;

    abstract Object indexExternal(String id, Map<String, ?> document, long version) throws IOException;

    abstract Object create(String id, Map<String, ?> document) throws IOException;

    abstract Object get(String index, String id) throws IOException;

    abstract Version version(String id) throws IOException;

    abstract boolean exists(String id) throws IOException;

    abstract Object delete(String id, Version expected) throws IOException;

    /** Updates a document. The upsert may be {@code null}. */
    abstract Object update(String id, Map<String, ?> document, boolean isUpsert, Map<String, ?> upsert)
            throws IOException;

    /** Sends a bulk, and returns its items by {@link #item}. */
    abstract Object bulk(boolean refreshes, List<Action> actions) throws IOException;

    /** Creates and indexes documents by the ingester of the client. */
    abstract Ingested ingest(List<String> created, List<String> indexed);

    abstract void removeIndex() throws IOException;

    /** Returns an answer of the client as JSON. */
    String text(Object answer) {
        return String.valueOf(answer);
    }

    /** Describes a refusal whose exception is of a type of the client. Otherwise returns {@code null}. */
    abstract String known(Throwable error);

    Map<String, String> record() throws IOException {
        documents();
        updates();
        bulks();
        ingester();
        return answers;
    }

    private void step(String name, Call call) throws IOException {
        String answer;
        try {
            answer = normalised(text(call.send()));
        } catch (RuntimeException error) {
            answer = known(error);
            if (answer == null) {
                throw error;
            }
        } catch (IOException error) {
            answer = refusal(error);
        }
        assertEquals(null, answers.put(name, answer), name);
    }

    private String refusal(Throwable error) {
        String known = known(error);
        if (known != null) {
            return known;
        }
        // No client decodes each 409, and the exception has another type in each version.
        String message = String.valueOf(error.getMessage());
        Matcher found = Pattern.compile("HTTP/1.1 (\\d+)").matcher(message);
        int status = found.find() ? Integer.parseInt(found.group(1)) : 0;
        found = Pattern.compile("\"type\":\"(\\w+_exception)\"").matcher(message);
        return refusal(status, found.find() ? found.group(1) : message);
    }

    /** A refused request has one type for the gateway, and several for the servers. */
    static String refusal(int status, String type) {
        return status == 400 ? "error 400" : "error " + status + " " + type;
    }

    /** Describes an item of a bulk. The type of its error may be {@code null}. */
    static String item(Object action, String id, int status, String result, String type) {
        return action + " " + id + " " + status + " " + result + " " + (type == null ? "" : type);
    }

    private String normalised(String answer) {
        return answer.replace(index, "INDEX")
                .replaceAll("\"(_version|_seq_no|_primary_term|took)\":\\d+", "\"$1\":NUMBER")
                .replaceAll("\"_shards\":\\{[^}]*\\},?", "")
                .replaceAll("\"forced_refresh\":true,?", "")
                .replaceAll("\"_id\":\"[^\"]{20,}\"", "\"_id\":\"GENERATED\"")
                .replaceAll(",\\}", "}");
    }

    private void documents() throws IOException {
        step("index", () -> index("1", Map.of("a", 1), Version.ANY));
        step("index again", () -> index("1", Map.of("a", 2), Version.ANY));
        step("index without id", () -> index(null, Map.of("a", 1), Version.ANY));
        step("index and refresh", () -> indexAndRefresh("2", Map.of("a", 1)));
        step("create", () -> create("3", Map.of("a", 1)));
        step("create an existing document", () -> create("3", Map.of("a", 1)));
        step("get", () -> get(index, "1"));
        step("get a missing document", () -> get(index, "none"));
        step("get of a missing index", () -> get(index + "-none", "1"));
        step("exists", () -> exists("1"));
        step("exists not", () -> exists("none"));
        step("id with special letters", () -> index("a/b c?ü+%", Map.of("a", 1), Version.ANY));
        step("delete", () -> delete("2", Version.ANY));
        step("delete a missing document", () -> delete("2", Version.ANY));
        step("external version", () -> indexExternal("e", Map.of("a", 1), 7));
        Version read = version("1");
        step("conditional index", () -> index("1", Map.of("a", 3), read));
        step("index with an old condition", () -> index("1", Map.of("a", 3), read));
        step("delete with an old condition", () -> delete("1", read));
    }

    private void updates() throws IOException {
        step("update", () -> update("1", Map.of("b", Map.of("c", 1)), false, null));
        step("updated document", () -> get(index, "1"));
        step("update without effect", () -> update("1", Map.of("a", 3), false, null));
        step("update a missing document", () -> update("none", Map.of("a", 3), false, null));
        step("doc_as_upsert", () -> update("v", Map.of("a", 3), true, null));
        step("upsert", () -> update("w", Map.of("a", 3), false, Map.of("u", 3)));
        step("upserted document", () -> get(index, "w"));
    }

    private void bulks() throws IOException {
        step("bulk", () -> bulk(false, List.of(
                new Action("index", "b1", Map.of("a", 1)),
                new Action("create", "b2", Map.of("a", 2)),
                new Action("update", "b1", Map.of("n", 1)),
                new Action("delete", "b2", null),
                new Action("delete", "none", null))));
        step("bulk and refresh", () -> bulk(true, List.of(new Action("index", "b3", Map.of("a", 1)))));
        step("bulk with a conflict", () -> bulk(false, List.of(
                new Action("index", "b4", Map.of("a", 1)),
                new Action("create", "b1", Map.of("a", 2)))));
        step("bulk with an update of a missing document", () -> bulk(false, List.of(
                new Action("index", "b4", Map.of("a", 1)),
                new Action("update", "none", Map.of("n", 1)))));
    }

    private void ingester() throws IOException {
        List<String> many = new ArrayList<>();
        for (int number = 0; number < 1_200; number++) {
            many.add("h" + number);
        }
        step("ingester", () -> ingest(List.of(), many));
        step("ingester with a conflict", () -> ingest(List.of("half", "b1"), List.of()));
        step("half of a refused ingester", () -> exists("half"));
    }
}
