//! Processor time and memory of processes and threads, from Linux.

use std::time::Duration;

use serde_json::Value;

use crate::Failure;

/// Ticks per second in `/proc/…/stat`: 100 on every current Linux.
const TICKS: u64 = 100;

/// A process on this machine.
#[derive(Clone, Debug)]
pub struct Process(String);

impl Process {
    /// Returns this process.
    #[must_use]
    pub fn this() -> Self {
        Self("self".to_owned())
    }

    /// Returns the server at this address, if it runs on this machine.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn of_server(client: &reqwest::Client, url: &str) -> Result<Option<Self>, Failure> {
        let local = ["//127.0.0.1", "//localhost", "//[::1]"];
        if !local.iter().any(|host| url.contains(host)) {
            return Ok(None);
        }
        let answer = client.get(format!("{url}/_nodes/_local/process")).send().await?;
        let answer: Value = serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?;
        let node = answer["nodes"].as_object().and_then(|nodes| nodes.values().next());
        let process = node.and_then(|node| node["process"]["id"].as_u64());
        let process = process.map(|id| Self(id.to_string()));
        Ok(process.filter(|process| process.processor_time().is_some()))
    }

    /// Returns the processor time so far, in user and system mode.
    #[must_use]
    pub fn processor_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        ticks(&stat).map(|ticks| Duration::from_millis(ticks * 1_000 / TICKS))
    }

    /// Returns the memory of the process, in MiB.
    #[must_use]
    pub fn memory(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        resident(&status)
    }
}

/// Returns the processor time of this thread so far.
///
/// # Errors
/// If the system does not report the time.
pub fn thread_time() -> Result<Duration, Failure> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = told.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Returns the ticks of user and system together.
///
/// The name of the program, which comes first, may hold any characters.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(user + system)
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_after_any_name() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("12 (a) S 1 2"), None);
    }

    #[test]
    fn memory_is_in_mebibytes() {
        assert_eq!(resident("Name:\ta\nVmRSS:\t    2048 kB\nThreads: 1\n"), Some(2.0));
        assert_eq!(resident("Name:\ta\n"), None);
    }
}
