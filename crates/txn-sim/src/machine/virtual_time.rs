//! A runtime of one thread in virtual time.
//!
//! The clock advances only when all tasks wait.

/// Runs `work` to its end. All work has to begin inside, because real time passes outside.
///
/// # Panics
/// If no runtime can be made.
pub fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(work)
}
