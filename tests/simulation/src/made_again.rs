//! An administrator drops the annex and makes it again: the checks afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use txn_core::store::fields;
use txn_core::store::{CollectionSpec, Key, Role, Source, Store, Write, WriteOp};

use crate::history::{Content, Doc};
use crate::scenario::ANNEXED;
use txn_sim::server::Server;

/// The collections of a server, with their documents.
type Documents = BTreeMap<Arc<str>, BTreeMap<String, Source>>;

/// The annex that was dropped.
#[derive(Clone, Debug)]
pub(crate) struct MadeAgain {
    /// The incarnation of the annex.
    before: u64,
    /// The locks in the annex. Each has the attempt, and the id of the document.
    locks: Vec<(String, String)>,
}

impl MadeAgain {
    /// Drops the annex and makes it again. A plain client writes some documents to the new annex.
    pub(crate) async fn carry_out(server: &Server, dice: &mut fastrand::Rng) -> Self {
        let documents = server.documents();
        let annex = documents.get("annex").into_iter().flatten();
        let locks = annex.filter_map(|(id, source)| Some((lock_of(source)?, id.clone())));
        let locks = locks.collect();
        let before = server.identify("annex").await.map_or(0, |identity| identity.incarnation);
        // The simulated server drops each collection on request.
        let _ = server.drop_collection("annex").await;
        let (name, role) = ("annex".to_owned(), Role::Data { owner: None });
        let spec = CollectionSpec { name, role, create: true, mappings: None };
        let _ = server.open_collection(&spec).await;
        for n in (0..ANNEXED).filter(|_| dice.bool()) {
            let source = serde_json::to_string(&Content::default()).unwrap_or_default();
            let key = Key::new("annex", Doc::Annex(n).id());
            server.write_many(&[Write::new(key, WriteOp::Create(source.into()))]).await;
        }
        Self { before, locks }
    }

    /// The violations. `damaged`: the reports that observers received, with the attempt's id.
    pub(crate) fn violations(
        &self,
        documents: &Documents,
        damaged: &[(Key, String)],
    ) -> Vec<String> {
        let mut violations = Vec::new();
        let annex = documents.get("annex");
        for (tid, record) in documents.values().flatten() {
            let Ok(record) = serde_json::from_str::<Value>(record) else { continue };
            let members = record.get("members").and_then(Value::as_array);
            let lost = members.into_iter().flatten().filter_map(|member| self.lost(member));
            for id in lost {
                let is_told = || {
                    let is_it = |(key, what): &(Key, String)| *key.id == *id && what.contains(tid);
                    damaged.iter().any(is_it)
                };
                let is_locked = || self.locks.iter().any(|(lock, at)| lock == tid && at == id);
                if record[fields::STATE] == "finished" && is_locked() && !is_told() {
                    violations.push(format!("made again: {tid} lost {id} without a report"));
                }
                let stands = annex.and_then(|annex| annex.get(id)).and_then(|s| version_of(s));
                if stands.is_some() && stands.as_deref() == record["commit_version"].as_str() {
                    violations.push(format!("made again: {tid} was written into the new annex"));
                }
            }
        }
        violations
    }

    /// The id of a participant whose write was dropped.
    ///
    /// The write is one to the dropped annex.
    fn lost<'m>(&self, member: &'m Value) -> Option<&'m str> {
        let of = |field: &str| member[field]["incarnation"].as_u64();
        let incarnation = of("placeholder").or_else(|| of("expected"));
        let is_lost = member["collection"] == "annex"
            && member["op"] != "read"
            && incarnation == Some(self.before);
        member["id"].as_str().filter(|_| is_lost)
    }
}

fn lock_of(source: &str) -> Option<String> {
    let document: Value = serde_json::from_str(source).ok()?;
    document.get(fields::TRANSACTION_TID)?.as_str().map(str::to_owned)
}

/// The commit that wrote the content.
fn version_of(source: &str) -> Option<String> {
    let document: Value = serde_json::from_str(source).ok()?;
    document.get(fields::TRANSACTION_VERSION)?.as_str().map(str::to_owned)
}
