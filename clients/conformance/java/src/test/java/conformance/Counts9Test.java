package conformance;

import co.elastic.clients.elasticsearch.ElasticsearchClient;

/** The requests of the transport that only version 9 has. */
class Counts9Test extends CountsTest {
    @Override
    String name() {
        return "Java, Elasticsearch 9";
    }

    @Override
    ElasticsearchClient connect(String address) {
        return ElasticsearchClient.of(it -> it.host(address));
    }
}
