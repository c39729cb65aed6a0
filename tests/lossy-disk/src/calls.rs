//! The calls of the kernel.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use crate::content::PAGE;
use crate::power::Power;
use crate::tree::{Folder, Inode, Kind, Tree};

/// The time for which the kernel may remember names and sizes.
///
/// Each change comes through the kernel, and a loss mounts the disk again.
const TTL: Duration = Duration::from_secs(3600);

/// The reported number of pages of the disk.
const PAGES: u64 = 1 << 24;

/// The entries of an open folder.
type Listing = Vec<(u64, FileType, OsString)>;

/// A mounted disk.
#[derive(Debug)]
pub(crate) struct Calls {
    tree: Arc<Mutex<Tree>>,
    power: Power,
    listings: Mutex<BTreeMap<u64, Listing>>,
    next_handle: AtomicU64,
}

impl Calls {
    pub(crate) fn new(tree: Arc<Mutex<Tree>>, power: Power) -> Self {
        let listings = Mutex::default();
        Self { tree, power, listings, next_handle: AtomicU64::new(1) }
    }

    /// Reads, while the power is on.
    fn look<T>(&self, read: impl FnOnce(&Tree) -> Result<T, Errno>) -> Result<T, Errno> {
        let tree = self.tree.lock();
        if self.power.is_on() { read(&tree) } else { Err(Errno::EIO) }
    }

    /// Changes the disk, while the power is on.
    fn change<T>(&self, change: impl FnOnce(&mut Tree) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut tree = self.tree.lock();
        if self.power.allows_change() { change(&mut tree) } else { Err(Errno::EIO) }
    }

    fn handle(&self) -> FileHandle {
        FileHandle(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    fn add(&self, parent: INodeNo, name: &OsStr, inode: Inode) -> Result<FileAttr, Errno> {
        self.change(|tree| {
            tree.folder(parent.0).ok_or(Errno::ENOENT)?;
            if tree.find(parent.0, name).is_some() {
                return Err(Errno::EEXIST);
            }
            let number = tree.add(parent.0, name, inode);
            attributes(tree, number)
        })
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, wants_folder: bool) -> Result<(), Errno> {
        self.change(|tree| {
            let number = tree.find(parent.0, name).ok_or(Errno::ENOENT)?;
            match (tree.folder(number), wants_folder) {
                (Some(folder), true) if !folder.current.is_empty() => return Err(Errno::ENOTEMPTY),
                (Some(_), false) => return Err(Errno::EISDIR),
                (None, true) => return Err(Errno::ENOTDIR),
                _ => {}
            }
            tree.unlink(parent.0, name);
            Ok(())
        })
    }
}

/// Returns the answer to a question for attributes.
fn attributes(tree: &Tree, number: u64) -> Result<FileAttr, Errno> {
    let inode = tree.inode(number).ok_or(Errno::ENOENT)?;
    let size = match &inode.kind {
        Kind::File(content) => content.size(),
        Kind::Folder(_) => 0,
    };
    let time = inode.modified;
    Ok(FileAttr {
        ino: INodeNo(number),
        size,
        blocks: size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: kind(inode),
        perm: inode.mode,
        nlink: 1,
        uid: inode.user,
        gid: inode.group,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

fn kind(inode: &Inode) -> FileType {
    match inode.kind {
        Kind::File(_) => FileType::RegularFile,
        Kind::Folder(_) => FileType::Directory,
    }
}

/// Creates the inode that a request asks for.
fn inode(request: &Request, mode: u32, umask: u32, kind: Kind) -> Inode {
    Inode {
        mode: u16::try_from(mode & !umask & 0o7777).unwrap_or_default(),
        user: request.uid(),
        group: request.gid(),
        modified: SystemTime::now(),
        kind,
    }
}

fn entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Calls {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.look(|tree| {
            let number = tree.find(parent.0, name).ok_or(Errno::ENOENT)?;
            attributes(tree, number)
        });
        entry(reply, found);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.look(|tree| attributes(tree, number.0)) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let result = self.change(|tree| {
            if let (Some(size), Some(content)) = (size, tree.content_mut(number.0)) {
                content.resize(size);
            }
            let inode = tree.inode_mut(number.0).ok_or(Errno::ENOENT)?;
            if let Some(mode) = mode {
                inode.mode = u16::try_from(mode & 0o7777).unwrap_or_default();
            }
            inode.user = user.unwrap_or(inode.user);
            inode.group = group.unwrap_or(inode.group);
            match modified {
                Some(TimeOrNow::SpecificTime(time)) => inode.modified = time,
                Some(TimeOrNow::Now) => inode.modified = SystemTime::now(),
                None => {}
            }
            attributes(tree, number.0)
        });
        match result {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let folder = inode(request, mode, umask, Kind::Folder(Folder::default()));
        entry(reply, self.add(parent, name, folder));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.remove(parent, name, false));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.remove(parent, name, true));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = self.change(|tree| {
            tree.find(parent.0, name).ok_or(Errno::ENOENT)?;
            let replaced = tree.find(new_parent.0, new_name);
            if flags.contains(RenameFlags::RENAME_EXCHANGE) {
                return Err(Errno::EINVAL);
            }
            if replaced.is_some() && flags.contains(RenameFlags::RENAME_NOREPLACE) {
                return Err(Errno::EEXIST);
            }
            let folder = replaced.and_then(|number| tree.folder(number));
            if folder.is_some_and(|folder| !folder.current.is_empty()) {
                return Err(Errno::ENOTEMPTY);
            }
            tree.rename((parent.0, name), (new_parent.0, new_name));
            Ok(())
        });
        empty(reply, result);
    }

    fn link(
        &self,
        _request: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let result = self.change(|tree| {
            if tree.find(new_parent.0, new_name).is_some() {
                return Err(Errno::EEXIST);
            }
            tree.link(new_parent.0, new_name, number.0);
            attributes(tree, number.0)
        });
        entry(reply, result);
    }

    fn open(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut tree = self.tree.lock();
        if !self.power.is_on() {
            return reply.error(Errno::EIO);
        }
        tree.open(number.0);
        // The pages in the kernel stay valid, because each change comes through the kernel.
        reply.opened(self.handle(), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let file = inode(request, mode, umask, Kind::File(Box::default()));
        match self.add(parent, name, file) {
            Ok(attributes) => {
                self.tree.lock().open(attributes.ino.0);
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&TTL, &attributes, Generation(0), self.handle(), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.look(|tree| {
            let content = tree.content(number.0).ok_or(Errno::ENOENT)?;
            Ok(content.read(offset, size as usize))
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.change(|tree| {
            tree.content_mut(number.0).ok_or(Errno::ENOENT)?.write(offset, data);
            if let Some(inode) = tree.inode_mut(number.0) {
                inode.modified = SystemTime::now();
            }
            u32::try_from(data.len()).map_err(|_| Errno::EFBIG)
        });
        match written {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.tree.lock().close(number.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.change(|tree| {
            tree.sync(number.0);
            Ok(())
        });
        empty(reply, synced);
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.change(|tree| {
            tree.sync(number.0);
            Ok(())
        });
        empty(reply, synced);
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let listing = self.look(|tree| {
            let folder = tree.folder(number.0).ok_or(Errno::ENOTDIR)?;
            let itself = [".", ".."].map(|name| (number.0, FileType::Directory, name.into()));
            let entries = folder.current.iter().filter_map(|(name, number)| {
                Some((*number, kind(tree.inode(*number)?), name.clone()))
            });
            Ok(itself.into_iter().chain(entries).collect())
        });
        match listing {
            Ok(listing) => {
                let handle = self.handle();
                self.listings.lock().insert(handle.0, listing);
                reply.opened(handle, FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = self.listings.lock();
        let entries = listings.get(&handle.0).into_iter().flatten();
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (number, kind, name)) in entries.enumerate().skip(begin) {
            if reply.add(INodeNo(*number), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.lock().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let free = PAGES / 4 * 3;
        let size = u32::try_from(PAGE).unwrap_or_default();
        reply.statfs(PAGES, free, free, PAGES, free, size, 255, size);
    }
}
