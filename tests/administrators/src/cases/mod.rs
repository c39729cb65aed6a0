//! The jobs of administrators, one file each, with the expected results.

mod add_field;
mod alias_swap;
mod blocks;
mod body_limit;
mod close;
mod copies;
mod delete_by_query;
mod forgetful_proxy;
mod hidden_field;
mod hung_nodes;
mod planted;
mod rewrite;
mod rollover;
mod scan;
mod settings;
mod templates;

use std::pin::Pin;

use txn_fixtures::administrator::send;

use crate::server::Server;
use crate::stage::{Outcome, Stage};

type Run = Pin<Box<dyn Future<Output = Outcome>>>;

/// One job of an administrator.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name on the command line.
    pub name: &'static str,
    /// The administrator's action.
    pub job: &'static str,
    run: fn(Server) -> Run,
}

impl Case {
    /// Runs the job during the load, and returns the result.
    pub async fn run(&self, server: &Server) -> Outcome {
        (self.run)(server.clone()).await
    }
}

macro_rules! cases {
    ($($name:literal: $job:literal => $run:expr;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: $name,
            job: $job,
            run: |server| Box::pin(async move { $run(&server).await }),
        },)*];
    };
}

cases! {
    "rewrite": "_update_by_query without a script" => async |server| rewrite::run(server, scan::Through::Index).await;
    "rewrite-committed": "the same through <index>-committed" => async |server| rewrite::run(server, scan::Through::Committed).await;
    "add-field": "_update_by_query with a script that adds a field" => async |server| add_field::run(server, scan::Through::Index).await;
    "add-field-committed": "the same through <index>-committed" => async |server| add_field::run(server, scan::Through::Committed).await;
    "delete-without-field": "_delete_by_query of documents that lack a field" => async |server| delete_by_query::without_field(server, scan::Through::Index).await;
    "delete-without-field-committed": "the same through <index>-committed" => async |server| delete_by_query::without_field(server, scan::Through::Committed).await;
    "delete-old": "_delete_by_query of old documents" => delete_by_query::old;
    "templates": "templates that match the library's indices" => templates::run;
    "clone": "a clone that carries the aliases" => copies::clone;
    "split": "a split that carries the aliases" => copies::split;
    "restore": "a restored copy that carries the aliases" => copies::restore;
    "alias-swap": "the alias by which the application opened an index is moved" => alias_swap::run;
    "rollover": "a rollover of an alias with a write index" => rollover::run;
    "close": "an index is closed and opened" => close::run;
    "block-write": "index.blocks.write" => async |server| blocks::run(server, "write").await;
    "block-full-disk": "index.blocks.read_only_allow_delete, as on a full disk" => async |server| blocks::run(server, "read_only_allow_delete").await;
    "settings": "settings and mappings are changed" => settings::run;
    "hung-nodes": "one of three nodes hangs, then two" => hung_nodes::some;
    "hung-node": "the only node hangs" => hung_nodes::all;
    "forgetful-proxy": "a balancer forgets idle connections" => forgetful_proxy::run;
    "body-limit": "a proxy refuses large bodies" => body_limit::run;
    "hidden-field": "field-level security hides a field" => hidden_field::run;
}

/// Returns the case with a name.
#[must_use]
pub fn case(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// A case that has to fail, with damaged documents at rest.
///
/// A plain client damages the documents.
///
/// The client changes one document and deletes another.
pub const PLANTED: Case = Case {
    name: "planted",
    job: "a plain client changes documents at rest",
    run: |server| Box::pin(async move { planted::run(&server).await }),
};

/// Repeats a job `times` times, and until enough transactions are acknowledged.
///
/// # Errors
/// If the job fails, or the load makes no progress.
async fn beside(
    stage: &Stage,
    times: u32,
    transactions: u64,
    job: impl AsyncFn() -> Result<(), String>,
) -> Result<(), String> {
    let goal = stage.load.acknowledged() + transactions;
    let jobs = async {
        let mut done = 0;
        while done < times || stage.load.acknowledged() < goal {
            job().await?;
            done += 1;
        }
        Ok(())
    };
    tokio::select! {
        result = jobs => result,
        () = stage.load.stalls() => {
            let lacking = goal.saturating_sub(stage.load.acknowledged());
            Err(format!("during the job {lacking} of {transactions} transactions are missing"))
        }
    }
}
