//! A runtime of one thread whose clock stands still, but for what everybody waits for.

/// Runs `work` to its end. Everything it does has to begin inside: outside, time passes.
///
/// # Panics
/// If no runtime can be made.
pub(crate) fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(work)
}
