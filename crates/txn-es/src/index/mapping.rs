//! Checks that an index can serve transactions, and finds missing fields.
//!
//! Pure functions over the servers' description of an index.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use txn_store::fields::{
    STATE, TRANSACTION_ABSENT, TRANSACTION_RECENT, TRANSACTION_TID, TRANSACTION_VERSION,
};
use txn_store::{CollectionSpec, Role, StoreError, StoreErrorKind};

use crate::identity::target::{check_length, identity_alias, is_identity_alias};
use crate::identity::uuid::IndexUuid;
use crate::index::definition::{self, misconfigured};
use crate::index::templates::{flat, merge};
use crate::index::terms::{Fields, LongValue};

/// In the library's mark, `_meta.txn`: the version of the mapped reserved fields.
const FIELDS: &str = "fields";

const FORMAT: u64 = 1;

/// In the library's mark: the owning domain.
const DOMAIN: &str = "domain";

/// One index, as `GET /<name>?flat_settings=true` shows it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Index {
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) aliases: Map<String, Value>,
    #[serde(default)]
    mappings: Map<String, Value>,
    #[serde(default)]
    settings: Map<String, Value>,
    #[serde(default)]
    data_stream: Option<String>,
}

/// Returns the only index behind a name.
pub(crate) fn sole(asked: &str, answer: &[u8]) -> Result<Index, StoreError> {
    let mut found: std::collections::BTreeMap<String, Index> = serde_json::from_slice(answer)
        .map_err(|e| {
            let at = e.column();
            let text = format!("{asked}: what the server shows cannot be read, at byte {at}");
            StoreError::new(StoreErrorKind::Unavailable, text)
        })?;
    if let Some(stream) = found.values().find_map(|index| index.data_stream.as_ref()) {
        return Err(misconfigured(format!(
            "{asked} belongs to the data stream {stream}, which takes no updates; use an ordinary index"
        )));
    }
    leave_out_copies(&mut found);
    if found.len() > 1 {
        let count = found.len();
        let mut names: Vec<_> = found.into_keys().take(5).collect();
        if count > names.len() {
            names.push("...".to_owned());
        }
        return Err(misconfigured(format!(
            "{asked} stands for {count} indices ({}); name one of them, or an alias of only one",
            names.join(", ")
        )));
    }
    let Some((name, mut index)) = found.pop_first() else {
        let text = format!("{asked}: the server shows no index");
        return Err(StoreError::new(StoreErrorKind::NotFound, text));
    };
    index.name = name;
    if let Some(alias) = index.aliases.get(asked) {
        if alias.get("is_write_index") == Some(&Value::Bool(false)) {
            return Err(misconfigured(format!(
                "the alias {asked} takes no writes (is_write_index is false); name the index {}",
                index.name
            )));
        }
        if index.is_rolled_over_by(asked) || alias.get("is_write_index") == Some(&Value::Bool(true))
        {
            return Err(misconfigured(format!(
                "the alias {asked} is one to roll over: its next index would take the writes, and transactions would \
                 stay with {}; name the index, or take is_write_index and the setting rollover_alias off",
                index.name
            )));
        }
        if alias.get("index_routing").is_some() || alias.get("search_routing").is_some() {
            return Err(misconfigured(format!(
                "the alias {asked} adds a routing; name the index {} and give the routing in the keys",
                index.name
            )));
        }
    }
    Ok(index)
}

/// Removes copies of an index if the original is in the list.
///
/// A copy carries the identity alias of its original.
fn leave_out_copies(found: &mut std::collections::BTreeMap<String, Index>) {
    let identity = |(name, index): (&String, &Index)| {
        let uuid = IndexUuid::parse(name, index.setting("index.uuid")?).ok()?;
        let alias = identity_alias(name, &uuid);
        index.aliases.contains_key(&alias).then(|| (name.clone(), alias))
    };
    let originals: Vec<_> = found.iter().filter_map(identity).collect();
    found.retain(|name, index| {
        !originals.iter().any(|(of, alias)| of != name && index.aliases.contains_key(alias))
    });
}

impl Index {
    /// An index before its creation.
    pub(crate) fn unmade(
        name: &str,
        mappings: Map<String, Value>,
        settings: Map<String, Value>,
    ) -> Self {
        Self { name: name.to_owned(), mappings, settings, ..Self::default() }
    }

    /// Returns an index as a server would make it.
    ///
    /// The index results from a template and the request of its creation.
    ///
    /// OpenSearch takes each part of the mapping from the request, and Elasticsearch merges.
    pub(crate) fn foreseen(
        name: &str,
        template: &Value,
        request: &Value,
        is_opensearch: bool,
    ) -> Self {
        let mut settings = flat(&template["settings"]);
        for (name, value) in request["settings"].as_object().into_iter().flatten() {
            match value {
                Value::Null => drop(settings.remove(name)),
                value => drop(settings.insert(name.clone(), value.clone())),
            }
        }
        let mut mappings = template["mappings"].as_object().cloned().unwrap_or_default();
        for (part, value) in request["mappings"].as_object().into_iter().flatten() {
            let into = mappings.entry(part).or_insert(Value::Null);
            match is_opensearch && part != "properties" {
                true => *into = value.clone(),
                false => merge(into, value),
            }
        }
        Self::unmade(name, mappings, settings)
    }

    /// Whether a rollover policy moves the alias.
    ///
    /// The alias moves to the next index of a series.
    fn is_rolled_over_by(&self, alias: &str) -> bool {
        let policies = self.settings.iter().filter(|(name, _)| name.ends_with(".rollover_alias"));
        policies.into_iter().any(|(_, value)| value.as_str() == Some(alias))
    }

    /// Adds a setting that is not given.
    pub(crate) fn add_setting(&mut self, name: &str, value: Value) {
        self.settings.entry(name).or_insert(value);
    }

    /// Adds a part of the mapping that is not given.
    pub(crate) fn add_mapping(&mut self, name: &str, value: Value) {
        self.mappings.entry(name).or_insert(value);
    }

    /// Replaces parts of the mapping.
    pub(crate) fn extend_mappings(&mut self, parts: Map<String, Value>) {
        self.mappings.extend(parts);
    }

    /// Returns the body of the creation request, without some settings.
    pub(crate) fn into_body(mut self, without: &BTreeSet<String>) -> Value {
        self.settings.retain(|name, _| !without.contains(name));
        json!({"settings": self.settings, "mappings": self.mappings})
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Value::as_str)
    }

    /// Returns the UUID of the index.
    pub(crate) fn uuid(&self) -> Result<IndexUuid, StoreError> {
        IndexUuid::parse(&self.name, self.setting("index.uuid").unwrap_or_default())
    }

    /// Whether a write block is set.
    pub(crate) fn is_blocked(&self) -> bool {
        self.setting("index.blocks.write") == Some("true")
    }

    /// Returns the owning domain from the `_meta` of the mapping.
    pub(crate) fn owner(&self) -> Option<String> {
        self.mark()?.get(DOMAIN)?.as_str().map(str::to_owned)
    }

    /// Returns the name of the identity alias.
    ///
    /// Fails if the name would be too long.
    pub(crate) fn identity_alias(&self) -> Result<String, StoreError> {
        check_length(&self.name)?;
        Ok(identity_alias(&self.name, &self.uuid()?))
    }

    /// Whether the index has its identity alias and no foreign one.
    ///
    /// A restored snapshot leaves foreign identity aliases.
    pub(crate) fn has_identity_alias(&self, mine: &str) -> bool {
        self.aliases.contains_key(mine) && self.foreign_identities(mine).next().is_none()
    }

    fn foreign_identities<'a>(&'a self, mine: &'a str) -> impl Iterator<Item = &'a str> {
        let aliases = self.aliases.keys().map(String::as_str);
        aliases.filter(move |alias| is_identity_alias(alias) && *alias != mine)
    }

    /// Returns the change that removes the owner from `_meta`.
    ///
    /// `None` without an owner.
    pub(crate) fn without_owner(&self) -> Option<Value> {
        self.owner()?;
        let mut meta = self.mappings.get("_meta")?.as_object()?.clone();
        let txn = meta.get_mut("txn")?.as_object_mut()?;
        txn.remove("domain");
        if txn.is_empty() {
            meta.remove("txn");
        }
        Some(json!({"_meta": meta}))
    }

    /// Returns the request that removes the library's aliases, if there are any.
    pub(crate) fn release_actions(&self) -> Option<Value> {
        let ours = |alias: &String, about: &Value| {
            is_identity_alias(alias)
                || *alias == committed_alias(&self.name) && hides_placeholders(about)
        };
        let remove = |alias| json!({"remove": {"index": self.name, "alias": alias}});
        let aliases = self.aliases.iter().filter(|(alias, about)| ours(alias, about));
        let actions: Vec<_> = aliases.map(|(alias, _)| remove(alias)).collect();
        (!actions.is_empty()).then(|| json!({"actions": actions}))
    }

    /// Returns the request that adds the identity alias and removes foreign ones.
    pub(crate) fn identity_actions(&self, mine: &str) -> Value {
        let add = json!({"add": {"index": self.name, "alias": mine, "is_hidden": true}});
        let remove = self
            .foreign_identities(mine)
            .map(|alias| json!({"remove": {"index": self.name, "alias": alias}}));
        json!({"actions": std::iter::once(add).chain(remove).collect::<Vec<_>>()})
    }

    /// Checks that the index can serve transactions.
    pub(crate) fn check(&self, role: &Role) -> Result<(), StoreError> {
        let name = &self.name;
        if self
            .setting("index.translog.durability")
            .is_some_and(|d| !d.eq_ignore_ascii_case("request"))
        {
            return Err(misconfigured(format!(
                "{name} can lose acknowledged writes: set index.translog.durability to request"
            )));
        }
        if let Some(pipeline) = self.setting("index.final_pipeline").filter(|p| *p != "_none") {
            return Err(misconfigured(format!(
                "{name} has the final pipeline {pipeline}, which could change locks: set \
                 index.final_pipeline to _none"
            )));
        }
        if self.setting("index.disable_sequence_numbers") == Some("true") {
            return Err(misconfigured(format!(
                "{name} keeps no sequence numbers, on which every conditional write depends: \
                 index.disable_sequence_numbers cannot be changed; reindex into an index without it"
            )));
        }
        if let Some(fault) = self.source_fault() {
            return Err(misconfigured(format!(
                "{name} does not keep documents as they are written ({fault}): transactions would \
                 lose fields; reindex into an index with a complete, stored _source"
            )));
        }
        let data = matches!(role, Role::Data { .. });
        if !data && self.mappings.get("_routing").is_some_and(|routing| is_on(&routing["required"]))
        {
            return Err(misconfigured(format!(
                "{name} requires a routing for each document, and those of this library have none: set \
                 _routing.required to false in its mapping"
            )));
        }
        match role {
            Role::Data { .. } | Role::System { .. } => self.missing_fields().map(|_| ()),
            Role::Registry => Ok(()),
            Role::Partition => match self.field(STATE) {
                Some(field) if is_searchable_keyword(field) && !self.is_runtime(STATE) => Ok(()),
                _ => Err(misconfigured(format!(
                    "{name} is no partition of a transaction table: it has no keyword field {STATE}"
                ))),
            },
        }
    }

    fn source_fault(&self) -> Option<String> {
        let stored = |mode: &str| mode.eq_ignore_ascii_case("stored");
        if let Some(mode) = self.setting("index.mapping.source.mode").filter(|mode| !stored(mode)) {
            return Some(format!("index.mapping.source.mode is {mode}"));
        }
        let explicit = self.setting("index.mapping.source.mode").is_some();
        if let Some(mode) = self.setting("index.mode")
            && !explicit
            && (mode.eq_ignore_ascii_case("logsdb") || mode.eq_ignore_ascii_case("time_series"))
        {
            return Some(format!("index.mode is {mode}"));
        }
        let source = self.mappings.get("_source")?;
        if let Some(mode) = source.get("mode").and_then(Value::as_str).filter(|mode| !stored(mode))
        {
            return Some(format!("the mode of _source is {mode}"));
        }
        if matches!(source.get("enabled"), Some(Value::Bool(false))) || source["enabled"] == "false"
        {
            return Some("_source is disabled".to_owned());
        }
        let some = |list: &Value| match list {
            Value::Array(list) => !list.is_empty(),
            Value::Null => false,
            _ => true,
        };
        let partial =
            ["includes", "excludes"].into_iter().find(|list| source.get(list).is_some_and(some));
        partial.map(|list| format!("_source has {list}"))
    }

    /// Returns the values that exceed the longest term, with their fields.
    ///
    /// The values are those of `source`.
    pub(crate) fn long_values(&self, source: &str, is_opensearch: bool) -> BTreeSet<LongValue> {
        let source: Map<String, Value> = serde_json::from_str(source).unwrap_or_default();
        let properties = self.mappings.get("properties").and_then(Value::as_object);
        let fields =
            properties.map(|properties| Fields::of(properties, &self.settings, is_opensearch));
        fields.map(|fields| fields.long_values(&source)).unwrap_or_default()
    }

    /// Whether a runtime field shadows a field.
    fn is_runtime(&self, name: &str) -> bool {
        self.mappings.get("runtime").is_some_and(|runtime| runtime.get(name).is_some())
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.mappings.get("properties")?.get(name)
    }

    /// Returns the library's entry in the `_meta` of the mapping.
    fn mark(&self) -> Option<&Map<String, Value>> {
        self.mappings.get("_meta")?.get("txn")?.as_object()
    }

    /// Whether this library mapped the reserved fields.
    ///
    /// Otherwise fields with these names belong to the application.
    fn is_prepared(&self) -> Result<bool, StoreError> {
        let Some(mark) = self.mark() else { return Ok(false) };
        match mark.get(FIELDS).and_then(Value::as_u64) {
            Some(format) if format > FORMAT => Err(misconfigured(format!(
                "{}: a newer version of this library has prepared the index (_meta.txn.{FIELDS} is {format}, \
                 this version knows {FORMAT}); use that version",
                self.name
            ))),
            Some(_) => Ok(true),
            None => Ok(mark.contains_key(DOMAIN)),
        }
    }

    /// Returns the reserved fields that are not mapped yet.
    fn missing_fields(&self) -> Result<Map<String, Value>, StoreError> {
        let prepared = self.is_prepared()?;
        let mut missing = Map::new();
        for (field, wanted) in reserved() {
            let clash = |what: &str| {
                Err(misconfigured(format!(
                    "{}: the field {field} is reserved for transactions, and here it is {what}. If it is \
                     the application's own field, rename it: reindex into an index where it has another name",
                    self.name
                )))
            };
            if self.is_runtime(field) {
                return clash(&format!("a runtime field, but it has to be {wanted}"));
            }
            let Some(found) = self.field(field) else {
                missing.insert(field.to_owned(), wanted);
                continue;
            };
            let kind = found.get("type").and_then(Value::as_str).unwrap_or("object");
            if *found == dynamic_text() {
                return Err(misconfigured(format!(
                    "{}: the field {field} is reserved for transactions, and here the server mapped it by itself, as \
                     in a copy of an index that was made without its mapping. Make the copy again: create the index \
                     with the mapping of its original, then copy the documents. If {field} is a field of the \
                     application, give it another name",
                    self.name
                )));
            }
            if wanted["type"] != kind {
                return clash(&format!("mapped as {kind}, but it has to be {wanted}"));
            }
            if field == TRANSACTION_TID && !is_searchable_keyword(found) {
                let what = format!("mapped so that it cannot be searched; it has to be {wanted}");
                return clash(&what);
            }
            if !prepared {
                return clash(&format!(
                    "mapped already, in an index that this library has not prepared (a copy of one that it \
                     has needs the mark: set txn.{FIELDS} to {FORMAT} in the _meta of its mapping)"
                ));
            }
        }
        Ok(missing)
    }

    /// Returns the mapping change that a role needs, as one request.
    ///
    /// The change holds the missing fields, the mark that they belong to the library, and the
    /// owner. The function merges them into the existing `_meta`, because the servers replace
    /// `_meta` as a whole.
    pub(crate) fn change(&self, role: &Role) -> Result<Option<Value>, StoreError> {
        if !matches!(role, Role::Data { .. } | Role::System { .. }) {
            return Ok(None);
        }
        let missing = self.missing_fields()?;
        let owner = role.owner().filter(|owner| self.owner().as_deref() != Some(*owner));
        if missing.is_empty() && owner.is_none() {
            return Ok(None);
        }
        let mut meta = match self.mappings.get("_meta") {
            Some(Value::Object(meta)) => meta.clone(),
            _ => Map::new(),
        };
        let Value::Object(mark) = meta.entry("txn").or_insert_with(|| json!({})) else {
            return Err(misconfigured(format!(
                "{}: the entry txn in the mapping's _meta is reserved; rename it",
                self.name
            )));
        };
        mark.insert(FIELDS.to_owned(), json!(FORMAT));
        if let Some(owner) = owner {
            mark.insert(DOMAIN.to_owned(), json!(owner));
        }
        let mut change = json!({"_meta": meta});
        if !missing.is_empty() {
            change["properties"] = Value::Object(missing);
        }
        Ok(Some(change))
    }

    /// Returns the mapping change that a caller of `open_collection` needs.
    ///
    /// The change is that of the role. If the index and the given mappings are both strict, the
    /// change adds the missing fields of the given mappings. A strict index would refuse documents
    /// with these fields. So an index from an older version of an application gets the fields of a
    /// newer one.
    pub(crate) fn change_for(&self, spec: &CollectionSpec) -> Result<Option<Value>, StoreError> {
        let mut change = self.change(&spec.role)?;
        let lacking = self.lacking(spec);
        if !lacking.is_empty() {
            let change = change.get_or_insert_with(|| json!({}));
            match change.get_mut("properties").and_then(Value::as_object_mut) {
                Some(fields) => fields.extend(lacking),
                None => change["properties"] = Value::Object(lacking),
            }
        }
        Ok(change)
    }

    fn lacking(&self, spec: &CollectionSpec) -> Map<String, Value> {
        let is_strict = |mappings: &Map<String, Value>| {
            mappings.get("dynamic").and_then(Value::as_str) == Some("strict")
        };
        // An index of another domain stays unchanged.
        let is_claimed = spec.role.owner().is_some();
        let wanted = definition::of(spec).map(|(mappings, _)| mappings).unwrap_or_default();
        if !spec.create || !is_claimed || !is_strict(&self.mappings) || !is_strict(&wanted) {
            return Map::new();
        }
        let mut lacking = lacking(&self.mappings, &wanted);
        lacking.retain(|name, _| reserved().iter().all(|(field, _)| field != name));
        lacking
    }

    /// Adds fields to the mapping of an index before its creation.
    pub(crate) fn map(&mut self, fields: Value) -> Result<(), StoreError> {
        let properties = self.mappings.entry("properties").or_insert_with(|| json!({}));
        match (properties, fields) {
            (Value::Object(properties), Value::Object(fields)) => {
                properties.extend(fields);
                Ok(())
            }
            (Value::Object(_), _) => Ok(()),
            _ => Err(misconfigured(format!("{}: \"properties\" is no object", self.name))),
        }
    }

    /// Returns the fields, by name.
    pub(crate) fn properties(&self) -> Option<&Map<String, Value>> {
        self.mappings.get("properties")?.as_object()
    }

    /// Whether the index holds documents of an application.
    pub(crate) fn is_data(&self) -> bool {
        self.field(TRANSACTION_TID).is_some()
    }
}

/// Returns the wanted fields that a mapping lacks.
///
/// `found` is the mapping, or an object in a mapping.
fn lacking(found: &Map<String, Value>, wanted: &Map<String, Value>) -> Map<String, Value> {
    let fields = |of: &Map<String, Value>| {
        of.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let found = fields(found);
    let missing = fields(wanted).into_iter().filter_map(|(name, wanted)| {
        let Some(found) = found.get(&name) else { return Some((name, wanted)) };
        let (found, wanted) = (found.as_object()?, wanted.as_object()?);
        let inner = lacking(found, wanted);
        let mut field = Map::from_iter([("properties".to_owned(), Value::Object(inner))]);
        field.extend(found.get("type").map(|kind| ("type".to_owned(), kind.clone())));
        field["properties"]
            .as_object()
            .is_some_and(|inner| !inner.is_empty())
            .then_some((name, field.into()))
    });
    missing.collect()
}

/// Returns the reserved fields and their mappings.
fn reserved() -> [(&'static str, Value); 4] {
    // No search uses these fields, and an index on them would cost time in each write.
    let kept = json!({"type": "keyword", "index": false, "doc_values": false});
    [
        (TRANSACTION_TID, json!({"type": "keyword"})),
        (TRANSACTION_VERSION, kept.clone()),
        (TRANSACTION_RECENT, kept),
        (TRANSACTION_ABSENT, json!({"type": "boolean"})),
    ]
}

/// Whether a mapping's flag is set, as boolean or as text.
fn is_on(flag: &Value) -> bool {
    flag == true || flag == "true"
}

fn is_searchable_keyword(field: &Value) -> bool {
    let off = |name: &str| matches!(&field[name], Value::Bool(false)) || field[name] == "false";
    let shortened = field["ignore_above"].as_u64().is_some_and(|length| length < 64);
    field["type"] == "keyword" && !off("index") && !shortened
}

/// Returns the name of the alias for plain searches.
pub(crate) fn committed_alias(index: &str) -> String {
    format!("{index}-committed")
}

/// Returns the filter of this alias.
///
/// The filter tells the alias from an application's alias with the same name.
fn without_placeholders() -> Value {
    json!({"bool": {"must_not": {"term": {TRANSACTION_ABSENT: true}}}})
}

/// The servers' mapping of a new text field.
fn dynamic_text() -> Value {
    json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}})
}

/// Whether an alias is the one for plain searches, by its filter.
fn hides_placeholders(alias: &Value) -> bool {
    alias.get("filter") == Some(&without_placeholders())
}

/// Returns the request that adds the alias for plain searches.
pub(crate) fn committed_actions(index: &str) -> Value {
    let (alias, filter) = (committed_alias(index), without_placeholders());
    json!({"actions": [{"add": {"index": index, "alias": alias, "filter": filter}}]})
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
