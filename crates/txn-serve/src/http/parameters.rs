//! Parameters of the query.

use std::collections::BTreeMap;

use txn_core::WaitFor;
use url::form_urlencoded;

use super::problem::{Code, Problem};

/// Parameters that do not change the effect of a request.
const WITHOUT_EFFECT: [&str; 10] = [
    "error_trace",
    "human",
    "list_executed_pipelines",
    "master_timeout",
    "preference",
    "pretty",
    "realtime",
    "retry_on_conflict",
    "timeout",
    "wait_for_active_shards",
];

/// The parameters of a request. A parameter that the route does not take is refused by name.
#[derive(Debug)]
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let mut parameters: BTreeMap<String, String> = pairs.into_owned().collect();
        parameters.retain(|name, _| !WITHOUT_EFFECT.contains(&&**name));
        Self(parameters)
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub(crate) fn peek(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Removes parameters without a value.
    ///
    /// A form sends these parameters for its empty fields.
    pub(crate) fn drop_empty(&mut self) {
        self.0.retain(|_, value| !value.is_empty());
    }

    pub(crate) fn take_number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let number = self.take(name).map(|text| text.parse::<u64>());
        number.transpose().map_err(|_| {
            Problem::new(Code::Invalid, format!("the parameter {name} is not a whole number"))
        })
    }

    pub(crate) fn take_flag(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.take(name).as_deref() {
            None => Ok(None),
            Some("" | "true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => {
                let detail = format!("the parameter {name} is not true or false");
                Err(Problem::new(Code::Invalid, detail))
            }
        }
    }

    /// The point at which a write of a document answers, from `refresh`.
    pub(crate) fn take_refresh(&mut self) -> Result<WaitFor, Problem> {
        match self.take("refresh").as_deref() {
            None | Some("false") => Ok(WaitFor::Apply),
            Some("" | "true" | "wait_for") => Ok(WaitFor::Refresh),
            Some(_) => Err(Problem::new(Code::Invalid, "refresh is not true, false or wait_for")),
        }
    }

    /// The point at which a transaction answers, from `wait_for`.
    pub(crate) fn take_wait_for(&mut self) -> Result<WaitFor, Problem> {
        match self.take("wait_for").as_deref() {
            None | Some("commit") => Ok(WaitFor::Commit),
            Some("apply") => Ok(WaitFor::Apply),
            Some("refresh") => Ok(WaitFor::Refresh),
            Some(_) => Err(Problem::new(Code::Invalid, "wait_for is not commit, apply or refresh")),
        }
    }

    /// The query without one parameter.
    pub(crate) fn query_without(&self, name: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.0.iter().filter(|(other, _)| *other != name));
        query.finish()
    }

    /// Refuses a parameter that is left.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(60).collect();
                let detail = format!("the parameter {name:?} is not supported on this path");
                Err(Problem::new(Code::Unsupported, detail))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::shape::Shape;

    #[test]
    fn parameters_without_effect_are_left_out() {
        let mut parameters = Parameters::parse(Some("pretty&refresh=wait_for&timeout=1m"));
        assert_eq!(parameters.take_refresh().expect("a refresh"), WaitFor::Refresh);
        parameters.finish().expect("no parameter is left");
    }

    #[test]
    fn unknown_parameter_is_refused_by_name() {
        let refused = Parameters::parse(Some("pipeline=p%20q")).finish().expect_err("refused");
        assert_eq!(refused.code(), Code::Unsupported);
        assert!(refused.body(Shape::Problem)["detail"].to_string().contains("pipeline"));
    }
}
