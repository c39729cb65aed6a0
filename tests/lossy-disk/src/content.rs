//! The content of one file: the current one and the synced one.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;

use crate::loss::Loss;

/// The size of a page, which a disk may lose alone.
pub(crate) const PAGE: usize = 4096;

/// The size of a sector. A disk writes a sector completely or not at all.
const SECTOR: usize = 512;

type Page = [u8; PAGE];

/// A sequence of bytes. A missing page is zero.
#[derive(Clone, Debug, Default)]
struct Bytes {
    size: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl Bytes {
    fn page(&self, number: usize) -> Option<&Arc<Page>> {
        self.pages.get(number).and_then(Option::as_ref)
    }

    fn set_page(&mut self, number: usize, page: Option<Arc<Page>>) {
        if number >= self.pages.len() {
            self.pages.resize(number + 1, None);
        }
        self.pages[number] = page;
    }

    /// Clears everything after the size.
    fn clear_tail(&mut self) {
        let size = index(self.size);
        self.pages.truncate(size.div_ceil(PAGE));
        let rest = size % PAGE;
        if let Some(Some(page)) = self.pages.get_mut(size / PAGE).filter(|_| rest > 0) {
            Arc::make_mut(page)[rest..].fill(0);
        }
    }
}

/// The content of a file, and its state on the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    current: Bytes,
    synced: Bytes,
    /// The pages that may differ.
    unsynced: BTreeSet<usize>,
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        self.current.size
    }

    /// Returns the bytes from `offset`, at most `length`.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let rest = index(self.current.size.saturating_sub(offset));
        let mut bytes = vec![0; length.min(rest)];
        for (number, at, range) in parts(index(offset), bytes.len()) {
            if let Some(page) = self.current.page(number) {
                let length = range.len();
                bytes[range].copy_from_slice(&page[at..at + length]);
            }
        }
        bytes
    }

    /// Writes bytes at `offset`, unsynced.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, at, range) in parts(index(offset), bytes.len()) {
            let mut page =
                self.current.page(number).cloned().unwrap_or_else(|| Arc::new([0; PAGE]));
            let length = range.len();
            // The page stays shared with the synced content until here.
            Arc::make_mut(&mut page)[at..at + length].copy_from_slice(&bytes[range]);
            self.current.set_page(number, Some(page));
            self.unsynced.insert(number);
        }
        self.current.size = self.current.size.max(offset + bytes.len() as u64);
    }

    /// Cuts or extends the file, unsynced.
    pub(crate) fn resize(&mut self, size: u64) {
        let (old, new) = (index(self.current.size), index(size));
        if new < old {
            self.unsynced.extend(new / PAGE..old.div_ceil(PAGE));
        }
        self.current.size = size;
        self.current.clear_tail();
    }

    /// Makes the current content durable.
    pub(crate) fn sync(&mut self) {
        for number in std::mem::take(&mut self.unsynced) {
            let page = self.current.page(number).cloned();
            self.synced.set_page(number, page);
        }
        self.synced.size = self.current.size;
        self.synced.clear_tail();
    }

    /// Loses unsynced data. With `all`, no unsynced data stays.
    pub(crate) fn lose(&mut self, random: &mut Rng, all: bool, loss: &mut Loss) {
        let (old, new) = (self.synced.size, self.current.size);
        let whole = random.bool();
        let keeps = random.bool();
        for number in std::mem::take(&mut self.unsynced) {
            let page = match random.u32(..3) {
                _ if all || (whole && !keeps) => None,
                _ if whole => Some(self.current.page(number).cloned()),
                0 => None,
                1 => Some(self.current.page(number).cloned()),
                _ => {
                    loss.torn += 1;
                    let pages = (self.synced.page(number), self.current.page(number));
                    self.synced.set_page(number, Some(torn(pages, random)));
                    continue;
                }
            };
            match page {
                Some(page) => {
                    loss.kept += 1;
                    self.synced.set_page(number, page);
                }
                None => loss.lost += 1,
            }
        }
        self.synced.size = match random.u32(..3) {
            _ if all || (whole && !keeps) => old,
            _ if whole => new,
            0 => old,
            1 => new,
            _ => random.u64(old.min(new)..=old.max(new)),
        };
        self.synced.clear_tail();
        loss.cut += u64::from(self.synced.size != new);
        self.current = self.synced.clone();
    }
}

/// Returns a page with some sectors of each page.
fn torn(
    (synced, current): (Option<&Arc<Page>>, Option<&Arc<Page>>),
    random: &mut Rng,
) -> Arc<Page> {
    let zero = [0; PAGE];
    let content = |page: Option<&Arc<Page>>| page.map_or(zero, |page| **page);
    let (mut page, current) = (content(synced), content(current));
    for (sector, new) in page.chunks_mut(SECTOR).zip(current.chunks(SECTOR)) {
        if random.bool() {
            sector.copy_from_slice(new);
        }
    }
    Arc::new(page)
}

/// Returns the pages of a range.
///
/// Each page has its number, the offset inside the page, and the part of the range.
fn parts(
    offset: usize,
    length: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < length).then(|| {
            let (number, at) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let begin = done;
            done = length.min(done + PAGE - at);
            (number, at, begin..done)
        })
    })
}

/// Returns a position in a file as an index.
fn index(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(content: &mut Content, all: bool) -> Loss {
        let mut loss = Loss::default();
        content.lose(&mut Rng::with_seed(1), all, &mut loss);
        loss
    }

    /// Random writes and cuts have the same effect as on a vector.
    #[test]
    fn content_equals_a_vector() {
        let mut random = Rng::with_seed(3);
        let (mut content, mut expected, mut synced) = (Content::default(), Vec::new(), Vec::new());
        for step in 0..4_000_u32 {
            match random.u32(..12) {
                0 => {
                    let size = random.usize(..5 * PAGE);
                    content.resize(size as u64);
                    expected.resize(size, 0);
                }
                1 => {
                    content.sync();
                    synced.clone_from(&expected);
                }
                2 => {
                    lost(&mut content, true);
                    expected.clone_from(&synced);
                }
                _ => {
                    let (offset, length) = (random.usize(..4 * PAGE), random.usize(..2 * PAGE));
                    let bytes = vec![step.to_le_bytes()[0]; length];
                    content.write(offset as u64, &bytes);
                    expected.resize(expected.len().max(offset + length), 0);
                    expected[offset..offset + length].copy_from_slice(&bytes);
                }
            }
            assert_eq!(content.size(), expected.len() as u64);
            assert_eq!(content.read(0, usize::MAX >> 1), expected, "step {step}");
        }
    }

    #[test]
    fn torn_pages_have_whole_sectors() {
        let mut seen = Loss::default();
        for seed in 0..200 {
            let mut content = Content::default();
            content.write(0, &[1; 3 * PAGE]);
            content.sync();
            content.write(0, &[2; 4 * PAGE]);
            let mut loss = Loss::default();
            content.lose(&mut Rng::with_seed(seed), false, &mut loss);
            let bytes = content.read(0, 4 * PAGE);
            assert!(bytes.len() >= 3 * PAGE);
            for sector in bytes[..3 * PAGE].chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0] && *byte > 0));
            }
            seen += loss;
        }
        assert!(seen.lost > 0 && seen.kept > 0 && seen.torn > 0 && seen.cut > 0, "{seen}");
    }
}
