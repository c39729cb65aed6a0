//! Texts with an oversized term are refused before the write.
//!
//! Each text is one term.

use serde_json::{Value, json};
use txn_store::{CollectionSpec, Key, Outcome, RefusalKind, Role, Store, Write, WriteOp};

use crate::live;

/// Returns mappings of `f` that make one term of a text.
///
/// The text is long.
///
/// Custom analyzers are in a module that the packaged Elasticsearch lacks.
fn forms(is_opensearch: bool) -> Vec<(&'static str, Value)> {
    let form = |settings: Value, fields: Value| json!({"mappings": {"properties": fields}, "settings": {"analysis": settings}});
    let plain = |fields| form(json!({}), fields);
    let normalizer = json!({"normalizer": {"same": {"type": "custom", "filter": []}}});
    let mut forms = vec![
        ("f", plain(json!({"f": {"type": "keyword"}}))),
        ("f", form(normalizer, json!({"f": {"type": "keyword", "normalizer": "same"}}))),
        ("f", plain(json!({"f": {"type": "text", "analyzer": "keyword"}}))),
        ("f.raw", plain(json!({"f": {"type": "text", "fields": {"raw": {"type": "keyword"}}}}))),
        (
            "all",
            plain(json!({
                "f": {"type": "text", "copy_to": "all"},
                "all": {"type": "text", "analyzer": "keyword"},
            })),
        ),
    ];
    if is_opensearch {
        let mine = json!({"analyzer": {"mine": {"type": "custom", "tokenizer": "keyword"}}});
        forms.push(("f", form(mine, json!({"f": {"type": "text", "analyzer": "mine"}}))));
        let default = json!({"analyzer": {"default": {"type": "keyword"}}});
        forms.push(("f", form(default, json!({"f": {"type": "text"}}))));
    }
    forms
}

#[tokio::test]
async fn text_with_one_long_term_is_refused_early() {
    for variable in live::ALL {
        let store = live::store(variable).await;
        let (role, long) = (Role::Data { owner: None }, "long".repeat(8_200));
        let is_opensearch = store.server().distribution == "opensearch";
        for (at, (field, mappings)) in forms(is_opensearch).into_iter().enumerate() {
            let name = format!("{}-{at}", live::unique("term"));
            let mappings = Some(mappings.to_string().into());
            let spec =
                CollectionSpec { name: name.clone(), role: role.clone(), create: true, mappings };
            store.open_collection(&spec).await.expect("made");
            let check = async |text: &str| {
                let source = json!({"f": text}).to_string();
                let check = Write::new(Key::new(name.as_str(), "1"), WriteOp::Check(source.into()));
                store.write_many(&[check]).await.remove(0)
            };
            // The second text also has many short words, more than the servers list.
            for text in [long.clone(), format!("{} {long}", "word ".repeat(20_000))] {
                let outcome = check(&text).await;
                let Outcome::Invalid(refusal) = &outcome else { panic!("{field}: {outcome:?}") };
                assert_eq!(refusal.kind, RefusalKind::Document, "{refusal:?}");
                assert!(refusal.reason.contains(field), "{refusal:?}");
            }
            store.drop_collection(&name).await.expect("dropped");
        }
    }
}

#[tokio::test]
async fn long_text_of_short_words_is_written() {
    for variable in live::ALL {
        let store = live::store(variable).await;
        let name = live::unique("words");
        let fields = json!({
            "usual": {"type": "text"}, "words": {"type": "text", "analyzer": "whitespace"},
            "limited": {"type": "keyword", "ignore_above": 256},
        });
        let mappings = json!({"mappings": {"properties": fields}});
        let (role, mappings) = (Role::Data { owner: None }, Some(mappings.to_string().into()));
        let spec = CollectionSpec { name: name.clone(), role, create: true, mappings };
        store.open_collection(&spec).await.expect("made");
        let text = "word ".repeat(20_000);
        let source = json!({"usual": text, "words": text, "limited": text}).to_string();
        let key = Key::new(name.as_str(), "1");
        let writes = [WriteOp::Check(source.clone().into()), WriteOp::Create(source.into())];
        let outcomes = store.write_many(&writes.map(|op| Write::new(key.clone(), op))).await;
        assert!(matches!(&outcomes[..], [Outcome::Holds, Outcome::Applied(_)]), "{outcomes:?}");
        store.drop_collection(&name).await.expect("dropped");
    }
}
