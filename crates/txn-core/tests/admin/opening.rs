//! Domains: opening, creation, lost parts, rebuild and removal.

use std::sync::Arc;
use std::time::Duration;

use crate::support::script::race;
use crate::support::{Item, Items, Plain, Wall, World, config, record_key};
use txn_core::record::State;
use txn_core::store::{CollectionSpec, Key, MemoryStore, Role, Store, Write, WriteOp};
use txn_core::{Admin, AttemptId, Domain, Error, ErrorKind, LockMode, Options, Raw, Typed};
use txn_sim::Scripted;

fn domain_key() -> Key {
    Key::new("txn-registry", "domain:shop")
}

/// Opens a domain with two items of finished transactions.
async fn world() -> World {
    World::of(&["a", "b"]).await
}

async fn write(w: &World, n: i64) -> Result<(), Error> {
    w.put(&w.items, &["a", "b"], &Item { n }).await.map(drop)
}

async fn open(w: &World) -> Result<Domain, Error> {
    Domain::open(w.store.clone(), "shop", config()).await
}

/// Adds a lock of this holder to a document.
async fn lock(w: &World, id: &str, holder: AttemptId) {
    w.memory.lock(&w.items.key(id), holder).await;
}

/// Returns a tid of the day that is `days` days from now.
fn tid_of(days: i64) -> AttemptId {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("epoch");
    let unix =
        i128::try_from(now.as_nanos() / 100).expect("fits") + i128::from(days) * 864_000_000_000;
    let ticks = u64::try_from(unix + 0x01B2_1DD2_1381_4000).expect("fits");
    let (low, mid, high) = (ticks & 0xffff_ffff, (ticks >> 32) & 0xffff, ticks >> 48);
    format!("{low:08x}-{mid:04x}-1{high:03x}-8000-0123456789ab").parse().expect("a tid")
}

#[tokio::test(start_paused = true)]
async fn a_mistyped_name_makes_no_domain() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let error = Domain::open(store.clone(), "shop", config()).await.expect_err("no registry");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    Domain::open_or_create(store.clone(), "shop", config()).await.expect("creates");
    Domain::open_or_create(store.clone(), "shop", config()).await.expect("opens");
    Domain::open(store.clone(), "shop", config()).await.expect("opens");
    let error = Domain::open(store.clone(), "shpo", config()).await.expect_err("mistyped");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("shpo"), "{error}");
    Domain::open(store, "shpo", config()).await.expect_err("no domain was created");
}

#[tokio::test(start_paused = true)]
async fn lost_domain_document_is_damaged_and_not_recreated() {
    let w = world().await;
    let before = w.memory.partitions().await;
    w.memory.delete(&domain_key()).await;
    for opened in [open(&w).await, Domain::open_or_create(w.store.clone(), "shop", config()).await]
    {
        let error = opened.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert_eq!(error.document(), Some(&domain_key()));
    }
    for report in [w.domain.admin().inspect().await, w.domain.admin().janitor_pass().await] {
        let report = report.expect("inspects");
        assert!(report.damaged.iter().any(|(key, _)| *key == domain_key()), "{report:?}");
    }
    assert_eq!(w.memory.partitions().await, before);
    // Domains with similar names are not affected.
    Domain::open_or_create(w.store.clone(), "shop-eu", config()).await.expect("creates");
    Domain::open_or_create(w.store.clone(), "sho", config()).await.expect("creates");
}

#[tokio::test(start_paused = true)]
async fn lost_registry_is_reported_and_rebuilt() {
    let w = world().await;
    w.store.drop_collection("txn-registry").await.expect("drops");
    let error = Domain::open_or_create(w.store.clone(), "shop", config()).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert!(!report.is_clean(), "{report:?}");
    // Another domain creates the registry again, and does not get the collection.
    let other = Domain::open_or_create(w.store.clone(), "other", config()).await.expect("creates");
    let error = other.collection::<Raw>("items").await.expect_err("not owned");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("shop"), "{error}");

    let before = w.memory.partitions().await;
    let rebuilt = Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert_eq!(rebuilt.partitions.len(), 2, "{rebuilt:?}");
    assert_eq!(w.memory.partitions().await, before);
    let domain = open(&w).await.expect("opens");
    let items: Items = domain.collection("items").await.expect("claims again");
    assert_eq!(domain.reader().get(&items, "a").await.expect("reads"), Some(Item { n: 1 }));
    write(&w, 2).await.expect("writes");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn commit_survives_the_loss_of_the_domain_document() {
    let w = world().await;
    let (tid, commit) = (tid_of(0), tid_of(0));
    let text = w.memory.text(&w.items.key("a")).await;
    let before: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let before = &before["transaction_version"];
    lock(&w, "a", tid).await;
    let fields = format!(
        "\"commit_version\":\"{commit}\",\
         \"members\":[{{\"collection\":\"items\",\"id\":\"a\",\"op\":\"write\",\
         \"before\":{before}}}],\"body\":{{\"images\":[{{\"n\":7}}]}},"
    );
    w.memory.create_record(tid, State::Committed, &fields).await;
    w.memory.delete(&domain_key()).await;
    // An earlier version of this library would have created this second partition.
    let partition = w.memory.partitions().await[0].clone();
    let beside = format!("{}ffffffffffffffff", &partition[..partition.len() - 16]);
    let role = Role::Partition;
    let spec = CollectionSpec { name: beside, role, create: true, mappings: None };
    w.store.open_collection(&spec).await.expect("creates");

    let rebuilt = Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert_eq!(rebuilt.collections, ["items"]);
    let domain = open(&w).await.expect("opens");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered > 0, "{report:?}");
    assert!(w.memory.text(&w.items.key("a")).await.contains("\"n\":7"));
    assert_eq!(w.memory.partitions().await.len(), 2, "the empty partition is dropped");
}

#[tokio::test(start_paused = true)]
async fn unlisted_partition_with_records_is_damaged() {
    let w = world().await;
    let official = w.memory.partitions().await[0].clone();
    let text = w.memory.text(&domain_key()).await;
    let other = format!("{}eeeeeeeeeeeeeeee", &official[..official.len() - 16]);
    let spec =
        CollectionSpec { name: other.clone(), role: Role::Partition, create: true, mappings: None };
    w.store.open_collection(&spec).await.expect("creates");
    open(&w).await.expect("the empty partition may be in creation");
    // An earlier version left this state after the loss: the domain names an empty partition.
    w.memory.overwrite(&domain_key(), &text.replace(&*official, &other)).await;
    let error = open(&w).await.expect_err("forgotten");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(&*official), "{error}");
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert!(report.damaged.iter().any(|(key, _)| key.collection == official), "{report:?}");
    Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert!(
        w.memory.partitions().await.contains(&official)
            && !w.memory.partitions().await.contains(&other.into())
    );
    open(&w).await.expect("opens");
}

#[tokio::test(start_paused = true)]
async fn lost_partition_is_damaged_and_not_recreated() {
    let w = world().await;
    lock(&w, "a", tid_of(0)).await;
    let lost = w.memory.partitions().await[0].clone();
    w.store.drop_collection(&lost).await.expect("drops");
    let error = open(&w).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(&*lost), "{error}");
    let error = write(&w, 2).await.expect_err("the record cannot be written");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(_, what)| what.contains(&*lost)), "{report:?}");
    assert_eq!(w.memory.partitions().await.len(), 1);

    let rebuilt = Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert_eq!(rebuilt.given_up, [tid_of(0).day()]);
    let domain = open(&w).await.expect("opens");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_claim_is_reported_and_restored() {
    let w = world().await;
    let text = w.memory.text(&domain_key()).await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let uid = document["collections"]["items"].as_str().expect("a uid");
    w.memory.delete(&Key::new("txn-registry", format!("collection:{uid}"))).await;
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert!(report.damaged.iter().any(|(_, what)| what.contains("claim")), "{report:?}");
    w.domain.collection::<Raw>("items").await.expect("claims again");
    assert!(w.domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test(start_paused = true)]
async fn no_partition_is_created_for_a_distant_day() {
    let w = world().await;
    let before = w.memory.partitions().await;
    let tid = tid_of(4_000);
    lock(&w, "a", tid).await;
    let read = w.domain.reader().get(&w.items, "a").await.expect("readers go on");
    assert_eq!(read, Some(Item { n: 1 }));
    let verified = w.domain.reader().verified().get(&w.items, "a").await;
    assert_eq!(verified.expect_err("waits for the holder").kind(), ErrorKind::Damaged);
    let error = write(&w, 2).await.expect_err("the holder cannot be decided");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(error.document(), Some(&w.items.key("a")), "{error}");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| *key == w.items.key("a")), "{report:?}");
    assert_eq!(w.memory.partitions().await, before);
}

#[tokio::test(start_paused = true)]
async fn server_time_decides_which_days_are_distant() {
    let w = world().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("epoch");
    w.store.tell_time(move || Some(now));
    // The clock of this process is three days behind. By this clock, tomorrow would be distant.
    let day = Duration::from_secs(24 * 3_600);
    let wall = Wall::ahead(Duration::ZERO);
    wall.set_behind(day * 3);
    let behind = Domain::open(w.store.clone(), "shop", config().with_clock(wall)).await;
    let behind = behind.expect("opens");
    lock(&w, "a", tid_of(3)).await;
    let report = behind.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| *key == w.items.key("a")), "{report:?}");
    w.store.tell_time(move || Some(now + day * 2));
    let right = open(&w).await.expect("opens");
    let report = right.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_day_past_the_retention_is_void() {
    cov_mark::check!(holder_of_a_dropped_day);
    let w = world().await;
    let before = w.memory.partitions().await;
    lock(&w, "a", tid_of(-100)).await;
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    write(&w, 2).await.expect("writes");
    assert_eq!(w.memory.partitions().await, before);
}

#[tokio::test(start_paused = true)]
async fn newer_format_is_refused_with_its_document() {
    let w = world().await;
    assert!(w.memory.text(&domain_key()).await.contains("\"format\":1"));
    let tid = tid_of(0);
    let key = record_key(tid);
    let op = WriteOp::Create("{\"format\":2,\"state\":\"odd\"}".into());
    w.memory.apply(Write { key: key.clone(), require_alias: true, op }).await;
    lock(&w, "a", tid).await;
    let error = write(&w, 2).await.expect_err("the holder cannot be decided");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert_eq!(error.document(), Some(&key), "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");

    let text = w.memory.text(&domain_key()).await.replace("\"format\":1", "\"format\":9");
    w.memory.overwrite(&domain_key(), &text).await;
    let error = open(&w).await.expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains('9') && error.to_string().contains("upgrade"), "{error}");
    assert_eq!(error.document(), Some(&domain_key()));
}

#[tokio::test(start_paused = true)]
async fn documents_without_a_format_are_read() {
    let w = world().await;
    let text = w.memory.text(&domain_key()).await.replace("\"format\":1,", "");
    assert!(!text.contains("format"));
    w.memory.overwrite(&domain_key(), &text).await;
    open(&w).await.expect("opens");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_touch_is_in_doubt_is_still_a_claim() {
    let w = world().await;
    let other = Domain::open_or_create(w.store.clone(), "other", config()).await.expect("creates");
    race(&w.store, "collection:");
    let error = other.admin().release_collection("items").await.expect_err("not owned");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    write(&w, 2).await.expect("the first domain owns the collection");
}

#[tokio::test(start_paused = true)]
async fn collection_with_a_lock_is_not_released() {
    let w = world().await;
    let other = Domain::open_or_create(w.store.clone(), "other", config()).await.expect("creates");
    other.collection::<Raw>("items").await.expect_err("belongs to the first");
    let error = other.admin().release_collection("items").await.expect_err("not owned");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    lock(&w, "a", tid_of(0)).await;
    let error = w.domain.admin().release_collection("items").await.expect_err("locked");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.document(), Some(&w.items.key("a")));
    w.domain.admin().janitor_pass().await.expect("removes the lock");
    for _ in 0..2 {
        w.domain.admin().release_collection("items").await.expect("releases");
    }
    assert!(!w.memory.text(&domain_key()).await.contains("items"));
    let items: Items = other.collection("items").await.expect("is free");
    assert_eq!(other.reader().get(&items, "a").await.expect("reads"), Some(Item { n: 1 }));
    let nowhere = w.domain.admin().release_collection("nowhere").await.expect_err("missing");
    assert_eq!(nowhere.kind(), ErrorKind::Misconfigured, "{nowhere}");
}

#[tokio::test(start_paused = true)]
async fn removed_domain_leaves_only_the_collections() {
    let w = world().await;
    let World { memory, store, domain, items, .. } = w;
    domain.admin().remove().await.expect("removes");
    assert!(store.list_collections("txn-shop-").await.expect("lists").is_empty());
    assert_eq!(memory.stored(&domain_key()).await, None);
    let error = Domain::open(store.clone(), "shop", config()).await.expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let other = Domain::open_or_create(store.clone(), "other", config()).await.expect("creates");
    let again: Items = other.collection("items").await.expect("is free");
    assert_eq!(other.reader().get(&again, "a").await.expect("reads"), Some(Item { n: 1 }));
    assert_eq!(items.name(), again.name());
    Domain::open_or_create(store, "shop", config()).await.expect("creates again");
}

#[tokio::test(start_paused = true)]
async fn a_domain_with_a_live_transaction_is_not_removed() {
    let w = world().await;
    let other = open(&w).await.expect("opens");
    let items: Items = other.collection("items").await.expect("opens");
    let tx = other.begin(&Options::default().with_lock_mode(LockMode::AtRead)).expect("begins");
    tx.get(&items, "a").await.expect("locks");
    tx.put(&items, "a", &Item { n: 2 }).expect("buffers");
    let live = async {
        // As long as a pass may watch a suspect, and shorter than the attempt timeout.
        tokio::time::sleep(Duration::from_secs(9)).await;
        tx.commit().await
    };
    let (removed, committed) = tokio::join!(w.domain.admin().remove(), live);
    match removed {
        Ok(()) => assert!(committed.is_ok(), "removed after the transaction ended"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn clock_ahead_of_the_server_is_refused() {
    let store = Arc::new(Scripted::new(Arc::new(MemoryStore::new())));
    let wall = Wall::ahead(Duration::ZERO);
    let clock = wall.clone();
    let real = move || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("epoch")
    };
    let now = real();
    store.tell_time(move || Some(now));
    wall.set_ahead(Duration::from_secs(3_600));
    let config = config().with_clock(clock);
    let error =
        Domain::open_or_create(store.clone(), "shop", config.clone()).await.expect_err("ahead");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("ahead"), "{error}");

    wall.set_ahead(Duration::ZERO);
    let domain = Domain::open_or_create(store.clone(), "shop", config).await.expect("opens");
    let items: Items = domain.create_collection("items", None).await.expect("opens");
    let write = async || {
        let write = domain.transact::<_, Error, _>(async |tx| {
            tx.get_many(&items, ["a", "b"]).await?;
            tx.put(&items, "a", &Item { n: 1 })?;
            tx.put(&items, "b", &Item { n: 1 })
        });
        write.await
    };
    write().await.expect("writes");
    // The clock jumps. The process notices the jump before its next request for the server time.
    wall.set_ahead(Duration::from_secs(3_600));
    let error = write().await.expect_err("ahead");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let read = domain.transact::<_, Error, _>(async |tx| tx.get(&items, "a").await).await;
    assert_eq!(read.expect("reads are allowed"), Some(Item { n: 1 }));
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert_eq!(report.partitions_dropped, 0);
    assert!(report.damaged.iter().any(|(_, what)| what.contains("ahead")), "{report:?}");
    wall.set_ahead(Duration::ZERO);
    write().await.expect("writes again");
}

#[tokio::test(start_paused = true)]
async fn future_version_error_names_the_wrong_clock() {
    let store = Arc::new(Scripted::new(Arc::new(MemoryStore::new())));
    let ahead = config().with_clock(Wall::ahead(Duration::from_secs(3_600)));
    let first = Domain::open_or_create(store.clone(), "shop", ahead).await.expect("opens");
    let items: Items = first.create_collection("items", None).await.expect("opens");
    let write = async |domain: &Domain| {
        let write = domain.transact::<_, Error, _>(async |tx| {
            tx.get_many(&items, ["a", "b"]).await?;
            tx.put(&items, "a", &Item { n: 1 })?;
            tx.put(&items, "b", &Item { n: 1 })
        });
        write.await
    };
    write(&first).await.expect("the store tells no time");
    first.shutdown(Duration::from_secs(5)).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("epoch");
    for (time, words) in [
        (None, "one of the two clocks"),
        (Some(now), "the process that wrote it was ahead"),
        (Some(now + Duration::from_secs(3_600)), "behind the server's"),
    ] {
        store.tell_time(move || time);
        let right = Domain::open(store.clone(), "shop", config()).await.expect("opens");
        right.collection::<Raw>("items").await.expect("opens");
        let error = write(&right).await.expect_err("in the future");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn collection_name_prefixes_are_unique_per_domain() {
    let store = Arc::new(MemoryStore::new());
    let mut prefixes = Vec::new();
    for name in ["shop", "shop-eu", "shop-eu-1", "shop_eu", "identity", "registry"] {
        let domain = Domain::open_or_create(store.clone(), name, config()).await.expect("opens");
        assert_eq!(domain.name(), name);
        let locks = domain.collection_name("locks");
        domain.create_collection::<Typed<Item>>(&locks, None).await.expect("opens");
        let prefix = domain.collection_name("");
        prefixes.extend([format!("txn-{prefix}"), prefix]);
    }
    let made = store.list_collections("").await.expect("lists");
    for prefix in &prefixes {
        let matching = made.iter().filter(|name| name.starts_with(prefix.as_str())).count();
        let expected = if prefix.starts_with("txn-") { 2 } else { 1 };
        assert_eq!(matching, expected, "{prefix} of {made:?}");
    }
}
