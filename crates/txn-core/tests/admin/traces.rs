//! The spans of transactions, as OpenTelemetry exports them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, filter};
use txn_core::store::MemoryStore;
use txn_core::{Domain, Error, ErrorKind, LockMode, Options, Transaction};
use txn_sim::{FaultPlan, FaultStore};

use crate::support::{Item, Items, Shop, config, drained};

/// A number that occurs only in the contents of documents.
const CONTENT: i64 = 4_815_162_342;

/// Ids that occur only as ids of documents.
const IDS: [&str; 3] = ["shelf-8151", "shelf-6234", "shelf-1084"];

/// Exports the spans of this thread.
struct Traces {
    exporter: InMemorySpanExporter,
    _exported: tracing::subscriber::DefaultGuard,
    /// With a single dispatcher, `tracing` asks the subscriber of the thread that reaches a line
    /// first.
    _other: tracing::Dispatch,
}

impl Traces {
    fn begin() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("txn"));
        let spans = filter::filter_fn(|it| it.is_span() && it.target().starts_with("txn_"));
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(spans));
        Self {
            exporter,
            _other: tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default()),
            _exported: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The trace of the only transaction with this label.
    fn of(&self, label: &str) -> Trace {
        let all = self.exporter.get_finished_spans().expect("spans");
        let is_root = |span: &&SpanData| {
            span.name == "transaction" && field(span, "label").as_deref() == Some(label)
        };
        let roots: Vec<_> = all.iter().filter(is_root).collect();
        let [root] = roots.as_slice() else { panic!("{} roots of {label}", roots.len()) };
        let trace = root.span_context.trace_id();
        let spans: Vec<SpanData> =
            all.iter().filter(|span| span.span_context.trace_id() == trace).cloned().collect();
        Trace { root: (*root).clone(), spans }
    }
}

struct Trace {
    root: SpanData,
    spans: Vec<SpanData>,
}

impl Trace {
    /// Each name of a span and the name of its parent, with the number of such spans.
    fn edges(&self) -> BTreeMap<(String, String), usize> {
        let mut edges = BTreeMap::new();
        for span in &self.spans {
            let parent =
                self.spans.iter().find(|it| it.span_context.span_id() == span.parent_span_id);
            let parent = parent.map_or("", |parent| &*parent.name);
            *edges.entry((parent.to_owned(), span.name.to_string())).or_default() += 1;
        }
        edges
    }

    /// The number of spans of this name directly below the root.
    fn below_root(&self, name: &str) -> usize {
        let root = self.root.span_context.span_id();
        self.spans.iter().filter(|span| span.parent_span_id == root && span.name == name).count()
    }

    fn named(&self, name: &str) -> &SpanData {
        self.spans.iter().find(|span| span.name == name).expect("a span of this name")
    }
}

fn field(span: &SpanData, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key.as_str() == name)?;
    Some(found.value.to_string())
}

fn fields(span: &SpanData, names: [&str; 4]) -> [Option<String>; 4] {
    names.map(|name| field(span, name))
}

fn some(values: [&str; 4]) -> [Option<String>; 4] {
    values.map(|value| Some(value.to_owned()))
}

fn edges<const N: usize>(all: [(&str, &str, usize); N]) -> BTreeMap<(String, String), usize> {
    all.map(|(parent, name, count)| ((parent.to_owned(), name.to_owned()), count)).into()
}

fn labelled(label: &str) -> Options {
    Options::default().with_label(label)
}

/// Writes the first two documents.
async fn write(shop: &Shop, tx: &Transaction) -> Result<(), Error> {
    tx.get_many(&shop.items, [IDS[0], IDS[1]]).await?;
    IDS[..2].iter().try_for_each(|id| tx.put(&shop.items, *id, &Item { n: CONTENT }))
}

#[tokio::test(start_paused = true)]
async fn spans_of_a_transaction_are_one_tree() {
    let traces = Traces::begin();
    let shop = Shop::open(&IDS).await;
    let done = shop.domain.run(&labelled("sale"), async |tx| write(&shop, tx).await).await;
    let receipt = done.expect("commits").receipt;
    shop.drained().await;

    let trace = traces.of("sale");
    let expected = edges([
        ("", "transaction", 1),
        ("transaction", "attempt", 1),
        ("transaction", "lock", 1),
        ("transaction", "commit", 1),
        ("transaction", "apply", 1),
    ]);
    assert_eq!(trace.edges(), expected);
    let names = ["db.namespace", "db.operation.name", "attempts", "outcome"];
    let values = [shop.domain.name(), "transaction", "1", "committed"];
    assert_eq!(fields(&trace.root, names), some(values));
    let tid = receipt.tid.map(|tid| tid.to_string());
    assert!(tid.is_some());
    for name in ["transaction", "attempt", "lock", "commit", "apply"] {
        assert_eq!(field(trace.named(name), "tid"), tid, "{name}");
    }
    for name in ["lock", "apply"] {
        let documents = field(trace.named(name), "db.operation.batch.size");
        assert_eq!(documents.as_deref(), Some("2"), "{name}");
    }
    assert_eq!(trace.root.status, Status::Unset);
    let text = format!("{:?}", traces.exporter.get_finished_spans());
    for canary in [CONTENT.to_string().as_str(), IDS[0], IDS[1]] {
        assert!(!text.contains(canary), "{canary} is exported");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_of_a_transaction_share_its_tree() {
    let traces = Traces::begin();
    let shop = Shop::open(&IDS).await;
    let options = labelled("again").with_lock_mode(LockMode::AtCommitUngrouped);
    let done = shop.domain.run(&options, async |tx| {
        let read = tx.get(&shop.items, IDS[0]).await?.map_or(0, |item| item.n);
        if read < 5 {
            shop.set(&shop.other, &IDS[..1], 5).await?;
        }
        tx.put(&shop.items, IDS[0], &Item { n: read + 1 })?;
        tx.put(&shop.items, IDS[1], &Item { n: read + 1 })
    });
    assert_eq!(done.await.expect("commits").receipt.attempts, 2);
    shop.drained().await;

    let trace = traces.of("again");
    assert_eq!(["attempt", "commit", "apply"].map(|name| trace.below_root(name)), [2, 1, 1]);
    // The other transaction began in the closure of an attempt.
    assert!(trace.edges().contains_key(&("attempt".to_owned(), "transaction".to_owned())));
    assert_eq!(field(&trace.root, "attempts").as_deref(), Some("2"));
    assert_eq!(field(&trace.root, "outcome").as_deref(), Some("committed"));
}

#[tokio::test(start_paused = true)]
async fn root_span_names_each_end() {
    let traces = Traces::begin();
    let shop = Shop::open(&IDS).await;
    let options = labelled("refused");
    let refused = shop.domain.run(&options, async |_tx| Err::<(), _>(Refused::Own));
    let Err(Refused::Own) = refused.await else { panic!("the error of the closure") };
    let options = labelled("exists");
    let exists =
        shop.domain.run(&options, async |tx| tx.insert(&shop.items, IDS[0], &Item { n: CONTENT }));
    assert_eq!(exists.await.expect_err("exists").kind(), ErrorKind::Exists);
    let begin = |label| shop.domain.begin(&labelled(label)).expect("begins");
    let tx = begin("by_hand");
    write(&shop, &tx).await.expect("buffers");
    tx.commit().await.expect("commits");
    begin("given-up").rollback().await;
    drop(begin("dropped"));
    shop.drained().await;

    let names = ["outcome", "attempts", "error.type", "label"];
    let end = |label| fields(&traces.of(label).root, names).map(Option::unwrap_or_default);
    assert_eq!(end("refused"), ["rolled_back", "1", "", "refused"]);
    assert_eq!(end("exists"), ["failed", "1", "Exists", "exists"]);
    assert!(matches!(traces.of("exists").root.status, Status::Error { .. }));
    assert_eq!(end("by_hand"), ["committed", "1", "", "by_hand"]);
    assert_eq!(end("given-up"), ["rolled_back", "1", "", "given-up"]);
    assert_eq!(end("dropped"), ["abandoned", "", "", "dropped"]);
    let by_hand = traces.of("by_hand").edges();
    for name in ["lock", "commit", "apply"] {
        assert!(by_hand.contains_key(&("transaction".to_owned(), name.to_owned())), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn members_have_a_link_to_their_group() {
    let traces = Traces::begin();
    // Transactions join a group while the store works on an earlier one.
    let plan = FaultPlan::none(1).with_delay(1.0, Duration::from_millis(2));
    let slow = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), plan));
    let config = config().with_group_commit(Some(true));
    let domain = Domain::open_or_create(slow, "shop", config).await.expect("opens");
    let items: Items = domain.create_collection("items", None).await.expect("opens");
    let (domain, items) = (&domain, &items);
    let labels = ["first", "second", "third", "fourth", "fifth", "sixth"];
    let add = |label| async move {
        let options = labelled(label);
        let done = domain.run::<_, Error, _>(&options, async |tx| {
            let item = tx.get(items, IDS[0]).await?;
            tx.put(items, IDS[0], &Item { n: item.map_or(0, |item| item.n) + 1 })?;
            tx.put(items, IDS[1], &Item { n: CONTENT })
        });
        done.await.map(|_| ())
    };
    let done = futures::future::join_all(labels.map(add)).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    drained(domain).await;

    let of_labels = labels.map(|label| traces.of(label));
    let groups: Vec<_> = of_labels
        .iter()
        .flat_map(|trace| trace.spans.iter().filter(|span| span.name == "group"))
        .collect();
    assert!(!groups.is_empty(), "no group was formed");
    for trace in &of_labels {
        let is_linked = |group: &&&SpanData| {
            let links = trace.root.links.links.iter();
            links.map(|link| &link.span_context).any(|linked| *linked == group.span_context)
        };
        let own = trace.spans.iter().any(|span| ["group", "commit"].contains(&&*span.name));
        assert!(own || groups.iter().any(|group| is_linked(&group)), "{:?}", trace.root);
    }
    let commits = of_labels.iter().flat_map(|trace| trace.edges().into_keys());
    assert!(commits.into_iter().any(|edge| edge == ("group".to_owned(), "commit".to_owned())));
}

/// The error of an application.
#[derive(Debug)]
enum Refused {
    Own,
    Failed,
}

impl From<Error> for Refused {
    fn from(_: Error) -> Self {
        Self::Failed
    }
}
