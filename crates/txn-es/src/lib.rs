//! The Elasticsearch and OpenSearch store of txn-core.
