//! Forms of the console.
//!
//! Only a page of this gateway may send such a form.

use hyper::header::{self, HeaderMap};

use super::problem::{Code, Problem};
use super::site::{is_same_origin, text};

/// The largest form, in bytes.
const LARGEST: usize = 16 << 10;

/// Refuses a foreign form, and a body that is no form.
///
/// A foreign form is one of another site.
///
/// A form needs proof that a page of the gateway has sent it.
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

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn other_bodies_are_no_forms() {
        let code = |content_type: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
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
