//! Folders and files, with the changes that are not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fastrand::Rng;

use crate::content::Content;
use crate::loss::Loss;

/// The number of the root folder.
pub(crate) const ROOT: u64 = 1;

/// The number of removed names until unused files are dropped. The files are dropped from memory.
const GARBAGE: u64 = 256;

/// The guarantee for the entries of folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// All changes of folders are in one journal. Examples are ext4, XFS and Btrfs.
    ///
    /// Any sync writes the journal. A power loss undoes the newest changes.
    Journaled,
    /// A changed name is durable only after a sync of its folder. The name is new, renamed or
    /// removed. POSIX has this rule.
    ///
    /// The changes of different folders reach the disk in any order.
    PerFolder,
}

/// A file or a folder.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) mode: u16,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) modified: SystemTime,
    pub(crate) kind: Kind,
}

/// The content of an inode.
#[derive(Debug)]
pub(crate) enum Kind {
    File(Box<Content>),
    Folder(Folder),
}

/// The names in a folder, and the names on the disk.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    pub(crate) current: BTreeMap<OsString, u64>,
    synced: BTreeMap<OsString, u64>,
}

/// The new target of a name; `None` removes the name.
#[derive(Clone, Debug)]
struct Change {
    folder: u64,
    name: OsString,
    target: Option<u64>,
}

/// All inodes of a disk.
#[derive(Debug)]
pub(crate) struct Tree {
    metadata: Metadata,
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Unsynced changes, each atomic, in their order.
    pending: Vec<Vec<Change>>,
    /// The inodes in use, by their number of handles.
    open: BTreeMap<u64, u64>,
    removed: u64,
}

impl Tree {
    pub(crate) fn new(metadata: Metadata, user: u32, group: u32) -> Self {
        let root = Inode {
            mode: 0o755,
            user,
            group,
            modified: SystemTime::now(),
            kind: Kind::Folder(Folder::default()),
        };
        Self {
            metadata,
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            pending: Vec::new(),
            open: BTreeMap::new(),
            removed: 0,
        }
    }

    pub(crate) fn inode(&self, number: u64) -> Option<&Inode> {
        self.inodes.get(&number)
    }

    pub(crate) fn inode_mut(&mut self, number: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(&number)
    }

    pub(crate) fn content(&self, number: u64) -> Option<&Content> {
        match &self.inodes.get(&number)?.kind {
            Kind::File(content) => Some(content),
            Kind::Folder(_) => None,
        }
    }

    pub(crate) fn content_mut(&mut self, number: u64) -> Option<&mut Content> {
        match &mut self.inodes.get_mut(&number)?.kind {
            Kind::File(content) => Some(content),
            Kind::Folder(_) => None,
        }
    }

    pub(crate) fn folder(&self, number: u64) -> Option<&Folder> {
        match &self.inodes.get(&number)?.kind {
            Kind::Folder(folder) => Some(folder),
            Kind::File(_) => None,
        }
    }

    /// Returns the inode with this name.
    pub(crate) fn find(&self, folder: u64, name: &OsStr) -> Option<u64> {
        self.folder(folder)?.current.get(name).copied()
    }

    /// Adds an inode under a name, which must be free.
    pub(crate) fn add(&mut self, folder: u64, name: &OsStr, inode: Inode) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, inode);
        self.link(folder, name, number);
        number
    }

    /// Gives an inode a further name.
    pub(crate) fn link(&mut self, folder: u64, name: &OsStr, number: u64) {
        self.change(vec![Change { folder, name: name.to_owned(), target: Some(number) }]);
    }

    /// Removes a name.
    pub(crate) fn unlink(&mut self, folder: u64, name: &OsStr) {
        self.change(vec![Change { folder, name: name.to_owned(), target: None }]);
        self.removed += 1;
        if self.removed.is_multiple_of(GARBAGE) {
            self.collect();
        }
    }

    /// Renames, and replaces the inode with the new name.
    pub(crate) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let target = self.find(from.0, from.1);
        let change = |(folder, name): (u64, &OsStr), target| Change {
            folder,
            name: name.to_owned(),
            target,
        };
        self.change(vec![change(from, None), change(to, target)]);
    }

    fn change(&mut self, changes: Vec<Change>) {
        for Change { folder, name, target } in &changes {
            if let Some(Inode { kind: Kind::Folder(folder), modified, .. }) =
                self.inodes.get_mut(folder)
            {
                *modified = SystemTime::now();
                apply(&mut folder.current, name, *target);
            }
        }
        self.pending.push(changes);
    }

    /// Makes a file or a folder durable.
    pub(crate) fn sync(&mut self, number: u64) {
        if let Some(content) = self.content_mut(number) {
            content.sync();
        }
        let last = self.pending.len();
        self.commit(number, last);
    }

    /// Writes changes of a folder, with all that must precede.
    ///
    /// The changes are among the first `count` ones.
    fn commit(&mut self, number: u64, count: usize) -> u64 {
        let mut folders = BTreeSet::from([number]);
        let mut chosen = BTreeSet::new();
        for (at, changes) in self.pending[..count].iter().enumerate().rev() {
            let concerned = changes.iter().any(|change| folders.contains(&change.folder));
            if concerned || self.metadata == Metadata::Journaled {
                folders.extend(changes.iter().map(|change| change.folder));
                chosen.insert(at);
            }
        }
        let mut at = 0;
        let (written, rest) = std::mem::take(&mut self.pending).into_iter().partition(|_| {
            at += 1;
            chosen.contains(&(at - 1))
        });
        self.pending = rest;
        let written: Vec<Vec<Change>> = written;
        for Change { folder, name, target } in written.into_iter().flatten() {
            if let Some(Inode { kind: Kind::Folder(folder), .. }) = self.inodes.get_mut(&folder) {
                apply(&mut folder.synced, &name, target);
            }
        }
        chosen.len() as u64
    }

    pub(crate) fn open(&mut self, number: u64) {
        *self.open.entry(number).or_default() += 1;
    }

    pub(crate) fn close(&mut self, number: u64) {
        if let Some(count) = self.open.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&number);
            }
        }
    }

    /// Loses unsynced data, and closes all files.
    pub(crate) fn lose(&mut self, random: &mut Rng) -> Loss {
        let mut loss = Loss::default();
        // The strictest disk writes nothing before a sync.
        let all = random.u32(..3) == 0;
        if !all {
            loss.done = self.write_some(random);
        }
        loss.undone = std::mem::take(&mut self.pending).len() as u64;
        self.open.clear();
        for inode in self.inodes.values_mut() {
            if let Kind::Folder(folder) = &mut inode.kind {
                folder.current.clone_from(&folder.synced);
            }
        }
        self.collect();
        for inode in self.inodes.values_mut() {
            if let Kind::File(content) = &mut inode.kind {
                content.lose(random, all, &mut loss);
            }
        }
        loss
    }

    /// Writes a random part of the unsynced changes.
    fn write_some(&mut self, random: &mut Rng) -> u64 {
        if self.metadata == Metadata::Journaled {
            let count = random.usize(..=self.pending.len());
            return self.commit(ROOT, count);
        }
        let folders: BTreeSet<u64> =
            self.pending.iter().flatten().map(|change| change.folder).collect();
        let mut folders: Vec<u64> = folders.into_iter().collect();
        random.shuffle(&mut folders);
        let mut written = 0;
        for folder in folders {
            let count = random.usize(..=self.pending.len());
            written += self.commit(folder, count);
        }
        written
    }

    /// Removes the inodes that no name and no handle reaches.
    fn collect(&mut self) {
        let mut reached: BTreeSet<u64> = BTreeSet::new();
        let mut open: Vec<u64> = vec![ROOT];
        open.extend(self.open.keys());
        open.extend(self.pending.iter().flatten().filter_map(|change| change.target));
        while let Some(number) = open.pop() {
            if reached.insert(number)
                && let Some(folder) = self.folder(number)
            {
                open.extend(folder.current.values().chain(folder.synced.values()));
            }
        }
        self.inodes.retain(|number, _| reached.contains(number));
    }
}

fn apply(names: &mut BTreeMap<OsString, u64>, name: &OsStr, target: Option<u64>) {
    match target {
        Some(target) => names.insert(name.to_owned(), target),
        None => names.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    fn inode(kind: Kind) -> Inode {
        Inode { mode: 0o644, user: 0, group: 0, modified: SystemTime::now(), kind }
    }

    fn file() -> Inode {
        inode(Kind::File(Box::default()))
    }

    fn names(tree: &Tree, folder: u64) -> Vec<String> {
        let folder = tree.folder(folder).expect("a folder");
        folder.current.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Makes two folders with a file each.
    ///
    /// Only the first folder is synced.
    fn two_folders(metadata: Metadata) -> (Tree, u64, u64) {
        let mut tree = Tree::new(metadata, 0, 0);
        let folder = || inode(Kind::Folder(Folder::default()));
        let one = tree.add(ROOT, name("one"), folder());
        let two = tree.add(ROOT, name("two"), folder());
        tree.sync(ROOT);
        tree.add(two, name("b"), file());
        tree.add(one, name("a"), file());
        tree.sync(one);
        (tree, one, two)
    }

    #[test]
    fn journal_makes_older_changes_durable() {
        for seed in 0..50 {
            let (mut tree, one, two) = two_folders(Metadata::Journaled);
            tree.lose(&mut Rng::with_seed(seed));
            assert_eq!((names(&tree, one).len(), names(&tree, two).len()), (1, 1));
        }
    }

    #[test]
    fn posix_makes_one_folder_durable() {
        let mut lost = 0;
        for seed in 0..50 {
            let (mut tree, one, two) = two_folders(Metadata::PerFolder);
            tree.lose(&mut Rng::with_seed(seed));
            assert_eq!(names(&tree, one), ["a"]);
            lost += 1 - names(&tree, two).len();
        }
        assert!((10..50).contains(&lost), "{lost} of 50");
    }

    #[test]
    fn renames_are_atomic() {
        for metadata in [Metadata::Journaled, Metadata::PerFolder] {
            for seed in 0..50 {
                let (mut tree, one, two) = two_folders(metadata);
                tree.sync(two);
                tree.rename((one, name("a")), (two, name("b")));
                tree.lose(&mut Rng::with_seed(seed));
                assert_eq!(names(&tree, two), ["b"]);
                let target = tree.find(two, name("b")).expect("a file");
                let is_moved = names(&tree, one).is_empty();
                assert_eq!(is_moved, tree.find(one, name("a")).is_none());
                assert!(tree.content(target).is_some());
            }
        }
    }
}
