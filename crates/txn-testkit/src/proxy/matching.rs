//! Classification and matching of requests.

/// The kind of a request, by its method and its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Route {
    /// `_bulk`: several writes
    Bulk,
    /// `_mget`
    MultiGet,
    /// `_search`, and the pages of a scroll
    Search,
    /// `_doc`, `_source`, `_create` or `_update`: one document
    Document,
    /// Other requests: indices, mappings, aliases, the cluster
    Other,
}

impl Route {
    /// Returns the route of a path, with or without a query.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        for segment in path.split('/') {
            match segment {
                "_bulk" => return Self::Bulk,
                "_mget" => return Self::MultiGet,
                "_search" => return Self::Search,
                "_doc" | "_source" | "_create" | "_update" => return Self::Document,
                _ => {}
            }
        }
        Self::Other
    }
}

/// The parts of a request that a rule sees.
pub(crate) struct Facts<'a> {
    pub(crate) route: Route,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
}

/// A filter of requests: all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    route: Option<Route>,
    method: Option<String>,
    paths: Vec<String>,
    bodies: Vec<String>,
    not_bodies: Vec<String>,
}

impl Matching {
    /// Matches all requests.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches the requests of a route.
    #[must_use]
    pub fn route(route: Route) -> Self {
        Self { route: Some(route), ..Self::default() }
    }

    /// Requires this method, in capitals.
    #[must_use]
    pub fn with_method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Requires this part in the path with its query.
    #[must_use]
    pub fn with_path(mut self, part: &str) -> Self {
        self.paths.push(part.to_owned());
        self
    }

    /// Requires this part in the body.
    #[must_use]
    pub fn with_body(mut self, part: &str) -> Self {
        self.bodies.push(part.to_owned());
        self
    }

    /// Requires a body without this part.
    #[must_use]
    pub fn without_body(mut self, part: &str) -> Self {
        self.not_bodies.push(part.to_owned());
        self
    }

    pub(crate) fn fits(&self, facts: &Facts<'_>) -> bool {
        let has = |part: &String| {
            part.is_empty()
                || facts.body.windows(part.len()).any(|window| window == part.as_bytes())
        };
        self.route.is_none_or(|route| route == facts.route)
            && self.method.as_ref().is_none_or(|method| method == facts.method)
            && self.paths.iter().all(|part| facts.path.contains(part.as_str()))
            && self.bodies.iter().all(has)
            && !self.not_bodies.iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_by_segments() {
        for (path, route) in [
            ("/_bulk", Route::Bulk),
            ("/_bulk?pipeline=_none", Route::Bulk),
            ("/a/_bulk", Route::Bulk),
            ("/_mget?realtime=true", Route::MultiGet),
            ("/a,b/_search?scroll=1m", Route::Search),
            ("/_search/scroll", Route::Search),
            ("/a/_doc/_1", Route::Document),
            ("/a/_source/1", Route::Document),
            ("/a_bulk", Route::Other),
            ("/a?x=/_bulk", Route::Other),
            ("/", Route::Other),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn matching_requires_all_conditions() {
        let facts = |body| Facts { route: Route::Bulk, method: "POST", path: "/_bulk?a=b", body };
        let wanted = Matching::route(Route::Bulk).with_method("POST").with_path("a=b");
        let wanted = wanted.with_body("state").with_body("x").without_body("finished");
        assert!(wanted.fits(&facts(b"{\"state\":x}")));
        assert!(!wanted.fits(&facts(b"{\"state\":y}")));
        assert!(!wanted.fits(&facts(b"state x finished")));
        assert!(!wanted.clone().with_path("c=d").fits(&facts(b"state x")));
        assert!(!wanted.clone().with_method("GET").fits(&facts(b"state x")));
        assert!(!Matching::route(Route::Search).fits(&facts(b"")));
        assert!(Matching::any().with_body("").fits(&facts(b"")));
    }
}
