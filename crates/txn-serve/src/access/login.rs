//! The token that a request presents.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};

/// A presented token. Its scheme may also say the name.
#[derive(PartialEq, Eq)]
pub(super) struct Login {
    pub(super) name: Option<String>,
    pub(super) token: String,
}

/// Reads the header `Authorization`: `Bearer`, `Basic` or `ApiKey`.
///
/// Returns `None` for several headers, because a proxy could have checked another one.
pub(super) fn login(headers: &HeaderMap) -> Option<Login> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, rest) = value.trim().split_once(' ')?;
    let rest = rest.trim_start();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Login { name: None, token: rest.to_owned() });
    }
    if !scheme.eq_ignore_ascii_case("basic") && !scheme.eq_ignore_ascii_case("apikey") {
        return None;
    }
    let pair = String::from_utf8(BASE64_STANDARD.decode(rest).ok()?).ok()?;
    let (name, token) = pair.split_once(':')?;
    Some(Login { name: Some(name.to_owned()), token: token.to_owned() })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn read(values: &[&str]) -> Option<(Option<String>, String)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).expect("a value"));
        }
        login(&headers).map(|Login { name, token }| (name, token))
    }

    #[test]
    fn schemes_of_the_clients_are_read_in_any_case() {
        let bare = Some((None, "secret".to_owned()));
        for value in ["Bearer secret", "bearer secret", "BEARER   secret"] {
            assert_eq!(read(&[value]), bare, "{value}");
        }
        let named = Some((Some("shop".to_owned()), "secret".to_owned()));
        let encoded = BASE64_STANDARD.encode("shop:secret");
        for scheme in ["Basic", "basic", "ApiKey", "APIKEY"] {
            assert_eq!(read(&[&format!("{scheme} {encoded}")]), named, "{scheme}");
        }
    }

    #[test]
    fn other_headers_are_no_login() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["Bearer secret", "Bearer secret"]), None);
        for value in [
            "",
            "Bearer",
            "secret",
            "Digest secret",
            "Basic shop:secret",
            "ApiKey c2VjcmV0",
            "Basic !",
            "Bearer\tsecret",
        ] {
            assert_eq!(read(&[value]), None, "{value}");
        }
    }
}
