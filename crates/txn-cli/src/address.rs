//! The address of a store on the command line.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use txn_es::EsConfig;

/// The address of a store. Printed without user and password.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// An embedded file.
    Redb(PathBuf),
    /// The memory of this process.
    Memory,
    /// Servers by their addresses.
    Servers(Vec<String>),
    /// A deployment by its cloud id.
    Cloud(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("redb:") {
            return match path {
                "" => Err("name a file: redb:PATH".to_owned()),
                path => Ok(Self::Redb(path.into())),
            };
        }
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        if let Some(id) = text.strip_prefix("cloud:") {
            return match EsConfig::from_cloud_id(id) {
                Ok(_) => Ok(Self::Cloud(id.to_owned())),
                Err(error) => Err(error.message),
            };
        }
        let scheme = ["http://", "https://"].into_iter().find(|scheme| text.starts_with(scheme));
        let Some(scheme) = scheme else {
            return Err("use redb:PATH, memory:, http(s)://host:port, or cloud:ID".to_owned());
        };
        let whole = |part: &str| match part.contains("://") {
            true => part.to_owned(),
            false => format!("{scheme}{part}"),
        };
        let urls: Vec<String> =
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(whole).collect();
        for url in &urls {
            check_server(url, &urls[0])?;
        }
        // The error concerns one address, but its text may quote the login.
        EsConfig::new(&urls).map_err(|_| SERVERS.to_owned())?;
        Ok(Self::Servers(urls))
    }
}

const SERVERS: &str = "write http(s)://[user:password@]host:port[,host:port…], with /prefix after the port if a proxy needs it";

/// Refuses an address if its login has no clear end.
///
/// A part of the login would otherwise count as the host, and be printed.
fn check_server(url: &str, first: &str) -> Result<(), String> {
    let login = |url: &str| url.matches('@').count();
    let rest = url.split("://").nth(1).unwrap_or_default();
    let behind_host = rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]);
    if login(url) > 1 || behind_host.contains('@') {
        return Err("write each of / ? # @ in a user or a password as %2F %3F %23 %40".to_owned());
    }
    if login(url) > login(first) {
        return Err(
            "only a later server has a login: give it to the first, and write a comma in a \
                    user or a password as %2C"
                .to_owned(),
        );
    }
    if behind_host.contains(['?', '#']) {
        return Err(SERVERS.to_owned());
    }
    Ok(())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redb(path) => write!(f, "redb:{}", path.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Servers(urls) => {
                let shown: Vec<String> = urls.iter().map(|url| without_login(url)).collect();
                f.write_str(&shown.join(","))
            }
            // The name is for operators. The rest has no secret, and no use for operators.
            Self::Cloud(id) => {
                write!(f, "cloud:{}", id.split(':').next().unwrap_or_default())
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Address {
    /// Returns the address with its login.
    ///
    /// The address is for the environment of a child.
    #[must_use]
    pub fn secret_text(&self) -> String {
        match self {
            Self::Servers(urls) => urls.join(","),
            Self::Cloud(id) => format!("cloud:{id}"),
            other => other.to_string(),
        }
    }
}

/// Scheme, host and port. The rest of an address may be secret.
fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}")
}

/// Parses an address. Errors never repeat it, because it may have a password.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressParser;

impl TypedValueParser for AddressParser {
    type Value = Address;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Address, clap::Error> {
        let address = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
        address.and_then(str::parse).map_err(|why| {
            let message = format!("--store is no address of a store: {why}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_their_login() {
        let cases = [
            ("redb:a b.redb", "redb:a b.redb"),
            ("memory:", "memory:"),
            ("http://db:9200", "http://db:9200"),
            ("https://u:s3cret@a:9200,u:s3cret@b:9201", "https://a:9200,https://b:9201"),
            ("http://u:s3cret@h/path,h2/path/", "http://h,http://h2"),
            // Decodes to eu.example.com$0a1b$2c3d.
            ("cloud:shop:ZXUuZXhhbXBsZS5jb20kMGExYiQyYzNk", "cloud:shop"),
        ];
        for (text, shown) in cases {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.to_string(), shown);
        }
        for text in [
            "redb:",
            "memory",
            "ftp://u:s3cret@h",
            "http://u:s3cret@h:x",
            "http://u:s3@cret@h",
            "http://u:s3/cret@h",
            "http://u:s3?cret@h",
            "http://u:s3#cret@h",
            "http://u:s3cret,1@h",
            "http://u:1,s3cret@h",
            "http://u:1,s3cret@h:1,h:2",
            "http://u:s3cret@h/path?s3cret",
            "cloud:",
            "cloud:s3cret",
            "cloud:shop:s3cret!",
            "",
        ] {
            let error = text.parse::<Address>().expect_err("no address");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
