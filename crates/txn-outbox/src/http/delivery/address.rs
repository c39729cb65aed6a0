//! Name resolution, and the classification of addresses as public or special.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use async_trait::async_trait;
use ipnet::{Ipv4Net, Ipv6Net};

/// The special IPv4 networks.
///
/// The list has the special-purpose registry (RFC 6890 and successors), multicast and reserved
/// networks.
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

/// The global unicast addresses of IPv6. All other addresses are special.
///
/// Special are loopback, unspecified, link-local, unique-local, multicast, and addresses with an
/// embedded IPv4 address (mapped, translated).
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0], 3);

/// The special networks within [`GLOBAL_V6`].
///
/// The list has protocol assignments (with Teredo), documentation, and 6to4.
const SPECIAL_V6: [Ipv6Net; 4] =
    [v6([0x2001, 0], 23), v6([0x2001, 0xdb8], 32), v6([0x2002, 0], 16), v6([0x3fff, 0], 20)];

const fn v4(octets: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), length)
}

const fn v6([a, b]: [u16; 2], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// The well-known prefix of translators from IPv6 to IPv4 (RFC 6052).
const NAT64: Ipv6Net = v6([0x64, 0xff9b], 96);

/// IPv4 addresses in the notation of IPv6.
const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);

/// Tunnels with an IPv4 address after the prefix of each address (6to4).
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0], 16);

/// The embedded IPv4 address, which receives the packets to an IPv6 address.
///
/// `nat64` has further prefixes of translators, with prefix lengths of RFC 6052.
pub(crate) fn embedded(address: IpAddr, nat64: &[Ipv6Net]) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let octets = address.octets();
    let at = |places: [usize; 4]| Some(Ipv4Addr::from(places.map(|place| octets[place])));
    if MAPPED.contains(&address) {
        return at([12, 13, 14, 15]);
    }
    if SIX_TO_FOUR.contains(&address) {
        return at([2, 3, 4, 5]);
    }
    let prefix = nat64.iter().chain([&NAT64]).find(|prefix| prefix.contains(&address))?;
    // The address skips the ninth octet.
    match prefix.prefix_len() {
        32 => at([4, 5, 6, 7]),
        40 => at([5, 6, 7, 9]),
        48 => at([6, 7, 9, 10]),
        56 => at([7, 9, 10, 11]),
        64 => at([9, 10, 11, 12]),
        _ => at([12, 13, 14, 15]),
    }
}

/// Whether a translator can have this prefix (RFC 6052).
pub(crate) fn is_nat64_prefix(prefix: &Ipv6Net) -> bool {
    [32, 40, 48, 56, 64, 96].contains(&prefix.prefix_len())
}

/// Whether an address has the well-known prefix of translators.
///
/// An address with this prefix is public if the embedded address is public.
pub(crate) fn is_translated(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if NAT64.contains(&address))
}

/// Whether an address is outside of the public internet.
pub(crate) fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            !GLOBAL_V6.contains(&address)
                || SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

/// Resolves the name of a host, once per call.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Returns the addresses of a host.
    ///
    /// # Errors
    /// The host has no address, or the resolution failed.
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
    fn embedded_ipv4_address_is_found() {
        let own: Vec<Ipv6Net> = [
            "2a00:1:2::/96",
            "2a00:2::/32",
            "2a00:3::/40",
            "2a00:4::/48",
            "2a00:5::/56",
            "2a00:6::/64",
        ]
        .map(|prefix| prefix.parse().unwrap())
        .into();
        assert!(own.iter().all(is_nat64_prefix) && !is_nat64_prefix(&"2a00::/33".parse().unwrap()));
        for (address, inside) in [
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("2002:a01:203::1", "10.1.2.3"),
            ("64:ff9b::a01:203", "10.1.2.3"),
            ("2a00:1:2::a01:203", "10.1.2.3"),
            // The examples of RFC 6052.
            ("2a00:2:c000:221::", "192.0.2.33"),
            ("2a00:3:c0:2:21::", "192.0.2.33"),
            ("2a00:4:0:c000:2:2100::", "192.0.2.33"),
            ("2a00:5:0:c0:0:221::", "192.0.2.33"),
            ("2a00:6::c0:2:2100:0", "192.0.2.33"),
        ] {
            let found = embedded(address.parse().unwrap(), &own);
            assert_eq!(found, Some(inside.parse().unwrap()), "{address}");
        }
        for address in ["10.1.2.3", "2a00:1:3::a01:203", "2606:4700::1", "::1"] {
            assert_eq!(embedded(address.parse().unwrap(), &own), None, "{address}");
        }
    }

    #[test]
    fn only_public_addresses_are_not_special() {
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
