//! Forms of the console.
//!
//! Only a page of this gateway may send such a form.

use hyper::header::{self, HeaderMap, HeaderName};

use super::problem::{Code, Problem};

/// The header that relates a page's site to the request's site. A browser sends this header.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The largest form, in bytes.
const LARGEST: usize = 16 << 10;

/// Refuses a foreign form, and a body that is no form.
///
/// A foreign form is one of another site.
///
/// A browser sends the login of the gateway with the form of any site. So a form needs proof that a
/// page of the gateway has sent it. No page can set or leave out these headers.
pub(crate) fn check_form(headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    if !is_same_origin(headers) {
        let detail =
            "send the form from a page of this gateway: the request names another site, or none";
        return Err(Problem::new(Code::Host, detail));
    }
    let content_type = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    if !content_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let detail = "the body is not `application/x-www-form-urlencoded`";
        return Err(Problem::new(Code::ContentType, detail));
    }
    match body.len() > LARGEST {
        true => Err(Problem::new(Code::TooLarge, format!("a form has at most {LARGEST} bytes"))),
        false => Ok(()),
    }
}

/// Whether a page of this gateway has sent the request.
///
/// Browsers send `Sec-Fetch-Site` over TLS and to loopback addresses, and `Origin` in any case.
fn is_same_origin(headers: &HeaderMap) -> bool {
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
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
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

    #[test]
    fn only_pages_of_the_gateway_send_forms() {
        let host = ("host", "db.example:9280");
        for own in [
            &[host, ("sec-fetch-site", "same-origin")][..],
            &[host, ("origin", "https://db.example:9280")],
            &[host, ("origin", "http://DB.example:9280")],
            // A proxy in front has another name.
            &[host, ("sec-fetch-site", "same-origin"), ("origin", "https://console.example")],
        ] {
            assert!(is_same_origin(&headers(own)), "{own:?}");
        }
        for foreign in [
            &[host][..],
            &[],
            &[host, ("origin", "null")],
            &[host, ("origin", "https://evil.example")],
            &[host, ("origin", "https://db.example")],
            &[host, ("origin", "https://db.example:9280.evil.example")],
            &[host, ("origin", "http://db.example:9280"), ("origin", "https://evil.example")],
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "http://db.example:9280")],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[("origin", "http://db.example:9280")],
        ] {
            assert!(!is_same_origin(&headers(foreign)), "{foreign:?}");
        }
    }

    #[test]
    fn other_bodies_are_no_forms() {
        let own = [("sec-fetch-site", "same-origin")];
        let code = |content_type: &'static str, body: &[u8]| {
            let mut headers = headers(&own);
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            check_form(&headers, body).err().map(|problem| problem.code())
        };
        let form = "application/x-www-form-urlencoded";
        assert_eq!(code(form, b"a=b"), None);
        assert_eq!(code("text/plain", b"a=b"), Some(Code::ContentType));
        assert_eq!(code("application/json", b"{}"), Some(Code::ContentType));
        assert_eq!(code(form, &vec![b'a'; LARGEST + 1]), Some(Code::TooLarge));
    }
}
