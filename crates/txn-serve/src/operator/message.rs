//! Messages for operators: a finding with its remedy.

use serde::Serialize;

/// How urgent a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The domain mends this by itself.
    Note,
    /// An operator must act.
    Error,
}

/// A finding with its remedy.
///
/// The code is stable: programs and alarms may depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The kind of the finding.
    pub code: &'static str,
    /// How urgent it is.
    pub severity: Severity,
    /// The subject of the message. A document, a collection, a partition, a node, a process or a
    /// template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The finding.
    pub text: String,
    /// The next step of the operator.
    pub remedy: String,
    /// The request to the server that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Message {
    /// Creates a message about a fault.
    pub fn error(code: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (text, remedy) = (text.into(), remedy.into());
        Self { code, severity: Severity::Error, subject: None, text, remedy, request: None }
    }

    /// Creates a message about a state that the domain mends by itself.
    pub fn note(code: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(code, text, remedy) }
    }

    /// Names the subject.
    #[must_use]
    pub fn about(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Adds the request to the server that mends it.
    #[must_use]
    pub fn mended_by(self, request: impl Into<String>) -> Self {
        Self { request: Some(request.into()), ..self }
    }

    /// The message as one line for operators.
    #[must_use]
    pub fn line(&self) -> String {
        let label = match self.severity {
            Severity::Note => "note",
            Severity::Error => "NOT WELL",
        };
        let request = self.request.as_ref().map(|request| format!(": {request}"));
        let text = self.text.split(['\r', '\n']).map(str::trim).collect::<Vec<_>>().join(" ");
        let end = if text.ends_with('.') { "" } else { "." };
        format!(
            "{label} [{}]: {text}{end} Do: {}{}",
            self.code,
            self.remedy,
            request.unwrap_or_default()
        )
    }
}
