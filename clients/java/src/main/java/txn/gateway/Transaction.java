package txn.gateway;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import txn.gateway.TransactionClient.WaitFor;

/** The handle of a running closure. Operations are carried out at the commit, in their order. */
public final class Transaction {
    /** Contents that the closure has read. Equal moments mean one consistent read. */
    private record Read(long moment, String token, JsonNode document) {}

    /** What the attempts of one transaction know. */
    static final class Known {
        private final Map<Target, Read> reads = new HashMap<>();
        private long moment;
    }

    private final TransactionClient client;
    private final Known known;
    private final long deadline;
    private final boolean forUpdate;
    private final ArrayNode reservations;
    private boolean isUndecided;
    private final Set<Target> used = new LinkedHashSet<>();
    /** Own writes. The content is missing if the gateway computes it. */
    private final Map<Target, Optional<JsonNode>> written = new HashMap<>();
    private final ArrayNode operations;
    private String tid;

    Transaction(TransactionClient client, Known known, long deadline, boolean forUpdate) {
        this.client = client;
        this.known = known;
        this.deadline = deadline;
        this.forUpdate = forUpdate;
        this.reservations = client.json().createArrayNode();
        this.operations = client.json().createArrayNode();
    }

    /**
     * Names the commit for {@code txn show} and {@link TransactionClient#outcome}. Empty until then, and for a repeated
     * answer.
     */
    public Optional<String> tid() {
        return Optional.ofNullable(tid);
    }

    /** Reads a document. */
    public Optional<ObjectNode> get(String collection, String id) {
        return get(new Target(collection, id), ObjectNode.class);
    }

    /** Reads a document as a value of a type that Jackson knows. */
    public <T> Optional<T> get(String collection, String id, Class<T> type) {
        return get(new Target(collection, id), type);
    }

    /** Reads a document, also with a routing. */
    public <T> Optional<T> get(Target target, Class<T> type) {
        return getAll(List.of(target), type).get(0);
    }

    /** Reads documents in one request. */
    public <T> List<Optional<T>> getAll(List<Target> targets, Class<T> type) {
        Set<Target> unread = new LinkedHashSet<>(targets);
        unread.removeAll(known.reads.keySet());
        unread.removeAll(written.keySet());
        if (!unread.isEmpty()) {
            read(unread);
        }
        return targets.stream().map(target -> Optional.ofNullable(value(content(target), type))).toList();
    }

    private void read(Set<Target> targets) {
        ObjectNode body = client.json().createObjectNode();
        body.set("targets", client.json().valueToTree(targets));
        if (forUpdate) {
            body.put("for_update", true);
        }
        JsonNode answer = client.send("POST", "/_txn/read", body, null, deadline);
        if (answer.has("reservation")) {
            reservations.add(answer.get("reservation"));
        }
        isUndecided |= answer.path("undecided").asBoolean();
        learn(answer.path("documents"));
    }

    /** Reads the documents of an earlier attempt again, and reserves them in one order for all clients. */
    void reserve(Set<Target> earlier) {
        known.reads.clear();
        if (!earlier.isEmpty()) {
            read(earlier);
        }
    }

    /** The documents that the closure has read. */
    Set<Target> used() {
        return used;
    }

    private <T> T value(JsonNode content, Class<T> type) {
        // The closure may change the document.
        return content.isNull() ? null : client.json().convertValue(content.deepCopy(), type);
    }

    private JsonNode content(Target target) {
        if (written.containsKey(target)) {
            return written.get(target).orElseThrow(() -> new IllegalStateException(
                    "the gateway computes " + target + " at the commit: read it first"));
        }
        used.add(target);
        return known.reads.get(target).document();
    }

    /** Keeps contents of one moment. */
    private void learn(JsonNode documents) {
        known.moment++;
        for (JsonNode found : documents) {
            Target target = client.json().convertValue(found.get("target"), Target.class);
            known.reads.put(target, new Read(known.moment, found.get("token").asText(), found.get("document")));
        }
    }

    /** Writes a document, whether or not it exists. */
    public void put(String collection, String id, Object document) {
        put(new Target(collection, id), document);
    }

    /** Writes a document, also with a routing. */
    public void put(Target target, Object document) {
        JsonNode content = client.json().valueToTree(document);
        operate("put", target, Optional.of(content)).set("document", content);
    }

    /** Writes a document. The transaction is refused if the document exists. */
    public void insert(String collection, String id, Object document) {
        insert(new Target(collection, id), document);
    }

    /** Writes a document, also with a routing. The transaction is refused if the document exists. */
    public void insert(Target target, Object document) {
        JsonNode content = client.json().valueToTree(document);
        operate("insert", target, Optional.of(content)).set("document", content);
    }

    /** Applies a JSON merge patch. */
    public void merge(String collection, String id, Object patch) {
        merge(new Target(collection, id), patch);
    }

    /** Applies a JSON merge patch, also with a routing. */
    public void merge(Target target, Object patch) {
        operate("merge", target, Optional.empty()).set("patch", client.json().valueToTree(patch));
    }

    /** Applies a JSON patch, a list of its operations. */
    public void patch(Target target, Object patch) {
        operate("patch", target, Optional.empty()).set("patch", client.json().valueToTree(patch));
    }

    /** Deletes a document, if it exists. */
    public void delete(String collection, String id) {
        delete(new Target(collection, id));
    }

    /** Deletes a document, also with a routing. */
    public void delete(Target target) {
        written.put(target, Optional.of(NullNode.instance));
        operations.addObject().set("delete", client.json().valueToTree(target));
    }

    /** Adds to the number at a JSON pointer. */
    public void add(String collection, String id, String path, Number amount) {
        add(new Target(collection, id), path, amount, null, null);
    }

    /** Adds to the number at a JSON pointer. A sum outside of the bounds is refused; {@code null} is no bound. */
    public void add(Target target, String path, Number amount, Number min, Number max) {
        ObjectNode add = operate("add", target, Optional.empty()).put("path", path);
        add.putPOJO("amount", amount).putPOJO("min", min).putPOJO("max", max);
    }

    private ObjectNode operate(String name, Target target, Optional<JsonNode> content) {
        written.put(target, content.map(JsonNode::deepCopy));
        ObjectNode operation = operations.addObject().putObject(name);
        return operation.set("target", client.json().valueToTree(target));
    }

    /** Commits, and returns {@code false} if documents have changed. A failed closure only compares its reads. */
    boolean commit(WaitFor waitFor, boolean failed) {
        boolean writes = !failed && !operations.isEmpty();
        long moments = used.stream().map(target -> known.reads.get(target).moment()).distinct().count();
        boolean isKnown = moments == 0 || (moments == 1 && !isUndecided && reservations.isEmpty());
        if (!writes && isKnown) {
            return true;
        }
        ObjectNode body = client.json().createObjectNode();
        ArrayNode reads = body.putArray("reads");
        for (Target target : used) {
            ObjectNode read = reads.addObject().put("token", known.reads.get(target).token());
            read.set("target", client.json().valueToTree(target));
        }
        body.set("operations", writes ? operations : client.json().createArrayNode());
        if (!reservations.isEmpty()) {
            body.set("reservations", reservations);
        }
        String key = writes ? UUID.randomUUID().toString() : null;
        String path = "/_txn/commit" + switch (waitFor) {
            case COMMIT -> "";
            case APPLY -> "?wait_for=apply";
            case REFRESH -> "?wait_for=refresh";
        };
        JsonNode answer = client.send("POST", path, body, key, deadline);
        JsonNode changed = answer.path("changed");
        if (changed.isMissingNode()) {
            tid = answer.path("tid").textValue();
            return true;
        }
        if (changed.isEmpty()) {
            // A conflict without contents does not say which reads are stale.
            known.reads.clear();
            return false;
        }
        learn(changed);
        // The gateway compared all reads at one moment.
        used.forEach(target -> known.reads.computeIfPresent(
                target, (unused, read) -> new Read(known.moment, read.token(), read.document())));
        return false;
    }
}
