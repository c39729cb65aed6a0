//! Processes, safe against reused process ids.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::servers::error::{Error, Result};

/// A process: its id, and its start time, because ids are reused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id; 0 before the process was started.
    pub(crate) pid: u32,
    /// The start time: the machine's boot id, and clock ticks since boot.
    started: String,
}

impl Process {
    /// Returns the living process with this id.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: start_of(pid)? })
    }

    /// Returns this process.
    pub(crate) fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Whether the process runs (or is paused) and still has its id.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.pid != 0 && start_of(self.pid).is_some_and(|started| started == self.started)
    }

    /// Whether SIGSTOP has paused each thread of the process.
    pub(crate) fn is_paused(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        let paused = |thread: fs::DirEntry| {
            // A missing thread has ended in the meantime.
            let text = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            parse_stat(&text).is_none_or(|stat| stat.state == 'T')
        };
        self.is_alive() && threads.flatten().all(paused)
    }

    /// Pauses the process with SIGSTOP; `false` if it was gone.
    ///
    /// Waits until all threads are paused, because a running thread takes the signal a moment after
    /// it was sent.
    ///
    /// # Errors
    /// If the process does not pause, or belongs to another user.
    pub fn pause(&self) -> Result<bool> {
        if !self.signal(Signal::STOP)? {
            return Ok(false);
        }
        let end = Instant::now() + Duration::from_secs(20);
        while !self.is_paused() {
            if !self.is_alive() {
                return Ok(false);
            }
            if Instant::now() >= end {
                return Err(Error::Other(format!("process {} still runs", self.pid)));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Continues after [`pause`](Self::pause), with SIGCONT; `false` if the process was gone.
    ///
    /// # Errors
    /// If the process belongs to another user.
    pub fn resume(&self) -> Result<bool> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal; `false` if the process was gone.
    pub(crate) fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        let failed = |error: Errno| {
            Error::Other(format!("cannot send {signal:?} to process {}: {error}", self.pid))
        };
        // The descriptor keeps its process, so the signal reaches the process that was checked.
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Ok(false),
            // The id is now that of a thread. Newer kernels report a missing process, older ones an
            // invalid id.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        if !self.is_alive() {
            return Ok(false);
        }
        match pidfd_send_signal(handle, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits until the process is gone; `false` after `limit`.
    pub(crate) fn wait_gone(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Kills the process with SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// If the process is still alive, or belongs to another user.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)?;
        if self.wait_gone(Duration::from_secs(20)) {
            return Ok(());
        }
        Err(Error::Other(format!("process {} is still there after SIGKILL", self.pid)))
    }

    /// Sends SIGTERM, and SIGKILL after `patience`.
    pub(crate) fn end(&self, patience: Duration) -> Result<()> {
        if self.signal(Signal::TERM)? {
            // A paused process receives SIGTERM only after SIGCONT.
            self.signal(Signal::CONT)?;
            if !self.wait_gone(patience) {
                self.kill()?;
            }
        }
        Ok(())
    }
}

/// Returns the Java processes whose command line names a file below `folder`.
pub(crate) fn java_processes_of(folder: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let prefix = format!("{}/", folder.display());
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Process::of)
        .filter(|process| {
            let of_process = |file: &str| {
                fs::read(format!("/proc/{}/{file}", process.pid))
                    .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                    .unwrap_or_default()
            };
            of_process("comm").trim() == "java" && of_process("cmdline").contains(&prefix)
        })
        .collect()
}

fn start_of(pid: u32) -> Option<String> {
    let stat = stat(pid)?;
    // A zombie has ended; its parent has not waited for it yet.
    if matches!(stat.state, 'Z' | 'X') {
        return None;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{}+{}", boot.trim(), stat.start))
}

struct Stat {
    state: char,
    start: String,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/<pid>/stat`. The second field, the name, may hold blanks and brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The state is field 3 and the start is field 22 (see proc(5)).
    Some(Stat { state, start: fields.nth(18)?.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.start.as_str()), ('S', "4711"));
    }

    #[test]
    fn reused_process_id_is_left_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        let recycled = Process { started: "another boot+1".to_owned(), ..process.clone() };
        assert!(!recycled.is_alive());
        assert!(!recycled.signal(Signal::KILL).unwrap());
        assert!(process.is_alive());
        process.kill().unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    /// A thread may have the id of a dead process.
    ///
    /// The thread belongs to another process.
    #[test]
    fn thread_with_a_reused_process_id_is_left_alone() {
        let (told, number) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = stopped.recv();
        });
        let pid = u32::try_from(number.recv().unwrap()).unwrap();
        let gone = Process { pid, started: "another boot+1".to_owned() };
        assert!(!gone.signal(Signal::TERM).unwrap());
        gone.end(Duration::from_secs(5)).unwrap();
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_paused_process_ends_when_asked() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.pause().unwrap());
        assert!(process.is_paused());
        process.end(Duration::from_secs(5)).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
