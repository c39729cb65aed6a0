//! Files that were cut off or overwritten are reported as damaged.
//!
//! Opening, reads and writes report the damage at once. Nothing panics. No error is `Unavailable`,
//! which the engine would retry until its deadline.

use std::io::{Seek, SeekFrom, Write as _};

use txn_redb::{OpenErrorKind, RedbConfig, RedbStore};
use txn_store::{Filter, Key, Outcome, Read, RefusalKind, Store, StoreErrorKind, Write, WriteOp};

use crate::{Place, create, make};

const PAGE: usize = 4096;
const DOCUMENTS: usize = 100;

fn keys() -> Vec<Key> {
    (0..DOCUMENTS).map(|n| Key::new("c", n.to_string())).collect()
}

/// Returns a closed file with some documents, and its bytes.
async fn filled() -> (Place, Vec<u8>) {
    let place = Place::new();
    let store = place.open();
    make(&store, "c").await;
    let source = format!(r#"{{"text":"{}"}}"#, "z".repeat(1_000));
    for key in keys() {
        create(&store, &key, &source).await;
    }
    store.close();
    let bytes = std::fs::read(&place.path).expect("reads");
    (place, bytes)
}

/// Opens a file with these bytes. `None` after a correct refusal.
fn open(place: &Place, bytes: &[u8]) -> Option<RedbStore> {
    std::fs::write(&place.path, bytes).expect("writes");
    let error = match RedbStore::open(&place.path) {
        Ok(store) => return Some(store),
        Err(error) => error,
    };
    assert!(error.to_string().contains("store.redb"), "{error}");
    // The first bytes name the kind of the file.
    let damaged = error.kind() == OpenErrorKind::Damaged;
    assert!(damaged || error.kind() == OpenErrorKind::NotAStore, "{error}");
    assert!(!damaged || error.to_string().contains("restore the file"), "{error}");
    None
}

/// Returns the number of operations that were refused as damage. The operations are reads, scans
/// and writes.
async fn refused(store: &RedbStore) -> usize {
    let keys = keys();
    let mut refused = 0;
    for read in store.get_many(&keys).await {
        match read {
            Read::Unavailable(error) => {
                assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
                assert!(error.message.contains("restore the file"), "{error}");
                refused += 1;
            }
            // A flipped bit in a key or a name makes another key or name.
            Read::Found { .. } | Read::Absent | Read::MissingCollection => {}
        }
    }
    if let Err(error) = store.scan("c", &Filter::All, 1_000, None).await {
        assert_ne!(error.kind, StoreErrorKind::Unavailable, "{error}");
        refused += 1;
    }
    for op in [WriteOp::Create("{}".into()), WriteOp::Verify(None)] {
        let writes: Vec<Write> = keys.iter().map(|k| Write::new(k.clone(), op.clone())).collect();
        for outcome in store.write_many(&writes).await {
            match outcome {
                Outcome::Invalid(refusal) => {
                    assert_eq!(refusal.kind, RefusalKind::Damaged, "{refusal:?}");
                    refused += 1;
                }
                Outcome::Rejected(why) => panic!("to be tried again: {why}"),
                _ => {}
            }
        }
    }
    refused
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_damaged() {
    let (place, bytes) = filled().await;
    for cut in [320, 512, PAGE, 5_000, 16 * PAGE, bytes.len() / 2, bytes.len() - 1] {
        assert!(open(&place, &bytes[..cut]).is_none(), "{cut} of {} bytes", bytes.len());
    }
}

#[tokio::test]
async fn overwritten_pages_are_damage() {
    let (place, bytes) = filled().await;
    let mut damaged = 0;
    for page in (0..bytes.len() / PAGE).step_by(5) {
        let mut bytes = bytes.clone();
        bytes[page * PAGE..(page + 1) * PAGE].fill(if page % 2 == 0 { 0 } else { 0xff });
        match open(&place, &bytes) {
            None => damaged += 1,
            Some(store) => damaged += refused(&store).await,
        }
    }
    assert!(damaged > 0, "no page of them was in use");
}

#[tokio::test]
async fn flipped_bits_are_damage() {
    let (place, bytes) = filled().await;
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let mut damaged = 0;
    for n in 0..200_usize {
        let mut bytes = bytes.clone();
        // Half of the bits are in the header.
        let at = n * 7_919 % if n % 2 == 0 { 512 } else { used };
        bytes[at] ^= 1 << (n / 2 % 8);
        match open(&place, &bytes) {
            None => damaged += 1,
            Some(store) => damaged += refused(&store).await,
        }
    }
    assert!(damaged > 0, "no bit of them was in use");
}

#[tokio::test]
async fn a_file_that_is_overwritten_while_it_is_open() {
    let (place, bytes) = filled().await;
    // From the second page to the end: only the header is left.
    let (from, all) = (PAGE, vec![0xff; bytes.len() - PAGE]);
    let store = RedbStore::open_with(&place.path, &RedbConfig::default().with_cache_bytes(0));
    let store = store.unwrap();
    let mut file = std::fs::OpenOptions::new().write(true).open(&place.path).unwrap();
    file.seek(SeekFrom::Start(from as u64)).unwrap();
    file.write_all(&all).unwrap();
    for _ in 0..2 {
        // Every read, the scan, and every write and verify.
        assert_eq!(refused(&store).await, 3 * DOCUMENTS + 1);
        let error = store.drop_collection("c").await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
    }
    store.close();
    assert_eq!(RedbStore::open(&place.path).unwrap_err().kind(), OpenErrorKind::Damaged);
}

#[tokio::test]
async fn a_file_that_is_cut_off_while_it_is_open() {
    let (place, bytes) = filled().await;
    for cut in [PAGE, 16 * PAGE, bytes.len() / 2] {
        std::fs::write(&place.path, &bytes).unwrap();
        let store = RedbStore::open_with(&place.path, &RedbConfig::default().with_cache_bytes(0));
        let store = store.unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&place.path).unwrap();
        file.set_len(cut as u64).unwrap();
        assert!(refused(&store).await > 0, "nothing was cut off");
        store.close();
        let error = RedbStore::open(&place.path).unwrap_err();
        assert_eq!(error.kind(), OpenErrorKind::Damaged, "{error}");
    }
}
