//! Finds lost parts of a domain by the parts that remain.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::admin::DomainAdmin;
use crate::engine::admin::collections::Claim;
use crate::engine::admin::scan::Faults;
use crate::engine::attempt_error::AttemptError;
use crate::engine::deadline::Deadline;
use crate::error::Error;
use txn_protocol::ids::Day;
use txn_protocol::machines::domain::DomainDocument;
use txn_store::{Filter, Key, Read};

impl DomainAdmin {
    /// The existing partitions of this domain, by name, official or not.
    pub(crate) async fn existing_partitions(
        &self,
        deadline: &Deadline,
    ) -> Result<BTreeMap<Day, Vec<Arc<str>>>, AttemptError> {
        let prefix = self.table.prefix();
        let names = self
            .store
            .retry_unavailable(deadline, || self.store.documents().list_collections(&prefix))
            .await?;
        let mut partitions: BTreeMap<Day, Vec<Arc<str>>> = BTreeMap::new();
        for name in names {
            let parts = name.strip_prefix(&*prefix).and_then(|rest| rest.rsplit_once('-'));
            if let Some((day, random)) = parts
                && random.len() == 16
                && random.bytes().all(|byte| byte.is_ascii_hexdigit())
                && let Ok(day) = day.parse()
            {
                partitions.entry(day).or_default().push(name);
            }
        }
        Ok(partitions)
    }

    /// The errors of partitions with records that the domain document omits.
    ///
    /// The document was lost, or is an old version.
    pub(crate) async fn forgotten_partitions(
        &self,
        document: &DomainDocument,
        existing: &BTreeMap<Day, Vec<Arc<str>>>,
        deadline: &Deadline,
    ) -> Result<Vec<Error>, AttemptError> {
        let mut forgotten = Vec::new();
        for (day, names) in existing.iter().filter(|(day, _)| !document.is_gone(**day)) {
            for name in names {
                // A partition under construction is empty, and the document does not name it yet.
                if document.partitions.get(day).map(String::as_str) != Some(name)
                    && self.store.holds_any(name, Filter::All, deadline).await?
                {
                    let what = "it holds records of this domain, and the domain document does not name it: restore \
                                the right document, or have it rebuilt by Admin::rebuild (docs/operations.md, \
                                \"When a part is lost\")";
                    forgotten.push(Error::damaged(what).at(&Key::new(name.clone(), "*")));
                }
            }
        }
        Ok(forgotten)
    }

    /// Notes forgotten partitions and lost claims.
    pub(crate) async fn find_lost_parts(&self, document: &DomainDocument, faults: &mut Faults) {
        let deadline = self.context.deadline(self.context.config.timeout);
        let forgotten = async {
            let existing = self.existing_partitions(&deadline).await?;
            self.forgotten_partitions(document, &existing, &deadline).await
        };
        match forgotten.await {
            Ok(forgotten) => forgotten.iter().for_each(|error| {
                faults.note(&self.table.domain_key(), error);
            }),
            Err(error) => faults.note_part(&format!("{}*", self.table.prefix()), error),
        }
        let (names, keys): (Vec<&String>, Vec<Key>) =
            document.collections.iter().map(|(name, uid)| (name, Claim::key(uid))).unzip();
        let reads = self.store.documents().read_primary(&keys).await;
        for ((name, key), read) in names.into_iter().zip(&keys).zip(reads) {
            let fault = match read {
                Read::Found { source, .. } => match Claim::read(key, &source) {
                    Ok(claim) if claim.domain == **self.table.domain() => continue,
                    Ok(claim) => format!("the registry says that it belongs to {:?}", claim.domain),
                    Err(error) => error.to_string(),
                },
                Read::Absent | Read::MissingCollection => {
                    "its claim in the registry is lost: open the collection again".to_owned()
                }
                Read::Unavailable(error) => {
                    faults.unreachable.insert(key.to_string(), error.message);
                    continue;
                }
            };
            faults.damaged.insert(Key::new(name.as_str(), "*"), fault);
        }
    }
}
