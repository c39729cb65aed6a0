//! The configuration file: defaults for options of all verbs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use toml::{Table, Value};

use crate::args::{CONFIG, Cli};

/// The largest file, in bytes.
const LARGEST: u64 = 1 << 20;

/// The options that the file may give.
const OPTIONS: [&str; 12] = [
    "store",
    "domain",
    "lease",
    "limit",
    "ca-cert",
    "ca-fingerprint",
    "client-cert",
    "client-key",
    "api-key",
    "api-key-file",
    "bearer-token",
    "bearer-token-file",
];

/// The option with a list of headers.
const HEADER: &str = "header";

/// The options that log in. One of them given elsewhere replaces all of the file.
const LOGINS: [&str; 5] =
    ["api-key", "api-key-file", "bearer-token", "bearer-token-file", "aws-sigv4"];

/// The environment variables that log in.
const LOGIN_VARIABLES: [&str; 2] = ["TXN_API_KEY", "TXN_BEARER_TOKEN"];

/// Returns the command line, with the configuration as its defaults.
///
/// # Errors
/// If the file cannot be read, or has an unknown key. The error repeats no value, because values
/// may be secret.
pub(crate) fn command() -> Result<Command, clap::Error> {
    let command = Cli::command();
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let Some(path) = path(&arguments) else { return Ok(command) };
    let refuse = |why: String| {
        let message = format!("the configuration {}: {why}\n", path.display());
        clap::Error::raw(ErrorKind::ValueValidation, message)
    };
    let text = read(&path).map_err(&refuse)?;
    let has_login = LOGIN_VARIABLES.iter().any(|name| env::var_os(name).is_some())
        || arguments.iter().any(is_login);
    with_defaults(command, &text, has_login).map_err(refuse)
}

/// Returns the path by the command line or the environment.
///
/// Otherwise the path is the usual one, if that file exists.
fn path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--") => break,
            Some("--config") => return rest.next().map(PathBuf::from),
            Some(argument) => {
                if let Some(path) = argument.strip_prefix("--config=") {
                    return Some(path.into());
                }
            }
            None => {}
        }
    }
    if let Some(path) = env::var_os(CONFIG).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let folder = match env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&env::var_os("HOME")?).join(".config"),
    };
    Some(folder.join("txn/config.toml")).filter(|path| path.is_file())
}

fn is_login(argument: &OsString) -> bool {
    let argument = argument.to_string_lossy();
    let name = argument.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or(rest));
    name.is_some_and(|name| LOGINS.contains(&name))
}

fn read(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match u64::try_from(text.len()) {
        Ok(bytes) if bytes <= LARGEST => Ok(text),
        _ => Err("it is larger than 1 MiB".to_owned()),
    }
}

/// Sets the values of a file as defaults. `has_login`: logins of the file do not count.
fn with_defaults(command: Command, text: &str, has_login: bool) -> Result<Command, String> {
    // The message of the parser would repeat a line of the file.
    let table: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        format!("line {line} is no TOML")
    })?;
    let mut command = command;
    for (name, value) in table {
        if has_login && LOGINS.contains(&&*name) {
            continue;
        }
        let text = match &value {
            Value::String(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string()),
            Value::Array(lines) if name == HEADER => {
                let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
                lines.map(|lines| lines.join("\n"))
            }
            _ => None,
        };
        if name != HEADER && !OPTIONS.contains(&&*name) {
            let known = OPTIONS.join(", ");
            return Err(format!("{name} is no option of it; known are {known}, {HEADER}"));
        }
        let text = text.ok_or_else(|| format!("{name} is no text and no whole number"))?;
        // The few values live as long as the process.
        let text: &'static str = text.leak();
        command = command.mut_arg(name.replace('-', "_"), |argument| {
            argument.default_value(text).hide_default_value(true)
        });
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn parsed(text: &str, words: &str, has_login: bool) -> Cli {
        let command = with_defaults(Cli::command(), text, has_login).expect("a configuration");
        let words = ["txn"].into_iter().chain(words.split_whitespace());
        let matches = command.try_get_matches_from(words).expect("a command line");
        Cli::from_arg_matches(&matches).expect("a command line")
    }

    const FILE: &str = "domain = 'shop'\nlease = 7\nstore = 'redb:a.redb'\napi-key = 's3cret'\n";

    #[test]
    fn options_have_more_weight_than_the_file() {
        let global = parsed(FILE, "status", false).global;
        assert_eq!((global.domain.as_deref(), global.lease), (Some("shop"), 7));
        assert_eq!(global.store.map(|store| store.to_string()).as_deref(), Some("redb:a.redb"));
        let global = parsed(FILE, "--domain other --lease 9 status", false).global;
        assert_eq!((global.domain.as_deref(), global.lease), (Some("other"), 9));
        let headers = "header = ['A: b', 'C: d']";
        assert!(format!("{:?}", parsed(headers, "status", false).global).contains("[***, ***]"));
    }

    #[test]
    fn login_given_elsewhere_replaces_that_of_the_file() {
        let shown = |cli: Cli| format!("{:?}", cli.global.access);
        assert!(shown(parsed(FILE, "status", false)).contains("api_key: Some(***)"));
        assert!(shown(parsed(FILE, "status", true)).contains("api_key: None"));
        assert!(is_login(&"--api-key-file=x".into()) && !is_login(&"api-key".into()));
    }

    #[test]
    fn errors_of_the_file_repeat_no_value() {
        for (text, words) in [
            ("domain = 's3cret", "line 1 is no TOML"),
            ("lease = 7\nx y s3cret", "line 2 is no TOML"),
            ("password = 's3cret'", "password is no option"),
            ("lease = ['s3cret']", "lease is no text"),
        ] {
            let error = with_defaults(Cli::command(), text, false).expect_err("no configuration");
            assert!(error.contains(words) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn help_does_not_show_values_of_the_file() {
        let mut command = with_defaults(Cli::command(), FILE, false).expect("a configuration");
        let help = command.render_long_help().to_string();
        assert!(!help.contains("s3cret"), "{help}");
    }
}
