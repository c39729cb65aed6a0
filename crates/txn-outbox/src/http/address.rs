//! Names to addresses, and which addresses are not of the public internet.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use async_trait::async_trait;
use ipnet::{Ipv4Net, Ipv6Net};

/// Networks of the special-purpose registry (RFC 6890 and its successors), multicast, and what is reserved.
const SPECIAL_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

/// What IPv6 has of global unicast. All else is special: loopback, unspecified, link-local, unique-local, multicast, and
/// addresses with one of IPv4 in them (mapped, translated).
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0], 3);

/// What is special within it: protocol assignments (Teredo among them), documentation, 6to4.
const SPECIAL_V6: [Ipv6Net; 4] =
    [v6([0x2001, 0], 23), v6([0x2001, 0xdb8], 32), v6([0x2002, 0], 16), v6([0x3fff, 0], 20)];

const fn v4(octets: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), length)
}

const fn v6([a, b]: [u16; 2], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// Whether an address is not of the public internet.
pub(crate) fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            !GLOBAL_V6.contains(&address)
                || SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

/// Finds the addresses of a name. Asked once for each call.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// The addresses of a host.
    ///
    /// # Errors
    /// There are none, or nobody can tell now.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, port)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_not_special() {
        for special in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
        ] {
            assert!(is_special(special.parse().unwrap()), "{special}");
        }
        for public in [
            "8.8.8.8",
            "100.63.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1",
            "2a00::1",
        ] {
            assert!(!is_special(public.parse().unwrap()), "{public}");
        }
    }
}
