//! The memory of a process.

/// The memory of a process in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    /// The largest value so far.
    pub(crate) most: u64,
}

impl Memory {
    /// Reads the memory of a process with this id.
    pub(crate) fn of(pid: u32) -> Result<Self, String> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let [now, most] = ["VmRSS:", "VmHWM:"].map(|name| of(name).unwrap_or_default() / 1_024);
        Ok(Self { now, most })
    }
}
