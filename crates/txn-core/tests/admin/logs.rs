//! Logs, at every level, of transactions that commit, fail or are recovered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;
use txn_core::store::{Outcome, Refusal, RefusalKind};
use txn_core::{LockMode, Options};
use txn_sim::Fate;

use crate::support::script::{is_commit, is_lock, writes};
use crate::support::{Item, Shop};

/// A number that occurs only in the contents of documents.
const CONTENT: i64 = 4_815_162_342;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn contents_of_documents_are_not_logged() {
    // With a single dispatcher, `tracing` asks the subscriber of the thread that reaches a line
    // first. Other tests run on other threads, so a second dispatcher is kept.
    let _other = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .with_ansi(false)
        .finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let shop = Shop::open(&["a", "b"]).await;

    // A commit and an apply.
    shop.set(&shop.domain, &["a", "b"], CONTENT).await.expect("commits");
    let older = shop.domain.begin(&Options::default()).expect("begins");
    // An older transaction wounds a younger one.
    let pessimistic = Options::default().with_lock_mode(LockMode::AtRead);
    let younger = shop.domain.begin(&pessimistic).expect("begins");
    younger.get(&shop.items, "a").await.expect("locks");
    younger.put(&shop.items, "a", &Item { n: CONTENT }).expect("buffers");
    older.get_many(&shop.items, ["a", "b"]).await.expect("reads");
    older.put(&shop.items, "a", &Item { n: CONTENT }).expect("buffers");
    older.put(&shop.items, "b", &Item { n: CONTENT }).expect("buffers");
    older.commit().await.expect("commits");
    younger.commit().await.expect_err("is wounded");
    // The store refuses the apply for good.
    shop.store.play(|write| {
        let refusal = Refusal { kind: RefusalKind::Document, reason: "no such field".to_owned() };
        match !is_commit(write) && !is_lock(write) && writes(write, "4815162342") {
            true => Fate::RefuseWith(Outcome::Invalid(refusal)),
            false => Fate::Pass,
        }
    });
    shop.set(&shop.domain, &["a", "b"], CONTENT).await.expect("commits");
    tokio::time::sleep(Duration::from_secs(60)).await;
    shop.other.admin().janitor_pass().await.expect("passes");

    let text = String::from_utf8(lines.0.lock().clone()).expect("text");
    for level in ["DEBUG", "ERROR"] {
        assert!(text.contains(level), "no line of the level {level}: {text}");
    }
    for expected in ["Committed", "Wounded", "committed but not applied"] {
        assert!(text.contains(expected), "no {expected}: {text}");
    }
    let with_content: Vec<_> = text.lines().filter(|line| line.contains("4815162342")).collect();
    assert!(with_content.is_empty(), "{with_content:#?}");
}
