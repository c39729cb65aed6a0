use crate::cli::{args::Global, failure::{Exit, Failure}};
pub(crate) async fn process(_global: &Global, _worker: usize) -> Result<Exit, Failure> { Ok(Exit::Done) }
