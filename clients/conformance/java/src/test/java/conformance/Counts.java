package conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.net.URI;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The requests that an official client sends for one bulk, by the kind of the answer. */
abstract class Counts {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** A slow answer comes after this request timeout. */
    static final int TIMEOUT_MILLIS = 1_000;

    /** The name in `counts.json`. */
    abstract String name();

    /** Sends the bulk by a new client, and returns whether it is carried out. */
    abstract boolean isCarriedOut(String address, boolean hasTimeout) throws Exception;

    @Test
    @EnabledIfEnvironmentVariable(named = "TXN_COUNTED_PROGRAM", matches = ".+")
    void client_sends_as_documented() throws Exception {
        JsonNode expected = MAPPER.readTree(new File("../counts.json"));
        JsonNode requests = expected.get("requests").get(name());
        Map<String, List<Integer>> documented = new TreeMap<>();
        requests.fields().forEachRemaining(it -> documented.put(
                it.getKey(),
                Collections.nCopies(it.getValue().asInt(), expected.get("statuses").get(it.getKey()).asInt())));
        Process gateways = new ProcessBuilder(new File(System.getenv("TXN_COUNTED_PROGRAM")).getAbsolutePath())
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        try (SlowServer slow = new SlowServer()) {
            // The addresses of the gateways are in one line.
            JsonNode addresses = MAPPER.readTree(gateways.inputReader().readLine());
            Map<String, List<Integer>> answered = new TreeMap<>();
            for (String kind : documented.keySet()) {
                String address = kind.equals("slow") ? slow.address() : addresses.get(kind).asText();
                answered.put(kind, answersOf(address, kind));
            }
            assertEquals(documented, answered);
        } finally {
            gateways.getOutputStream().close();
            gateways.waitFor();
        }
    }

    /** Sends the bulk once, and returns the statuses of the answers. */
    private List<Integer> answersOf(String address, String kind) throws Exception {
        assertEquals(kind.equals("committed"), isCarriedOut(address, kind.equals("slow")), kind);
        return MAPPER.readValue(URI.create(address + "/_counted").toURL(), new TypeReference<>() {});
    }
}
