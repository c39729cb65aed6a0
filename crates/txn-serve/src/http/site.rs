//! The site that sent a request.
//!
//! A browser sends the login of the gateway with the requests of any page. A page of another site
//! can reach a loopback address, even under a name of its own. No page can choose the headers that
//! tell its site, and a write without a site is no page's.

use std::net::IpAddr;

use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

use super::problem::{Code, Problem};

/// The header that relates a page's site to the request's site. A browser sends this header.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The connection of a request, as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The address of the client.
    pub(crate) client: Option<IpAddr>,
    /// Whether the listener has a loopback address.
    pub(crate) on_loopback: bool,
}

/// Refuses requests of other sites, and requests to another host on a loopback address.
///
/// A read of another site is harmless on other addresses, because the page cannot see the answer.
pub(crate) fn check_site(parts: &Parts) -> Result<(), Problem> {
    let on_loopback = parts.extensions.get::<Peer>().is_some_and(|peer| peer.on_loopback);
    if on_loopback && !is_local(parts) {
        let detail = "send the request from no other site, and to localhost or a loopback address";
        return Err(Problem::new(Code::Host, detail));
    }
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if !is_read && is_of_other_site(&parts.headers) {
        let detail = "the page of another site has sent the request: send it from a page of this \
                      gateway; a proxy for other pages takes off Sec-Fetch-Site and Origin";
        return Err(Problem::new(Code::Host, detail));
    }
    Ok(())
}

/// Whether the request and its site, if it names one, are of this machine.
fn is_local(parts: &Parts) -> bool {
    let text = |name| parts.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).or_else(|| parts.uri.authority().map(Authority::as_str));
    let origin = text(header::ORIGIN).map(|origin| origin.split("://").nth(1).unwrap_or_default());
    host.is_none_or(names_loopback) && origin.is_none_or(names_loopback)
}

fn names_loopback(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = bare.parse::<IpAddr>();
    bare.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a page of another site has sent the request. Other programs send neither header.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    // Users send `none` by hand, as by a bookmark.
    let names_site = headers.contains_key(FETCH_SITE) || headers.contains_key(header::ORIGIN);
    names_site && !is_same_origin(headers) && text(headers, FETCH_SITE) != Some("none")
}

/// Whether a page of this gateway has sent the request.
///
/// Browsers send `Sec-Fetch-Site` over TLS and to loopback addresses, and `Origin` in any case.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    if headers.contains_key(FETCH_SITE) {
        return text(headers, FETCH_SITE) == Some("same-origin");
    }
    let origin = text(headers, header::ORIGIN).and_then(|origin| origin.split_once("://"));
    let host = text(headers, header::HOST);
    match (origin, host) {
        (Some((_, origin)), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// The only value of a header.
pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    const HOST: (&str, &str) = ("host", "db.example:9280");

    #[test]
    fn only_pages_of_the_gateway_are_of_its_site() {
        for own in [
            &[HOST, ("sec-fetch-site", "same-origin")][..],
            &[HOST, ("origin", "https://db.example:9280")],
            &[HOST, ("origin", "http://DB.example:9280")],
            // A proxy in front has another name.
            &[HOST, ("sec-fetch-site", "same-origin"), ("origin", "https://console.example")],
        ] {
            assert!(is_same_origin(&headers(own)), "{own:?}");
            assert!(!is_of_other_site(&headers(own)), "{own:?}");
        }
        for foreign in [
            &[HOST, ("origin", "null")][..],
            &[HOST, ("origin", "https://evil.example")],
            &[HOST, ("origin", "https://db.example")],
            &[HOST, ("origin", "https://db.example:9280.evil.example")],
            &[HOST, ("origin", "http://db.example:9280"), ("origin", "https://evil.example")],
            &[HOST, ("sec-fetch-site", "cross-site"), ("origin", "http://db.example:9280")],
            &[HOST, ("sec-fetch-site", "same-site")],
            &[HOST, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[("origin", "http://db.example:9280")],
        ] {
            assert!(!is_same_origin(&headers(foreign)), "{foreign:?}");
            assert!(is_of_other_site(&headers(foreign)), "{foreign:?}");
        }
        // These requests name no site, so no page has sent them.
        for program in [&[HOST][..], &[], &[HOST, ("sec-fetch-site", "none")]] {
            assert!(!is_same_origin(&headers(program)), "{program:?}");
            assert!(!is_of_other_site(&headers(program)), "{program:?}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for host in ["localhost", "LocalHost:9280", "127.0.0.1:9280", "127.1.2.3", "[::1]:9280"] {
            assert!(names_loopback(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:9280", "10.0.0.1", "[::2]", ""] {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
