//! Settings of the dispatcher: allowed requests, limits and retries.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use reqwest::Url;

use crate::config::setters;
use crate::error::{OutboxError, Result};
use crate::http::delivery::address::{
    Resolver, SystemResolver, embedded, is_nat64_prefix, is_special, is_translated,
};
use crate::http::delivery::retries::{DAY, Retries, Retry};
use crate::http::request::{HttpRequest, Method, origin};
use crate::http::secret::{NoSecrets, Secrets};

/// An allowed destination: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    scheme: String,
    host: String,
    port: u16,
    networks: Vec<IpNet>,
}

impl Destination {
    /// Creates a destination from an origin.
    ///
    /// Examples: `https://api.example.com`, `http://10.1.2.3:8080`. If the host is an address, the
    /// destination allows this address.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`] if the text is not an origin.
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

    /// Allows an address or a network outside of the public internet.
    ///
    /// Example of a network: `10.1.0.0/16`. The name of the destination may then resolve to such an
    /// address.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`] if the text is neither.
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

    /// Whether a call may connect to this address.
    ///
    /// If the address embeds another address, for example that of a translator, both must be
    /// allowed. An allowed prefix of a translator therefore allows no address after the prefix.
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

/// The host of a URL as an address, if it is one.
pub(crate) fn address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Settings of a [`Dispatcher`](crate::http::Dispatcher). By default no request is allowed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpConfig {
    /// The allowed destinations. Default: none.
    pub destinations: Vec<Destination>,
    /// The allowed methods. Default: POST, PUT, PATCH and DELETE.
    pub methods: BTreeSet<Method>,
    /// The allowed headers of a request. Default: `accept`, `authorization` and `content-type`.
    pub headers: BTreeSet<String>,
    /// The maximum size of a request as JSON. Default: 256 KiB.
    pub max_request: usize,
    /// How long a call may take, including the lookup of secrets.
    ///
    /// A processor drops a handler beyond the limit of the processor. Keep that limit well above
    /// twice this one. Default: 20 s.
    pub limit: Duration,
    /// The maximum number of concurrent calls of this dispatcher.
    ///
    /// A request that waits for more than one second is retried later, and the wait does not count
    /// as a failure. Default: 16.
    pub concurrency: usize,
    /// The maximum number of concurrent calls to one host and port.
    ///
    /// The limit leaves calls for other destinations if one destination does not answer. Default:
    /// half of `concurrency`, at least one.
    pub per_destination: Option<usize>,
    /// The retries of a request, by the status of its answer. Default: [`Retries::default`].
    pub retries: Retries,
    /// The retries of a request without an answer. Default: for one day.
    ///
    /// Causes are refused and broken connections, and answers beyond `limit`.
    pub unanswered: Retry,
    /// How long a request is retried during an outage. Default: one day.
    ///
    /// An outage is a host that cannot be resolved, or a secret that cannot be looked up. The time
    /// starts at the first try. Afterwards the request becomes a dead letter.
    pub longest_outage: Duration,
    /// The longest pause that an answer may request by `Retry-After`. Default: five minutes.
    pub longest_retry_after: Duration,
    /// The headers of an answer that its result keeps.
    ///
    /// The result keeps up to 256 characters of each. A call reads at most some hundred KiB of
    /// headers. Default: `content-type`, `location` and `retry-after`.
    pub result_headers: BTreeSet<String>,
    /// The number of bytes of an answer's body that its result keeps. Default: 0.
    pub result_body: usize,
    /// The source of the secrets. Default: none.
    pub secrets: Arc<dyn Secrets>,
    /// The resolver of host names. Default: that of the operating system.
    pub resolver: Arc<dyn Resolver>,
    /// The NAT64 prefixes of this network, in addition to `64:ff9b::/96`. Default: none.
    ///
    /// For an address with such a prefix the embedded IPv4 address decides. Without this setting
    /// the address counts as public.
    pub nat64: Vec<Ipv6Net>,
    /// Trusted certificate authorities in PEM, in addition to the usual ones. Default: none.
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

/// The maximum number of stored bytes of a body.
const MOST_BODY: usize = 64 << 10;

impl HttpConfig {
    /// Checks a request in advance: a dispatcher with these settings calls its URL.
    ///
    /// # Errors
    /// [`OutboxError::InvalidHttp`] with the reason, for example a URL of no destination.
    pub fn admit(&self, request: &HttpRequest) -> Result<()> {
        self.allowed(request).map(drop).map_err(OutboxError::InvalidHttp)
    }

    /// The URL and its destination, if these settings allow the request.
    pub(crate) fn allowed(&self, request: &HttpRequest) -> Result<(Url, &Destination), String> {
        let url = request.check(self.max_request)?;
        let destination = self.destinations.iter().find(|destination| destination.is_of(&url));
        let Some(destination) = destination else {
            let to = origin(&url);
            return Err(format!("{to} is not among the destinations that may be called"));
        };
        if !self.methods.contains(&request.method) {
            let method = request.method.name();
            return Err(format!("{method} is not among the methods that may be used"));
        }
        let is_listed =
            |name: &&String| self.headers.iter().any(|listed| listed.eq_ignore_ascii_case(name));
        if let Some(name) = request.headers.keys().find(|name| !is_listed(name)) {
            return Err(format!("the header {name:?} is not among those that may be sent"));
        }
        Ok((url, destination))
    }

    /// The maximum number of concurrent calls to one destination.
    pub(crate) fn most_of_destination(&self) -> usize {
        self.per_destination.unwrap_or((self.concurrency / 2).max(1))
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// [`OutboxError::InvalidConfig`] with the reason.
    pub fn check(&self) -> Result<()> {
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
        // The embedded address decides for addresses of a translator.
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
        // An address has several notations.
        let itself = Destination::new("http://127.0.0.1:80").unwrap();
        assert!(itself.is_of(&url("http://0x7f.1/")) && admits(&itself, "127.0.0.1"));
        assert!(admits(&Destination::new("http://[::1]:80").unwrap(), "::1"));
    }
}
