//! The expressions of the dashboard, as rules that promtool checks.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::Failure;
use crate::cargo::{root, target};
use crate::steps;

/// The values of Grafana's variables in expressions.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "5m"), ("$domain", ".*")];

/// A call of promtool in the folder of the alert rules.
pub(crate) fn promtool(call: &str) -> Command {
    let mut command = Command::new("promtool");
    command.current_dir(folder()).args(call.split(' '));
    command
}

fn folder() -> PathBuf {
    root().join("docs/monitoring")
}

/// Checks that promtool can parse each expression of the dashboard.
pub(crate) fn check_dashboard(results: &mut Vec<String>) -> Result<(), Failure> {
    let dashboard: Value = serde_json::from_slice(&fs::read(folder().join("dashboard.json"))?)?;
    fs::create_dir_all(target())?;
    let file = target().join("dashboard-rules.yml");
    fs::write(&file, rules(&dashboard)?.to_string())?;
    let mut command = promtool("check rules");
    command.arg(file);
    steps::watch(command, results)
}

/// One recording rule for each expression of a dashboard. JSON is YAML, too.
fn rules(dashboard: &Value) -> Result<Value, Failure> {
    let mut rules = Vec::new();
    for (at, panel) in list(&dashboard["panels"])?.iter().enumerate() {
        for (number, query) in list(&panel["targets"])?.iter().enumerate() {
            let expression = query["expr"].as_str().ok_or("a query without an expression")?;
            let mut expression = expression.to_owned();
            for (variable, value) in VARIABLES {
                expression = expression.replace(variable, value);
            }
            if expression.contains('$') {
                return Err(format!("an unknown variable in {expression}").into());
            }
            let record = format!("dashboard:panel_{at}:query_{number}");
            rules.push(json!({ "record": record, "expr": expression }));
        }
    }
    match rules.is_empty() {
        true => Err("the dashboard has no query".into()),
        false => Ok(json!({ "groups": [{ "name": "dashboard", "rules": rules }] })),
    }
}

fn list(value: &Value) -> Result<&Vec<Value>, Failure> {
    value.as_array().ok_or_else(|| "the dashboard has no such list".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_query_becomes_a_rule() {
        let query = |expr: &str| json!({ "panels": [{ "targets": [{ "expr": expr }] }] });
        let made = rules(&query("rate(a{domain=~\"$domain\"}[$__rate_interval])")).expect("rules");
        let rule = &made["groups"][0]["rules"][0];
        assert_eq!(rule["expr"], "rate(a{domain=~\".*\"}[5m])");
        rules(&query("a{b=\"$other\"}")).expect_err("an unknown variable");
        rules(&json!({ "panels": [] })).expect_err("no query");
        rules(&json!({ "panels": [{ "title": "Text" }] })).expect_err("no list");
    }

    #[test]
    fn dashboard_of_the_repository_has_queries() {
        let text = fs::read(folder().join("dashboard.json")).expect("reads");
        let made = rules(&serde_json::from_slice(&text).expect("JSON")).expect("rules");
        let rules = made["groups"][0]["rules"].as_array().expect("rules");
        assert!(rules.len() > 20, "{made}");
    }
}
