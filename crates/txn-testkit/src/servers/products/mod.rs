//! The products that can be started, and their files.

pub(crate) mod elasticsearch;
pub(crate) mod kind;
pub(crate) mod opensearch;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod product;
pub(crate) mod roles;
pub(crate) mod security_plugin;
pub(crate) mod tls;

use crate::servers::state::State;

/// The heap of a node, in MiB.
const USUAL_HEAP: u32 = 512;

/// Returns the options of the Java machine of each node.
///
/// A node with a small heap ends at the first `OutOfMemoryError`, as packaged servers do.
/// `TXN_SERVERS_JAVA_OPTIONS` adds more, separated by spaces.
fn java_options(state: &State) -> Vec<String> {
    let more = std::env::var("TXN_SERVERS_JAVA_OPTIONS").unwrap_or_default();
    let heap = state.heap.unwrap_or(USUAL_HEAP);
    let mut options = vec![format!("-Xms{heap}m"), format!("-Xmx{heap}m")];
    if state.heap.is_some() {
        options.push("-XX:+ExitOnOutOfMemoryError".to_owned());
    }
    options.extend(more.split_whitespace().map(str::to_owned));
    options
}
