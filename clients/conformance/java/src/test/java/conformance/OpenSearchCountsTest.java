package conformance;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hc.core5.http.HttpHost;
import org.opensearch.client.json.jackson.JacksonJsonpMapper;
import org.opensearch.client.opensearch.OpenSearchClient;
import org.opensearch.client.opensearch._types.OpenSearchException;
import org.opensearch.client.opensearch.core.BulkRequest;
import org.opensearch.client.transport.OpenSearchTransport;
import org.opensearch.client.transport.httpclient5.ApacheHttpClient5TransportBuilder;

/** The requests of the client of OpenSearch. */
class OpenSearchCountsTest extends Counts {
    private static final BulkRequest BULK = BulkRequest.of(bulk -> bulk
            .operations(it -> it.create(op -> op.index("counted").id("1").document(Map.of("a", 1))))
            .operations(it -> it.index(op -> op.index("counted").id("2").document(Map.of("a", 1)))));

    @Override
    String name() {
        return "Java, OpenSearch 3";
    }

    @Override
    boolean isCarriedOut(String address, boolean hasTimeout) throws Exception {
        ApacheHttpClient5TransportBuilder builder = ApacheHttpClient5TransportBuilder.builder(HttpHost.create(address))
                .setMapper(new JacksonJsonpMapper());
        if (hasTimeout) {
            builder.setRequestConfigCallback(it -> it.setResponseTimeout(TIMEOUT_MILLIS, TimeUnit.MILLISECONDS));
        }
        try (OpenSearchTransport transport = builder.build()) {
            return !new OpenSearchClient(transport).bulk(BULK).errors();
        } catch (OpenSearchException | IOException error) {
            return false;
        }
    }
}
