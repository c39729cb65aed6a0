//! Copies of an index that carry its aliases.
//!
//! Copies come from a clone, a shrink, a split, a restore, or a mounted snapshot. An alias with two
//! indices takes no writes. The identity alias contains the UUID of the original, so the store
//! recognises the copy and removes the alias from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use txn_store::{StoreError, StoreErrorKind};

use crate::identity::target::Target;
use crate::index::admin::{AdminRequests, Changed, refused};
use crate::index::names;

/// Takes the identity aliases off the copies of indices. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    admin: AdminRequests,
}

impl Copies {
    pub(crate) fn new(admin: AdminRequests) -> Self {
        Self { admin }
    }

    /// Removes the identity aliases of these indices from every other index.
    ///
    /// A failure goes to the log. The operations themselves report the remedy.
    pub(crate) async fn take_off(&self, targets: Vec<Arc<Target>>) {
        for target in targets {
            let shared = target.take_shared();
            if shared.is_empty() {
                continue;
            }
            let mut done = true;
            for alias in shared {
                if let Err(error) = self.take_off_of(&target.name, &alias).await {
                    done = false;
                    target.note_shared(&alias);
                    let error = self.admin.hide_secrets(error.message);
                    tracing::warn!(index = %target.name, %alias, %error, "copies of the index keep an alias of the original");
                }
            }
            if done {
                target.is_alone_again();
            }
        }
    }

    async fn take_off_of(&self, original: &str, alias: &str) -> Result<(), StoreError> {
        let what = format!("looking for copies of {original}");
        let path = format!("/_alias/{}", names::segment(alias));
        let answer = self.admin.send(Method::GET, &path, &[], None).await?;
        if answer.status != 200 {
            return Err(refused(&what, original, &answer));
        }
        let carriers: BTreeMap<String, IgnoredAny> =
            serde_json::from_slice(&answer.body).map_err(|_| {
                StoreError::new(
                    StoreErrorKind::Unavailable,
                    format!("{what}: the answer cannot be read"),
                )
            })?;
        let Some(actions) = remove_from(carriers.keys().map(String::as_str), original, alias)
        else {
            return Ok(());
        };
        let copies = format!("{original} and its copies");
        let what = format!("taking the alias {alias} off the copies of {original}");
        let changed =
            self.admin.change(&what, &copies, Method::POST, "/_aliases", Some(&actions)).await;
        changed.map_err(Changed::into_error)?;
        tracing::warn!(index = original, alias, "an alias of the index was taken off its copies");
        Ok(())
    }
}

/// Returns the request that leaves an alias to the original.
///
/// `None` if no other index has the alias, or if the original lacks it.
fn remove_from<'a>(
    carriers: impl Iterator<Item = &'a str>,
    original: &str,
    alias: &str,
) -> Option<Value> {
    let (mine, copies): (Vec<_>, Vec<_>) = carriers.partition(|index| *index == original);
    let remove = |index: &&str| json!({"remove": {"index": index, "alias": alias}});
    let actions: Vec<_> = copies.iter().map(remove).collect();
    (!mine.is_empty() && !actions.is_empty()).then(|| json!({"actions": actions}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_is_removed_from_copies_only() {
        let removed = |carriers: &[&str]| remove_from(carriers.iter().copied(), "a", "x");
        let of_b = json!({"actions": [{"remove": {"index": "b", "alias": "x"}}]});
        assert_eq!(removed(&["a", "b"]), Some(of_b));
        assert_eq!(removed(&["a"]), None);
        // Without the original in the list the copy is unknown.
        assert_eq!(removed(&["b", "c"]), None);
    }
}
