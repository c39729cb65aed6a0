//! Is an index fit for transactions, and what is missing? Pure functions over what the servers show
//! of an index.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use txn_core::fields::{STATE, TID, TRANSACTION_ABSENT, TRANSACTION_RECENT, TRANSACTION_TID};
use txn_core::store::{CollectionSpec, Role, StoreError, StoreErrorKind};

use crate::target::{GUARD, guard_name};

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

fn misconfigured(text: String) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

/// The one index that a name stands for.
pub(crate) fn sole(asked: &str, answer: &[u8]) -> Result<Index, StoreError> {
    let mut found: std::collections::BTreeMap<String, Index> = serde_json::from_slice(answer)
        .map_err(|e| {
            let text = format!("{asked}: what the server shows of the index can not be read: {e}");
            StoreError::new(StoreErrorKind::Unavailable, text)
        })?;
    if let Some(stream) = found.values().find_map(|index| index.data_stream.as_ref()) {
        return Err(misconfigured(format!(
            "{asked} belongs to the data stream {stream}, which takes no updates; use an ordinary index"
        )));
    }
    if found.len() > 1 {
        let names: Vec<_> = found.into_keys().collect();
        return Err(misconfigured(format!(
            "{asked} stands for {} indices ({}); name one of them, or an alias of only one",
            names.len(),
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
        if alias.get("index_routing").is_some() || alias.get("search_routing").is_some() {
            return Err(misconfigured(format!(
                "the alias {asked} adds a routing; name the index {} and give the routing in the keys",
                index.name
            )));
        }
    }
    Ok(index)
}

impl Index {
    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Value::as_str)
    }

    /// The UUID of this very index.
    pub(crate) fn uid(&self) -> Result<&str, StoreError> {
        self.setting("index.uuid").filter(|uid| !uid.is_empty()).ok_or_else(|| {
            let text = format!("{}: the server does not show the UUID of the index", self.name);
            StoreError::new(StoreErrorKind::Unavailable, text)
        })
    }

    /// Whether a write block is set.
    pub(crate) fn is_blocked(&self) -> bool {
        self.setting("index.blocks.write") == Some("true")
    }

    /// The owning domain, as the mapping's `_meta` has it.
    pub(crate) fn owner(&self) -> Option<String> {
        let domain = self.mappings.get("_meta")?.get("txn")?.get("domain")?;
        domain.as_str().map(str::to_owned)
    }

    /// Whether its guard is there, and no other index's guard (as left by a restored snapshot).
    pub(crate) fn is_guarded(&self, guard: &str) -> bool {
        self.aliases.contains_key(guard) && self.foreign_guards(guard).next().is_none()
    }

    fn foreign_guards<'a>(&'a self, guard: &'a str) -> impl Iterator<Item = &'a str> {
        let aliases = self.aliases.keys().map(String::as_str);
        aliases.filter(move |alias| alias.starts_with(GUARD) && *alias != guard)
    }

    /// The change of the mapping that takes the owner out of its `_meta`, if there is one.
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

    /// The request that takes off the aliases that this library added, if there are some.
    pub(crate) fn release_actions(&self) -> Option<Value> {
        let committed = committed_alias(&self.name);
        let ours = |alias: &&String| alias.starts_with(GUARD) || **alias == committed;
        let remove = |alias| json!({"remove": {"index": self.name, "alias": alias}});
        let actions: Vec<_> = self.aliases.keys().filter(ours).map(remove).collect();
        (!actions.is_empty()).then(|| json!({"actions": actions}))
    }

    /// The request that gives the index its guard and takes those of others away.
    pub(crate) fn guard_actions(&self, uid: &str) -> Value {
        let guard = guard_name(uid);
        let add = json!({"add": {"index": self.name, "alias": guard, "is_hidden": true}});
        let remove = self
            .foreign_guards(&guard)
            .map(|alias| json!({"remove": {"index": self.name, "alias": alias}}));
        json!({"actions": std::iter::once(add).chain(remove).collect::<Vec<_>>()})
    }

    /// Whether the index can serve transactions at all.
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
        if let Some(fault) = self.source_fault() {
            return Err(misconfigured(format!(
                "{name} does not keep documents as they are written ({fault}): transactions would \
                 lose fields; reindex into an index with a complete, stored _source"
            )));
        }
        match role {
            Role::Data { .. } => self.missing_fields().map(|_| ()),
            Role::Registry => Ok(()),
            Role::Partition => match self.field(STATE) {
                Some(field) if is_searchable_keyword(field) => Ok(()),
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

    /// The first field of a source whose value would become a term that is too long.
    pub(crate) fn immense_term(&self, source: &str) -> Option<String> {
        let source: Map<String, Value> = serde_json::from_str(source).ok()?;
        crate::terms::immense(self.mappings.get("properties")?.as_object()?, &source)
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.mappings.get("properties")?.get(name)
    }

    /// The reserved fields that are not mapped yet.
    fn missing_fields(&self) -> Result<Map<String, Value>, StoreError> {
        let properties = self.mappings.get("properties").and_then(Value::as_object);
        let runtime = self.mappings.get("runtime").and_then(Value::as_object);
        missing_fields(&self.name, properties, runtime)
    }

    /// The change of the mapping that a role asks for: fields that are missing, and the owner, merged
    /// into the `_meta` that is there (the servers replace it as a whole).
    pub(crate) fn change(&self, role: &Role) -> Result<Option<Value>, StoreError> {
        let Role::Data { owner } = role else { return Ok(None) };
        let mut change = Map::new();
        let missing = self.missing_fields()?;
        if !missing.is_empty() {
            change.insert("properties".to_owned(), Value::Object(missing));
        }
        if let Some(owner) = owner.as_ref().filter(|owner| self.owner().as_ref() != Some(owner)) {
            let mut meta = match self.mappings.get("_meta") {
                Some(Value::Object(meta)) => meta.clone(),
                _ => Map::new(),
            };
            let entry = meta.entry("txn").or_insert_with(|| json!({}));
            let Value::Object(txn) = entry else {
                return Err(misconfigured(format!(
                    "{}: the entry txn in the mapping's _meta is reserved; rename it",
                    self.name
                )));
            };
            txn.insert("domain".to_owned(), json!(owner));
            change.insert("_meta".to_owned(), Value::Object(meta));
        }
        Ok((!change.is_empty()).then_some(Value::Object(change)))
    }
}

/// The reserved fields and how they are mapped.
fn reserved() -> [(&'static str, Value); 4] {
    [
        (TRANSACTION_TID, json!({"type": "keyword"})),
        (TID, json!({"type": "keyword"})),
        (TRANSACTION_RECENT, json!({"type": "keyword", "index": false, "doc_values": false})),
        (TRANSACTION_ABSENT, json!({"type": "boolean"})),
    ]
}

fn missing_fields(
    index: &str,
    properties: Option<&Map<String, Value>>,
    runtime: Option<&Map<String, Value>>,
) -> Result<Map<String, Value>, StoreError> {
    let mut missing = Map::new();
    for (field, wanted) in reserved() {
        let clash = |what: &str| {
            misconfigured(format!(
                "{index}: the field {field} is reserved for transactions, and here it is {what}; it \
                 has to be {wanted}. If it is the application's own field, rename it: reindex into \
                 an index where it has another name"
            ))
        };
        if runtime.is_some_and(|runtime| runtime.contains_key(field)) {
            return Err(clash("a runtime field"));
        }
        let Some(found) = properties.and_then(|properties| properties.get(field)) else {
            missing.insert(field.to_owned(), wanted);
            continue;
        };
        let kind = found.get("type").and_then(Value::as_str).unwrap_or("object");
        if wanted["type"] != kind {
            return Err(clash(&format!("mapped as {kind}")));
        }
        if field == TRANSACTION_TID && !is_searchable_keyword(found) {
            return Err(clash("mapped so that it can not be searched"));
        }
    }
    Ok(missing)
}

fn is_searchable_keyword(field: &Value) -> bool {
    let off = |name: &str| matches!(&field[name], Value::Bool(false)) || field[name] == "false";
    let shortened = field["ignore_above"].as_u64().is_some_and(|length| length < 64);
    field["type"] == "keyword" && !off("index") && !shortened
}

/// The body of the request that makes a collection.
pub(crate) fn creation(spec: &CollectionSpec) -> Result<Value, StoreError> {
    let mut mappings = match spec.mappings.as_deref().map(serde_json::from_str::<Value>) {
        None => Map::new(),
        Some(Ok(Value::Object(mappings))) => mappings,
        Some(_) => {
            let name = &spec.name;
            return Err(misconfigured(format!("{name}: the mappings are not a JSON object")));
        }
    };
    let mut settings = json!({"index.translog.durability": "request"});
    let fields = match &spec.role {
        Role::Data { .. } => {
            let runtime = mappings.get("runtime").and_then(Value::as_object);
            let properties = mappings.get("properties").and_then(Value::as_object);
            missing_fields(&spec.name, properties, runtime)?
        }
        Role::Registry => Map::new(),
        Role::Partition => {
            let fields = json!({
                STATE: {"type": "keyword"},
                "body": {"type": "object", "enabled": false},
            });
            fields.as_object().cloned().unwrap_or_default()
        }
    };
    if !matches!(spec.role, Role::Data { .. }) {
        // Small, found by key: one shard. A copy as soon as there is a second node; without one,
        // nothing that could not be assigned.
        settings["index.number_of_shards"] = json!(1);
        settings["index.auto_expand_replicas"] = json!("0-1");
        mappings.insert("dynamic".to_owned(), json!(false));
    }
    if !fields.is_empty() {
        let properties = mappings.entry("properties").or_insert_with(|| json!({}));
        let Value::Object(properties) = properties else {
            return Err(misconfigured(format!("{}: \"properties\" is no object", spec.name)));
        };
        properties.extend(fields);
    }
    Ok(json!({"settings": settings, "mappings": mappings}))
}

/// What the alias for plain searches is called.
pub(crate) fn committed_alias(index: &str) -> String {
    format!("{index}-committed")
}

/// The request that adds it: it hides placeholders.
pub(crate) fn committed_actions(index: &str) -> Value {
    let filter = json!({"bool": {"must_not": {"term": {TRANSACTION_ABSENT: true}}}});
    let alias = committed_alias(index);
    json!({"actions": [{"add": {"index": index, "alias": alias, "filter": filter}}]})
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
