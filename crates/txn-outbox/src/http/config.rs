//! What may be called, and within which bounds.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use reqwest::Url;

use crate::config::setters;
use crate::error::{OutboxError, Result};
use crate::http::address::{
    Resolver, SystemResolver, embedded, is_nat64_prefix, is_special, is_translated,
};
use crate::http::request::Method;
use crate::http::retries::{DAY, Retries, Retry};
use crate::http::secret::{NoSecrets, Secrets};

/// Somewhere that may be called: a scheme, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    scheme: String,
    host: String,
    port: u16,
    networks: Vec<IpNet>,
}

impl Destination {
    /// A destination by its origin, such as `https://api.example.com` or `http://10.1.2.3:8080`. One that is an address
    /// itself lists that address.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`] if it is no origin.
    pub fn new(origin: &str) -> Result<Self> {
        let refuse = || {
            OutboxError::InvalidConfig("a destination is no origin such as https://api.example.com")
        };
        let url = Url::parse(origin).map_err(|_| refuse())?;
        let is_origin = matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && matches!(url.scheme(), "http" | "https");
        let (Some(host), Some(port), true) =
            (url.host_str(), url.port_or_known_default(), is_origin)
        else {
            return Err(refuse());
        };
        let networks = address(&url).map(IpNet::from).into_iter().collect();
        Ok(Self { scheme: url.scheme().to_owned(), host: host.to_owned(), port, networks })
    }

    /// Lists an address, or a network such as `10.1.0.0/16`, that its name may have although it is not of the public
    /// internet.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`] if it is neither.
    pub fn with_address(mut self, network: &str) -> Result<Self> {
        let address = || network.parse::<IpAddr>().map(IpNet::from);
        let network = network.parse::<IpNet>().or_else(|_| address()).map_err(|_| {
            OutboxError::InvalidConfig(
                "a network is neither an address nor one such as 10.1.0.0/16",
            )
        })?;
        self.networks.push(network);
        Ok(self)
    }

    pub(crate) fn host_and_port(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }

    pub(crate) fn is_of(&self, url: &Url) -> bool {
        url.scheme() == self.scheme
            && url.host_str() == Some(&*self.host)
            && url.port_or_known_default() == Some(self.port)
    }

    /// Whether an address may be called. One inside of which another stands (of a translator, for
    /// instance) may be only if that may be as well: to list the prefix of a translator opens
    /// nothing behind it.
    pub(crate) fn admits(&self, address: IpAddr, nat64: &[Ipv6Net]) -> bool {
        let lists = |address| self.networks.iter().any(|network| network.contains(&address));
        let is_open = |address| !is_special(address) || lists(address);
        match embedded(address, nat64) {
            Some(inside) => {
                (is_translated(address) || is_open(address)) && is_open(IpAddr::V4(inside))
            }
            None => is_open(address),
        }
    }
}

/// The address that is the host of a URL, if it is one.
pub(crate) fn address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// What a [`Dispatcher`](crate::http::Dispatcher) may call, and within which bounds. By default it may call nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Where it may call. Default nowhere.
    pub destinations: Vec<Destination>,
    /// The methods that it may use. Default POST, PUT, PATCH and DELETE.
    pub methods: BTreeSet<Method>,
    /// The headers that a request may have. Default `accept`, `authorization` and `content-type`.
    pub headers: BTreeSet<String>,
    /// Most bytes of a request as JSON. Default 256 KiB.
    pub max_request: usize,
    /// How long a call may take, from the looking up of secrets and names to the last byte that is read. Default 20 s. A
    /// processor drops what takes longer than its own limit: keep that well above twice this.
    pub limit: Duration,
    /// How many calls of this dispatcher may be under way. Whoever waits longer than a second for a place is tried later,
    /// and that does not count. Default 16.
    pub concurrency: usize,
    /// How many of them may go to one host and port, so that one that does not answer leaves places for others. Default half of
    /// all, and at least one.
    pub per_destination: Option<usize>,
    /// Whether and for how long a request is called again, by the status of its answer. Default [`Retries::default`].
    pub retries: Retries,
    /// The same of a request that is not answered: connections that are refused or break, and answers that come too late.
    /// Default for one day.
    pub unanswered: Retry,
    /// For how long after its first try a request is tried again while its host cannot be resolved, or a secret of it cannot be
    /// looked up. Then it is a dead letter. Default one day.
    pub longest_outage: Duration,
    /// The longest pause that an answer may ask for by `Retry-After`. Default five minutes.
    pub longest_retry_after: Duration,
    /// The headers of an answer that are kept with its result, each up to 256 characters. Default `content-type`, `location` and
    /// `retry-after`. However many it has, no more than some hundred KiB are read of them.
    pub result_headers: BTreeSet<String>,
    /// How many bytes of the body of an answer are read and kept with its result. Default none.
    pub result_body: usize,
    /// What knows the secrets. Default nothing.
    pub secrets: Arc<dyn Secrets>,
    /// What finds the addresses of names. Default the operating system.
    pub resolver: Arc<dyn Resolver>,
    /// Prefixes of this network's translators from IPv6 to IPv4 (NAT64), beside `64:ff9b::/96`: of
    /// an address behind one the address of IPv4 in it counts. Without it such an address passes
    /// for one of the public internet. Default none.
    pub nat64: Vec<Ipv6Net>,
    /// Certificate authorities that are trusted beside the usual ones, as PEM. Default none.
    pub certificate_authorities: Vec<String>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        let names = |names: [&str; 3]| names.into_iter().map(str::to_owned).collect();
        Self {
            destinations: Vec::new(),
            methods: [Method::Post, Method::Put, Method::Patch, Method::Delete].into(),
            headers: names(["accept", "authorization", "content-type"]),
            max_request: 256 << 10,
            limit: Duration::from_secs(20),
            concurrency: 16,
            per_destination: None,
            retries: Retries::default(),
            unanswered: Retry::For(DAY),
            longest_outage: DAY,
            longest_retry_after: Duration::from_secs(300),
            result_headers: names(["content-type", "location", "retry-after"]),
            result_body: 0,
            secrets: Arc::new(NoSecrets),
            resolver: Arc::new(SystemResolver),
            nat64: Vec::new(),
            certificate_authorities: Vec::new(),
        }
    }
}

setters! { HttpConfig:
    /// Sets [`HttpConfig::destinations`].
    with_destinations: destinations: Vec<Destination>;
    /// Sets [`HttpConfig::methods`].
    with_methods: methods: BTreeSet<Method>;
    /// Sets [`HttpConfig::headers`].
    with_headers: headers: BTreeSet<String>;
    /// Sets [`HttpConfig::max_request`].
    with_max_request: max_request: usize;
    /// Sets [`HttpConfig::limit`].
    with_limit: limit: Duration;
    /// Sets [`HttpConfig::concurrency`].
    with_concurrency: concurrency: usize;
    /// Sets [`HttpConfig::per_destination`].
    with_per_destination: per_destination: Option<usize>;
    /// Sets [`HttpConfig::retries`].
    with_retries: retries: Retries;
    /// Sets [`HttpConfig::unanswered`].
    with_unanswered: unanswered: Retry;
    /// Sets [`HttpConfig::longest_outage`].
    with_longest_outage: longest_outage: Duration;
    /// Sets [`HttpConfig::longest_retry_after`].
    with_longest_retry_after: longest_retry_after: Duration;
    /// Sets [`HttpConfig::result_headers`].
    with_result_headers: result_headers: BTreeSet<String>;
    /// Sets [`HttpConfig::result_body`].
    with_result_body: result_body: usize;
    /// Sets [`HttpConfig::secrets`].
    with_secrets: secrets: Arc<dyn Secrets>;
    /// Sets [`HttpConfig::resolver`].
    with_resolver: resolver: Arc<dyn Resolver>;
    /// Sets [`HttpConfig::nat64`].
    with_nat64: nat64: Vec<Ipv6Net>;
    /// Sets [`HttpConfig::certificate_authorities`].
    with_certificate_authorities: certificate_authorities: Vec<String>;
}

/// Most bytes of a body that are kept.
const MOST_BODY: usize = 64 << 10;

impl HttpConfig {
    /// How many calls may be under way to one destination.
    pub(crate) fn most_of_destination(&self) -> usize {
        self.per_destination.unwrap_or((self.concurrency / 2).max(1))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |why| Err(OutboxError::InvalidConfig(why));
        if self.concurrency == 0 || self.max_request == 0 || self.per_destination == Some(0) {
            return refuse("a bound is zero");
        }
        if self.limit.is_zero() || self.limit > Duration::from_secs(3600) {
            return refuse("the limit of a call is not between zero and an hour");
        }
        if !self.nat64.iter().all(is_nat64_prefix) {
            return refuse("the length of a NAT64 prefix is none of 32, 40, 48, 56, 64 and 96");
        }
        if self.result_body > MOST_BODY {
            return refuse("more than 64 KiB of a body would be kept");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_origins_and_list_addresses() {
        for wrong in [
            "",
            "a.example",
            "ftp://a.example",
            "https://a.example/x",
            "https://u@a.example",
            "https://a.example/?q",
        ] {
            assert!(Destination::new(wrong).is_err(), "{wrong}");
        }
        let url = |text: &str| Url::parse(text).unwrap();
        let place = Destination::new("https://a.example").unwrap();
        assert!(place.is_of(&url("https://A.example:443/x?y")));
        for other in [
            "http://a.example/",
            "https://a.example:444/",
            "https://b.a.example/",
            "https://a.example./",
        ] {
            assert!(!place.is_of(&url(other)), "{other}");
        }
        let own = ["2a00:1:2::/96".parse().unwrap()];
        let admits = |place: &Destination, text: &str| place.admits(text.parse().unwrap(), &own);
        assert!(admits(&place, "8.8.8.8") && !admits(&place, "10.0.0.1"));
        let inside =
            place.clone().with_address("10.0.0.0/24").unwrap().with_address("::1").unwrap();
        assert!(admits(&inside, "10.0.0.1") && admits(&inside, "::1"));
        assert!(!admits(&inside, "10.0.1.1") && !admits(&inside, "127.0.0.1"));
        // Behind a translator is what stands in the address.
        for translated in ["64:ff9b::", "2a00:1:2::"] {
            let of = |inside: &str| format!("{translated}{inside}");
            assert!(admits(&place, &of("8.8.8.8")) && !admits(&place, &of("10.0.0.1")));
            assert!(admits(&inside, &of("10.0.0.1")) && !admits(&inside, &of("169.254.169.254")));
        }
        let networks = ["64:ff9b::/96", "2002::/16", "::ffff:0:0/96"];
        let listed = networks
            .iter()
            .fold(place.clone(), |place, network| place.with_address(network).unwrap());
        for opened in ["64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:8.8.8.8"] {
            assert!(admits(&listed, opened), "{opened}");
        }
        for shut in
            ["64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "2002:a00:1::1", "::ffff:127.0.0.1"]
        {
            assert!(!admits(&listed, shut), "{shut}");
        }
        assert!(place.with_address("ten").is_err());
        // However an address is written.
        let itself = Destination::new("http://127.0.0.1:80").unwrap();
        assert!(itself.is_of(&url("http://0x7f.1/")) && admits(&itself, "127.0.0.1"));
        assert!(admits(&Destination::new("http://[::1]:80").unwrap(), "::1"));
    }
}
