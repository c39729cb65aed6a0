//! `cargo xtask`: the servers that tests need, and every check in one command.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for a in std::env::args().skip(1) {
        let running = txn_testkit::servers::up(a.parse()?)?;
        for (name, value) in running.variables() {
            println!("{name}={value}");
        }
    }
    Ok(())
}
