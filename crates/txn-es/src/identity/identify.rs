//! Finds the index that a name means now.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use txn_store::{CollectionIdentity, StoreError, StoreErrorKind};

use crate::identity::target::identity_alias;
use crate::identity::uuid::IndexUuid;
use crate::index::admin::{AdminRequests, refused};
use crate::index::definition::misconfigured;
use crate::index::indices::no_index;
use crate::index::names;
use crate::transport::Answer;

#[derive(Deserialize)]
struct OfIndex {
    settings: Settings,
}

#[derive(Deserialize)]
struct Settings {
    #[serde(rename = "index.uuid")]
    uuid: Arc<str>,
}

#[derive(Deserialize)]
struct AliasesOf {
    aliases: BTreeMap<String, Alias>,
}

#[derive(Deserialize)]
struct Alias {
    #[serde(default)]
    is_write_index: bool,
}

type Identities = BTreeMap<Arc<str>, OfIndex>;

/// Returns the index that a name means now, without the cache.
///
/// One request, and a second one for an alias of several indices.
pub(crate) async fn identify(
    admin: &AdminRequests,
    name: &str,
) -> Result<CollectionIdentity, StoreError> {
    if let Some(fault) = names::fault(name) {
        return Err(misconfigured(format!("{name:?} is not the name of an index: {fault}")));
    }
    let what = format!("asking which index {name} is");
    // The settings of an index are far smaller than its mapping.
    let path = format!("/{}/_settings/index.uuid", names::segment(name));
    let answer = admin.send(Method::GET, &path, &[("flat_settings", "true")], None).await?;
    let found: Identities = read(name, &what, &answer)?;
    if found.len() < 2 {
        return sole(name, found);
    }
    let path = format!("/{}/_alias", names::segment(name));
    let answer = admin.send(Method::GET, &path, &[], None).await?;
    written(name, found, &read(name, &what, &answer)?)
}

fn read<T: DeserializeOwned>(name: &str, what: &str, answer: &Answer) -> Result<T, StoreError> {
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body).map_err(|e| {
            let text = format!("{what}: the answer cannot be read, at byte {}", e.column());
            StoreError::new(StoreErrorKind::Unavailable, text)
        });
    }
    let error = refused(what, name, answer);
    Err(if error.kind == StoreErrorKind::NotFound { no_index(name) } else { error })
}

fn sole(name: &str, found: Identities) -> Result<CollectionIdentity, StoreError> {
    let (name, index) = found.into_iter().next().ok_or_else(|| no_index(name))?;
    let uuid = IndexUuid::parse(&name, &index.settings.uuid)?;
    Ok(CollectionIdentity { name, uid: index.settings.uuid, incarnation: uuid.incarnation() })
}

/// Returns the index behind an alias that takes its writes.
fn written(
    alias: &str,
    mut found: Identities,
    aliases: &BTreeMap<String, AliasesOf>,
) -> Result<CollectionIdentity, StoreError> {
    // A copy carries the identity alias of its original.
    let originals: Vec<_> = found
        .iter()
        .filter_map(|(of, index)| {
            let uuid = IndexUuid::parse(of, &index.settings.uuid).ok()?;
            let identity = identity_alias(of, &uuid);
            let carries =
                |index: &str| aliases.get(index).is_some_and(|i| i.aliases.contains_key(&identity));
            carries(of).then(|| (of.clone(), identity))
        })
        .collect();
    found.retain(|name, _| {
        let carries = |identity: &String| {
            aliases.get(&**name).is_some_and(|i| i.aliases.contains_key(identity))
        };
        !originals.iter().any(|(of, identity)| of != name && carries(identity))
    });
    let count = found.len();
    if count == 1 {
        return sole(alias, found);
    }
    let is_written = |index: &str| {
        let of = aliases.get(index).and_then(|index| index.aliases.get(alias));
        of.is_some_and(|alias| alias.is_write_index)
    };
    found.retain(|index, _| is_written(index));
    if found.is_empty() {
        return Err(misconfigured(format!(
            "{alias} stands for {count} indices, and none of them takes its writes (is_write_index); name one index"
        )));
    }
    sole(alias, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identities(text: &str) -> Identities {
        serde_json::from_str(text).unwrap()
    }

    fn aliases(text: &str) -> BTreeMap<String, AliasesOf> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn alias_of_several_indices_means_its_write_index() {
        let two = r#"{"a-1":{"settings":{"index.uuid":"uMz0YBdmS5i9vKTh9RA3_g"}},
            "a-2":{"settings":{"index.uuid":"vMz0YBdmS5i9vKTh9RA3_g"}}}"#;
        let rolled = r#"{"a-1":{"aliases":{"a":{"is_write_index":false}}},
            "a-2":{"aliases":{"a":{"is_write_index":true,"is_hidden":true}}}}"#;
        let identity = written("a", identities(two), &aliases(rolled)).unwrap();
        assert_eq!((&*identity.name, &*identity.uid), ("a-2", "vMz0YBdmS5i9vKTh9RA3_g"));
        assert_ne!(identity.incarnation, 0);
        let plain = r#"{"a-1":{"aliases":{"a":{}}},"a-2":{"aliases":{"a":{}}}}"#;
        let error = written("a", identities(two), &aliases(plain)).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(error.message.contains("a stands for 2 indices"), "{error}");
    }

    #[test]
    fn missing_name_is_not_found() {
        let answer = |status, body: &'static str| Answer {
            status,
            headers: Default::default(),
            body: body.into(),
        };
        let missing = answer(
            404,
            r#"{"error":{"type":"index_not_found_exception","reason":"no such index [a]"}}"#,
        );
        let error = read::<Identities>("a", "looking", &missing).err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::NotFound);
        let garbled = read::<Identities>("a", "looking", &answer(200, "{")).err().unwrap();
        assert_eq!(garbled.kind, StoreErrorKind::Unavailable);
        assert_eq!(sole("a", Identities::new()).unwrap_err().kind, StoreErrorKind::NotFound);
    }
}
