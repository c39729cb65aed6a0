//! `cargo xtask console`: the console of the gateway in a headless Chromium.

use std::process::{Command, Stdio};

use crate::Failure;
use crate::cargo::{cargo, target};

/// The name of the test.
const TEST: &str = "browser::console_works_in_a_browser";

/// Runs the test, which leaves pictures of the pages in `target/console`.
///
/// `seconds`: the time of the load before the picture of the plots.
pub(crate) fn test(seconds: u64) -> Result<(), Failure> {
    for program in ["chromium", "chromedriver"] {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            let packages = "apt-get install chromium chromium-driver";
            return Err(format!("{program} is missing: `{packages}`").into());
        }
    }
    let pictures = target().join("console");
    let mut command = cargo("test -p txn-cli --test all");
    command.args([TEST, "--", "--ignored", "--exact"]).env("TXN_PICTURES", &pictures);
    command.env("TXN_LOAD_SECONDS", seconds.to_string());
    match command.status()?.success() {
        true => {
            println!("The pictures are in {}.", pictures.display());
            Ok(())
        }
        false => Err("the console does not work in a browser".into()),
    }
}
