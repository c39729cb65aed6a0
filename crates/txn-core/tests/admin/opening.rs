//! Domains: opening, creation, lost parts, rebuild and removal.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Item, Items, TestStore, Wall, config};
use txn_core::store::{CollectionSpec, Key, Outcome, Read, Role, Store, Version, Write, WriteOp};
use txn_core::{Admin, AttemptId, Domain, Error, ErrorKind, LockMode, Options, Raw, Typed};

fn domain_key() -> Key {
    Key::new("txn-registry", "domain:shop")
}

struct World {
    store: Arc<TestStore>,
    domain: Domain,
    items: Items,
}

/// Opens a domain with two items of finished transactions.
async fn world() -> World {
    let store = Arc::new(TestStore::default());
    let domain = Domain::open_or_create(store.clone(), "shop", config()).await.expect("opens");
    let items: Items = domain.create_collection("items", None).await.expect("opens");
    let w = World { store, domain, items };
    w.write(1).await.expect("writes");
    w
}

impl World {
    async fn write(&self, n: i64) -> Result<(), Error> {
        let options = Options::default().with_wait_for(txn_core::WaitFor::Apply);
        let write = self.domain.run::<_, Error, _>(&options, async |tx| {
            tx.get_many(&self.items, ["a", "b"]).await?;
            tx.put(&self.items, "a", &Item { n })?;
            tx.put(&self.items, "b", &Item { n })
        });
        write.await.map(|_| ())
    }

    async fn version(&self, key: &Key) -> Version {
        match self.store.read(key).await {
            Read::Found { version, .. } => version,
            other => panic!("no document {key}: {other:?}"),
        }
    }

    async fn delete(&self, key: &Key) {
        let delete = Write::new(key.clone(), WriteOp::Delete(self.version(key).await));
        let outcomes = self.store.write_many(&[delete]).await;
        assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    }

    async fn partitions(&self) -> Vec<Arc<str>> {
        let mut names = self.store.list_collections("txn-shop-").await.expect("lists");
        names.sort();
        names
    }

    async fn open(&self) -> Result<Domain, Error> {
        Domain::open(self.store.clone(), "shop", config()).await
    }

    async fn lock(&self, id: &str, tid: &str) {
        let key = self.items.key(id);
        let text = self.store.text(&key).await;
        let locked = format!("{{\"transaction_tid\":\"{tid}\",{}", &text[1..]);
        let replace = WriteOp::Replace(locked.into(), self.version(&key).await);
        let outcomes = self.store.write_many(&[Write::new(key, replace)]).await;
        assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    }
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
    let store: Arc<dyn Store> = Arc::new(TestStore::default());
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
    let before = w.partitions().await;
    w.delete(&domain_key()).await;
    for opened in [w.open().await, Domain::open_or_create(w.store.clone(), "shop", config()).await]
    {
        let error = opened.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert_eq!(error.document(), Some(&domain_key()));
    }
    for report in [w.domain.admin().inspect().await, w.domain.admin().janitor_pass().await] {
        let report = report.expect("inspects");
        assert!(report.damaged.iter().any(|(key, _)| *key == domain_key()), "{report:?}");
    }
    assert_eq!(w.partitions().await, before);
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

    let before = w.partitions().await;
    let rebuilt = Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert_eq!(rebuilt.partitions.len(), 2, "{rebuilt:?}");
    assert_eq!(w.partitions().await, before);
    let domain = w.open().await.expect("opens");
    let items: Items = domain.collection("items").await.expect("claims again");
    assert_eq!(domain.reader().get(&items, "a").await.expect("reads"), Some(Item { n: 1 }));
    w.write(2).await.expect("writes");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn commit_survives_the_loss_of_the_domain_document() {
    let w = world().await;
    let (tid, commit) = (tid_of(0), tid_of(0));
    let text = w.store.text(&w.items.key("a")).await;
    let before: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let before = &before["transaction_version"];
    w.lock("a", &tid.to_string()).await;
    let record = format!(
        "{{\"state\":\"committed\",\"tid\":\"{tid}\",\"attempt\":0,\"commit_version\":\"{commit}\",\
         \"members\":[{{\"collection\":\"items\",\"id\":\"a\",\"op\":\"write\",\
         \"before\":{before}}}],\
         \"body\":{{\"images\":[{{\"n\":7}}]}},\"coordinator\":\"x\",\"created_at\":0,\"modified_at\":0}}"
    );
    let key = Key::new(format!("txn-shop-{}", tid.day()), tid.to_string());
    let create = Write { key, require_alias: true, op: WriteOp::Create(record.into()) };
    let outcomes = w.store.write_many(&[create]).await;
    assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    w.delete(&domain_key()).await;
    // An earlier version of this library would have created this second partition.
    let partition = w.partitions().await[0].clone();
    let beside = format!("{}ffffffffffffffff", &partition[..partition.len() - 16]);
    let role = Role::Partition;
    let spec = CollectionSpec { name: beside, role, create: true, mappings: None };
    w.store.open_collection(&spec).await.expect("creates");

    let rebuilt = Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert_eq!(rebuilt.collections, ["items"]);
    let domain = w.open().await.expect("opens");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean() && report.recovered > 0, "{report:?}");
    assert!(w.store.text(&w.items.key("a")).await.contains("\"n\":7"));
    assert_eq!(w.partitions().await.len(), 2, "the empty partition is dropped");
}

#[tokio::test(start_paused = true)]
async fn unlisted_partition_with_records_is_damaged() {
    let w = world().await;
    let official = w.partitions().await[0].clone();
    let text = w.store.text(&domain_key()).await;
    let other = format!("{}eeeeeeeeeeeeeeee", &official[..official.len() - 16]);
    let spec =
        CollectionSpec { name: other.clone(), role: Role::Partition, create: true, mappings: None };
    w.store.open_collection(&spec).await.expect("creates");
    w.open().await.expect("the empty partition may be in creation");
    // An earlier version left this state after the loss: the domain names an empty partition.
    let replace =
        WriteOp::Replace(text.replace(&*official, &other).into(), w.version(&domain_key()).await);
    w.store.write_many(&[Write::new(domain_key(), replace)]).await;
    let error = w.open().await.expect_err("forgotten");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(&*official), "{error}");
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert!(report.damaged.iter().any(|(key, _)| key.collection == official), "{report:?}");
    Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert!(
        w.partitions().await.contains(&official) && !w.partitions().await.contains(&other.into())
    );
    w.open().await.expect("opens");
}

#[tokio::test(start_paused = true)]
async fn lost_partition_is_damaged_and_not_recreated() {
    let w = world().await;
    w.lock("a", &tid_of(0).to_string()).await;
    let lost = w.partitions().await[0].clone();
    w.store.drop_collection(&lost).await.expect("drops");
    let error = w.open().await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(&*lost), "{error}");
    let error = w.write(2).await.expect_err("the record cannot be written");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(_, what)| what.contains(&*lost)), "{report:?}");
    assert_eq!(w.partitions().await.len(), 1);

    let rebuilt = Admin::rebuild(w.store.clone(), "shop", config()).await.expect("rebuilds");
    assert_eq!(rebuilt.given_up, [tid_of(0).day()]);
    let domain = w.open().await.expect("opens");
    let report = domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_claim_is_reported_and_restored() {
    let w = world().await;
    let text = w.store.text(&domain_key()).await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let uid = document["collections"]["items"].as_str().expect("a uid");
    w.delete(&Key::new("txn-registry", format!("collection:{uid}"))).await;
    let report = w.domain.admin().inspect().await.expect("inspects");
    assert!(report.damaged.iter().any(|(_, what)| what.contains("claim")), "{report:?}");
    w.domain.collection::<Raw>("items").await.expect("claims again");
    assert!(w.domain.admin().inspect().await.expect("inspects").is_clean());
}

#[tokio::test(start_paused = true)]
async fn no_partition_is_created_for_a_distant_day() {
    let w = world().await;
    let before = w.partitions().await;
    let tid = tid_of(4_000);
    w.lock("a", &tid.to_string()).await;
    let read = w.domain.reader().get(&w.items, "a").await.expect("readers go on");
    assert_eq!(read, Some(Item { n: 1 }));
    let verified = w.domain.reader().verified().get(&w.items, "a").await;
    assert_eq!(verified.expect_err("waits for the holder").kind(), ErrorKind::Damaged);
    let error = w.write(2).await.expect_err("the holder cannot be decided");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(error.document(), Some(&w.items.key("a")), "{error}");
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| *key == w.items.key("a")), "{report:?}");
    assert_eq!(w.partitions().await, before);
}

#[tokio::test(start_paused = true)]
async fn server_time_decides_which_days_are_distant() {
    let w = world().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("epoch");
    w.store.set_time(Some(now));
    // The clock of this process is three days behind. By this clock, tomorrow would be distant.
    let day = Duration::from_secs(24 * 3_600);
    let wall = Wall::ahead(Duration::ZERO);
    wall.set_behind(day * 3);
    let behind = Domain::open(w.store.clone(), "shop", config().with_clock(wall)).await;
    let behind = behind.expect("opens");
    w.lock("a", &tid_of(3).to_string()).await;
    let report = behind.admin().janitor_pass().await.expect("passes");
    assert!(report.damaged.iter().any(|(key, _)| *key == w.items.key("a")), "{report:?}");
    w.store.set_time(Some(now + day * 2));
    let right = w.open().await.expect("opens");
    let report = right.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_day_past_the_retention_is_void() {
    cov_mark::check!(holder_of_a_dropped_day);
    let w = world().await;
    let before = w.partitions().await;
    w.lock("a", &tid_of(-100).to_string()).await;
    let report = w.domain.admin().janitor_pass().await.expect("passes");
    assert!(report.is_clean(), "{report:?}");
    w.write(2).await.expect("writes");
    assert_eq!(w.partitions().await, before);
}

#[tokio::test(start_paused = true)]
async fn newer_format_is_refused_with_its_document() {
    let w = world().await;
    assert!(w.store.text(&domain_key()).await.contains("\"format\":1"));
    let tid = tid_of(0);
    let key = Key::new(format!("txn-shop-{}", tid.day()), tid.to_string());
    let text = "{\"format\":2,\"state\":\"odd\"}";
    let create = Write { key: key.clone(), require_alias: true, op: WriteOp::Create(text.into()) };
    let outcomes = w.store.write_many(&[create]).await;
    assert!(matches!(outcomes[..], [Outcome::Applied(_)]), "{outcomes:?}");
    w.lock("a", &tid.to_string()).await;
    let error = w.write(2).await.expect_err("the holder cannot be decided");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert_eq!(error.document(), Some(&key), "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");

    let text = w.store.text(&domain_key()).await.replace("\"format\":1", "\"format\":9");
    let replace = WriteOp::Replace(text.into(), w.version(&domain_key()).await);
    w.store.write_many(&[Write::new(domain_key(), replace)]).await;
    let error = w.open().await.expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains('9') && error.to_string().contains("upgrade"), "{error}");
    assert_eq!(error.document(), Some(&domain_key()));
}

#[tokio::test(start_paused = true)]
async fn documents_without_a_format_are_read() {
    let w = world().await;
    let text = w.store.text(&domain_key()).await.replace("\"format\":1,", "");
    assert!(!text.contains("format"));
    let replace = WriteOp::Replace(text.into(), w.version(&domain_key()).await);
    w.store.write_many(&[Write::new(domain_key(), replace)]).await;
    w.open().await.expect("opens");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_touch_is_in_doubt_is_still_a_claim() {
    let w = world().await;
    let other = Domain::open_or_create(w.store.clone(), "other", config()).await.expect("creates");
    w.store.race("collection:");
    let error = other.admin().release_collection("items").await.expect_err("not owned");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    w.write(2).await.expect("the first domain owns the collection");
}

#[tokio::test(start_paused = true)]
async fn collection_with_a_lock_is_not_released() {
    let w = world().await;
    let other = Domain::open_or_create(w.store.clone(), "other", config()).await.expect("creates");
    other.collection::<Raw>("items").await.expect_err("belongs to the first");
    let error = other.admin().release_collection("items").await.expect_err("not owned");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    w.lock("a", &tid_of(0).to_string()).await;
    let error = w.domain.admin().release_collection("items").await.expect_err("locked");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.document(), Some(&w.items.key("a")));
    w.domain.admin().janitor_pass().await.expect("removes the lock");
    for _ in 0..2 {
        w.domain.admin().release_collection("items").await.expect("releases");
    }
    assert!(!w.store.text(&domain_key()).await.contains("items"));
    let items: Items = other.collection("items").await.expect("is free");
    assert_eq!(other.reader().get(&items, "a").await.expect("reads"), Some(Item { n: 1 }));
    let nowhere = w.domain.admin().release_collection("nowhere").await.expect_err("missing");
    assert_eq!(nowhere.kind(), ErrorKind::Misconfigured, "{nowhere}");
}

#[tokio::test(start_paused = true)]
async fn removed_domain_leaves_only_the_collections() {
    let w = world().await;
    let World { store, domain, items } = w;
    domain.admin().remove().await.expect("removes");
    assert!(store.list_collections("txn-shop-").await.expect("lists").is_empty());
    assert_eq!(store.read(&domain_key()).await, Read::Absent);
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
    let other = w.open().await.expect("opens");
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
    let store = Arc::new(TestStore::default());
    let wall = Wall::ahead(Duration::ZERO);
    let clock = wall.clone();
    let real = move || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("epoch")
    };
    store.set_time(Some(real()));
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
    let store = Arc::new(TestStore::default());
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
        store.set_time(time);
        let right = Domain::open(store.clone(), "shop", config()).await.expect("opens");
        right.collection::<Raw>("items").await.expect("opens");
        let error = write(&right).await.expect_err("in the future");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn collection_name_prefixes_are_unique_per_domain() {
    let store = Arc::new(TestStore::default());
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
