//! Benchmarks beside plain, unsafe writes.
