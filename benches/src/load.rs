//! What clients do: how many of them, on which documents, how often they only read.

use std::sync::Arc;

use serde::Serialize;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Documents that there are.
    pub accounts: usize,
    /// Documents of one transfer.
    pub documents: usize,
    /// How many clients run at once, each one transfer after the other.
    pub clients: usize,
    /// How many processes they are of.
    pub processes: usize,
    /// Which documents are wanted how often.
    pub skew: Skew,
    /// The share of operations that only read.
    pub reads: f64,
}

/// Which documents are wanted how often.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Skew {
    /// All alike.
    Uniform,
    /// The k-th as often as `1 / k^s`.
    Zipf(f64),
}

impl Load {
    /// Transfers by clients of one process, of documents that are wanted alike.
    #[must_use]
    pub fn new(clients: usize, documents: usize, accounts: usize) -> Self {
        Self { accounts, documents, clients, processes: 1, skew: Skew::Uniform, reads: 0.0 }
    }
}

/// Chooses documents.
#[derive(Clone, Debug)]
pub struct Picker {
    load: Load,
    /// Of the k-th document and all before it together; empty if all are alike.
    cumulated: Arc<[f64]>,
}

impl Picker {
    /// For this load, which must have as many accounts as one transfer has documents.
    #[must_use]
    pub fn new(load: Load) -> Self {
        let cumulated = match load.skew {
            Skew::Uniform => Arc::default(),
            Skew::Zipf(exponent) => zipf(load.accounts, exponent).into(),
        };
        Self { load, cumulated }
    }

    /// The documents of one transfer: different ones, in any order.
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

/// How likely the k-th of `n` or one before it is.
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
        // About 1 of 7.7 by its weight, where all alike would be 1 of 1,000.
        assert!((1_000..1_700).contains(&seen[0]), "{}", seen[0]);
        assert_eq!(seen.iter().max(), Some(&seen[0]));
    }
}
