//! Parses addresses of servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use txn_store::{StoreError, StoreErrorKind};

use super::auth::EsAuth;

/// Returns the address without its login, and the login.
pub(super) fn parse(text: &str) -> Result<(Url, Option<EsAuth>), StoreError> {
    let text = text.trim();
    let refuse = |fault: &str| {
        Err(misconfigured(format!(
            "the server address {} {fault}: it has to look like http(s)://host:port or http(s)://host:port/prefix, with a \
             login http(s)://user:password@host:port, where special characters are percent-encoded (%40 for @, \
             %2F for /, %23 for #)",
            shown(text)
        )))
    };
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return refuse("has white space");
    }
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return refuse(&format!("is no URL ({error})")),
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return refuse("is not one of a server");
    }
    // A password with one of these characters ends up here, too. No prefix of a server contains an
    // @.
    let is_login = url.path().contains('@') || text.contains('\\');
    if is_login || url.query().is_some() || url.fragment().is_some() {
        return refuse("continues after the host");
    }
    let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let auth = (!url.username().is_empty() || url.password().is_some())
        .then(|| EsAuth::basic(decode(url.username()), decode(url.password().unwrap_or_default())));
    // Both fail only for addresses without a host, which were refused above.
    let stripped = url.set_username("").and_then(|()| url.set_password(None));
    match stripped {
        Ok(()) => Ok((url, auth)),
        Err(()) => refuse("has no host"),
    }
}

/// Returns the printable part of a wrong address: scheme, host and port.
///
/// Any other part may be a piece of a password.
fn shown(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphabetic()) => {
            (format!("{scheme}://"), rest)
        }
        _ => (String::new(), text),
    };
    let (login, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']');
    let end = rest.find(|c: char| !plain(c) && c != ':').unwrap_or(rest.len());
    let (host, tail) = rest.split_at(end);
    let ported = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
    let host = match ported {
        Some((host, port)) if !port.chars().all(|c| c.is_ascii_digit()) => format!("{host}:***"),
        _ => host.to_owned(),
    };
    let tail = if tail.is_empty() { "" } else { "***" };
    format!("\"{scheme}{login}{host}{tail}\"")
}

/// Returns the address in a cloud id.
///
/// A cloud id is a name and a base64 text. The text holds the domain of the region, the id of the
/// cluster and the id of its console, separated by `$`.
pub(super) fn of_cloud_id(id: &str) -> Result<Url, StoreError> {
    let refuse = || {
        misconfigured(
            "the cloud id cannot be read: copy it from the page of the deployment; it looks like NAME:LETTERS"
                .to_owned(),
        )
    };
    let (_, encoded) = id.trim().rsplit_once(':').ok_or_else(refuse)?;
    let decoded = BASE64.decode(encoded).ok().and_then(|text| String::from_utf8(text).ok());
    let decoded = decoded.ok_or_else(refuse)?;
    let mut parts = decoded.split('$');
    let (Some(domain), Some(cluster)) = (parts.next(), parts.next()) else { return Err(refuse()) };
    let is_name = |name: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        !name.is_empty() && name.chars().all(letter)
    };
    let with_port = |text: &str, otherwise: Option<u16>| match text.split_once(':') {
        Some((name, port)) => Some((name.to_owned(), Some(port.parse().ok()?))),
        None => Some((text.to_owned(), otherwise)),
    };
    let (domain, port) = with_port(domain, None).ok_or_else(refuse)?;
    let (cluster, port) = with_port(cluster, port).ok_or_else(refuse)?;
    if !is_name(&domain) || !is_name(&cluster) {
        return Err(refuse());
    }
    let port = port.unwrap_or(443);
    Url::parse(&format!("https://{cluster}.{domain}:{port}")).map_err(|_| refuse())
}

pub(super) fn misconfigured(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn login_is_split_from_its_address() {
        let (url, auth) = parse("https://elastic:s%40cr%2Fet@db.example:9200").unwrap();
        let Some(EsAuth::Basic { user, password }) = auth else { panic!("no login") };
        assert_eq!((user.as_str(), password.expose_secret()), ("elastic", "s@cr/et"));
        assert_eq!(url.as_str(), "https://db.example:9200/");
        // Percent signs that escape nothing stay.
        let (_, auth) = parse("http://50%:%zz%41@h").unwrap();
        let Some(EsAuth::Basic { user, password }) = auth else { panic!("no login") };
        assert_eq!((user.as_str(), password.expose_secret()), ("50%", "%zzA"));
    }

    #[test]
    fn an_address_may_have_a_prefix() {
        for (text, path) in
            [("http://h", "/"), ("http://h/", "/"), ("https://h:1/es/a%20b/", "/es/a%20b/")]
        {
            assert_eq!(parse(text).unwrap().0.path(), path);
        }
    }

    #[test]
    fn wrong_address_is_shown_without_secrets() {
        for (text, shown) in [
            ("", "\"\""),
            ("db:9200", "\"db:9200\""),
            ("shop:hunter2@db:9200", "\"***@db:9200\""),
            ("ftp://u:hunter2@h", "\"ftp://***@h\""),
            ("http://u:hunter2@", "\"http://***@\""),
            ("http://u:hunter2@h:x", "\"http://***@h:***\""),
            ("http://u:hunter2", "\"http://u:***\""),
            ("http://shop:p@hun/ter2:rd@host", "\"http://***@host\""),
            ("http://shop:1/hunter2@host", "\"http://***@host\""),
            ("http://shop:1#hunter2@host", "\"http://***@host\""),
            ("http://shop:1?hunter2@host:9200", "\"http://***@host:9200\""),
            ("http://shop:1\\hunter2@host", "\"http://***@host\""),
            ("http://shop:1\\hunter2", "\"http://shop:1***\""),
            ("http://shop:hunter2 @host", "\"http://***@host\""),
            ("http://host:9200?key=hunter2", "\"http://host:9200***\""),
            ("http://[::1]:9200/a#hunter2", "\"http://[::1]:9200***\""),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{text}");
            assert!(error.message.contains(&format!("address {shown} ")), "{}", error.message);
            assert!(error.message.contains("http(s)://host:port"), "{}", error.message);
            for piece in ["hun", "ter2"] {
                assert!(!error.message.contains(piece), "{}", error.message);
            }
        }
        for good in ["http://h", " https://h:9200/ ", "http://[::1]:9200", "http://u:p@h"] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn cloud_ids_contain_addresses() {
        let id = |text: &str| format!("name:{}", BASE64.encode(text));
        for (text, url) in [
            ("eu.example.com$0a1b$2c3d", "https://0a1b.eu.example.com/"),
            ("eu.example.com:9243$0a1b$2c3d", "https://0a1b.eu.example.com:9243/"),
            ("eu.example.com:9243$0a1b:9244$2c3d", "https://0a1b.eu.example.com:9244/"),
            ("eu.example.com$0a1b", "https://0a1b.eu.example.com/"),
        ] {
            assert_eq!(of_cloud_id(&id(text)).unwrap().as_str(), url);
        }
        for bad in [
            "",
            "name",
            "name:",
            "name:%%%",
            &id("eu.example.com"),
            &id("eu/x$0a1b"),
            &id("$a"),
            &id("a:x$b"),
        ] {
            let error = of_cloud_id(bad).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{bad}");
        }
    }
}
