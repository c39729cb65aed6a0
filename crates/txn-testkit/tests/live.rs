//! Starts real servers, crashes and pauses them, and checks that they recover.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use txn_testkit::servers::{Link, Port, Rate, Running, ServerKind, up_private};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// A client of one server.
struct Client {
    agent: Agent,
    authority: String,
}

impl Client {
    fn of(server: &Running) -> Self {
        let mut tls = TlsConfig::builder();
        if let Some(path) = server.ca_certificate() {
            let certificate = Certificate::from_pem(&fs::read(path).unwrap()).unwrap();
            tls = tls.root_certs(RootCerts::Specific(Arc::new(vec![certificate])));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(10)));
        let authority = match server.credentials() {
            Some(user) => format!("{}:{}@", user.username, user.password.expose()),
            None => String::new(),
        };
        Self { agent: config.build().into(), authority }
    }

    fn put(&self, url: &str, body: &Value) -> u16 {
        let response = self.agent.put(self.with_user(url)).send_json(body).unwrap();
        response.status().as_u16()
    }

    fn get(&self, url: &str) -> Result<(u16, Value), ureq::Error> {
        let mut response = self.agent.get(self.with_user(url)).call()?;
        Ok((response.status().as_u16(), response.body_mut().read_json()?))
    }

    fn with_user(&self, url: &str) -> String {
        url.replace("://", &format!("://{}", self.authority))
    }
}

/// Checks that a crash loses no acknowledged write.
///
/// A pause loses nothing.
///
/// Nothing of a private server stays.
fn survives(kind: ServerKind) {
    let mut server = up_private(kind).unwrap();
    let client = Client::of(&server);
    let document = format!("{}/things/_doc/1", server.url());
    assert_eq!(client.put(&document, &json!({"size": 7})), 201);

    if kind == ServerKind::Secured {
        let stranger = Client { agent: client.agent.clone(), authority: String::new() };
        assert!(server.url().starts_with("https://"));
        assert_eq!(stranger.get(&document).unwrap().0, 401);
    }

    let first = server.nodes()[0].clone();
    assert!(!server.was_reused() && first.is_active());
    first.kill().unwrap();
    assert!(!first.is_alive());
    assert!(client.get(&document).is_err());
    assert!(first.stop().is_err(), "a dead node cannot be paused");

    server.restart_node(0).unwrap();
    let node = server.nodes()[0].clone();
    assert_eq!(node.url(), first.url());
    assert_ne!(node.pid(), first.pid());
    let (status, found) = client.get(&document).unwrap();
    assert_eq!((status, &found["_source"]["size"]), (200, &json!(7)));

    node.stop().unwrap();
    assert!(!server.is_healthy().unwrap() && node.is_alive());
    node.cont().unwrap();
    assert!(server.is_healthy().unwrap());
    assert_eq!(client.get(&document).unwrap().0, 200);

    assert!(server.restart_node(9).is_err());
    let data = node.data_dir().to_owned();
    assert!(data.is_dir());
    drop(server);
    assert!(!node.is_alive() && !data.exists());
}

#[test]
#[ignore = "starts like the secured one, for another minute"]
fn elasticsearch_survives() {
    survives(ServerKind::Elasticsearch);
}

#[test]
#[ignore = "takes another minute"]
fn elasticsearch7_survives() {
    survives(ServerKind::Elasticsearch7);
}

#[test]
#[ignore = "takes another minute"]
fn elasticsearch9_survives() {
    survives(ServerKind::Elasticsearch9);
}

#[test]
#[ignore = "takes another minute"]
fn opensearch2_survives() {
    survives(ServerKind::OpenSearch2);
}

#[test]
fn opensearch_survives() {
    survives(ServerKind::OpenSearch);
}

#[test]
fn secured_survives() {
    survives(ServerKind::Secured);
}

#[test]
#[ignore = "needs 3 GB of memory and two minutes"]
fn a_cluster_survives_the_loss_of_a_node() {
    let mut cluster = up_private(ServerKind::Cluster).unwrap();
    let client = Client::of(&cluster);
    let index = json!({"settings": {"number_of_replicas": 2, "number_of_shards": 1}});
    assert_eq!(client.put(&format!("{}/things", cluster.url()), &index), 200);
    let write = |url: &str, id: u32| {
        let url = format!("{url}/things/_doc/{id}?timeout=60s");
        client.put(&url, &json!({"id": id}))
    };
    assert_eq!(write(cluster.url(), 1), 201);

    cluster.nodes()[2].kill().unwrap();
    cluster.restart_node(2).unwrap();
    let (_, health) = client.get(&format!("{}/_cluster/health", cluster.nodes()[2].url())).unwrap();
    assert_eq!(health["number_of_nodes"], 3);

    cluster.restart().unwrap();
    assert_eq!(client.get(&format!("{}/things/_doc/1", cluster.url())).unwrap().0, 200);
}

/// Checks that a cut node loses its place in the cluster.
///
/// The client of the node still reaches the node.
fn heals_after_a_cut(kind: ServerKind) {
    let cluster = up_private(kind).unwrap();
    let client = Client::of(&cluster);
    let network = cluster.network().unwrap().clone();
    let nodes = |expected: u64| {
        let path = format!("_cluster/health?wait_for_nodes={expected}&timeout=5s");
        let has = || {
            let health = client.get(&format!("{}/{path}", cluster.url()));
            health.is_ok_and(|(_, health)| health["number_of_nodes"] == expected)
        };
        assert!((0..12).any(|_| has()), "there are never {expected} nodes");
    };
    let (third, others) = ([Port::Node(2)], [Port::Node(0), Port::Node(1), Port::Client(1)]);
    network.cut(&Link::between(&third, &others)).unwrap();
    nodes(2);
    let [one, two] = [0, 1].map(|number| network.client_urls(number)[2].clone());
    assert!(client.get(&format!("{one}/_cluster/state/version?local=true")).is_ok());
    assert!(client.get(&format!("{two}/_cluster/state/version?local=true")).is_err());
    network.heal().unwrap();
    nodes(3);
    network.slow(0, Rate(512)).unwrap();
    network.unslow(0).unwrap();
    nodes(3);
    let address = network.client_urls(0)[0].clone();
    drop(cluster);
    assert!(client.get(&address).is_err());
}

#[test]
#[ignore = "needs root, 3 GB of memory and two minutes"]
fn partitioned_cluster_heals() {
    heals_after_a_cut(ServerKind::Partitioned);
}

#[test]
#[ignore = "needs root, 3 GB of memory and two minutes"]
fn partitioned_opensearch_heals() {
    heals_after_a_cut(ServerKind::PartitionedOpenSearch);
}
