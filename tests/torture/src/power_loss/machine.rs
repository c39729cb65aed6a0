//! Nodes on lossy disks, which lose their power together.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use txn_lossy_disk::{Disk, Loss, Metadata, Power, check};
use txn_testkit::servers::{self, Error, Node, Running, ServerKind, up_private_with};

use super::schedule::Again;

/// The maximum time for a number of changes. The load or a start makes the changes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Private nodes with one power supply. Each node has a disk of its own. All functions block.
#[derive(Debug)]
pub struct Machine {
    power: Power,
    /// Unmounted before the server is removed.
    disks: Vec<Disk>,
    running: Running,
}

impl Machine {
    /// Starts the nodes of this kind.
    ///
    /// # Errors
    /// If this process cannot mount disks, or the nodes do not start.
    pub fn start(kind: ServerKind, metadata: Metadata) -> Result<Self, String> {
        check()?;
        let (power, mut disks) = (Power::default(), Vec::new());
        let mount = |nodes: &[Node]| -> servers::Result<()> {
            for node in nodes {
                let disk = Disk::mount(node.data_dir(), metadata, &power);
                disks.push(disk.map_err(|error| Error::Other(format!("no disk: {error}")))?);
            }
            Ok(())
        };
        let running = up_private_with(kind, mount).map_err(|error| error.to_string())?;
        Ok(Self { power, disks, running })
    }

    /// Returns the addresses of the nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.running.urls()
    }

    /// Returns the switch for the power of all nodes.
    #[must_use]
    pub fn power(&self) -> Power {
        self.power.clone()
    }

    /// Cuts the power, kills all nodes, and loses what was not synced.
    ///
    /// # Errors
    /// If a node survives.
    pub fn fail(&mut self, random: &mut Rng) -> Result<Loss, String> {
        self.power.cut();
        kill_all(self.running.nodes())?;
        let mut loss = Loss::default();
        for disk in &mut self.disks {
            loss += disk.lose(random).map_err(|error| error.to_string())?;
        }
        self.power.restore();
        Ok(loss)
    }

    /// Starts all nodes, and waits until they are healthy.
    ///
    /// # Errors
    /// If a node does not become healthy.
    pub fn restart(&mut self) -> Result<(), String> {
        self.running.restart().map_err(|error| error.to_string())
    }

    /// Starts all nodes, until the power fails again.
    ///
    /// # Errors
    /// If a node survives.
    pub(super) fn restart_and_fail(
        &mut self,
        again: Again,
        random: &mut Rng,
    ) -> Result<Loss, String> {
        let (power, nodes) = (self.power.clone(), self.running.nodes().to_vec());
        let failing = thread::spawn(move || {
            match again {
                Again::AtChange(changes) => cut_at_change(&power, changes),
                Again::After(after) => {
                    let before = power.changes();
                    wait_until(PATIENCE, || power.changes() > before);
                    thread::sleep(after);
                    power.cut();
                }
            }
            kill_all(&nodes)
        });
        // The start fails, unless it was faster.
        let _ = self.running.restart();
        failing.join().map_err(|_| "the power did not fail".to_owned())??;
        self.fail(random)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A disk in use cannot be unmounted.
        let _ = kill_all(self.running.nodes());
    }
}

/// Cuts the power after this number of changes, or after a while.
pub(super) fn cut_at_change(power: &Power, changes: u64) {
    power.cut_after(changes);
    wait_until(PATIENCE, || !power.is_on());
    power.cut();
}

fn wait_until(limit: Duration, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() && began.elapsed() < limit {
        thread::sleep(Duration::from_millis(10));
    }
}

fn kill_all(nodes: &[Node]) -> Result<(), String> {
    nodes.iter().try_for_each(Node::kill_all).map_err(|error| error.to_string())
}
