package conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.elasticsearch._types.ElasticsearchException;
import co.elastic.clients.elasticsearch.core.BulkRequest;
import co.elastic.clients.elasticsearch.core.BulkResponse;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.rest_client.RestClientTransport;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.http.HttpHost;
import org.elasticsearch.client.RestClient;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The requests that the official client sends for one bulk, by the kind of the answer. */
@EnabledIfEnvironmentVariable(named = "TXN_COUNTED_PROGRAM", matches = ".+")
class CountsTest {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private static final BulkRequest BULK = BulkRequest.of(bulk -> bulk
            .operations(it -> it.create(op -> op.index("counted").id("1").document(Map.of("a", 1))))
            .operations(it -> it.index(op -> op.index("counted").id("2").document(Map.of("a", 1)))));

    /** The name in `counts.json`. */
    String name() {
        return "Java, Elasticsearch 8";
    }

    ElasticsearchClient connect(String address) {
        RestClient rest = RestClient.builder(HttpHost.create(address)).build();
        return new ElasticsearchClient(new RestClientTransport(rest, new JacksonJsonpMapper()));
    }

    @Test
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
        try {
            // The addresses of the gateways are in one line.
            JsonNode addresses = MAPPER.readTree(gateways.inputReader().readLine());
            Map<String, List<Integer>> answered = new TreeMap<>();
            for (String kind : documented.keySet()) {
                answered.put(kind, answersOf(addresses.get(kind).asText(), kind));
            }
            assertEquals(documented, answered);
        } finally {
            gateways.getOutputStream().close();
            gateways.waitFor();
        }
    }

    /** Sends the bulk once, and returns the statuses of the answers. */
    private List<Integer> answersOf(String address, String kind) throws Exception {
        ElasticsearchClient client = connect(address);
        assertEquals(kind.equals("committed"), isCarriedOut(client), kind);
        client._transport().close();
        return MAPPER.readValue(URI.create(address + "/_counted").toURL(), new TypeReference<>() {});
    }

    private static boolean isCarriedOut(ElasticsearchClient client) {
        try {
            BulkResponse answer = client.bulk(BULK);
            return !answer.errors();
        } catch (ElasticsearchException | IOException error) {
            return false;
        }
    }
}
