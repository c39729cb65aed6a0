package conformance;

import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.elasticsearch._types.ElasticsearchException;
import co.elastic.clients.elasticsearch.core.BulkRequest;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.rest_client.RestClientTransport;
import java.io.IOException;
import java.util.Map;
import org.apache.http.HttpHost;
import org.elasticsearch.client.RestClient;
import org.elasticsearch.client.RestClientBuilder;

/** The requests of the transport that both versions have. */
class CountsTest extends Counts {
    private static final BulkRequest BULK = BulkRequest.of(bulk -> bulk
            .operations(it -> it.create(op -> op.index("counted").id("1").document(Map.of("a", 1))))
            .operations(it -> it.index(op -> op.index("counted").id("2").document(Map.of("a", 1)))));

    @Override
    String name() {
        return "Java, Elasticsearch 8";
    }

    ElasticsearchClient connect(String address, boolean hasTimeout) {
        RestClientBuilder rest = RestClient.builder(HttpHost.create(address));
        if (hasTimeout) {
            rest.setRequestConfigCallback(it -> it.setSocketTimeout(TIMEOUT_MILLIS));
        }
        return new ElasticsearchClient(new RestClientTransport(rest.build(), new JacksonJsonpMapper()));
    }

    @Override
    boolean isCarriedOut(String address, boolean hasTimeout) throws IOException {
        ElasticsearchClient client = connect(address, hasTimeout);
        try {
            return !client.bulk(BULK).errors();
        } catch (ElasticsearchException | IOException error) {
            return false;
        } finally {
            client._transport().close();
        }
    }
}
