//! Requests of an inspection: they change nothing.

use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;
use txn_store::{CollectionSpec, Role, StoreError, StoreErrorKind};

use crate::answers::classify;
use crate::collections::creator::Creator;
use crate::collections::template_requests::TemplateRequests;
use crate::index::admin::AdminRequests;
use crate::index::{mapping, names, templates};

/// A `GET` request that inspects the cluster or some indices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inspection<'a> {
    /// The path, with its query, not escaped. `{indices}` stands for the indices.
    pub path: &'a str,
    /// The names of indices. This crate escapes them.
    pub indices: &'a [&'a str],
    /// The body, if the request needs one.
    pub body: Option<&'a str>,
}

/// An index template that would make a new index unfit. The template may also prevent the creation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TemplateFault {
    /// The name of the template.
    pub template: String,
    /// The fault, and the remedy.
    pub fault: String,
    /// The priority of the template. Another template with a higher one applies instead.
    pub priority: i64,
}

/// Sends the requests of inspections.
#[derive(Debug)]
pub(crate) struct Inspector {
    admin: AdminRequests,
    templates: TemplateRequests,
    creator: Arc<Creator>,
    is_opensearch: bool,
}

impl Inspector {
    pub(crate) fn new(admin: AdminRequests, creator: Arc<Creator>, is_opensearch: bool) -> Self {
        let templates = TemplateRequests::new(admin.clone());
        Self { admin, templates, creator, is_opensearch }
    }

    pub(crate) async fn inspect(&self, inspection: &Inspection<'_>) -> Result<String, StoreError> {
        let Inspection { path, indices, body } = inspection;
        let names: Vec<String> = indices.iter().map(|name| names::segment(name)).collect();
        let path = path.replace("{indices}", &names.join(","));
        if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let text = format!("{path:?} is no path of a request");
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let body: Option<Value> = match body.map(serde_json::from_str).transpose() {
            Ok(body) => body,
            Err(error) => {
                let text = format!("the body of the request is no JSON: {error}");
                return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
            }
        };
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query: Vec<(&str, &str)> = query.collect();
        let answer = self.admin.send(Method::GET, path, &query, body.as_ref()).await?;
        if answer.status != 200 {
            return Err(classify::error(&format!("asking for {path}"), &answer));
        }
        match std::str::from_utf8(&answer.body) {
            Ok(text) => Ok(self.admin.hide_secrets(text.to_owned())),
            Err(_) => {
                let text = format!("the answer to {path} is not UTF-8");
                Err(StoreError::new(StoreErrorKind::Unavailable, text))
            }
        }
    }

    pub(crate) async fn template_fault(
        &self,
        name: &str,
    ) -> Result<Option<TemplateFault>, StoreError> {
        let (composable, legacy) = self.templates.all().await;
        let Some(template) = templates::applying(name, &composable, &legacy) else {
            return Ok(None);
        };
        let priority = composable.priority(&template);
        let found = |fault| Some(TemplateFault { template: template.clone(), fault, priority });
        if composable.makes_data_streams(&template) {
            let fault =
                "its data_stream makes a data stream of each new name, which takes no updates";
            return Ok(found(fault.to_owned()));
        }
        let simulated = match composable.has(&template) {
            true => match self.templates.simulated(name).await? {
                Some(simulated) => simulated,
                None => return Ok(None),
            },
            false => templates::merged(name, &legacy),
        };
        // Elasticsearch refuses to merge the two mappings, and OpenSearch takes the request's.
        let is_opensearch = self.is_opensearch;
        let required = &simulated["mappings"]["_routing"]["required"];
        if !is_opensearch && (*required == true || *required == "true") {
            let fault = "its _routing.required contradicts the mapping of a partition";
            return Ok(found(fault.to_owned()));
        }
        let spec = CollectionSpec {
            name: name.to_owned(),
            role: Role::Partition,
            create: true,
            mappings: None,
        };
        let requested = self.creator.body(&spec)?;
        let made = mapping::Index::foreseen(name, &simulated, &requested, is_opensearch);
        Ok(made
            .check(&spec.role)
            .err()
            .and_then(|error| found(self.admin.hide_secrets(error.message))))
    }

    pub(crate) async fn template_pipeline(&self, name: &str) -> Option<String> {
        let (composable, legacy) = self.templates.all().await;
        let template = templates::applying(name, &composable, &legacy)?;
        let given = match composable.has(&template) {
            true => self.templates.simulated(name).await.ok().flatten()?,
            false => templates::merged(name, &legacy),
        };
        let settings = templates::flat(&given["settings"]);
        let is_pipeline = |(setting, value): (&String, &Value)| {
            let setting = setting.strip_prefix("index.").unwrap_or(setting);
            let value = value.as_str().filter(|value| *value != "_none")?;
            matches!(setting, "default_pipeline" | "final_pipeline").then(|| value.to_owned())
        };
        settings.iter().find_map(is_pipeline)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{Fake, Handler, ROOT};

    /// A server with one template, and its answer to the simulation.
    async fn server(template: Value, simulated: Value) -> Fake {
        let templates =
            json!({ "index_templates": [{ "name": "logs", "index_template": template }] });
        let simulated = json!({ "template": simulated, "overlapping": [] });
        let handler: Handler = Box::new(move |path, _| match path {
            "/" => (200, ROOT.to_owned()),
            "/_index_template" => (200, templates.to_string()),
            "/_template" => (200, "{}".to_owned()),
            path if path.starts_with("/_index_template/_simulate_index/") => {
                (200, simulated.to_string())
            }
            "/_cluster/health?level=indices&filter_path=indices.*.status" => {
                (200, r#"{"status":"green"}"#.to_owned())
            }
            "/a%25b,c/_settings?flat_settings=true" => (200, "{}".to_owned()),
            _ => (404, r#"{"error":"no handler found for uri"}"#.to_owned()),
        });
        Fake::serving(|config| config, handler).await
    }

    #[tokio::test]
    async fn template_is_judged_as_the_index_would_be_made() {
        let logs = json!({ "index_patterns": ["txn-*"], "priority": 7 });
        let cases = [
            (json!({ "settings": { "index": { "final_pipeline": "p", "codec": "c" } } }), false),
            (json!({ "settings": { "index": { "blocks": { "write": "true" } } } }), false),
            (json!({ "mappings": { "_source": { "enabled": false } } }), false),
            (json!({ "mappings": { "_source": { "excludes": ["body"] } } }), true),
            (json!({ "mappings": { "_routing": { "required": true } } }), true),
        ];
        for (simulated, spoils) in cases {
            let fake = server(logs.clone(), simulated.clone()).await;
            let found = fake.store.template_fault("txn-shop-x").await.unwrap();
            assert_eq!(found.is_some(), spoils, "{simulated}: {found:?}");
            let named = found.map(|fault| (fault.template, fault.priority));
            assert!(named.is_none_or(|named| named == ("logs".to_owned(), 7)));
        }
        let streams = json!({ "index_patterns": ["txn-*"], "data_stream": {} });
        let fake = server(streams, json!({})).await;
        assert!(fake.store.template_fault("txn-shop-x").await.unwrap().is_some());
        assert_eq!(fake.store.template_fault("stock").await.unwrap(), None);
    }

    #[tokio::test]
    async fn pipeline_of_a_new_index_is_found() {
        let logs = json!({ "index_patterns": ["logs*"], "priority": 7 });
        for (settings, expected) in [
            (json!({ "index": { "final_pipeline": "p" } }), Some("p")),
            (json!({ "index.default_pipeline": "p" }), Some("p")),
            (json!({ "default_pipeline": "p" }), Some("p")),
            (json!({ "index": { "default_pipeline": "_none", "codec": "p" } }), None),
        ] {
            let fake = server(logs.clone(), json!({ "settings": settings })).await;
            let found = fake.store.template_pipeline("logs-1").await;
            assert_eq!(found.as_deref(), expected, "{settings}");
            assert_eq!(fake.store.template_pipeline("stock").await, None);
        }
    }

    #[tokio::test]
    async fn inspection_escapes_names_and_keeps_its_query() {
        let fake = server(json!({}), json!({})).await;
        let path = "/_cluster/health?level=indices&filter_path=indices.*.status";
        let inspection = Inspection { path, ..Inspection::default() };
        assert_eq!(fake.store.inspect(&inspection).await.unwrap(), r#"{"status":"green"}"#);
        let path = "/{indices}/_settings?flat_settings=true";
        let inspection = Inspection { path, indices: &["a%b", "c"], body: None };
        assert_eq!(fake.store.inspect(&inspection).await.unwrap(), "{}");
        for path in ["/nowhere", "nowhere", "/a b"] {
            let inspection = Inspection { path, ..Inspection::default() };
            fake.store.inspect(&inspection).await.unwrap_err();
        }
    }
}
