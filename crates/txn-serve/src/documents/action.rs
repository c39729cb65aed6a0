//! Actions on documents, and the parser of bulks.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::fingerprint::Fingerprint;
use crate::http::problem::{Code, Problem};

/// A change of one document.
#[derive(Clone, Debug)]
pub(crate) struct Action<'a> {
    /// The word of the action in the answer.
    pub(crate) verb: &'static str,
    pub(crate) index: String,
    pub(crate) id: String,
    pub(crate) routing: Option<String>,
    /// The content that the document must have.
    pub(crate) condition: Option<Fingerprint>,
    pub(crate) change: Change<'a>,
}

/// The kinds of changes. Contents are texts of JSON.
#[derive(Clone, Debug)]
pub(crate) enum Change<'a> {
    Index(&'a str),
    Create(&'a str),
    Update(Update<'a>),
    Delete,
}

impl Change<'_> {
    /// Whether the change may create a document, and thus its collection.
    pub(crate) fn creates(&self) -> bool {
        match self {
            Self::Index(_) | Self::Create(_) => true,
            Self::Update(update) => update.content_if_missing().is_some(),
            Self::Delete => false,
        }
    }
}

/// A change of a document by a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'a> {
    doc: Option<&'a str>,
    upsert: Option<&'a str>,
    detect_noop: bool,
}

impl<'a> Update<'a> {
    /// The part to merge.
    pub(crate) fn part(&self) -> Option<&'a str> {
        self.doc
    }

    /// The content of a missing document.
    pub(crate) fn content_if_missing(&self) -> Option<&'a str> {
        self.upsert
    }

    /// Whether a change without a difference is not written.
    pub(crate) fn skips_equal(&self) -> bool {
        self.detect_noop
    }

    /// Reads the body of an update.
    pub(crate) fn parse(body: &'a str) -> Result<Self, Problem> {
        let fields = serde_json::from_str::<BTreeMap<String, &RawValue>>(body);
        let fields =
            fields.map_err(|e| invalid(format!("the body of an update is no object: {e}")))?;
        let mut update = Self { doc: None, upsert: None, detect_noop: true };
        let mut doc_as_upsert = false;
        for (name, value) in fields {
            let text = value.get();
            match &*name {
                "doc" => update.doc = Some(object("doc", text)?),
                "upsert" => update.upsert = Some(object("upsert", text)?),
                "doc_as_upsert" => doc_as_upsert = flag(&name, text)?,
                "detect_noop" => update.detect_noop = flag(&name, text)?,
                "script" | "scripted_upsert" => {
                    return Err(unsupported("scripts: send the changed fields as `doc`"));
                }
                name => return Err(unsupported(format!("the field {} of an update", short(name)))),
            }
        }
        if doc_as_upsert {
            update.upsert = update.doc;
        }
        if update.doc.is_none() {
            return Err(invalid("an update needs `doc`"));
        }
        Ok(update)
    }
}

/// Defaults of a bulk, from its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults<'a> {
    pub(crate) index: Option<&'a str>,
    pub(crate) routing: Option<&'a str>,
    pub(crate) max_actions: usize,
}

/// Reads the actions of a bulk. `new_id` returns the id of a document without one.
pub(crate) fn parse_bulk<'a>(
    body: &'a str,
    defaults: Defaults<'_>,
    new_id: impl Fn() -> String,
) -> Result<Vec<Action<'a>>, Problem> {
    if !body.ends_with('\n') {
        // Otherwise a cut body would look like a whole one.
        return Err(invalid(
            "a bulk ends with a line break, which `curl --data-binary` keeps and `-d` takes off",
        ));
    }
    let mut lines = body.lines();
    let mut actions = Vec::new();
    // As on the servers, a blank line may stand before an action, and nowhere else.
    while let Some(line) = lines.by_ref().find(|line| !line.trim().is_empty()) {
        let at = actions.len();
        if at == defaults.max_actions {
            let detail = format!("the bulk has more than {} actions", defaults.max_actions);
            return Err(Problem::new(Code::TooLarge, detail));
        }
        let numbered = |problem: Problem| problem.within(&format!("action {at}"));
        let mut header = Header::parse(line).map_err(numbered)?;
        let mut content = || content_line(lines.next()).map_err(numbered);
        let change = match header.verb {
            "index" => Change::Index(content()?),
            "create" => Change::Create(content()?),
            "update" => Change::Update(Update::parse(content()?).map_err(numbered)?),
            _ => Change::Delete,
        };
        let may_be_new = matches!(change, Change::Index(_) | Change::Create(_));
        let (id, change) = match (header.id.take(), change) {
            (Some(id), change) => (id, change),
            // A new id must not replace a document.
            (None, Change::Index(content) | Change::Create(content)) => {
                (new_id(), Change::Create(content))
            }
            (None, _) => return Err(numbered(invalid("the `_id` is missing"))),
        };
        if header.condition.is_some() && header.verb == "create" && may_be_new {
            return Err(numbered(invalid("a `create` has no condition: no document exists")));
        }
        let index = header.index.take().or_else(|| defaults.index.map(str::to_owned));
        let index = index.ok_or_else(|| numbered(invalid("the `_index` is missing")))?;
        let routing = header.routing.take().or_else(|| defaults.routing.map(str::to_owned));
        let (verb, condition) = (header.verb, header.condition);
        actions.push(Action { verb, index, id, routing, condition, change });
    }
    match actions.is_empty() {
        true => Err(invalid("the bulk has no action")),
        false => Ok(actions),
    }
}

fn content_line(line: Option<&str>) -> Result<&str, Problem> {
    line.filter(|line| !line.trim().is_empty()).ok_or_else(|| invalid("the content is missing"))
}

/// The first line of an action.
#[derive(Debug)]
struct Header {
    verb: &'static str,
    index: Option<String>,
    id: Option<String>,
    routing: Option<String>,
    condition: Option<Fingerprint>,
}

impl Header {
    fn parse(line: &str) -> Result<Self, Problem> {
        let header = serde_json::from_str::<BTreeMap<String, BTreeMap<String, Value>>>(line);
        let mut header =
            header.map_err(|error| invalid(format!("no line of an action: {error}")))?;
        let (Some((name, fields)), true) = (header.pop_first(), header.is_empty()) else {
            return Err(invalid("a line of an action has one field, such as `index`"));
        };
        let verb =
            verb(&name).ok_or_else(|| unsupported(format!("the action {}", short(&name))))?;
        let mut this = Self { verb, index: None, id: None, routing: None, condition: None };
        let (mut seq_no, mut primary_term) = (None, None);
        for (name, value) in fields {
            match (&*name, value) {
                (_, Value::Null) => {}
                ("_index", Value::String(text)) => this.index = Some(text),
                ("_id", Value::String(text)) => this.id = Some(text),
                // Some clients send numbers.
                ("_id", Value::Number(number)) => this.id = Some(number.to_string()),
                ("routing" | "_routing", Value::String(text)) => this.routing = Some(text),
                ("if_seq_no", Value::Number(number)) => seq_no = Some(whole("if_seq_no", &number)?),
                ("if_primary_term", Value::Number(number)) => {
                    primary_term = Some(whole("if_primary_term", &number)?);
                }
                ("retry_on_conflict", Value::Number(_)) => {}
                ("require_alias" | "require_data_stream", Value::Bool(false)) => {}
                (name, _) => {
                    let name = short(name);
                    return Err(unsupported(format!(
                        "the field {name} of an action, or its value"
                    )));
                }
            }
        }
        this.condition = condition(seq_no, primary_term)?;
        Ok(this)
    }
}

/// A number of a condition. A condition that cannot be read must not be left out.
fn whole(name: &str, number: &serde_json::Number) -> Result<u64, Problem> {
    number.as_u64().ok_or_else(|| invalid(format!("`{name}` is no whole number")))
}

/// The condition of a request. Both numbers come together.
pub(crate) fn condition(
    seq_no: Option<u64>,
    primary_term: Option<u64>,
) -> Result<Option<Fingerprint>, Problem> {
    match (seq_no, primary_term) {
        (None, None) => Ok(None),
        (Some(seq_no), Some(primary_term)) => Ok(Some(Fingerprint { seq_no, primary_term })),
        _ => Err(invalid("if_seq_no and if_primary_term come together")),
    }
}

fn object<'a>(name: &str, text: &'a str) -> Result<&'a str, Problem> {
    match text.starts_with('{') {
        true => Ok(text),
        false => Err(invalid(format!("`{name}` is no object"))),
    }
}

fn flag(name: &str, text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| invalid(format!("`{}` is not true or false", short(name))))
}

/// The verb of an action of a bulk.
pub(crate) fn verb(name: &str) -> Option<&'static str> {
    ["index", "create", "update", "delete"].into_iter().find(|verb| *verb == name)
}

/// Shortens a name of the caller for a message.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(60).collect()
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Invalid, detail)
}

fn unsupported(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Unsupported, format!("the gateway does not support {}", detail.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::shape::Shape;

    fn parsed(body: &str) -> Result<Vec<Action<'_>>, Problem> {
        let defaults = Defaults { index: Some("stock"), routing: None, max_actions: 3 };
        parse_bulk(body, defaults, || "new".to_owned())
    }

    #[test]
    fn actions_are_read_with_their_contents() {
        let actions = parsed(
            "{\"index\":{\"_id\":\"a\",\"if_seq_no\":1,\"if_primary_term\":2}}\r\n{\"n\":1}\r\n\n\
             {\"delete\":{\"_index\":\"orders\",\"_id\":7,\"routing\":\"r\"}}\n\
             {\"create\":{}}\n{\"n\":2}\n",
        );
        let actions = actions.expect("a bulk");
        let shown: Vec<_> = actions.iter().map(|it| (it.verb, &*it.index, &*it.id)).collect();
        let expected =
            [("index", "stock", "a"), ("delete", "orders", "7"), ("create", "stock", "new")];
        assert_eq!(shown, expected);
        assert_eq!(actions[0].condition, Some(Fingerprint { seq_no: 1, primary_term: 2 }));
        assert_eq!(actions[1].routing.as_deref(), Some("r"));
        assert!(matches!(actions[2].change, Change::Create("{\"n\":2}")));
    }

    #[test]
    fn malformed_bulks_are_refused() {
        let cases = [
            ("", "line break"),
            ("\n", "no action"),
            ("{\"index\":{}}\n{\"n\":1}", "line break"),
            ("{\"index\":{}}\n", "content is missing"),
            ("{\"delete\":{}}\n", "`_id` is missing"),
            ("{\"index\":{},\"create\":{}}\n{}\n", "one field"),
            ("{\"index\":{\"_id\":\"a\",\"if_seq_no\":1}}\n{}\n", "come together"),
            ("[]\n", "no line of an action"),
            ("{\"update\":{\"_id\":\"a\"}}\n{}\n", "needs `doc`"),
            ("{\"update\":{\"_id\":\"a\"}}\n{\"doc\":1}\n", "no object"),
        ];
        for (body, words) in cases {
            let problem = parsed(body).expect_err(body);
            assert_eq!(problem.code(), Code::Invalid, "{body}");
            assert!(
                problem.body(Shape::Problem)["detail"].to_string().contains(words),
                "{body}: {problem:?}"
            );
        }
        let many = "{\"delete\":{\"_id\":\"a\"}}\n".repeat(4);
        assert_eq!(parsed(&many).expect_err("too many").code(), Code::TooLarge);
    }

    #[test]
    fn unsupported_parts_are_refused_by_name() {
        let cases = [
            ("{\"index\":{\"pipeline\":\"p\"}}\n{}\n", "pipeline"),
            ("{\"index\":{\"_id\":\"a\",\"version\":3}}\n{}\n", "version"),
            ("{\"index\":{\"require_alias\":true}}\n{}\n", "require_alias"),
            ("{\"noop\":{}}\n", "noop"),
            ("{\"update\":{\"_id\":\"a\"}}\n{\"script\":\"s\"}\n", "scripts"),
            ("{\"update\":{\"_id\":\"a\"}}\n{\"doc\":{},\"_source\":true}\n", "_source"),
        ];
        for (body, words) in cases {
            let problem = parsed(body).expect_err(body);
            assert_eq!(problem.code(), Code::Unsupported, "{body}");
            assert!(
                problem.body(Shape::Problem)["detail"].to_string().contains(words),
                "{body}: {problem:?}"
            );
        }
    }
}
