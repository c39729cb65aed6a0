package conformance;

import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkIngester;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkListener;
import co.elastic.clients.elasticsearch._types.ElasticsearchException;
import co.elastic.clients.elasticsearch._types.Refresh;
import co.elastic.clients.elasticsearch._types.VersionType;
import co.elastic.clients.elasticsearch.core.BulkRequest;
import co.elastic.clients.elasticsearch.core.BulkResponse;
import co.elastic.clients.elasticsearch.core.GetResponse;
import co.elastic.clients.elasticsearch.core.bulk.BulkOperation;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.TransportException;
import co.elastic.clients.transport.Version;
import co.elastic.clients.transport.rest_client.RestClientTransport;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.http.HttpHost;
import org.elasticsearch.client.RestClient;

/** The client of Elasticsearch 8 or 9. */
class ConformanceTest extends Conformance {
    private static boolean isNine() {
        return Version.VERSION.major() == 9;
    }

    @Override
    String variable() {
        return isNine() ? "TXN_ELASTICSEARCH9_URL" : "TXN_ELASTICSEARCH_URL";
    }

    @Override
    boolean isDecoding() {
        return isNine();
    }

    @Override
    Steps connect(String url) {
        RestClient rest = RestClient.builder(HttpHost.create(url)).build();
        return new ElasticsearchSteps(new ElasticsearchClient(new RestClientTransport(rest, new JacksonJsonpMapper())));
    }

    private static final class ElasticsearchSteps extends Steps {
        private final ElasticsearchClient client;

        ElasticsearchSteps(ElasticsearchClient client) {
            this.client = client;
        }

        @Override
        Object index(String id, Map<String, ?> document, Version expected) throws IOException {
            return client.index(it -> it.index(index).id(id).document(document)
                    .ifSeqNo(expected.seqNo()).ifPrimaryTerm(expected.primaryTerm()));
        }

        @Override
        Object indexAndRefresh(String id, Map<String, ?> document) throws IOException {
            return client.index(it -> it.index(index).id(id).document(document).refresh(Refresh.WaitFor));
        }

        @Override
        Object indexExternal(String id, Map<String, ?> document, long version) throws IOException {
            return client.index(it -> it.index(index).id(id).document(document)
                    .version(version).versionType(VersionType.External));
        }

        @Override
        Object create(String id, Map<String, ?> document) throws IOException {
            return client.create(it -> it.index(index).id(id).document(document));
        }

        @Override
        GetResponse<?> get(String index, String id) throws IOException {
            return client.get(it -> it.index(index).id(id), Map.class);
        }

        @Override
        Version version(String id) throws IOException {
            GetResponse<?> read = get(index, id);
            return new Version(read.seqNo(), read.primaryTerm());
        }

        @Override
        boolean exists(String id) throws IOException {
            return client.exists(it -> it.index(index).id(id)).value();
        }

        @Override
        Object delete(String id, Version expected) throws IOException {
            return client.delete(it -> it.index(index).id(id)
                    .ifSeqNo(expected.seqNo()).ifPrimaryTerm(expected.primaryTerm()));
        }

        @Override
        Object update(String id, Map<String, ?> document, boolean isUpsert, Map<String, ?> upsert)
                throws IOException {
            return client.update(it -> it.index(index).id(id).doc(document).upsert(upsert)
                    .docAsUpsert(isUpsert ? true : null), Map.class);
        }

        /** The index of an operation is that of its bulk if {@code index} is {@code null}. */
        private static BulkOperation operation(String index, Action action) {
            return BulkOperation.of(it -> switch (action.name()) {
                case "index" -> it.index(op -> op.index(index).id(action.id()).document(action.document()));
                case "create" -> it.create(op -> op.index(index).id(action.id()).document(action.document()));
                case "update" -> it.update(
                        op -> op.index(index).id(action.id()).action(to -> to.doc(action.document())));
                default -> it.delete(op -> op.index(index).id(action.id()));
            });
        }

        @Override
        Object bulk(boolean refreshes, List<Action> actions) throws IOException {
            BulkResponse answer = client.bulk(it -> it.index(index).refresh(refreshes ? Refresh.True : null)
                    .operations(actions.stream().map(action -> operation(null, action)).toList()));
            List<String> items = new ArrayList<>();
            answer.items().forEach(it -> items.add(item(it.operationType(), it.id(), it.status(), it.result(),
                    it.error() == null ? null : it.error().type())));
            return answer.errors() + " " + items;
        }

        @Override
        Ingested ingest(List<String> created, List<String> indexed) {
            Ingested ingested = new Ingested();
            BulkListener<Void> listener = new BulkListener<>() {
                @Override
                public void beforeBulk(long execution, BulkRequest request, List<Void> contexts) {}

                @Override
                public void afterBulk(long execution, BulkRequest request, List<Void> contexts, BulkResponse answer) {
                    answer.items().forEach(item -> ingested.add(item.error() == null));
                }

                @Override
                public void afterBulk(long execution, BulkRequest request, List<Void> contexts, Throwable error) {
                    ingested.fail(error);
                }
            };
            try (BulkIngester<Void> ingester = BulkIngester.of(it -> it.client(client).listener(listener))) {
                indexed.forEach(id -> ingester.add(operation(index, new Action("index", id, Map.of("a", 1)))));
                created.forEach(id -> ingester.add(operation(index, new Action("create", id, Map.of("a", 1)))));
            }
            return ingested;
        }

        @Override
        String known(Throwable error) {
            if (error instanceof ElasticsearchException known) {
                return refusal(known.status(), String.valueOf(known.error().type()));
            }
            return error instanceof TransportException undecoded
                    ? "error " + undecoded.statusCode() + " undecoded" : null;
        }

        @Override
        void removeIndex() throws IOException {
            client.indices().delete(it -> it.index(index));
        }

        @Override
        public void close() throws IOException {
            client._transport().close();
        }
    }
}
