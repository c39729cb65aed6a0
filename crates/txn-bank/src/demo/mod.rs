pub(crate) mod worker;
use crate::cli::{args::Global, failure::{Exit, Failure}};
pub(crate) async fn run(_global: &Global) -> Result<Exit, Failure> { Ok(Exit::Done) }
