//! The window: who was the last to have each lock, among the requests that were delivered lately.
//!
//! It is a function of the order, like everything a verdict depends on. For each key it has, for
//! each of the four strengths of row locks, the last position at which a request had that lock; for
//! each tree the same with the eight modes of tree locks; and of each key the last position that
//! changed it, which is what a snapshot is held against: who only locked it has left it as it was.
//! What lies at or below the *floor* is forgotten; nobody whose `bot` or snapshot is below the
//! floor is judged.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::request::Place;
use crate::key::SmallKey;
use crate::lock::mode::{LockMode, Mode, Modes, TreeMode};
use crate::lock::table::HeldLock;
use crate::payload::{Encoder, Input};
use crate::{Csn, TransactionId, TreeId};

/// Modes of rows (four strengths) and of trees (eight).
const MODES: usize = 8;
/// Stands among the modes of rows for a change.
const CHANGED: u8 = 4;
/// To forget more places than these takes longer than some threads have time.
pub(super) const MUCH: usize = 1 << 14;

/// When a mode was last held, and by whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Last {
    mode: u8,
    position: Csn,
    by: TransactionId,
}

/// Most keys are locked in one mode only.
type Lasts = smallvec::SmallVec<[Last; 1]>;

/// See the module's prose.
#[derive(Debug, Default)]
pub(crate) struct Window {
    locked: HashMap<Place, Lasts, RandomState>,
    /// Which places each position has locked, oldest first.
    entered: VecDeque<(Csn, Vec<Place>)>,
    floor: Csn,
}

/// A lock that does not go together with a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) position: Csn,
    pub(crate) by: TransactionId,
}

/// Modes of rows without the difference between siblings and others.
pub(super) fn strengths(lock: &HeldLock) -> Modes {
    match lock.key {
        Some(_) => (lock.modes | lock.modes >> 4) & 0b1111,
        None => lock.modes,
    }
}

/// The modes that do not go together with a lock.
pub(super) fn against(lock: &HeldLock) -> Modes {
    match lock.key {
        Some(_) => Mode::Row(LockMode::Exclusive).keeps_out(strengths(lock)) & 0b1111,
        None => Mode::Tree(TreeMode::Read).keeps_out(lock.modes),
    }
}

fn encode_place(out: &mut Encoder, (tree, key): &Place) {
    out.varint(u64::from(*tree));
    out.optional(key.as_deref());
}

fn decode_place(input: &mut Input<'_>) -> Result<Place, String> {
    Ok((input.tree()?, input.optional()?.map(SmallKey::new)))
}

impl Window {
    /// One without locks, for those who look from a position on.
    pub(super) fn at(floor: Csn) -> Window {
        Window { floor, ..Window::default() }
    }

    /// The last request after `since` that had a lock against this one.
    pub(crate) fn conflict(&self, lock: &HeldLock, since: Csn) -> Option<Conflict> {
        let lasts = self.locked.get(&(lock.tree, lock.key.clone()))?;
        let against = against(lock);
        let in_the_way = |last: &&Last| last.position > since && against & 1 << last.mode != 0;
        let last = lasts.iter().filter(in_the_way).max_by_key(|last| last.position)?;
        Some(Conflict { position: last.position, by: last.by })
    }

    /// The last request after `since` that changed the key.
    pub(crate) fn changed(&self, lock: &HeldLock, since: Csn) -> Option<Conflict> {
        let lasts = self.locked.get(&(lock.tree, lock.key.clone()))?;
        let is_later = |last: &&Last| last.position > since && last.mode == CHANGED;
        let last = lasts.iter().find(is_later).filter(|_| lock.key.is_some())?;
        Some(Conflict { position: last.position, by: last.by })
    }

    /// Who was the last to change a key, or to have a tree to itself, as long as that is known.
    pub(crate) fn last_at(&self, tree: TreeId, key: Option<&[u8]>) -> Option<TransactionId> {
        let modes = if key.is_some() { 0 } else { Mode::Tree(TreeMode::Read).bit() };
        let lock = HeldLock { tree, key: key.map(SmallKey::new), modes };
        let last = match lock.key {
            Some(_) => self.changed(&lock, 0),
            None => self.conflict(&lock, 0),
        };
        last.map(|Conflict { by, .. }| by)
    }

    /// A request with these locks was delivered; with each, whether it changed the key.
    pub(crate) fn enter<'a>(
        &mut self,
        position: Csn,
        by: TransactionId,
        locks: impl Iterator<Item = &'a (HeldLock, bool)>,
    ) {
        let mut places = Vec::new();
        for (lock, changes) in locks {
            let place = (lock.tree, lock.key.clone());
            let lasts = self.locked.entry(place.clone()).or_default();
            let modes = strengths(lock) | if *changes { 1 << CHANGED } else { 0 };
            for mode in (0..MODES as u8).filter(|mode| modes & 1 << mode != 0) {
                match lasts.iter_mut().find(|last| last.mode == mode) {
                    Some(last) => (last.position, last.by) = (position, by),
                    None => lasts.push(Last { mode, position, by }),
                }
            }
            places.push(place);
        }
        if !places.is_empty() {
            self.entered.push_back((position, places));
        }
    }

    /// Whether it takes long to forget what lies at or below `floor`: one large request, or
    /// many small ones at once, as when the last reader of an old snapshot has ended.
    pub(super) fn is_much_upto(&self, floor: Csn) -> bool {
        let forgotten = self.entered.iter().take_while(|(position, _)| *position <= floor);
        let mut sums = forgotten.scan(0, |sum: &mut usize, (_, places)| {
            *sum += places.len();
            Some(*sum)
        });
        sums.any(|sum| sum > MUCH)
    }

    /// Nobody is judged any more who last looked before `floor`.
    pub(crate) fn forget(&mut self, floor: Csn) {
        self.floor = self.floor.max(floor);
        while self.entered.front().is_some_and(|(position, _)| *position <= self.floor) {
            let Some((_, places)) = self.entered.pop_front() else { return };
            for place in places {
                // A later position may have it, too; then it is asked again with that one.
                let Some(lasts) = self.locked.get_mut(&place) else { continue };
                lasts.retain(|last| last.position > self.floor);
                if lasts.is_empty() {
                    self.locked.remove(&place);
                }
            }
        }
    }

    /// Writes it: the floor; count, and for each place: tree id, key length + 1 (0 = the whole
    /// tree), key, and count of modes, for each: mode, position, transaction; count, and for each
    /// position that entered: position, and its places.
    pub(super) fn encode(&self, out: &mut Encoder) {
        out.varint(self.floor);
        out.varint(self.locked.len() as u64);
        for (place, lasts) in &self.locked {
            encode_place(out, place);
            out.list(lasts, |out, last| {
                out.byte(last.mode);
                out.varint(last.position);
                out.varint(last.by);
            });
        }
        out.varint(self.entered.len() as u64);
        for (position, places) in &self.entered {
            out.varint(*position);
            out.list(places, encode_place);
        }
    }

    /// Reads what [`Window::encode`] wrote.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn decode(input: &mut Input<'_>) -> Result<Window, String> {
        let floor = input.varint()?;
        let locked = input.list(|input| {
            let place = decode_place(input)?;
            let lasts = input.list(|input| {
                Ok(Last { mode: input.byte()?, position: input.varint()?, by: input.varint()? })
            })?;
            Ok((place, Lasts::from_vec(lasts)))
        })?;
        let entered = input.list(|input| Ok((input.varint()?, input.list(decode_place)?)))?;
        Ok(Window { locked: locked.into_iter().collect(), entered: entered.into(), floor })
    }

    /// How many keys and trees it has.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.locked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, mode: LockMode) -> HeldLock {
        HeldLock { tree: 7, key: Some(SmallKey::new(key.as_bytes())), modes: Mode::Row(mode).bit() }
    }

    fn tree(mode: TreeMode) -> HeldLock {
        HeldLock { tree: 7, key: None, modes: Mode::Tree(mode).bit() }
    }

    #[test]
    fn what_does_not_go_together_conflicts_after_the_last_look() {
        let mut window = Window::default();
        window.enter(5, 50, [(row("a", LockMode::NoKeyExclusive), true)].iter());
        let asks = |window: &Window, lock, since| window.conflict(&lock, since).map(|found| found.position);
        assert_eq!(asks(&window, row("a", LockMode::NoKeyExclusive), 4), Some(5));
        assert_eq!(asks(&window, row("a", LockMode::KeyShared), 4), None, "keys stay as they are");
        assert_eq!(asks(&window, row("a", LockMode::Exclusive), 5), None, "it was seen");
        assert_eq!(asks(&window, row("b", LockMode::Exclusive), 0), None);
    }

    #[test]
    fn who_only_locked_a_key_has_not_changed_it() {
        let mut window = Window::default();
        window.enter(5, 50, [(row("a", LockMode::NoKeyExclusive), true)].iter());
        window.enter(7, 70, [(row("a", LockMode::KeyShared), false)].iter());
        let mut image = Encoder::with_capacity(100);
        window.encode(&mut image);
        let image = image.finish();
        let again = Window::decode(&mut Input::of(&image)).expect("it was encoded");
        for window in [window, again] {
            let mine = row("a", LockMode::Exclusive);
            let changed = |since| window.changed(&mine, since).map(|found| found.by);
            assert_eq!((changed(4), changed(5)), (Some(50), None));
            assert_eq!(window.conflict(&mine, 6).map(|found| found.by), Some(70));
        }
    }

    #[test]
    fn trees_have_their_own_table() {
        let mut window = Window::default();
        window.enter(5, 50, [(tree(TreeMode::Write), false)].iter());
        assert!(window.conflict(&tree(TreeMode::Write), 0).is_none());
        assert!(window.conflict(&tree(TreeMode::Share), 0).is_some());
        assert!(window.conflict(&row("a", LockMode::Exclusive), 0).is_none());
    }

    #[test]
    fn the_last_one_to_change_a_key_or_a_tree_is_known_until_that_is_forgotten() {
        let mut window = Window::default();
        let locks = [(tree(TreeMode::Write), false), (row("a", LockMode::NoKeyExclusive), true)];
        window.enter(5, 50, locks.iter());
        window.enter(6, 60, [(row("a", LockMode::Exclusive), false)].iter());
        assert_eq!(window.last_at(7, Some(b"a")), Some(50), "the other one has left it as it was");
        assert_eq!((window.last_at(7, None), window.last_at(7, Some(b"b"))), (None, None));
        window.enter(7, 70, [(tree(TreeMode::Exclusive), false)].iter());
        assert_eq!(window.last_at(7, None), Some(70));
        window.forget(7);
        assert_eq!((window.last_at(7, None), window.last_at(7, Some(b"a"))), (None, None));
    }

    #[test]
    fn many_small_requests_are_much_together() {
        let mut window = Window::default();
        let locks: Vec<(HeldLock, bool)> =
            (0..=MUCH / 2).map(|number| (row(&number.to_string(), LockMode::NoKeyExclusive), true)).collect();
        window.enter(5, 50, locks.iter());
        window.enter(6, 60, locks.iter());
        assert!(!window.is_much_upto(4) && !window.is_much_upto(5) && window.is_much_upto(6));
        window.forget(5);
        assert!(!window.is_much_upto(6), "a half of it is forgotten");
    }

    #[test]
    fn what_is_forgotten_is_gone_and_the_rest_stays() {
        let mut window = Window::default();
        window.enter(
            5,
            50,
            [(row("a", LockMode::Exclusive), true), (row("b", LockMode::Exclusive), true)].iter(),
        );
        window.enter(6, 60, [(row("a", LockMode::KeyShared), false)].iter());
        window.forget(5);
        assert_eq!(window.len(), 1);
        assert_eq!(window.conflict(&row("a", LockMode::Exclusive), 5).map(|found| found.by), Some(60));
        window.forget(6);
        assert_eq!(window.len(), 0);
    }
}
