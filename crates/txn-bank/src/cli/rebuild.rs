//! The command that rebuilds a domain with a lost part.

use std::sync::Arc;

use serde_json::json;
use txn_bank::Bank;
use txn_core::store::Store;
use txn_core::{Admin, Config, Domain, ErrorKind, RebuildReport, ids::Day};

use crate::cli::DRAIN;
use crate::console::failure::{Exit, Failure};
use crate::console::{output, said};

/// Shows the lost parts. Rebuilds the domain if all processes are stopped.
///
/// After the rebuild the command opens and audits the bank.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    domain: &str,
    config: Config,
    processes_stopped: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let lost = lost(store.clone(), domain, config.clone()).await?;
    if !processes_stopped {
        let exit = if lost.is_empty() { Exit::Done } else { Exit::Found };
        return said(show_lost(&lost, json), exit);
    }
    let rebuilt = Admin::rebuild(store.clone(), domain, config.clone()).await?;
    // Printed before the audit, because no later call returns the abandoned days.
    if let Err(error) = show_rebuilt(&rebuilt, json) {
        return Err(Failure::unwritten(Exit::Done, &error));
    }
    let bank = Bank::open(store, domain, config).await?;
    let audit = bank.audit(true).await;
    bank.shutdown(DRAIN).await;
    let audit = audit?;
    let exit = if audit.is_clean() { Exit::Done } else { Exit::Found };
    said(output::audit(&audit, json), exit)
}

/// The damage of the domain. Changes nothing.
async fn lost(store: Arc<dyn Store>, domain: &str, config: Config) -> Result<Vec<String>, Failure> {
    let domain = match Domain::open(store, domain, config).await {
        Ok(domain) => domain,
        Err(error) if error.kind() == ErrorKind::Damaged => return Ok(vec![error.to_string()]),
        Err(error) => return Err(error.into()),
    };
    let report = domain.admin().inspect().await;
    domain.shutdown(DRAIN).await;
    Ok(report?.damaged.into_iter().map(|(key, what)| format!("{key}: {what}")).collect())
}

fn show_lost(lost: &[String], json: bool) -> std::io::Result<()> {
    if json {
        return output::print_json(&json!({ "lost": lost }));
    }
    if lost.is_empty() {
        return output::print("The domain is whole. There is nothing to rebuild.");
    }
    lost.iter().try_for_each(|what| output::print(&format!("FOUND: {what}")))?;
    output::print(
        "Nothing was changed. Stop every process of the domain. If there is a snapshot of the data and of the domain of one \
         moment, restore it. If not, run this again with --processes-stopped.",
    )
}

fn show_rebuilt(rebuilt: &RebuildReport, json: bool) -> std::io::Result<()> {
    let days = |days: &[Day]| days.iter().map(ToString::to_string).collect::<Vec<_>>();
    let RebuildReport { partitions, given_up, collections, .. } = rebuilt;
    let (partitions, given_up) = (days(partitions), days(given_up));
    if json {
        return output::print_json(&json!({
            "partitions": partitions, "given_up": given_up, "collections": collections,
        }));
    }
    let listed =
        |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    output::print(&format!(
        "Partitions: {}\nCollections: {}\nDays given up: {}",
        listed(&partitions),
        listed(collections),
        listed(&given_up)
    ))?;
    match given_up.is_empty() {
        true => Ok(()),
        false => output::print(
            "A transaction of such a day that was committed and not applied everywhere stays half applied.",
        ),
    }
}
