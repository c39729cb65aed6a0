//! Templates that match the indices of the library.
//!
//! Expected: running processes continue. A new domain with its collections works, because the
//! library sets all required settings explicitly. Otherwise the opening is refused with an error
//! that names the template, and leaves no index.

use std::sync::Arc;

use serde_json::{Value, json};
use txn_core::{Config, Domain, Error};
use txn_es::EsStore;
use txn_fixtures::administrator::{put_template, remove_template};
use txn_fixtures::bank;

use super::send;
use crate::server::Server;
use crate::stage::{self, Outcome, Service, Setup, Stage};

pub(super) async fn run(server: &Server) -> Outcome {
    let mut stage = Stage::open(server, |_| Setup::plain(server)).await;
    for (number, template) in templates().into_iter().enumerate() {
        let mut told = Ok(());
        stage
            .during(Service::GoesOn, async |stage| {
                let name = stage.name("template");
                let patterns = patterns(stage.domain_name());
                put_template(stage.plain(), &name, &patterns, &template).await?;
                told = Box::pin(newcomer(stage, &name, number)).await;
                stage.load.acknowledges(40).await?;
                remove_template(stage.plain(), &name).await
            })
            .await;
        if let Err(why) = told {
            stage.violation(format!("under {template}: {why}"));
        }
    }
    stage.end().await
}

fn templates() -> Vec<Value> {
    vec![
        json!({"settings": {"index.final_pipeline": "there-is-none"}}),
        json!({"settings": {"index.default_pipeline": "there-is-none"}}),
        json!({"mappings": {"_source": {"enabled": false}}}),
        json!({"mappings": {"_routing": {"required": true}}}),
        json!({"mappings": {"dynamic": "strict"}}),
        json!({"settings": {"index.number_of_shards": 3, "index.number_of_replicas": 2}}),
    ]
}

/// Returns patterns of all indices of the domain and of prefixed domains.
fn patterns(domain: &str) -> [String; 3] {
    [format!("{domain}*"), format!("txn-{domain}*"), format!("txn-{}*", domain.replace('-', "."))]
}

/// Opens and uses a new domain, unless the opening is refused.
async fn newcomer(stage: &Stage, template: &str, number: usize) -> Result<(), String> {
    let name = format!("{}-new{number}", stage.domain_name());
    let (result, left) = (use_domain(stage, &name).await, indices(stage, &name).await?);
    match result {
        Ok(()) => Ok(()),
        Err(error) if !error.to_string().contains(template) => {
            Err(format!("a new domain is refused, and the template is not named: {error}"))
        }
        Err(_) if left.is_empty() => Ok(()),
        Err(error) => Err(format!("a new domain was refused ({error}), and left {left:?}")),
    }
}

async fn use_domain(stage: &Stage, name: &str) -> Result<(), Error> {
    let store = EsStore::connect(stage::config(&stage.server.url)).await.map_err(Error::from)?;
    let config = Config::default().with_janitor_interval(None);
    let domain = Domain::open_or_create(Arc::new(store), name, config).await?;
    let collection = format!("{name}-accounts");
    let accounts: bank::Accounts =
        domain.create_collection(&collection, Some(bank::MAPPINGS)).await?;
    let names = bank::names(2);
    domain
        .transact::<_, Error, _>(async |tx| {
            names.iter().try_for_each(|id| tx.put(&accounts, id.as_str(), &bank::account(1)))
        })
        .await?;
    bank::spread(&domain, &accounts, &names, &txn_core::Options::default()).await?;
    Ok(())
}

async fn indices(stage: &Stage, domain: &str) -> Result<Vec<String>, String> {
    let path = format!("/{}?expand_wildcards=all", patterns(domain).join(","));
    let found = send(stage.plain(), "GET", &path, None).await?;
    Ok(found.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect())
}
