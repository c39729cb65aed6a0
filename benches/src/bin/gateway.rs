//! The time that the gateway adds to a transaction, by parts.
//!
//! The store is in memory.
//!
//! The single client sends a transfer of two documents by the library, as a request without a
//! connection, and over HTTP, in turn. So other work on the machine slows all three ways alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Request;
use serde_json::json;
use tokio::net::TcpListener;
use txn_benches::Failure;
use txn_benches::accounts::{Bank, ids, index};
use txn_benches::systems::gateway_clients::operations;
use txn_core::store::MemoryStore;
use txn_core::{Config, Options};
use txn_serve::{ServeConfig, Server};

const ROUNDS: usize = 3_000;
const WARM_UP: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let config = Config::default().with_group_commit(Some(true)).with_request_batching(Some(true));
    let bank = Bank::on(Arc::new(MemoryStore::new()), "gateway", config).await?;
    let all = ids(1_000);
    for part in all.chunks(500) {
        bank.put(part).await?;
    }
    let server = Server::new(&bank.domain, ServeConfig::default())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let served = server.clone();
    tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
    let client = reqwest::Client::builder().no_proxy().build()?;
    let index = index(bank.domain.name());
    let kinds = ["library", "operations", "operations, HTTP", "bulk", "bulk, HTTP", "health, HTTP"];
    let mut times: [Vec<Duration>; 6] = Default::default();
    for round in 0..ROUNDS + WARM_UP {
        let first = fastrand::usize(..all.len() - 2);
        let picked = &all[first..first + 2];
        let operations = operations(&index, picked).to_string();
        let bulk = bulk(&index, picked);
        for (kind, times) in times.iter_mut().enumerate() {
            let began = Instant::now();
            match kind {
                0 => drop(bank.transact(picked, &Options::default()).await?),
                1 => answered(&server, "/_txn", operations.clone()).await?,
                2 => sent(&client, &url, "/_txn", operations.clone()).await?,
                3 => answered(&server, "/_bulk", bulk.clone()).await?,
                4 => sent(&client, &url, "/_bulk", bulk.clone()).await?,
                _ => drop(client.get(format!("{url}/healthz")).send().await?.bytes().await?),
            }
            if round >= WARM_UP {
                times.push(began.elapsed());
            }
        }
    }
    println!("{:20}{:>10}{:>10}{:>10}", "microseconds", "p10", "median", "p90");
    for (kind, mut times) in kinds.into_iter().zip(times) {
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100].as_micros();
        println!("{kind:20}{:>10}{:>10}{:>10}", at(10), at(50), at(90));
    }
    bank.leave().await;
    Ok(())
}

async fn answered(server: &Server, path: &str, body: String) -> Result<(), Failure> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body)?;
    let answer = server.answer(request).await;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(format!("{path}: {}", answer.status()).into()),
    }
}

async fn sent(
    client: &reqwest::Client,
    url: &str,
    path: &str,
    body: String,
) -> Result<(), Failure> {
    let request = client.post(format!("{url}{path}")).header("content-type", "application/json");
    request.body(body).send().await?.error_for_status()?.bytes().await?;
    Ok(())
}

fn bulk(index: &str, ids: &[String]) -> String {
    let action = |id: &String| {
        let line = json!({"index": {"_index": index, "_id": id}});
        format!("{line}\n{}\n", json!({"balance": 0, "changes": 0}))
    };
    ids.iter().map(action).collect()
}
