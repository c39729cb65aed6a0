//! The machine and the server of a report.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::Failure;
use crate::plain::Plain;

/// The machine and the server of a report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    /// The day, in UTC.
    pub(super) date: String,
    /// The name of the processor.
    pub(super) processor: String,
    /// The number of processors that this process may use.
    pub(super) processors: usize,
    /// Memory, in GiB.
    pub(super) memory: Option<f64>,
    /// The operating system and its version.
    pub(super) system: String,
    /// The machine's load average of the minute before.
    pub(super) load: Option<f64>,
    /// The server and its version.
    pub(super) server: String,
    /// Whether the server runs stored scripts.
    pub(super) has_scripts: bool,
    /// The server's Java and its heap.
    pub(super) java: String,
    /// The version of this library.
    pub(super) library: &'static str,
}

impl Machine {
    /// Asks the system and the server.
    pub(super) async fn look(plain: &Plain) -> Result<Self, Failure> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory = memory.and_then(|text| text.trim_end_matches("kB").trim().parse::<f64>().ok());
        let answer =
            plain.client().get(format!("{}/_nodes/_local/jvm", plain.url())).send().await?;
        let answer: Value = serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?;
        let node = answer["nodes"].as_object().and_then(|nodes| nodes.values().next());
        let node = node.cloned().unwrap_or_default();
        let heap = node["jvm"]["mem"]["heap_max_in_bytes"].as_u64().unwrap_or_default() >> 20;
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        // The package of Elasticsearch that is started here has no scripts.
        let has_scripts = is_opensearch(&node);
        let flavour = if has_scripts { "OpenSearch" } else { "Elasticsearch" };
        let today = OffsetDateTime::now_utc();
        Ok(Self {
            date: format!("{}-{:02}-{:02}", today.year(), u8::from(today.month()), today.day()),
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.map(|kibibytes| kibibytes / f64::from(1 << 20)),
            system: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            server: format!("{flavour} {}", text(&node["version"])),
            has_scripts,
            java: format!("Java {}, {heap} MiB of heap", text(&node["jvm"]["version"])),
            library: env!("CARGO_PKG_VERSION"),
        })
    }
}

/// Nodes do not name their product. Only OpenSearch nodes have the role of a cluster manager.
fn is_opensearch(node: &Value) -> bool {
    let roles = node["roles"].as_array().into_iter().flatten();
    roles.filter_map(Value::as_str).any(|role| role == "cluster_manager")
}
