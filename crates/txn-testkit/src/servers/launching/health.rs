//! Asks a server over HTTP for its health.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::servers::credentials::Credentials;
use crate::servers::error::{Error, OnPath, Result};

/// A client for health requests.
#[derive(Debug)]
pub(crate) struct Doctor {
    agent: Agent,
    authorization: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    timed_out: bool,
    number_of_nodes: usize,
}

impl Doctor {
    /// Creates a client that trusts this authority and sends these credentials.
    pub(crate) fn new(authority: Option<&Path>, credentials: Option<&Credentials>) -> Result<Self> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = authority {
            let pem = fs::read(path).on("read", path)?;
            let certificate = Certificate::from_pem(&pem)
                .map_err(|error| Error::Other(format!("{}: {error}", path.display())))?;
            tls = tls.root_certs(RootCerts::Specific(Arc::new(vec![certificate])));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .proxy(None)
            .tls_config(tls.build());
        Ok(Self {
            agent: config.build().into(),
            authorization: credentials.map(Credentials::basic),
        })
    }

    /// Returns the fault of a server; `None` if it is healthy.
    ///
    /// A healthy server sees at least `nodes` nodes, and every index has its primaries.
    pub(crate) fn complaint(&self, url: &str, nodes: usize) -> Option<String> {
        let path =
            format!("_cluster/health?wait_for_status=yellow&wait_for_nodes=ge({nodes})&timeout=2s");
        match self.get(&format!("{url}/{path}")) {
            Ok((200, Some(answer))) if !answer.timed_out && answer.number_of_nodes >= nodes => None,
            Ok((_, Some(answer))) => Some(format!(
                "it sees {} of {nodes} nodes, or an index lacks primaries",
                answer.number_of_nodes
            )),
            Ok((status, None)) => Some(format!("its health cannot be read (status {status})")),
            Err(error) => Some(format!("it does not answer ({error})")),
        }
    }

    fn get(&self, url: &str) -> Result<(u16, Option<Answer>), ureq::Error> {
        let mut request = self.agent.get(url);
        if let Some(value) = &self.authorization {
            request = request.header("Authorization", value);
        }
        let mut response = request.call()?;
        let answer = response.body_mut().read_json().ok();
        Ok((response.status().as_u16(), answer))
    }
}
