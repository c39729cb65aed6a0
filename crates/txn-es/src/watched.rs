//! Files that are read again after a change, such as certificates.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// The largest file, in bytes.
const LARGEST: u64 = 1 << 20;

/// Reads the contents of the files. The reason of a failure has no content.
pub type Parse<T> = fn(&[Vec<u8>]) -> Result<T, String>;

/// A value that stands in files.
///
/// Files that cannot be read or do not fit change nothing: they may be half-written.
pub struct Watched<T> {
    paths: Vec<PathBuf>,
    parse: Parse<T>,
    state: Mutex<State<T>>,
    /// Held while the files are read, so that the last content wins.
    reloading: Mutex<()>,
}

struct State<T> {
    /// The digest of the files at the last read. `None` if the files could not be read.
    seen: Option<[u8; 32]>,
    value: Arc<T>,
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if the files cannot be read, or do not fit.
    pub fn open(paths: Vec<PathBuf>, parse: Parse<T>) -> io::Result<Self> {
        let contents = read(&paths).map_err(unfit)?;
        let value = parse(&contents).map_err(|why| unfit(within(&paths, &why)))?;
        let value = Arc::new(value);
        let state = Mutex::new(State { seen: Some(digest(&contents)), value });
        Ok(Self { paths, parse, state, reloading: Mutex::default() })
    }

    /// The value of the last files that fit.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        self.state.lock().value.clone()
    }

    /// Reads the files again. Returns whether there is a new value.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] at the first call that finds files that do not fit.
    pub fn reload(&self) -> io::Result<bool> {
        let _reloading = self.reloading.lock();
        let contents = read(&self.paths);
        let seen = contents.as_ref().ok().map(|contents| digest(contents));
        {
            let mut state = self.state.lock();
            if seen == state.seen {
                return Ok(false);
            }
            state.seen = seen;
        }
        let value = (self.parse)(&contents.map_err(unfit)?);
        let value = value.map_err(|why| unfit(within(&self.paths, &why)))?;
        self.state.lock().value = Arc::new(value);
        Ok(true)
    }
}

fn unfit(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn within(paths: &[PathBuf], why: &str) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("{}: {why}", paths.join(", "))
}

fn read(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let one = |path: &PathBuf| {
        let mut content = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut content))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        match content.len() as u64 > LARGEST {
            true => Err(format!("{}: the file has more than {LARGEST} bytes", path.display())),
            false => Ok(content),
        }
    };
    paths.iter().map(one).collect()
}

fn digest(contents: &[Vec<u8>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for content in contents {
        digest.update(content.len().to_be_bytes());
        digest.update(content);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn number(contents: &[Vec<u8>]) -> Result<u32, String> {
        let text = String::from_utf8_lossy(&contents[0]);
        text.trim().parse().map_err(|_| "no number".to_owned())
    }

    #[test]
    fn broken_file_keeps_the_value_and_fails_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("number");
        Watched::open(vec![path.clone()], number).expect_err("there is no file");
        fs::write(&path, "1").expect("writes");
        let watched = Watched::open(vec![path.clone()], number).expect("a number");
        assert!(!watched.reload().expect("fits"));
        fs::write(&path, "2").expect("writes");
        assert_eq!((watched.reload().expect("fits"), *watched.current()), (true, 2));
        fs::write(&path, "x").expect("writes");
        assert!(watched.reload().is_err_and(|why| why.to_string().ends_with("no number")));
        assert_eq!((watched.reload().expect("told before"), *watched.current()), (false, 2));
        fs::remove_file(&path).expect("removes");
        watched.reload().expect_err("there is no file");
        assert_eq!((watched.reload().expect("told before"), *watched.current()), (false, 2));
        fs::write(&path, "2").expect("writes");
        assert_eq!((watched.reload().expect("fits"), *watched.current()), (true, 2));
        fs::write(&path, vec![b' '; (1 << 20) + 1]).expect("writes");
        assert!(watched.reload().is_err_and(|why| why.to_string().contains("more than")));
    }
}
