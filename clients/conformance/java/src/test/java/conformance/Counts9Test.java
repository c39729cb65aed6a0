package conformance;

import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.rest5_client.Rest5ClientTransport;
import co.elastic.clients.transport.rest5_client.low_level.Rest5Client;
import java.net.URI;
import java.util.concurrent.TimeUnit;

/** The requests of the transport that only version 9 has. */
class Counts9Test extends CountsTest {
    @Override
    String name() {
        return "Java, Elasticsearch 9";
    }

    @Override
    ElasticsearchClient connect(String address, boolean hasTimeout) {
        if (!hasTimeout) {
            return ElasticsearchClient.of(it -> it.host(address));
        }
        Rest5Client rest = Rest5Client.builder(URI.create(address))
                .setRequestConfigCallback(it -> it.setResponseTimeout(TIMEOUT_MILLIS, TimeUnit.MILLISECONDS))
                .build();
        return new ElasticsearchClient(new Rest5ClientTransport(rest, new JacksonJsonpMapper()));
    }
}
