//! The counts of a power loss.

use std::fmt;
use std::ops::AddAssign;

/// The unsynced data at a power loss, by its fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Pages of files that have their synced content again.
    pub lost: u64,
    /// Unsynced pages that reached the disk.
    pub kept: u64,
    /// Pages with sectors of both contents.
    pub torn: u64,
    /// Files with another size than before the loss.
    pub cut: u64,
    /// Changes of folders that are undone.
    pub undone: u64,
    /// Unsynced changes of folders that reached the disk.
    pub done: u64,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.kept += other.kept;
        self.torn += other.torn;
        self.cut += other.cut;
        self.undone += other.undone;
        self.done += other.done;
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, kept, torn, cut, undone, done } = self;
        write!(
            f,
            "pages: {lost} lost, {kept} kept, {torn} torn; {cut} files with another size; \
             changes of folders: {undone} undone, {done} kept"
        )
    }
}
