package txn.gateway;

import com.fasterxml.jackson.annotation.JsonInclude;

/** The address of a document. {@code routing} is {@code null} for most documents. */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record Target(String collection, String id, String routing) {
    public Target(String collection, String id) {
        this(collection, id, null);
    }
}
