//! `update` keeps unknown fields and every unchanged byte.

use std::sync::Arc;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use txn_core::{Collection, Domain, Error, ErrorKind, LockMode, Options, Raw, Typed};
use txn_sim::CountingStore;

use crate::support::{Setup, World};

/// The same collection, raw and typed.
struct Pair<T> {
    counting: Arc<CountingStore>,
    domain: Domain,
    raw: Collection<Raw>,
    typed: Collection<Typed<T>>,
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Pair<T> {
    async fn with(text: &str) -> Self {
        let world: World<Raw> = Setup::default().open().await;
        let put = world.put(&world.items, &["a"], &Raw::new(text)).await;
        assert!(put.expect("puts").applied);
        let World { counting, domain, items: raw, .. } = world;
        let typed = domain.collection("items").await.expect("opens");
        Self { counting, domain, raw, typed }
    }

    async fn update(&self, change: impl Fn(&mut T) + Send + Sync) -> Result<Option<()>, Error> {
        let Self { domain, typed, .. } = self;
        domain.transact(async |tx| tx.update(typed, "a", |value| change(value)).await).await
    }

    async fn text(&self) -> String {
        let found = self.domain.reader().verified().get(&self.raw, "a").await.expect("reads");
        found.expect("exists").as_str().to_owned()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    total: f64,
    owner: Owner,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Owner {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mail: Option<String>,
}

/// A field in a document, of the type or of `UNKNOWN`.
#[derive(Clone, Debug)]
enum Piece {
    Known(&'static str),
    Unknown(usize),
}

/// Fields that no type knows, in forms that no serialiser writes.
const UNKNOWN: [(&str, &str); 5] = [
    ("\"u\\u0030\"", "1.50"),
    ("\"u1\"", "[ 1e2,\t{\"name\":0} ]"),
    ("\"u2\"", "12345678901234567890123"),
    ("\"u3\"", "{\"total\" : \"\\u00e9\"}"),
    ("\"u4\"", "null"),
];

/// A document of another writer, and the value in it.
#[derive(Clone, Debug)]
struct Document {
    value: Order,
    outer: Vec<Piece>,
    inner: Vec<Piece>,
}

impl Document {
    fn knows(pieces: &[Piece], name: &str) -> bool {
        pieces.iter().any(|piece| matches!(piece, Piece::Known(known) if *known == name))
    }

    /// Returns the fields of an object. `write` makes the values; `None` leaves a field out.
    fn object(pieces: &[Piece], write: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let field = |piece: &Piece| match piece {
            Piece::Known(name) => write(name).map(|value| format!("\"{name}\":{value}")),
            Piece::Unknown(n) => Some(format!("{}:{}", UNKNOWN[*n].0, UNKNOWN[*n].1)),
        };
        pieces.iter().filter_map(field).collect()
    }

    /// Returns a known field in a form that no serialiser writes.
    fn odd(&self, name: &str) -> Option<String> {
        let quoted = |text: &String| format!("\"\\u0023{}\"", &text[1..]);
        match name {
            "total" => Some(format!("{:.3}", self.value.total)),
            "owner" => {
                Some(format!("{{ {} }}", Self::object(&self.inner, |n| self.odd(n)).join(" , ")))
            }
            "note" => self.value.note.as_ref().map(quoted),
            "tags" => Some(format!(
                "[ {} ]",
                self.value.tags.iter().map(quoted).collect::<Vec<_>>().join("  ,")
            )),
            "name" => Some(quoted(&self.value.owner.name)),
            _ => self.value.owner.mail.as_ref().map(quoted),
        }
    }

    fn text(&self) -> String {
        format!("{{{}}}", Self::object(&self.outer, |name| self.odd(name)).join(","))
    }

    /// Returns the document that an update to `after` must leave.
    fn expected(&self, after: &Order) -> String {
        let json = |value: serde_json::Value| (!value.is_null()).then(|| value.to_string());
        let (was, is) = (
            serde_json::to_value(&self.value).expect("JSON"),
            serde_json::to_value(after).expect("JSON"),
        );
        let owner = || {
            let field = |name: &str| {
                let (was, is) = (&was["owner"][name], &is["owner"][name]);
                if was == is { self.odd(name) } else { json(is.clone()) }
            };
            let mut fields = Self::object(&self.inner, field);
            if !Self::knows(&self.inner, "mail") || self.value.owner.mail.is_none() {
                fields.extend(
                    json(is["owner"]["mail"].clone()).map(|mail| format!("\"mail\":{mail}")),
                );
            }
            format!("{{{}}}", fields.join(","))
        };
        let field = |name: &str| match name {
            _ if was[name] == is[name] => self.odd(name),
            "owner" => Some(owner()),
            _ => json(is[name].clone()),
        };
        let mut fields = Self::object(&self.outer, field);
        if self.value.note.is_none() {
            fields.extend(json(is["note"].clone()).map(|note| format!("\"note\":{note}")));
        }
        if !Self::knows(&self.outer, "tags") && !after.tags.is_empty() {
            fields.push(format!("\"tags\":{}", is["tags"]));
        }
        format!("{{{}}}", fields.join(","))
    }
}

fn order() -> impl Strategy<Value = Order> {
    let word = || prop_oneof![Just("#a".to_owned()), Just("#b".to_owned())];
    let maybe = move || prop::option::of(word());
    (0_u8..3, word(), maybe(), maybe(), prop::collection::vec(word(), 0..3)).prop_map(
        |(total, name, mail, note, tags)| Order {
            total: f64::from(total) / 2.0,
            owner: Owner { name, mail },
            note,
            tags,
        },
    )
}

fn document() -> impl Strategy<Value = Document> {
    let pieces = |known: &'static [&'static str]| {
        let known = known.iter().map(|name| Piece::Known(name)).collect::<Vec<_>>();
        prop::sample::subsequence((0..UNKNOWN.len()).collect::<Vec<_>>(), 0..=3)
            .prop_map(move |unknown| {
                let unknown = unknown.into_iter().map(Piece::Unknown);
                known.iter().cloned().chain(unknown).collect::<Vec<Piece>>()
            })
            .prop_shuffle()
    };
    let outer = any::<bool>().prop_flat_map(move |tags| {
        pieces(if tags { &["total", "owner", "note", "tags"] } else { &["total", "owner", "note"] })
    });
    (order(), outer, pieces(&["name", "mail"])).prop_map(|(mut value, outer, inner)| {
        // A field that is left out has the default value. An absent note or mail has no bytes.
        if !Document::knows(&outer, "tags") {
            value.tags.clear();
        }
        let absent = |piece: &Piece, name, is_none: bool| {
            is_none && matches!(piece, Piece::Known(known) if *known == name)
        };
        let (no_note, no_mail) = (value.note.is_none(), value.owner.mail.is_none());
        let outer = outer.into_iter().filter(|piece| !absent(piece, "note", no_note)).collect();
        let inner = inner.into_iter().filter(|piece| !absent(piece, "mail", no_mail)).collect();
        Document { value, outer, inner }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn update_keeps_every_unchanged_byte(
        document in document(),
        after in order(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let pair = Pair::<Order>::with(&document.text()).await;
            assert_eq!(pair.text().await, document.text());
            let found = pair.domain.reader().get(&pair.typed, "a").await.expect("reads");
            assert_eq!(found.as_ref(), Some(&document.value));
            pair.update(|_| ()).await.expect("changes nothing").expect("exists");
            assert_eq!(pair.text().await, document.text());
            pair.update(|order| *order = after.clone()).await.expect("changes").expect("exists");
            assert_eq!(pair.text().await, document.expected(&after));
            let found = pair.domain.reader().get(&pair.typed, "a").await.expect("reads");
            assert_eq!(found, Some(after));
        });
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Stock {
    left: u32,
}

#[tokio::test]
async fn put_drops_unknown_fields_and_update_keeps_them() {
    let text = r#"{"left":10,"label":"apples"}"#;
    let pair = Pair::<Stock>::with(text).await;
    pair.update(|shelf| shelf.left -= 3).await.expect("updates").expect("exists");
    assert_eq!(pair.text().await, r#"{"left":7,"label":"apples"}"#);
    let Pair { domain, typed, .. } = &pair;
    let put = domain.transact::<_, Error, _>(async |tx| tx.put(typed, "a", &Stock { left: 1 }));
    put.await.expect("puts");
    assert_eq!(pair.text().await, r#"{"left":1}"#);
}

#[tokio::test]
async fn updates_build_on_earlier_writes_of_the_closure() {
    let pair = Pair::<Stock>::with(r#"{"left":10,"label":"apples"}"#).await;
    let Pair { domain, raw, typed, .. } = &pair;
    for options in [Options::default(), Options::default().with_lock_mode(LockMode::AtRead)] {
        let run = domain.run::<_, Error, _>(&options, async |tx| {
            let take = |shelf: &mut Stock| {
                shelf.left -= 1;
                shelf.left
            };
            let first = tx.update(typed, "a", take).await?;
            let second = tx.update(typed, "a", take).await?;
            tx.put(raw, "b", &Raw::new(r#"{"left":5,"label":"pears"}"#))?;
            let fresh = tx.update(typed, "b", take).await?;
            tx.delete(typed, "c")?;
            let deleted = tx.update(typed, "c", take).await?;
            let absent = tx.update(typed, "d", take).await?;
            Ok((first.zip(second), fresh, deleted, absent))
        });
        let (both, fresh, deleted, absent) = run.await.expect("commits").value;
        assert!(both.is_some_and(|(first, second)| first == second + 1));
        assert_eq!((fresh, deleted, absent), (Some(4), None, None));
    }
    assert_eq!(pair.text().await, r#"{"left":6,"label":"apples"}"#);
    let others = domain.reader().get_many(raw, ["b", "c", "d"]).await.expect("reads");
    assert_eq!(others, [Some(Raw::new(r#"{"left":4,"label":"pears"}"#)), None, None]);
}

#[derive(Debug, Serialize, Deserialize)]
struct Renamed {
    #[serde(alias = "old")]
    new: u32,
    other: u32,
}

#[tokio::test]
async fn aliased_field_is_never_written_twice() {
    let pair = Pair::<Renamed>::with(r#"{"old":1,"other":2}"#).await;
    pair.update(|value| value.other = 3).await.expect("the old name stays").expect("exists");
    assert_eq!(pair.text().await, r#"{"old":1,"other":3}"#);
    let refused = pair.update(|value| value.new = 4).await.expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let Pair { domain, typed, .. } = &pair;
    let ignored = domain.transact::<_, Error, _>(async |tx| {
        tx.put(typed, "b", &Renamed { new: 1, other: 1 })?;
        assert!(tx.update(typed, "a", |value| value.new = 4).await.is_err());
        Ok(())
    });
    assert_eq!(ignored.await.expect_err("doomed").kind(), ErrorKind::Invalid);
    assert_eq!(pair.text().await, r#"{"old":1,"other":3}"#);
}

#[tokio::test]
async fn prefetch_of_several_collections_is_one_request() {
    let pair = Pair::<Stock>::with(r#"{"left":10}"#).await;
    let Pair { counting, domain, raw, typed } = &pair;
    let orders: Collection<Raw> = domain.create_collection("orders", None).await.expect("opens");
    let before = counting.counts();
    let tx = domain.begin(&Options::default().with_read_only(true)).expect("begins");
    tx.prefetch([typed.key("a"), raw.key("b"), orders.key("o")]).await.expect("reads");
    let asked = counting.counts();
    assert_eq!(asked.since(before).requests(), 1);
    assert_eq!(tx.get(typed, "a").await.expect("reads"), Some(Stock { left: 10 }));
    assert_eq!(
        tx.get_many(raw, ["a", "b"]).await.expect("reads"),
        [Some(Raw::new(r#"{"left":10}"#)), None]
    );
    assert_eq!(tx.get(&orders, "o").await.expect("reads"), None);
    assert_eq!(counting.counts(), asked);
    tx.commit().await.expect("commits");
}

#[tokio::test]
async fn ids_accept_every_string_type() {
    let pair = Pair::<Stock>::with(r#"{"left":10}"#).await;
    let Pair { domain, typed, .. } = &pair;
    let reader = domain.reader();
    let (owned, shared): (String, Arc<str>) = ("a".into(), "a".into());
    let (many, some) = (vec![owned.clone()], ["a"]);
    for found in [
        reader.get(typed, "a").await,
        reader.get(typed, &owned).await,
        reader.get(typed, owned.clone()).await,
        reader.get(typed, &shared).await,
        reader.get(typed, shared.clone()).await,
        reader.get(typed, owned.clone().into_boxed_str()).await,
        reader.get(typed, std::borrow::Cow::Borrowed("a")).await,
        reader.get(typed, txn_core::DocumentId::from("a")).await,
        reader.get(typed, &txn_core::DocumentId::from("a")).await,
        reader.get_many(typed, &many).await.map(|mut all| all.remove(0)),
        reader.get_many(typed, &some).await.map(|mut all| all.remove(0)),
        reader.get_many(typed, many.iter().map(String::as_str)).await.map(|mut all| all.remove(0)),
    ] {
        assert_eq!(found.expect("reads"), Some(Stock { left: 10 }));
    }
    let routed = txn_core::DocumentId::routed(&owned, &owned);
    assert_eq!(routed, txn_core::DocumentId::routed("a", "a"));
}
