//! Verbs on the parts of a domain, and wrong usage.

use txn_redb::RedbStore;

use super::desk::Desk;
use super::ran::codes;

#[test]
fn missing_file_is_not_created() {
    let desk = Desk::empty();
    desk.run("status").fails(2, "there is no file");
    assert!(!desk.file().exists());
    let failed = desk.run("--json status").json(2);
    assert_eq!(
        (codes(&failed), &failed["well"]),
        (vec!["misconfigured"], &serde_json::Value::Null)
    );
}

#[test]
fn file_of_another_process_is_in_use() {
    let desk = Desk::empty();
    let _other = RedbStore::open(desk.file()).expect("opens");
    let failed = desk.run("--json status").json(2);
    assert_eq!(codes(&failed), ["in_use"]);
}

#[test]
fn wrong_usage_could_not_find_out() {
    Desk::run_alone("status").fails(2, "--store or TXN_STORE");
    Desk::run_alone("--store redb:nowhere.redb ls --older x").fails_by_usage("--older");
    Desk::run_alone("--store memory: --domain shop ls").fails(2, "memory:");
    let ran = Desk::run_alone("--store http://user:s3cret@ ls");
    assert_eq!(ran.code, 2);
    assert!(!ran.err.contains("s3cret"), "{}", ran.err);
    let desk = Desk::new();
    desk.run("show no-tid").fails_by_usage("no-tid");
    desk.run("--domain other status").fails(2, "other");
}

#[test]
fn lost_domain_document_is_shown_and_rebuilt() {
    let desk = Desk::new();
    desk.run("rebuild").says(0, &["There is nothing to rebuild."]);
    desk.delete("txn-registry", "domain:shop");
    desk.run("status").fails(1, "lost");
    let failed = desk.run("--json status").json(1);
    assert_eq!((codes(&failed), &failed["well"]), (vec!["damaged"], &false.into()));
    // Repeated looks change nothing.
    for _ in 0..2 {
        desk.run("rebuild").says(1, &["LOST: ", "--processes-stopped"]);
    }
    let lost = desk.run("--json rebuild").json(1);
    assert_eq!(lost["lost"].as_array().map(Vec::len), Some(1));
    let rebuilt = desk.run("rebuild --processes-stopped");
    rebuilt.says(0, &["Collections: orders, stock", "Days given up: "]);
    desk.run("status").says(0, &["is well"]);
    let again = desk.run("--json rebuild --processes-stopped").json(0);
    assert_eq!(again["given_up"], serde_json::json!([]));
}

#[test]
fn init_takes_over_collections_once() {
    let desk = Desk::empty();
    let made = desk.run("--json init stock").json(0);
    assert_eq!(made["collections"], serde_json::json!(["stock"]));
    desk.run("init stock orders").says(0, &["with stock, orders", "Next: "]);
    desk.run("--domain other init stock").fails(2, "stock");
    desk.run("init stock --mappings nowhere.json").fails(2, "nowhere.json");
}

#[test]
fn doctor_names_an_unknown_collection() {
    let desk = Desk::new();
    desk.run("doctor stock").says(0, &["ok  collection stock"]);
    desk.run("doctor nowhere").says(1, &["BAD collection nowhere", "collection_unknown"]);
    let checked = desk.run("--json doctor").json(0);
    assert!(checked["checks"].as_array().is_some_and(|checks| checks.len() >= 7), "{checked}");
}

#[test]
fn roles_name_each_index_and_no_other_domain() {
    let ran = Desk::run_alone("--domain shop-eu roles stock");
    ran.says(0, &["PUT /_security/role/txn-shop-eu-application", "\"stock-txn-*\"", "Next: "]);
    let roles = Desk::run_alone("--domain shop-eu --json roles stock").json(0);
    let text = roles.to_string();
    assert!(text.contains("txn-shop.eu-*") && !text.contains("\"txn-*\""), "{text}");
    assert_eq!(roles["roles"].as_array().map(Vec::len), Some(3));
    let reader = &roles["roles"][2]["elasticsearch"]["indices"][0];
    assert_eq!(reader["privileges"], serde_json::json!(["read", "view_index_metadata"]));
}

#[test]
fn opensearch_roles_drop_only_partitions() {
    let ran = Desk::run_alone("--domain shop-eu roles stock");
    ran.says(0, &["PUT /_plugins/_security/api/roles/txn-shop-eu-reader", "bulk*\"", "\"stock\""]);
    let roles = Desk::run_alone("--domain shop-eu --json roles stock").json(0);
    let opensearch = roles["roles"].as_array().expect("a list").iter();
    let text: String = opensearch.map(|role| role["opensearch"].to_string()).collect();
    for word in ["indices_all", "manage_", "crud", "\"*\"", "admin/*", "indices:*", "cluster:*"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let drops =
        ["indices:admin/block/add*", "indices:admin/delete", "indices:admin/settings/update"];
    for (role, covered) in [(0, true), (1, true), (2, false)] {
        let granted = &roles["roles"][role]["opensearch"]["index_permissions"];
        let has = |drop: &str| {
            let with = granted.as_array().expect("a list").iter();
            let with = with.filter(|entry| entry["allowed_actions"].to_string().contains(drop));
            with.map(|entry| entry["index_patterns"].clone()).collect::<Vec<_>>()
        };
        for drop in drops {
            let partitions = serde_json::json!(["txn-shop.eu-*"]);
            assert_eq!(has(drop), if covered { vec![partitions] } else { Vec::new() }, "{drop}");
        }
        assert_eq!(has("data/write").len(), if covered { 2 } else { 0 });
    }
}

#[test]
fn manual_has_a_page_for_each_verb() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().display().to_string();
    Desk::run_alone(&format!("man {path}")).says(0, &["txn.1"]);
    for page in ["txn.1", "txn-status.1", "txn-dead-retry.1"] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
    let written = Desk::run_alone(&format!("--json man {path}")).json(0);
    assert_eq!(written["directory"], path);
    Desk::run_alone(&format!("man {path}/nowhere")).fails(2, "cannot write");
}

#[test]
fn completions_name_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        Desk::run_alone(&format!("completions {shell}")).says(0, &["hanging", "recover"]);
    }
    let json = Desk::run_alone("--json completions fish").json(0);
    assert!(json.as_str().is_some_and(|script| script.contains("hanging")), "{json}");
}

#[test]
fn schema_is_printed_and_covers_each_verb() {
    let schema = Desk::run_alone("schema").says(0, &["\"$defs\""]);
    let text: serde_json::Value = serde_json::from_str(&schema.out).expect("JSON");
    assert_eq!(Desk::run_alone("--json schema").json(0), text);
    // `check_schema` fails for a verb without a definition, so each needs one.
    for verb in [
        "status",
        "hot",
        "history",
        "dead retry",
        "requests stuck",
        "lock break",
        "completions",
        "man",
    ] {
        assert!(text["$defs"].get(verb).is_some(), "{verb}");
    }
}

#[test]
fn configuration_file_has_the_least_weight() {
    let desk = Desk::new();
    let file = desk.file().display().to_string();
    desk.write_file("txn/config.toml", &format!("store = 'redb:{file}'\ndomain = 'shop'\n"));
    desk.run_configured("status").says(0, &["The domain \"shop\" is well"]);
    desk.run_configured("--domain other status").fails(2, "other");
    desk.write_file("other.toml", "domain = 'other'\nlimit = 1");
    desk.run_configured(&format!("--config other.toml --store redb:{file} status"))
        .fails(2, "other");
    desk.run("--config other.toml status").says(0, &["The domain \"shop\" is well"]);
    desk.write_file("other.toml", "domain = 's3cret");
    let ran = desk.run("--config other.toml status");
    assert!(!ran.err.contains("s3cret"), "{}", ran.err);
    ran.fails_by_usage("line 1 is no TOML");
    desk.run("--config nowhere.toml status").fails_by_usage("nowhere.toml");
}
