//! A coordinator in its own process: see `txn_fixtures::coordinator`.
//!
//! Tests kill and pause the process.

use txn_fixtures::coordinator::{Job, carry_out};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let job = std::env::args().nth(1).expect("a job, as JSON");
    let job: Job = serde_json::from_str(&job).expect("a job, as JSON");
    carry_out(job).await;
}
