//! The final documents of the server, read without the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use txn_core::store::Source;
use txn_core::store::fields;

/// Returns the locks, placeholders and open records that are left.
///
/// A committed record may be open if an index was `lost`.
pub(crate) fn left_over(
    documents: &BTreeMap<Arc<str>, BTreeMap<String, Source>>,
    lost: bool,
) -> Vec<String> {
    let mut violations = Vec::new();
    for (collection, documents) in documents {
        for (id, source) in documents {
            let Ok(document) = serde_json::from_str::<serde_json::Value>(source) else {
                violations.push(format!("{collection}/{id} is no JSON"));
                continue;
            };
            for field in [fields::TRANSACTION_TID, fields::TRANSACTION_ABSENT] {
                if document.get(field).is_some_and(|value| !value.is_null()) {
                    violations.push(format!("left over: {field} in {collection}/{id}"));
                }
            }
            let state = document.get(fields::STATE).and_then(|state| state.as_str());
            if let Some(state @ ("pending" | "committed")) = state
                && !(lost && state == "committed")
            {
                violations.push(format!("left over: {collection}/{id} is {state}"));
            }
        }
    }
    violations
}
