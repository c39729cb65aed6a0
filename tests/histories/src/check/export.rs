//! Histories as files, for checkers of others.

use std::fs::{self, File};
use std::io::{BufWriter, Result, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::history::{History, Model};

/// The number of histories that this process has written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes a history as `<model>-<process>-<number>.edn` and `.json`.
pub(super) fn export(history: &History, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let model = match history.model {
        Model::ListAppend => "list-append",
        Model::Register => "rw-register",
    };
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let name = format!("{model}-{}-{number}", std::process::id());
    let create = |extension: &str| -> Result<BufWriter<File>> {
        Ok(BufWriter::new(File::create(folder.join(format!("{name}.{extension}")))?))
    };
    let mut edn = create("edn")?;
    history.write_edn(&mut edn)?;
    edn.flush()?;
    let mut json = create("json")?;
    history.write_json(&mut json)?;
    json.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_history_is_one_file_per_form() {
        let folder = std::env::temp_dir().join(format!("txn-histories-{}", std::process::id()));
        let history = History { model: Model::Register, entries: Vec::new(), finals: None };
        export(&history, &folder).expect("writes");
        let mut extensions: Vec<String> = fs::read_dir(&folder)
            .expect("reads")
            .map(|entry| entry.expect("reads").path())
            .filter_map(|path| Some(path.extension()?.to_string_lossy().into_owned()))
            .collect();
        extensions.sort();
        fs::remove_dir_all(&folder).expect("removes");
        assert_eq!(extensions, ["edn", "json"]);
    }
}
