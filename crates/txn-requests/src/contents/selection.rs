//! Filters for lists of requests.

use crate::model::{Entry, State};

/// A filter for lists of requests.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// The states. Empty for all states.
    pub states: Vec<State>,
    /// The application. `None` for all applications.
    pub application: Option<String>,
}

impl Selection {
    /// Sets [`Selection::states`].
    #[must_use]
    pub fn with_states(mut self, states: impl IntoIterator<Item = State>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Sets [`Selection::application`].
    #[must_use]
    pub fn with_application_name(mut self, application: Option<&str>) -> Self {
        self.application = application.map(str::to_owned);
        self
    }

    pub(crate) fn admits(&self, entry: &Entry) -> bool {
        (self.states.is_empty() || self.states.contains(&entry.state))
            && (self.application.is_none() || self.application == entry.application)
    }
}
