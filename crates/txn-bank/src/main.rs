//! The command `txn-bank`: see `txn-bank --help`.

mod cli;
mod console;
mod demo;

fn main() -> std::process::ExitCode {
    cli::main()
}
