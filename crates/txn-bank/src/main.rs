//! The command `txn-bank`. See `txn-bank --help`.

mod cli;
mod console;
mod demo;

fn main() -> std::process::ExitCode {
    cli::main()
}
