//! A disk that loses its power, as a backend of redb.
//!
//! The disk keeps synced bytes and the writes since the last sync apart. After a power loss each
//! unsynced sector survives, vanishes, or is torn within, independently of earlier and later
//! writes. So the survivors are also reordered. A seed decides everything.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// The unit that a real disk writes at once.
const SECTOR: usize = 512;

/// A source of numbers that a seed repeats.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x51_7CC1)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// The answer of the disk to a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// The disk acknowledges a sync after all writes are durable.
    Honest,
    /// The disk acknowledges a sync without durability. Nothing is durable since the disk was
    /// opened.
    Lying,
}

#[derive(Clone, Debug)]
enum Unsynced {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug)]
struct State {
    synced: Vec<u8>,
    /// The synced bytes with all writes since.
    current: Vec<u8>,
    unsynced: Vec<Unsynced>,
    /// The number of writes and syncs until the power loss.
    left: usize,
    sync: Sync,
}

/// The disk. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// A disk that loses its power later.
    ///
    /// `bytes` is the content. The power ends after `left` writes and syncs.
    pub(crate) fn new(bytes: Vec<u8>, left: usize, sync: Sync) -> Self {
        let state =
            State { synced: bytes.clone(), current: bytes, unsynced: Vec::new(), left, sync };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn is_off(&self) -> bool {
        self.state().left == 0
    }

    /// Loses the power now, and returns the bytes that survive.
    pub(crate) fn survivors(&self, dice: &mut Dice) -> Vec<u8> {
        let mut state = self.state();
        state.left = 0;
        let mut bytes = state.synced.clone();
        // Nothing, most, about half, or all of the sectors survive.
        let (kept, torn) = ([0, 20, 50, 90, 100][dice.below(5)], [0, 10][dice.below(2)]);
        for unsynced in &state.unsynced {
            match unsynced {
                Unsynced::Length(length) => {
                    if dice.below(100) < kept {
                        bytes.resize(*length, 0);
                    }
                }
                Unsynced::Write(offset, data) => {
                    let (mut at, end) = (*offset, offset + data.len());
                    while at < end {
                        let next = ((at / SECTOR + 1) * SECTOR).min(end);
                        if dice.below(100) < kept {
                            let is_torn = dice.below(100) < torn;
                            let (mut from, mut to) = (at, next);
                            if is_torn && dice.below(2) == 0 {
                                from += dice.below(next - at);
                            } else if is_torn {
                                to -= dice.below(next - at);
                            }
                            if bytes.len() < to {
                                bytes.resize(to, 0);
                            }
                            bytes[from..to].copy_from_slice(&data[from - offset..to - offset]);
                        }
                        at = next;
                    }
                }
            }
        }
        bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a step, and returns the state of a powered disk.
    ///
    /// Fails if the disk has no power.
    fn step(&self) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.state();
        state.left = state.left.saturating_sub(1);
        if state.left == 0 { Err(off()) } else { Ok(state) }
    }
}

fn off() -> Error {
    Error::other("the power is off")
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, Error> {
        let state = self.state();
        if state.left == 0 { Err(off()) } else { Ok(state.current.len() as u64) }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let state = self.state();
        if state.left == 0 {
            return Err(off());
        }
        let start = usize::try_from(offset).map_err(Error::other)?;
        let bytes = start.checked_add(out.len()).and_then(|end| state.current.get(start..end));
        out.copy_from_slice(bytes.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<(), Error> {
        let length = usize::try_from(length).map_err(Error::other)?;
        // The write at the moment of the power loss may survive too.
        {
            let mut state = self.state();
            if state.left == 0 {
                return Err(off());
            }
            state.unsynced.push(Unsynced::Length(length));
        }
        self.step()?.current.resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        let mut state = self.step()?;
        if state.sync == Sync::Honest {
            state.synced = state.current.clone();
            state.unsynced.clear();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let start = usize::try_from(offset).map_err(Error::other)?;
        let end =
            start.checked_add(data.len()).ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        {
            let mut state = self.state();
            if state.left == 0 {
                return Err(off());
            }
            state.unsynced.push(Unsynced::Write(start, data.to_vec()));
        }
        let mut state = self.step()?;
        if state.current.len() < end {
            state.current.resize(end, 0);
        }
        state.current[start..end].copy_from_slice(data);
        Ok(())
    }
}
