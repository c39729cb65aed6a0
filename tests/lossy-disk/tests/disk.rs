//! The disk keeps what was synced, and loses the rest.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use fastrand::Rng;
use tempfile::TempDir;
use txn_lossy_disk::{Disk, Loss, Metadata, Power, check};

const BOTH: [Metadata; 2] = [Metadata::Journaled, Metadata::PerFolder];

/// Mounts a disk; `None` where that is impossible.
fn disk(metadata: Metadata) -> Option<(Disk, Power, TempDir)> {
    if let Err(reason) = check() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let folder = TempDir::new().expect("a folder");
    let power = Power::default();
    let disk = Disk::mount(folder.path(), metadata, &power).expect("mounts");
    Some((disk, power, folder))
}

fn write(path: &Path, text: &str, synced: bool) {
    let mut file = File::create(path).expect("is created");
    file.write_all(text.as_bytes()).expect("is written");
    if synced {
        file.sync_all().expect("is synced");
    }
}

fn sync_folder(path: &Path) {
    File::open(path).expect("opens").sync_all().expect("is synced");
}

fn fails(disk: &mut Disk, power: &Power, seed: u64) -> Loss {
    power.cut();
    assert!(File::create(disk.folder().join("late")).is_err());
    let loss = disk.lose(&mut Rng::with_seed(seed)).expect("is mounted again");
    power.restore();
    loss
}

#[test]
fn only_synced_files_survive() {
    let (mut lost, mut all) = (0, Loss::default());
    for metadata in BOTH {
        for seed in 0..20 {
            let Some((mut disk, power, folder)) = disk(metadata) else { return };
            let path = |name: &str| folder.path().join(name);
            write(&path("synced"), "first", true);
            sync_folder(folder.path());
            write(&path("unsynced"), "second", false);
            all += fails(&mut disk, &power, seed);
            assert_eq!(fs::read_to_string(path("synced")).expect("is there"), "first");
            lost +=
                usize::from(fs::read_to_string(path("unsynced")).ok().as_deref() != Some("second"));
        }
    }
    assert!((20..40).contains(&lost), "{lost} of 40");
    assert!(all.lost > 0 && all.undone > 0 && all.done > 0, "{all}");
}

#[test]
fn unsynced_overwrite_never_costs_synced_bytes() {
    for seed in 0..20 {
        let Some((mut disk, power, folder)) = disk(Metadata::PerFolder) else { return };
        let path = folder.path().join("file");
        write(&path, &"a".repeat(10_000), true);
        sync_folder(folder.path());
        let mut file = File::options().append(true).open(&path).expect("opens");
        file.write_all(&[b'b'; 10_000]).expect("is written");
        drop(file);
        fails(&mut disk, &power, seed);
        let bytes = fs::read(&path).expect("is there");
        assert!(bytes.len() >= 10_000 && bytes[..10_000].iter().all(|byte| *byte == b'a'));
    }
}

#[test]
fn rename_is_durable_after_folder_sync() {
    for metadata in BOTH {
        for seed in 0..20 {
            let Some((mut disk, power, folder)) = disk(metadata) else { return };
            let path = |name: &str| folder.path().join(name);
            write(&path("state"), "old", true);
            sync_folder(folder.path());
            write(&path("draft"), "new", true);
            fs::rename(path("draft"), path("state")).expect("is renamed");
            if seed < 10 {
                sync_folder(folder.path());
            }
            fails(&mut disk, &power, seed);
            let state = fs::read_to_string(path("state")).expect("is there");
            assert!(state == "new" || (seed >= 10 && state == "old"), "{state:?} with {seed}");
        }
    }
}

#[test]
fn power_fails_between_write_and_sync() {
    let Some((mut disk, power, folder)) = disk(Metadata::Journaled) else { return };
    let path = folder.path().join("file");
    write(&path, "old", true);
    let mut file = File::options().write(true).open(&path).expect("opens");
    power.cut_after(1);
    file.write_all(b"new").expect("is the last change");
    assert!(file.sync_all().is_err());
    assert!(!power.is_on());
    drop(file);
    disk.lose(&mut Rng::with_seed(1)).expect("is mounted again");
    power.restore();
    let text = fs::read_to_string(&path).expect("is there");
    assert!(text == "old" || text == "new", "{text}");
}

#[test]
fn disk_behaves_like_a_file_system() {
    let Some((_disk, _power, folder)) = disk(Metadata::Journaled) else { return };
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("a/b")).expect("folders");
    for number in 0..300 {
        write(&path(&format!("a/b/{number}")), &number.to_string(), false);
    }
    assert_eq!(fs::read_dir(path("a/b")).expect("a folder").count(), 300);
    assert!(fs::remove_dir(path("a/b")).is_err(), "it is not empty");
    fs::hard_link(path("a/b/7"), path("seven")).expect("a second name");
    fs::remove_dir_all(path("a")).expect("is removed");
    assert_eq!(fs::read_to_string(path("seven")).expect("is there"), "7");
    let file = File::options().write(true).open(path("seven")).expect("opens");
    file.set_len(5).expect("is longer");
    assert_eq!(fs::read(path("seven")).expect("is there"), b"7\0\0\0\0");
    file.set_len(0).expect("is shorter");
    assert_eq!(fs::metadata(path("seven")).expect("is there").len(), 0);
}
