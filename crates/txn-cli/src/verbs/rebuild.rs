//! The verb that rebuilds a domain with a lost part.

use std::sync::Arc;

use serde_json::json;
use txn_core::ids::Day;
use txn_core::store::Store;
use txn_core::{Admin, Config, Domain, ErrorKind, RebuildReport};

use crate::answer::{Answer, Exit, Failure};
use crate::args::Global;
use crate::session::{config, name, store};

/// Shows the lost parts. Rebuilds the domain if all processes are stopped.
pub(super) async fn rebuild(global: &Global, processes_stopped: bool) -> Result<Answer, Failure> {
    let name = name(global)?;
    let open = store(global, false).await?;
    let done = match processes_stopped {
        true => rebuilt(open.store.clone(), name, config(global)).await,
        false => lost(open.store.clone(), name, config(global)).await,
    };
    open.close().await;
    done
}

/// The damage of the domain. Changes nothing.
async fn lost(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Answer, Failure> {
    let lost = match Domain::open(store, name, config).await {
        Ok(domain) => {
            let report = domain.admin().inspect().await;
            domain.shutdown(std::time::Duration::from_secs(5)).await;
            let report = report?;
            if let Some((part, why)) = report.unreachable.first() {
                return Err(Failure::unfit(format!("{part} could not be read: {why}")));
            }
            report.damaged.into_iter().map(|(key, what)| format!("{key}: {what}")).collect()
        }
        Err(error) if error.kind() == ErrorKind::Damaged => vec![error.to_string()],
        Err(error) => return Err(error.into()),
    };
    let lost: Vec<String> = lost;
    if lost.is_empty() {
        let text = "The domain is whole. There is nothing to rebuild.";
        return Ok(Answer::new(Exit::Well, text, json!({ "lost": lost })));
    }
    let mut text: String = lost.iter().map(|what| format!("LOST: {what}\n")).collect();
    text += "Nothing was changed.\nNext: stop every process of the domain. If there is a snapshot of the data and of the \
             domain of one moment, restore it. If not, run this again with --processes-stopped.";
    Ok(Answer::new(Exit::NotWell, text, json!({ "lost": lost })))
}

async fn rebuilt(store: Arc<dyn Store>, name: &str, config: Config) -> Result<Answer, Failure> {
    let report = Admin::rebuild(store, name, config).await?;
    let days = |days: &[Day]| days.iter().map(ToString::to_string).collect::<Vec<_>>();
    let RebuildReport { partitions, given_up, collections, .. } = &report;
    let (partitions, given_up) = (days(partitions), days(given_up));
    let listed =
        |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut text = format!(
        "Partitions: {}\nCollections: {}\nDays given up: {}\n",
        listed(&partitions),
        listed(collections),
        listed(&given_up)
    );
    if !given_up.is_empty() {
        text += "A transaction of such a day that was committed and not applied everywhere stays half applied.\n";
    }
    text += "Next: open each collection once (`txn init COLLECTION`), then `txn recover`, then check the invariants of \
             the application.";
    let json =
        json!({ "partitions": partitions, "given_up": given_up, "collections": collections });
    Ok(Answer::new(Exit::Well, text, json))
}
