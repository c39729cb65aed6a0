//! Free ports on 127.0.0.1.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;

use crate::servers::error::{Error, Result};

/// Ports below the range for outgoing connections.
///
/// So the port of a server stays free for its restart.
const GENERAL: RangeInclusive<u16> = 20_000..=31_999;

/// The OpenSearch runner accepts no HTTP port above this range.
const OPENSEARCH_HTTP: RangeInclusive<u16> = 9_202..=9_299;

/// Finds unused ports, each only once.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    given: BTreeSet<u16>,
}

impl Ports {
    /// Excludes these ports.
    pub(crate) fn except(taken: impl IntoIterator<Item = u16>) -> Self {
        Self { given: taken.into_iter().collect() }
    }

    /// Returns a port for any purpose.
    pub(crate) fn general(&mut self) -> Result<u16> {
        self.free(GENERAL)
    }

    /// Returns a port for the HTTP interface of OpenSearch.
    pub(crate) fn opensearch_http(&mut self) -> Result<u16> {
        self.free(OPENSEARCH_HTTP)
    }

    fn free(&mut self, range: RangeInclusive<u16>) -> Result<u16> {
        let (first, last) = (*range.start(), *range.end());
        let count = u64::from(last - first) + 1;
        // A random start, so that two concurrent searches find different ports.
        let begin = RandomState::new().hash_one(first) % count;
        (0..count)
            .filter_map(|step| u16::try_from((begin + step) % count).ok())
            .map(|offset| first + offset)
            .find(|&port| !self.given.contains(&port) && is_free(port))
            .inspect(|&port| {
                self.given.insert(port);
            })
            .ok_or_else(|| Error::Other(format!("no port from {first} to {last} is free")))
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let mut ports = Ports::default();
        let (one, two) = (ports.general().unwrap(), ports.general().unwrap());
        assert_ne!(one, two);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, one)).unwrap();
        assert!(!is_free(one));
        drop(taken);
        assert!(OPENSEARCH_HTTP.contains(&ports.opensearch_http().unwrap()));
    }

    #[test]
    fn ports_of_other_servers_are_not_given() {
        let last = *OPENSEARCH_HTTP.end();
        let mut ports = Ports::except(OPENSEARCH_HTTP.filter(|port| *port != last));
        match ports.opensearch_http() {
            Ok(port) => assert_eq!(port, last),
            // Another program uses the port.
            Err(error) => assert!(error.to_string().contains("is free"), "{error}"),
        }
    }
}
