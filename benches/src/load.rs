//! The loads: clients, documents, and the share of reads.

use std::sync::Arc;

use serde::Serialize;

/// A load of clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The number of documents.
    pub accounts: usize,
    /// The number of documents in one transfer.
    pub documents: usize,
    /// The number of concurrent clients, each with one transfer at a time.
    pub clients: usize,
    /// The number of processes.
    pub processes: usize,
    /// The popularity of documents.
    pub skew: Skew,
    /// The share of read-only operations.
    pub reads: f64,
}

/// The popularity of documents.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Skew {
    /// All documents are equally popular.
    Uniform,
    /// The popularity of the k-th document is `1 / k^s`.
    Zipf(f64),
}

impl Load {
    /// Creates a load of one process, with equally popular documents.
    #[must_use]
    pub fn new(clients: usize, documents: usize, accounts: usize) -> Self {
        Self { accounts, documents, clients, processes: 1, skew: Skew::Uniform, reads: 0.0 }
    }
}

/// Chooses documents.
#[derive(Clone, Debug)]
pub struct Picker {
    load: Load,
    /// The sums of the weights up to the k-th document. Empty if all weights are equal.
    cumulated: Arc<[f64]>,
}

impl Picker {
    /// Creates a picker. The load must have at least `documents` accounts.
    #[must_use]
    pub fn new(load: Load) -> Self {
        let cumulated = match load.skew {
            Skew::Uniform => Arc::default(),
            Skew::Zipf(exponent) => zipf(load.accounts, exponent).into(),
        };
        Self { load, cumulated }
    }

    /// Returns the documents of one transfer: different ones, in any order.
    pub fn pick(&self, random: &mut fastrand::Rng) -> Vec<usize> {
        let wanted = self.load.documents.min(self.load.accounts);
        let mut picked = Vec::with_capacity(wanted);
        while picked.len() < wanted {
            let next = self.one(random);
            if !picked.contains(&next) {
                picked.push(next);
            }
        }
        picked
    }

    fn one(&self, random: &mut fastrand::Rng) -> usize {
        if self.cumulated.is_empty() {
            return random.usize(0..self.load.accounts);
        }
        let at = random.f64();
        self.cumulated.partition_point(|sum| *sum <= at).min(self.load.accounts - 1)
    }
}

/// Returns the probability of the first k of `n`, for each k.
fn zipf(n: usize, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut cumulated: Vec<f64> = (1..=n)
        .map(|k| {
            sum += (k as f64).powf(-exponent);
            sum
        })
        .collect();
    cumulated.iter_mut().for_each(|value| *value /= sum);
    cumulated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_adds_up() {
        let cumulated = zipf(4, 1.0);
        let whole = 1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0;
        assert!((cumulated[0] - 1.0 / whole).abs() < 1e-12);
        assert!((cumulated[1] - 1.5 / whole).abs() < 1e-12);
        assert!((cumulated[3] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_transfer_has_different_documents() {
        for skew in [Skew::Uniform, Skew::Zipf(0.99)] {
            let picker = Picker::new(Load { skew, ..Load::new(1, 3, 4) });
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..100 {
                let mut picked = picker.pick(&mut random);
                picked.sort_unstable();
                picked.dedup();
                assert!(picked.len() == 3 && picked.iter().all(|at| *at < 4), "{picked:?}");
            }
        }
    }

    #[test]
    fn the_first_document_is_wanted_most() {
        let picker = Picker::new(Load { skew: Skew::Zipf(0.99), ..Load::new(1, 1, 1_000) });
        let mut random = fastrand::Rng::with_seed(2);
        let mut seen = vec![0; 1_000];
        for _ in 0..10_000 {
            seen[picker.pick(&mut random)[0]] += 1;
        }
        // Its weight is about 1 of 7.7. With equal weights the share would be 1 of 1,000.
        assert!((1_000..1_700).contains(&seen[0]), "{}", seen[0]);
        assert_eq!(seen.iter().max(), Some(&seen[0]));
    }
}
