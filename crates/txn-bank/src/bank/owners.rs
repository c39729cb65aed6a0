//! The derived owners of a bank, and the processors of its events.

use std::sync::Arc;

use txn_outbox::http::{self, Dispatcher, HttpConfig};
use txn_outbox::{EventSource, Processor, ProcessorConfig, Topics};

use crate::bank::Bank;
use crate::error::{BankError, Result};
use crate::owning::owners::{Owner, Owners, TOPIC};
use crate::owning::rebuild::Rebuilt;

impl Bank {
    /// Starts to keep a document for each owner, in the collection `<domain>-owners`.
    ///
    /// The document has the total over all accounts. Banks that are opened afterwards emit an event
    /// of the owner with each change of an account. Banks that are already open do not: open them
    /// again, and then call [`Bank::rebuild_owners`] once.
    ///
    /// # Errors
    /// As [`txn_outbox::Outbox::open`] and [`txn_core::Domain::create_collection`].
    pub async fn keep_owners(self) -> Result<Self> {
        let owners = Owners::open(&self.domain, self.ledger.accounts().clone()).await?;
        Ok(Self { ledger: self.ledger.with_owners(owners), ..self })
    }

    /// Whether the bank keeps owners.
    #[must_use]
    pub fn keeps_owners(&self) -> bool {
        self.ledger.owners().is_some()
    }

    /// Reads an owner, as last derived.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], [`BankError::UnknownOwner`], or an error of the engine.
    pub async fn owner(&self, owner: &str) -> Result<Owner> {
        let owners = self.kept_owners()?;
        owners.owner(&self.domain, owner).await
    }

    /// The events of this bank: those of owners and HTTP requests.
    ///
    /// # Errors
    /// [`BankError::NoOwners`] if the bank had no outbox at its open.
    pub fn events(&self) -> Result<Arc<dyn EventSource>> {
        match self.known_outbox() {
            Some(outbox) => Ok(outbox.source()),
            None => Ok(self.kept_owners()?.outbox.source()),
        }
    }

    /// Starts a processor that sends the HTTP requests of transfers.
    ///
    /// The settings limit the allowed requests. Any number of processors may run.
    ///
    /// # Errors
    /// As [`Dispatcher::open`] and [`Processor::start`].
    pub async fn dispatch(&self, config: ProcessorConfig, http: HttpConfig) -> Result<Processor> {
        let dispatcher = Dispatcher::open(&self.domain, http).await?;
        let topics = Topics::new().with(http::TOPIC, dispatcher);
        Ok(self.outbox().await?.start(config, topics).await?)
    }

    /// Starts a processor that derives owners. Any number of them may run.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], or as [`Processor::start`].
    pub async fn derive_owners(&self, config: ProcessorConfig) -> Result<Processor> {
        let owners = self.kept_owners()?;
        // Events of other topics in the domain wait for other processors.
        let topics = Topics::new().with(TOPIC, owners.clone());
        Ok(owners.outbox.start(config, topics).await?)
    }

    /// Rebuilds all owners from the accounts, each in its own transaction.
    ///
    /// Transfers and processors may run during the rebuild. An unreadable account or owner does not
    /// stop the rebuild; [`Rebuilt::failed`] lists it.
    ///
    /// # Errors
    /// [`BankError::NoOwners`], [`BankError::Store`], or an error of the engine about the store.
    /// Written owners stay. Repeat the call.
    pub async fn rebuild_owners(&self) -> Result<Rebuilt> {
        self.kept_owners()?.rebuild(&self.domain).await
    }

    fn kept_owners(&self) -> Result<&Owners> {
        let domain = self.domain.name().to_owned();
        self.ledger.owners().ok_or(BankError::NoOwners { domain })
    }
}
