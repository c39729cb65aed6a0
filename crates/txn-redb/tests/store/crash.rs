//! A process that is killed while it writes loses no acknowledged write.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use txn_redb::RedbStore;
use txn_store::{Key, Version, WriteOp};

use crate::{Place, applied, create, make, one, read};

/// The variable with the file of the store, for the killed process.
const FILE: &str = "TXN_REDB_CRASH_FILE";
const WRITERS: u64 = 8;
const ACKNOWLEDGED: &str = "acknowledged ";

/// Not a test of its own: does nothing unless [`killed_writers_lose_nothing`] starts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let store = RedbStore::open(Path::new(&file)).expect("the store of the last round");
    make(&store, "c").await;
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = Key::new("c", writer.to_string());
            let mut at = match read(&store, &key).await {
                Some((version, _)) => version,
                None => acknowledge(&key, create(&store, &key, r#"{"n":0}"#).await),
            };
            for n in 1_u64.. {
                let source = format!(r#"{{"n":{n}}}"#);
                at = applied(one(&store, &key, WriteOp::Replace(source.into(), at)).await);
                acknowledge(&key, at);
            }
        })
    });
    futures::future::join_all(writers).await;
}

fn acknowledge(key: &Key, version: Version) -> Version {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{ACKNOWLEDGED}{} {}", key.id, version.seq_no).expect("a reader");
    out.flush().expect("a reader");
    version
}

#[tokio::test]
#[cfg(unix)]
async fn killed_writers_lose_nothing() {
    let place = Place::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
            .env(FILE, &place.path)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut seen, killed_at) = (0, 150 + 37 * round);
        // Reads the acknowledgements that were sent before the kill.
        while let Some(Ok(line)) = lines.next() {
            let Some(rest) = line.strip_prefix(ACKNOWLEDGED) else { continue };
            let Some((id, version)) = rest.split_once(' ') else { continue };
            let version = version.parse().unwrap();
            let before = last.insert(id.to_owned(), version);
            assert!(before.is_none_or(|before| before < version), "version {version} of {id}");
            seen += 1;
            if seen == killed_at {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= killed_at, "the child ended by itself after {seen} writes");
        let store = place.open();
        for (id, acknowledged) in &last {
            let (version, _) = read(&store, &Key::new("c", id.as_str())).await.expect(id);
            // The last write may have been committed without an acknowledgement.
            assert!(version.seq_no >= *acknowledged, "{id} went back in round {round}");
        }
        store.close();
    }
}
