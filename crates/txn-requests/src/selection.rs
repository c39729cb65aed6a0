//! Which requests are listed.

use crate::model::{Entry, State};

/// Which requests are listed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// In these states; all states if it is empty.
    pub states: Vec<State>,
    /// Of this application; of all if it is `None`.
    pub application: Option<String>,
}

impl Selection {
    /// In these states.
    #[must_use]
    pub fn with_states(mut self, states: impl IntoIterator<Item = State>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Of this application; of all if it is `None`.
    #[must_use]
    pub fn with_application(mut self, application: Option<&str>) -> Self {
        self.application = application.map(str::to_owned);
        self
    }

    pub(crate) fn admits(&self, entry: &Entry) -> bool {
        (self.states.is_empty() || self.states.contains(&entry.state))
            && (self.application.is_none() || self.application == entry.application)
    }
}
