package conformance;

import jakarta.json.stream.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hc.core5.http.HttpHost;
import org.opensearch.client.json.JsonpMapper;
import org.opensearch.client.json.JsonpSerializable;
import org.opensearch.client.json.jackson.JacksonJsonpMapper;
import org.opensearch.client.opensearch.OpenSearchClient;
import org.opensearch.client.opensearch._helpers.bulk.BulkIngester;
import org.opensearch.client.opensearch._helpers.bulk.BulkListener;
import org.opensearch.client.opensearch._types.OpenSearchException;
import org.opensearch.client.opensearch._types.Refresh;
import org.opensearch.client.opensearch._types.VersionType;
import org.opensearch.client.opensearch.core.BulkRequest;
import org.opensearch.client.opensearch.core.BulkResponse;
import org.opensearch.client.opensearch.core.GetResponse;
import org.opensearch.client.opensearch.core.bulk.BulkOperation;
import org.opensearch.client.transport.httpclient5.ApacheHttpClient5TransportBuilder;

/** The client of OpenSearch 3. */
class OpenSearchConformanceTest extends Conformance {
    @Override
    String variable() {
        return "TXN_OPENSEARCH_URL";
    }

    @Override
    boolean isDecoding() {
        return false;
    }

    @Override
    Steps connect(String url) {
        return new OpenSearchSteps(new OpenSearchClient(ApacheHttpClient5TransportBuilder
                .builder(HttpHost.create(URI.create(url)))
                .setMapper(new JacksonJsonpMapper())
                .build()));
    }

    private static final class OpenSearchSteps extends Steps {
        private final OpenSearchClient client;

        OpenSearchSteps(OpenSearchClient client) {
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
                        op -> op.index(index).id(action.id()).document(action.document()));
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
        String text(Object answer) {
            if (!(answer instanceof JsonpSerializable)) {
                return super.text(answer);
            }
            StringWriter text = new StringWriter();
            JsonpMapper mapper = client._transport().jsonpMapper();
            try (JsonGenerator generator = mapper.jsonProvider().createGenerator(text)) {
                mapper.serialize(answer, generator);
            }
            return text.toString();
        }

        @Override
        String known(Throwable error) {
            if (error instanceof OpenSearchException known) {
                return refusal(known.status(), String.valueOf(known.error().type()));
            }
            return null;
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
