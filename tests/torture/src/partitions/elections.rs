//! Elections, as an observer that no cut concerns sees them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use txn_fixtures::faults::{Cluster, Master};

use super::schedule::NODES;

/// The time between two looks at all nodes.
const INTERVAL: Duration = Duration::from_millis(200);

/// The masters so far.
///
/// Each has the time at which a node first saw the master.
#[derive(Debug, Default)]
struct Masters(Vec<(Instant, Master)>);

impl Masters {
    /// Records the view of a node.
    ///
    /// A node follows a master only after most nodes accepted its first state. Another node may
    /// believe in an older master, whose term is lower.
    fn record(&mut self, at: Instant, view: Master) {
        if self.0.last().is_none_or(|(_, last)| last.term < view.term) {
            self.0.push((at, view));
        }
    }

    /// Returns the masters that were elected after a time.
    fn after(&self, begin: Instant) -> Vec<(Duration, usize)> {
        // The first master was elected before the first look.
        let elected = self.0.iter().skip(1).filter(|(at, _)| *at > begin);
        elected.map(|(at, master)| (*at - begin, master.node)).collect()
    }
}

/// A task that asks each node for its master.
///
/// The task ends with the run.
#[derive(Debug)]
pub(super) struct Elections {
    masters: Arc<Mutex<Masters>>,
    task: JoinHandle<()>,
}

impl Elections {
    pub(super) fn observe(cluster: Cluster) -> Self {
        let masters = Arc::new(Mutex::new(Masters::default()));
        let shared = masters.clone();
        let task = tokio::spawn(async move {
            loop {
                let views = (0..NODES).map(|node| cluster.master_seen_by(node));
                for view in join_all(views).await.into_iter().flatten() {
                    shared.lock().record(Instant::now(), view);
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self { masters, task }
    }

    /// Returns the masters that were elected after a time.
    ///
    /// Each has the duration of the election, and the node.
    pub(super) fn after(&self, begin: Instant) -> Vec<(Duration, usize)> {
        self.masters.lock().after(begin)
    }

    /// Ends the task, so that the cluster can end.
    pub(super) async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn election_has_a_higher_term() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut masters = Masters::default();
        masters.record(at(1), Master { term: 3, node: 0 });
        assert_eq!(masters.after(begin), []);
        masters.record(at(4), Master { term: 5, node: 2 });
        // The old master still believes in itself.
        masters.record(at(5), Master { term: 3, node: 0 });
        masters.record(at(6), Master { term: 5, node: 2 });
        assert_eq!(masters.after(begin), [(Duration::from_secs(4), 2)]);
    }
}
