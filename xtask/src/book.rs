//! `cargo xtask book`: builds the documents as a book.

use std::io::ErrorKind;
use std::process::Command;

use crate::Failure;
use crate::cargo::root;

/// Builds the book, if mdBook is installed.
pub(crate) fn build() -> Result<(), Failure> {
    let root = root();
    let mut mdbook = Command::new("mdbook");
    match mdbook.arg("build").current_dir(&root).status() {
        Ok(status) if status.success() => {
            println!("{}", root.join("book/index.html").display());
            Ok(())
        }
        Ok(status) => Err(format!("mdbook: {status}").into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("mdbook is not installed: `cargo install mdbook --locked`, and try again".into())
        }
        Err(error) => Err(format!("cannot run mdbook: {error}").into()),
    }
}
