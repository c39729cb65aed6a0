//! Random numbers from a seed.

/// An xorshift generator: a seed determines the simulation on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(0x9e37_79b9_7f4a_7c15 ^ (seed.wrapping_mul(7_919) + 1));
        for _ in 0..20 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns an index below `end`.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// Returns a fraction from 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }

    /// Whether an event of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// Returns the time to the next Poisson arrival, in microseconds.
    pub fn interval(&mut self, per_second: f64) -> u64 {
        let fraction = self.fraction().max(1e-12);
        (-fraction.ln() / per_second * 1e6) as u64
    }
}
