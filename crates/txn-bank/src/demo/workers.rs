//! The workers of the demo: processes, or runtimes in memory.
//!
//! The demo kills processes, and drops runtimes.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use txn_bank::Bank;
use txn_cli::{Address, OpenStore};

use crate::console::args::Global;
use crate::console::failure::Failure;
use crate::demo::journal::JournalEntry;
use crate::demo::line::Line;
use crate::demo::worker;

/// A message about a worker.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// A line of the worker.
    Line(JournalEntry),
    /// The worker has ended, and sends no further line.
    Exited(usize),
}

enum Worker {
    Process { child: Child, stdin: ChildStdin },
    Runtime { runtime: Runtime, stop: oneshot::Sender<()>, ended: oneshot::Receiver<()> },
}

pub(crate) struct Workers {
    global: Global,
    address: Address,
    /// The shared store of workers in this process.
    memory: Option<OpenStore>,
    began: Instant,
    messages: mpsc::UnboundedSender<WorkerMessage>,
    workers: BTreeMap<usize, Worker>,
    next: usize,
}

impl Workers {
    pub(crate) fn new(
        global: &Global,
        address: &Address,
        memory: Option<OpenStore>,
        began: Instant,
    ) -> (Self, mpsc::UnboundedReceiver<WorkerMessage>) {
        let (messages, received) = mpsc::unbounded_channel();
        let (global, address) = (global.clone(), address.clone());
        (
            Self { global, address, memory, began, messages, workers: BTreeMap::new(), next: 1 },
            received,
        )
    }

    /// The numbers of the running workers.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.workers.keys().copied().collect()
    }

    /// Starts another worker.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        let number = self.next;
        self.next += 1;
        let worker = match self.memory.clone() {
            Some(store) => self.start_runtime(number, store),
            None => self.start_process(number),
        };
        let worker = worker.map_err(|error| {
            Failure::misconfigured(format!("cannot start a worker of the demo: {error}"))
        })?;
        self.workers.insert(number, worker);
        Ok(())
    }

    fn start_process(&self, number: usize) -> std::io::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["demo-worker", "--worker", &number.to_string(), "--domain"]);
        command.arg(&self.global.domain);
        self.global.access.hand_on(command.as_std_mut());
        // Logins go into the environment, because all users of the machine can see arguments.
        command.env("TXN_BANK_STORE", self.address.secret_text());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let missing = || std::io::Error::other("it has no pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let (messages, began) = (self.messages.clone(), self.began);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(text)) = lines.next_line().await {
                // A kill may cut the last line short.
                if let Ok(line) = serde_json::from_str::<Line>(&text) {
                    let entry = JournalEntry { at: began.elapsed(), worker: number, line };
                    let _ = messages.send(WorkerMessage::Line(entry));
                }
            }
            let _ = messages.send(WorkerMessage::Exited(number));
        });
        Ok(Worker::Process { child, stdin })
    }

    fn start_runtime(&self, number: usize, store: OpenStore) -> std::io::Result<Worker> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let (messages, began) = (self.messages.clone(), self.began);
        let send = move |line: Line| {
            let entry = JournalEntry { at: began.elapsed(), worker: number, line };
            let _ = messages.send(WorkerMessage::Line(entry));
        };
        let domain = self.global.domain.clone();
        runtime.spawn(async move {
            let config = worker::worker_config(send.clone());
            match Bank::open(store.store.clone(), &domain, config).await {
                Ok(bank) => {
                    let stopped = async {
                        let _ = stopped.await;
                    };
                    Box::pin(worker::work(&bank, number, send, stopped)).await;
                }
                Err(error) => send(Line::Failed { why: error.to_string() }),
            }
            let _ = end.send(());
        });
        Ok(Worker::Runtime { runtime, stop, ended })
    }

    /// Kills a worker by SIGKILL, or by the drop of its runtime.
    ///
    /// Returns after the worker is dead.
    pub(crate) async fn kill(&mut self, number: usize) {
        match self.workers.remove(&number) {
            Some(Worker::Process { mut child, stdin }) => {
                let _ = child.start_kill();
                let _ = child.wait().await;
                drop(stdin);
            }
            Some(Worker::Runtime { runtime, .. }) => {
                runtime.shutdown_background();
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = self.messages.send(WorkerMessage::Exited(number));
            }
            None => {}
        }
    }

    /// Stops all workers, and waits until their commits are applied.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        let limit = Duration::from_secs(45);
        let mut all = Vec::new();
        for (number, worker) in std::mem::take(&mut self.workers) {
            let worker = match worker {
                Worker::Process { child, stdin } => {
                    drop(stdin);
                    Stopping::Process(child)
                }
                Worker::Runtime { runtime, stop, ended } => {
                    let _ = stop.send(());
                    Stopping::Runtime(runtime, ended)
                }
            };
            all.push((number, worker));
        }
        let mut late = None;
        for (number, worker) in all {
            let in_time = match worker {
                Stopping::Process(mut child) => {
                    let exit = tokio::time::timeout(limit, child.wait()).await;
                    matches!(exit, Ok(Ok(status)) if status.success())
                }
                Stopping::Runtime(runtime, ended) => {
                    let ended = tokio::time::timeout(limit, ended).await;
                    runtime.shutdown_background();
                    let _ = self.messages.send(WorkerMessage::Exited(number));
                    ended.is_ok()
                }
            };
            if !in_time {
                late = Some(number);
            }
        }
        match late {
            None => Ok(()),
            Some(number) => {
                Err(Failure::misconfigured(format!("worker {number} did not end as it should")))
            }
        }
    }
}

enum Stopping {
    Process(Child),
    Runtime(Runtime, oneshot::Receiver<()>),
}

/// Shuts runtimes down in the background, because a plain drop would block.
impl Drop for Workers {
    fn drop(&mut self) {
        for (_, worker) in std::mem::take(&mut self.workers) {
            if let Worker::Runtime { runtime, .. } = worker {
                runtime.shutdown_background();
            }
        }
    }
}
