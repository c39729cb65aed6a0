//! The parts of a store. Each part holds the parts below it.

use std::sync::Arc;

use txn_store::Limits;

use crate::Server;
use crate::collections::changes::CollectionChanges;
use crate::collections::creator::Creator;
use crate::collections::opening::Opening;
use crate::collections::read_check::ReadCheck;
use crate::config::EsConfig;
use crate::identity::copies::Copies;
use crate::index::admin::AdminRequests;
use crate::index::indices::Indices;
use crate::index::term_check::TermCheck;
use crate::inspection::Inspector;
use crate::requests::bulk_requests::BulkRequests;
use crate::requests::limits::RequestLimits;
use crate::requests::multi_gets::MultiGets;
use crate::requests::reads::Reads;
use crate::requests::scans::Scans;
use crate::requests::writes::Writes;
use crate::transport::Transport;

/// The longest id and routing that the servers accept, in bytes.
const MAX_ID_BYTES: usize = 512;

/// The parts that all handles of one store share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) server: Server,
    pub(crate) limits: Limits,
    pub(crate) transport: Arc<Transport>,
    pub(crate) admin: AdminRequests,
    pub(crate) indices: Arc<Indices>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) writes: Writes,
    pub(crate) scans: Scans,
    pub(crate) opening: Opening,
    pub(crate) changes: CollectionChanges,
    pub(crate) inspector: Inspector,
}

impl Parts {
    pub(crate) fn new(transport: Transport, server: Server, config: &EsConfig) -> Self {
        let limits = Limits::new(MAX_ID_BYTES, config.max_bulk_bytes)
            .with_batches_requests(true)
            .with_merges_transactions(true);
        let per_request =
            RequestLimits { items: config.max_bulk_items, bytes: config.max_bulk_bytes };
        let is_opensearch = server.is_opensearch();
        let transport = Arc::new(transport);
        let admin = AdminRequests::new(transport.clone());
        let indices = Arc::new(Indices::new(admin.clone()));
        let copies = Copies::new(admin.clone());
        let bulks = Arc::new(BulkRequests::new(transport.clone(), copies.clone(), per_request));
        let multi_gets =
            Arc::new(MultiGets::new(transport.clone(), copies, per_request, is_opensearch));
        let reads =
            Arc::new(Reads::new(indices.clone(), bulks.clone(), multi_gets.clone(), limits));
        let term_check = TermCheck::new(admin.clone(), indices.clone(), is_opensearch);
        let writes = Writes::new(indices.clone(), bulks, multi_gets, term_check, limits);
        let scans = Scans::new(transport.clone(), indices.clone(), per_request, is_opensearch);
        let creator = Arc::new(Creator::new(admin.clone(), indices.clone()));
        let read_check = ReadCheck::new(transport.clone(), reads.clone());
        let opening = Opening::new(admin.clone(), indices.clone(), creator.clone(), read_check);
        let changes = CollectionChanges::new(admin.clone(), indices.clone());
        let inspector = Inspector::new(admin.clone(), creator, is_opensearch);
        Self {
            server,
            limits,
            transport,
            admin,
            indices,
            reads,
            writes,
            scans,
            opening,
            changes,
            inspector,
        }
    }
}
