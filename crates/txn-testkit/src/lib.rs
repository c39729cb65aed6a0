//! Real servers for tests and benchmarks (not published).
