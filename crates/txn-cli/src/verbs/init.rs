//! The verb that creates a domain and its collections.

use std::path::Path;

use serde_json::json;
use txn_core::Raw;

use crate::answer::{Answer, Exit, Failure};
use crate::args::Global;
use crate::session::Session;

/// The largest file with a mapping, in bytes.
const LARGEST: u64 = 4 << 20;

pub(super) async fn init(
    global: &Global,
    collections: &[String],
    mappings: Option<&Path>,
) -> Result<Answer, Failure> {
    let mappings = mappings.map(read).transpose()?;
    let session = Session::create(global).await?;
    let done = made(&session, collections, mappings.as_deref()).await;
    session.close().await;
    done
}

async fn made(
    session: &Session,
    collections: &[String],
    mappings: Option<&str>,
) -> Result<Answer, Failure> {
    let domain = &session.domain;
    let mut names = Vec::new();
    for name in collections {
        let collection = domain.create_collection::<Raw>(name, mappings).await?;
        names.push(collection.name().to_owned());
    }
    let list = match names.is_empty() {
        true => "no collection".to_owned(),
        false => names.join(", "),
    };
    let text = format!(
        "The domain {:?} is ready in {}, with {list}.\nNext: give each program its role: `txn roles COLLECTION…`.",
        domain.name(),
        session.what()
    );
    let json = json!({ "domain": domain.name(), "collections": names });
    Ok(Answer::new(Exit::Well, text, json))
}

/// Reads a file of bounded size.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let failed = |error: std::io::Error| {
        Failure::invalid(format!("cannot read {}: {error}", path.display()))
    };
    let mut text = String::new();
    let source: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(failed)?),
    };
    source.take(LARGEST + 1).read_to_string(&mut text).map_err(failed)?;
    match u64::try_from(text.len()) {
        Ok(bytes) if bytes <= LARGEST => Ok(text),
        _ => Err(Failure::invalid(format!("{} is larger than 4 MiB", path.display()))),
    }
}
