//! Other processes of this program, which end with their values.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Failure;

/// Another process of this program.
#[derive(Debug)]
pub(super) struct Spawned {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Spawned {
    /// Starts this program with arguments.
    pub(super) fn start(arguments: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, output })
    }

    /// The next line of the output. Blocks until it comes.
    pub(super) fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("another process of the benchmark has ended".into()),
            _ => Ok(line),
        }
    }

    /// Writes an empty line to the input.
    pub(super) fn send_line(&mut self) -> Result<(), Failure> {
        Ok(self.child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?)
    }

    /// Ends the input, and waits for the end of the process.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        match self.child.wait()?.success() {
            true => Ok(()),
            false => Err("another process of the benchmark has failed".into()),
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // A process that has ended is left alone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
