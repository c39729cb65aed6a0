//! Commands on the locks of the domain.

use serde_json::json;
use txn_bank::Bank;
use txn_lock::{Holder, Lock, LockConfig, LockService};

use crate::cli::DRAIN;
use crate::console::failure::{Exit, Failure};
use crate::console::{output, said};

pub(crate) async fn list(bank: &Bank, json: bool) -> Result<Exit, Failure> {
    let service = LockService::open(bank.domain(), LockConfig::default()).await?;
    let listed = service.list().await;
    service.shutdown(DRAIN).await;
    let written = listed?.iter().try_for_each(|lock| match (json, &lock.holder) {
        (true, _) => output::print_json(lock),
        (false, Some(holder)) => output::print(&line(lock, holder)),
        (false, None) => Ok(()),
    });
    said(written, Exit::Done)
}

pub(crate) async fn take_away(
    bank: &Bank,
    category: &str,
    id: &str,
    json: bool,
) -> Result<Exit, Failure> {
    let service = LockService::open(bank.domain(), LockConfig::default()).await?;
    let broken = service.break_lock(category, id).await;
    service.shutdown(DRAIN).await;
    let broken = broken?;
    let written = match (json, &broken) {
        (true, holder) => output::print_json(&json!({ "broken": holder })),
        (false, Some(holder)) => output::print(&format!("Taken from {}.", of(holder))),
        (false, None) => output::print("No process held it."),
    };
    said(written, Exit::Done)
}

fn line(lock: &Lock, holder: &Holder) -> String {
    format!("{}: token {}, {}", lock.name(), lock.token, of(holder))
}

fn of(holder: &Holder) -> String {
    format!("{} since {}", holder.name, output::time_of(holder.since_ms))
}
