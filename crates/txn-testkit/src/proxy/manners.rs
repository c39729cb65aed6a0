//! Permanent behaviour of a proxy, as some real proxies have it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::matching::Route;

/// The behaviour of a proxy for every request, in addition to faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manners {
    /// The largest body of a request, in bytes. Larger ones are refused with 413.
    pub body_limit: Option<usize>,
    /// A field that is hidden from reads and searches.
    ///
    /// Field-level security does the same.
    pub hidden_field: Option<String>,
    /// The idle time after which a connection is forgotten.
    ///
    /// A forgotten connection stays open, and no request on it is answered.
    pub idle_limit: Option<Duration>,
    /// The path prefix of the server, such as `/search`. Other paths are answered with 404.
    pub path_prefix: Option<String>,
}

impl Manners {
    /// Sets [`Manners::body_limit`].
    #[must_use]
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Sets [`Manners::hidden_field`].
    #[must_use]
    pub fn with_hidden_field(mut self, name: &str) -> Self {
        self.hidden_field = Some(name.to_owned());
        self
    }

    /// Sets [`Manners::idle_limit`].
    #[must_use]
    pub fn with_idle_limit(mut self, limit: Duration) -> Self {
        self.idle_limit = Some(limit);
        self
    }

    /// Sets [`Manners::path_prefix`].
    #[must_use]
    pub fn with_path_prefix(mut self, path: &str) -> Self {
        self.path_prefix = Some(path.to_owned());
        self
    }

    pub(crate) fn is_too_large(&self, body: &[u8]) -> bool {
        self.body_limit.is_some_and(|limit| body.len() > limit)
    }

    /// Returns the path at the server.
    ///
    /// `None` if the proxy does not know the path.
    pub(crate) fn path<'a>(&self, path: &'a str) -> Option<&'a str> {
        let Some(prefix) = &self.path_prefix else { return Some(path) };
        match path.strip_prefix(prefix.as_str())? {
            "" => Some("/"),
            rest if rest.starts_with('/') => Some(rest),
            _ => None,
        }
    }

    /// Returns the answer without the hidden field.
    ///
    /// `None` if there is nothing to hide.
    pub(crate) fn hide(&self, route: Route, path: &str, answer: &[u8]) -> Option<Bytes> {
        let name = self.hidden_field.as_deref()?;
        if !matches!(route, Route::MultiGet | Route::Search | Route::Document) {
            return None;
        }
        let mut answer: Value = serde_json::from_slice(answer).ok()?;
        let is_source = path.split(['/', '?']).any(|segment| segment == "_source");
        if let (true, Value::Object(fields)) = (is_source, &mut answer) {
            fields.remove(name);
        }
        hide_in_sources(&mut answer, name);
        Some(answer.to_string().into())
    }
}

/// Removes a field from every `_source`.
fn hide_in_sources(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(source)) = fields.get_mut("_source") {
                source.remove(name);
            }
            fields.values_mut().for_each(|value| hide_in_sources(value, name));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide_in_sources(value, name)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_field_is_in_no_document() {
        let manners = Manners::default().with_hidden_field("owner");
        let hide = |route, path: &str, text: &str| {
            manners
                .hide(route, path, text.as_bytes())
                .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        let many = r#"{"docs":[{"_id":"1","_source":{"left":1,"owner":"x"}}]}"#;
        let hidden = r#"{"docs":[{"_id":"1","_source":{"left":1}}]}"#;
        assert_eq!(hide(Route::MultiGet, "/_mget", many).as_deref(), Some(hidden));
        let source = hide(Route::Document, "/stock/_source/1", r#"{"owner":"x"}"#);
        assert_eq!(source.as_deref(), Some("{}"));
        // Field-level security does not change the answers of writes.
        assert_eq!(hide(Route::Bulk, "/_bulk", many), None);
        assert_eq!(Manners::default().hide(Route::MultiGet, "/_mget", many.as_bytes()), None);
    }

    #[test]
    fn paths_are_known_below_the_prefix_only() {
        let manners = Manners::default().with_path_prefix("/search");
        let paths =
            ["/search", "/search/_bulk", "/searches", "/_bulk"].map(|path| manners.path(path));
        assert_eq!(paths, [Some("/"), Some("/_bulk"), None, None]);
        assert_eq!(Manners::default().path("/_bulk"), Some("/_bulk"));
    }
}
