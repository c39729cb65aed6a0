//! Requests, compared with the original two-phase commit.
//!
//! Transfers between two accounts, each stored as a document and refused if the balance is too low.
//! The processors run in the process that submits the requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use txn_core::{Collection, Typed};
use txn_requests::{Operation, Processor, Request, Requests, RequestsConfig, State, Target};

use super::{PATIENCE, Place, in_turn, new_id, rate_since};
use crate::pair::Rate;
use crate::seed::{Ended, Peer, Transfer, Way};
use crate::statistics::Times;
use crate::{Failure, unique};

/// Large enough that no transfer is refused.
const BALANCE: i64 = 1 << 40;

/// Both systems on one server.
#[derive(Debug)]
pub struct Submissions {
    place: Place,
    accounts: Collection<Typed<Value>>,
    requests: Requests,
    peer: Peer,
    ids: Vec<String>,
}

/// The result of rounds, as medians.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submitted {
    /// Clients that do not wait for their requests: until each was accepted.
    pub accepted: Rate,
    /// The same requests, until the last of them was committed.
    pub drained: Rate,
    /// Clients that wait for each commit: the time until acceptance.
    pub to_accepted: Rate,
    /// The same clients: the time until the commit.
    pub to_committed: Rate,
    /// The same clients: the time until the request was marked as finished.
    ///
    /// From the times in the request's document.
    pub to_finished: Rate,
    /// The two-phase commit, until each transfer was finished.
    pub peer: Rate,
}

impl Submissions {
    /// Opens both systems, with accounts of their own.
    ///
    /// # Errors
    /// As the server.
    pub async fn open(
        url: &str,
        way: Way,
        accounts: usize,
    ) -> Result<(Arc<Self>, Processor), Failure> {
        let name = unique("submissions");
        let place = Place::open(url, &name).await?;
        let ids: Vec<String> = (0..accounts).map(|at| format!("a{at}")).collect();
        let peer = Peer::new(url, &name, way, None)?;
        peer.create(&ids, BALANCE).await?;
        let of_bank = format!("{name}-accounts");
        let domain = &place.domain;
        let accounts = domain.create_collection(&of_bank, Some(r#"{"dynamic":false}"#)).await?;
        for ids in ids.chunks(100) {
            let opened = domain.transact::<_, txn_core::Error, _>(async |tx| {
                ids.iter().try_for_each(|id| tx.put(&accounts, id, &json!({"balance": BALANCE})))
            });
            opened.await?;
        }
        let requests = Requests::open(domain, RequestsConfig::default()).await?;
        let processor = requests.start(None);
        Ok((Arc::new(Self { place, accounts, requests, peer, ids }), processor))
    }

    /// Measures rounds of each kind in turn, as medians.
    ///
    /// # Errors
    /// As the server.
    pub async fn measure(
        self: &Arc<Self>,
        clients: usize,
        rounds: usize,
        span: Duration,
    ) -> Result<Submitted, Failure> {
        let mut each: [Vec<Rate>; 6] = Default::default();
        for _ in 0..rounds {
            let [accepted, drained] = self.submit_only(clients, span).await?;
            let [to_accepted, to_committed, to_finished] =
                self.submit_and_wait(clients, span).await?;
            let peer = self.by_peer(clients, span).await?;
            let round = [accepted, drained, to_accepted, to_committed, to_finished, peer];
            each.iter_mut().zip(round).for_each(|(rounds, one)| rounds.push(one));
        }
        let [accepted, drained, to_accepted, to_committed, to_finished, peer] =
            each.map(|rounds| Rate::median(&rounds));
        Ok(Submitted { accepted, drained, to_accepted, to_committed, to_finished, peer })
    }

    async fn submit_only(
        self: &Arc<Self>,
        clients: usize,
        span: Duration,
    ) -> Result<[Rate; 2], Failure> {
        let this = self.clone();
        let (submitted, began) = in_turn(clients, span, move |_| {
            let this = this.clone();
            async move {
                let (id, request, at) = (new_id(), this.request(), Instant::now());
                this.requests.submit(&request, &id).await?;
                Ok((id, at.elapsed()))
            }
        })
        .await?;
        let (ids, times): (Vec<String>, Vec<Duration>) = submitted.into_iter().unzip();
        let accepted = rate_since(began, &times);
        for id in &ids {
            self.committed(id).await?;
        }
        let drained = Rate { times: Times::default(), ..rate_since(began, &times) };
        self.finished(&ids).await?;
        Ok([accepted, drained])
    }

    async fn submit_and_wait(
        self: &Arc<Self>,
        clients: usize,
        span: Duration,
    ) -> Result<[Rate; 3], Failure> {
        let this = self.clone();
        let (submitted, began) = in_turn(clients, span, move |_| {
            let this = this.clone();
            async move {
                let (id, request, at) = (new_id(), this.request(), Instant::now());
                this.requests.submit(&request, &id).await?;
                let accepted = at.elapsed();
                this.committed(&id).await?;
                Ok((id, accepted, at.elapsed()))
            }
        })
        .await?;
        let accepted: Vec<Duration> = submitted.iter().map(|(_, accepted, _)| *accepted).collect();
        let committed: Vec<Duration> =
            submitted.iter().map(|(_, _, committed)| *committed).collect();
        let (accepted, committed) = (rate_since(began, &accepted), rate_since(began, &committed));
        let ids: Vec<String> = submitted.into_iter().map(|(id, ..)| id).collect();
        let times = self.finished(&ids).await?;
        Ok([accepted, committed, rate_since(began, &times)])
    }

    async fn by_peer(self: &Arc<Self>, clients: usize, span: Duration) -> Result<Rate, Failure> {
        let this = self.clone();
        let (times, began) = in_turn(clients, span, move |_| {
            let this = this.clone();
            async move {
                let ((from, to), at) = (this.pick(), Instant::now());
                let id = new_id();
                match this.peer.transfer(&Transfer { id, from, to, amount: 1 }).await? {
                    Ended::Finished => Ok(at.elapsed()),
                    ended => Err(format!("a transfer of the peer ended as {ended:?}").into()),
                }
            }
        })
        .await?;
        Ok(rate_since(began, &times))
    }

    async fn committed(&self, id: &str) -> Result<(), Failure> {
        let status = self.requests.wait(id, PATIENCE).await?;
        match status.state.is_committed() {
            true => Ok(()),
            false => Err(format!("the request {id} is {}", status.state).into()),
        }
    }

    /// Returns the time of each request until it was marked as finished.
    async fn finished(&self, ids: &[String]) -> Result<Vec<Duration>, Failure> {
        let (mut times, until) = (Vec::with_capacity(ids.len()), Instant::now() + 4 * PATIENCE);
        for id in ids {
            loop {
                let status = self.requests.status(id).await?;
                if let (State::Finished, Some(at)) = (status.state, status.times.finished_ms) {
                    times.push(Duration::from_millis(at.saturating_sub(status.times.created_ms)));
                    break;
                }
                if Instant::now() > until {
                    return Err(format!("the request {id} stays {}", status.state).into());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(times)
    }

    fn request(&self) -> Request {
        let (from, to) = self.pick();
        let target = |id| Target::new(self.accounts.name(), id);
        Request::new(vec![
            Operation::add_down_to(target(from), "/balance", -1, 0),
            Operation::add(target(to), "/balance", 1),
        ])
    }

    fn pick(&self) -> (String, String) {
        let many = self.ids.len();
        let from = fastrand::usize(0..many);
        let to = (from + fastrand::usize(1..many)) % many;
        (self.ids[from].clone(), self.ids[to].clone())
    }

    /// Checks the total money of both systems, and drops them.
    ///
    /// # Errors
    /// If the money has changed, or as the server.
    pub async fn close(&self, processor: Processor) -> Result<(), Failure> {
        processor.stop(PATIENCE).await;
        self.requests.shutdown(PATIENCE).await;
        let whole = BALANCE * i64::try_from(self.ids.len())?;
        let (mut of_peer, mut ours) = (0, 0);
        for id in &self.ids {
            of_peer += self.peer.account(id).await?.balance;
        }
        for ids in self.ids.chunks(100) {
            let found = self.place.domain.reader().verified().get_many(&self.accounts, ids).await?;
            ours +=
                found.iter().flatten().filter_map(|found| found["balance"].as_i64()).sum::<i64>();
        }
        self.peer.remove().await?;
        self.place.close().await?;
        match (of_peer, ours) == (whole, whole) {
            true => Ok(()),
            false => Err(format!("the peer holds {of_peer}, requests {ours}, not {whole}").into()),
        }
    }
}
