//! An index that is made again before an apply.
//!
//! An administrator makes the index again before a commit is applied to it.

use txn_core::store::{Key, Read, Store};
use txn_core::{Error, Raw};
use txn_protocol::rule::Rules;

use super::left_behind::{dies_committed, ground, passes, thing};
use super::{coordinator, violations_of};

/// A dead owner's commit to a remade index is reported.
///
/// The commit is reported as lost, even with a new document.
///
/// Another transaction wrote the document in the new index. The write of the other transaction
/// stays.
#[must_use]
pub(super) fn an_index_that_is_made_again(rules: &Rules) -> Vec<String> {
    violations_of(async {
        let server = ground(rules, &["a".to_owned()]).await?;
        dies_committed(rules, &server, vec![("things", "a".to_owned()), ("annex", "a".to_owned())])
            .await?;
        // The simulated server drops each collection on request.
        let _ = server.drop_collection("annex").await;
        let (_, other) = coordinator(rules, &server, "another", 0).await?;
        let annex = other.create_collection::<Raw>("annex", None).await?;
        let inserted = other.transact::<_, Error, _>(async |tx| {
            tx.insert(&annex, "a", &thing(5))?;
            tx.insert(&annex, "b", &thing(5))
        });
        inserted.await?;
        let (_, witness) = coordinator(rules, &server, "witness", 0).await?;
        passes(&witness).await?;
        let report = witness.admin().janitor_pass().await?;
        let lost = Key::new("annex", "a");
        let mut wrong = Vec::new();
        if !report.damaged.iter().any(|(key, _)| *key == lost) {
            wrong.push("an acknowledged write is lost without a report".to_owned());
        }
        match &server.read_primary(&[lost]).await[..] {
            [Read::Found { source, .. }] if source.contains("\"n\":5") => {}
            other => wrong.push(format!("the later write is gone: {other:?}")),
        }
        let things = witness.collection::<Raw>("things").await?;
        let shown = witness.reader().get(&things, "a").await?;
        if !shown.is_some_and(|shown| shown.as_str().contains('2')) {
            wrong.push("nothing was committed: the schedule shows nothing".to_owned());
        }
        Ok(wrong)
    })
}
