//! One resource's holders and waiters: pure, requests in, grants out.
//!
//! First come, first served: a request that does not go together with a holder, or with somebody who waits ahead of
//! it, waits. Two exceptions keep a transaction from waiting for itself:
//! - who holds a mode that covers the request has it already;
//! - who holds a mode that others wait for goes ahead of those others, for they wait for it anyway.
//!
//! Siblings (members of one family, MIP paper §3.2) go together in all their modes, and count as one for the second exception: whoever waits for a member
//! waits for the family. Without that, an instance that was left prepared would block its own retry by way of a stranger who waits between the two.
//!
//! ```text
//! T1 S        holders T1:S
//! T2 X        holders T1:S      waiting T2:X
//! T3 S        holders T1:S      waiting T2:X T3:S       (fair: T3 does not overtake T2)
//! T1 X        holders T1:S|X    waiting T2:X T3:S       (T1 is alone: upgraded at once)
//! T1 ends     holders T2:X      waiting T3:S
//! ```
//!
//! And with siblings, T1 and T2 of the family a:
//!
//! ```text
//! T1 SX(a)    holders T1:SX(a)
//! T3 X        holders T1:SX(a)            waiting T3:X
//! T2 SX(a)    holders T1:SX(a) T2:SX(a)   waiting T3:X      (T2 goes ahead: T3 waits for its sibling)
//! T1 ends     holders T2:SX(a)            waiting T3:X
//! ```

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::mode::{FamilySlot, Mode, Modes};
use crate::TransactionId;

/// Who holds which modes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: TransactionId,
    pub(crate) modes: Modes,
    pub(crate) family: Option<FamilySlot>,
}

/// Whether both are members of one family.
#[inline]
fn siblings(one: Option<FamilySlot>, other: Option<FamilySlot>) -> bool {
    one.is_some() && one == other
}

/// Who waits for which mode; `ticket` is what a grant hands back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting<T> {
    pub(crate) owner: TransactionId,
    pub(crate) mode: Mode,
    pub(crate) ticket: T,
}

/// Answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The owner holds the resource now and did not before.
    Granted,
    /// The owner held the resource before, and holds the mode now.
    Held,
    /// Nothing has changed; waiting is the only way.
    Busy,
}

/// Holders and waiters of one resource.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    holders: SmallVec<[Holder; 1]>,
    waiting: VecDeque<Waiting<T>>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { holders: SmallVec::new(), waiting: VecDeque::new() }
    }

    pub(crate) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.waiting.iter()
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn held_by(&self, owner: TransactionId) -> Modes {
        self.holders.iter().find(|h| h.owner == owner).map_or(0, |h| h.modes)
    }

    /// Records that `owner`, of `family`, holds `modes`, whatever others hold. From outside only for locks that were granted elsewhere.
    pub(crate) fn hold(&mut self, owner: TransactionId, modes: Modes, family: Option<FamilySlot>) {
        match self.holders.iter_mut().find(|h| h.owner == owner) {
            Some(holder) => holder.modes |= modes,
            None => self.holders.push(Holder { owner, modes, family }),
        }
    }

    /// Where a request stands of somebody who holds `held`, itself or by its siblings: ahead of the first stranger who waits for that.
    fn place(&self, mode: Mode, held: Modes) -> usize {
        match mode.keeps_out(held) {
            0 => self.waiting.len(),
            out => {
                let waits =
                    |w: &Waiting<T>| w.mode.bit() & out != 0 && !siblings(w.mode.family(), mode.family());
                self.waiting.iter().position(waits).unwrap_or(self.waiting.len())
            }
        }
    }

    /// What `owner` holds, itself or by its siblings.
    fn held_with_siblings(&self, owner: TransactionId, mode: Mode) -> Modes {
        match mode.family() {
            None => self.held_by(owner),
            family => self.holders.iter().filter(|h| h.family == family).fold(0, |set, h| set | h.modes),
        }
    }

    /// How many of the first `place` waiters are ahead of a waiter there: a sibling may have been granted since it queued.
    fn ahead(&self, owner: TransactionId, mode: Mode, place: usize) -> usize {
        match mode.family() {
            None => place,
            Some(_) => place.min(self.place(mode, self.held_with_siblings(owner, mode))),
        }
    }

    fn free(&self, owner: TransactionId, mode: Mode, place: usize) -> bool {
        let (conflicts, family) = (mode.conflicts(), mode.family());
        self.holders
            .iter()
            .all(|h| h.owner == owner || h.modes & conflicts == 0 || siblings(h.family, family))
            && self
                .waiting
                .iter()
                .take(place)
                .all(|w| w.mode.bit() & conflicts == 0 || siblings(w.mode.family(), family))
    }

    /// Grants if that is possible without waiting.
    pub(crate) fn request(&mut self, owner: TransactionId, mode: Mode) -> Answer {
        if self.is_unused() {
            self.holders.push(Holder { owner, modes: mode.bit(), family: mode.family() });
            return Answer::Granted;
        }
        let held = self.held_by(owner);
        if mode.covered_by(held) {
            return Answer::Held;
        }
        if self.free(owner, mode, self.place(mode, self.held_with_siblings(owner, mode))) {
            self.hold(owner, mode.bit(), mode.family());
            return if held == 0 { Answer::Granted } else { Answer::Held };
        }
        Answer::Busy
    }

    /// Waits for what `request` refused. An owner waits at most once.
    pub(crate) fn enqueue(&mut self, owner: TransactionId, mode: Mode, ticket: T) {
        debug_assert!(self.waiting.iter().all(|w| w.owner != owner));
        let place = self.place(mode, self.held_with_siblings(owner, mode));
        self.waiting.insert(place, Waiting { owner, mode, ticket });
    }

    /// `owner` lets go of everything it holds. Tickets of those who are granted now are appended to `granted`.
    pub(crate) fn release(&mut self, owner: TransactionId, granted: &mut Vec<T>) {
        self.holders.retain(|h| h.owner != owner);
        if !self.waiting.is_empty() {
            self.promote(granted);
        }
    }

    /// `owner` waits no longer. True if it did.
    pub(crate) fn withdraw(&mut self, owner: TransactionId, granted: &mut Vec<T>) -> bool {
        let Some(place) = self.waiting.iter().position(|w| w.owner == owner) else { return false };
        self.waiting.remove(place);
        self.promote(granted);
        true
    }

    fn promote(&mut self, granted: &mut Vec<T>) {
        let mut place = 0;
        while let Some(next) = self.waiting.get(place) {
            let (owner, mode) = (next.owner, next.mode);
            if !self.free(owner, mode, self.ahead(owner, mode, place)) {
                place += 1;
            } else if let Some(next) = self.waiting.remove(place) {
                self.hold(owner, mode.bit(), mode.family());
                granted.push(next.ticket);
            }
        }
    }

    /// For whom the waiting `owner` waits; nobody if it does not wait here.
    pub(crate) fn blockers(&self, owner: TransactionId) -> SmallVec<[TransactionId; 4]> {
        let Some(place) = self.waiting.iter().position(|w| w.owner == owner) else { return SmallVec::new() };
        let mode = self.waiting[place].mode;
        let (conflicts, family) = (mode.conflicts(), mode.family());
        let holders = self
            .holders
            .iter()
            .filter(|h| h.owner != owner && h.modes & conflicts != 0 && !siblings(h.family, family));
        let ahead = self.waiting.iter().take(self.ahead(owner, mode, place));
        let ahead = ahead.filter(|w| w.mode.bit() & conflicts != 0 && !siblings(w.mode.family(), family));
        holders.map(|h| h.owner).chain(ahead.map(|w| w.owner)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::{LockMode, TreeMode};
    use super::*;

    const ROW: [Mode; 2] = [Mode::Row(LockMode::Shared), Mode::Row(LockMode::Exclusive)];
    const TREE: [Mode; 4] = [
        Mode::Tree(TreeMode::Read),
        Mode::Tree(TreeMode::Write),
        Mode::Tree(TreeMode::Share),
        Mode::Tree(TreeMode::Exclusive),
    ];

    const SIBLING: [Mode; 2] = [
        Mode::Sibling(LockMode::Shared, FamilySlot::MIN),
        Mode::Sibling(LockMode::Exclusive, FamilySlot::MIN),
    ];

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Request(TransactionId, Mode),
        Release(TransactionId),
        Withdraw(TransactionId),
    }

    fn check(queue: &Queue<TransactionId>, history: &[Step]) {
        for (i, a) in queue.holders.iter().enumerate() {
            for b in &queue.holders[i + 1..] {
                assert_ne!(a.owner, b.owner, "{history:?}");
                let kind = ROW.iter().chain(&SIBLING).chain(&TREE).find(|m| match history[0] {
                    Step::Request(_, mode) => std::mem::discriminant(*m) == std::mem::discriminant(&mode),
                    _ => false,
                });
                if let Some(kind) = kind
                    && !siblings(a.family, b.family)
                {
                    assert_eq!(kind.keeps_out(a.modes) & b.modes, 0, "{queue:?} {history:?}");
                }
            }
        }
        for (place, w) in queue.waiting.iter().enumerate() {
            let ahead = queue.ahead(w.owner, w.mode, place);
            assert!(!queue.free(w.owner, w.mode, ahead), "forgotten: {queue:?} {history:?}");
            assert!(!queue.blockers(w.owner).is_empty(), "waits for nobody: {queue:?} {history:?}");
        }
    }

    fn apply(queue: &mut Queue<TransactionId>, step: Step) {
        let mut granted = Vec::new();
        match step {
            Step::Request(owner, mode) => {
                if queue.waiting.iter().all(|w| w.owner != owner)
                    && queue.request(owner, mode) == Answer::Busy
                {
                    queue.enqueue(owner, mode, owner);
                }
            }
            // A transaction that ends does not wait any more.
            Step::Release(owner) => {
                queue.withdraw(owner, &mut granted);
                queue.release(owner, &mut granted);
            }
            Step::Withdraw(owner) => drop(queue.withdraw(owner, &mut granted)),
        }
    }

    /// Every history of up to `depth` steps of three transactions, with the modes that each may ask for.
    fn exhaust(modes: [&[Mode]; 3], depth: usize) {
        let mut steps = Vec::new();
        for (owner, modes) in (1..=3).zip(modes) {
            steps.extend(modes.iter().map(|m| Step::Request(owner, *m)));
            steps.extend([Step::Release(owner), Step::Withdraw(owner)]);
        }
        let total = steps.len().pow(depth as u32);
        for number in 0..total {
            let (mut rest, mut queue, mut history) = (number, Queue::new(), Vec::new());
            for _ in 0..depth {
                let step = steps[rest % steps.len()];
                rest /= steps.len();
                history.push(step);
                apply(&mut queue, step);
                check(&queue, &history);
            }
            for owner in 1..=3 {
                apply(&mut queue, Step::Release(owner));
            }
            assert!(queue.is_unused(), "{history:?}");
        }
    }

    #[test]
    fn every_short_history_of_row_locks() {
        exhaust([&ROW; 3], 5);
    }

    /// Two siblings with an ordinary transaction, with a stranger of another family, and all three siblings.
    #[test]
    fn every_short_history_of_sibling_locks() {
        exhaust([&SIBLING, &ROW, &SIBLING], 5);
        let other = [LockMode::Shared, LockMode::Exclusive].map(|m| Mode::Sibling(m, FamilySlot::MAX));
        exhaust([&SIBLING, &other, &SIBLING], 5);
        exhaust([&SIBLING; 3], 4);
    }

    #[test]
    fn every_short_history_of_tree_locks() {
        exhaust([&TREE; 3], 4);
    }

    #[test]
    fn nobody_overtakes_and_upgrades_go_first() {
        let [s, x] = ROW;
        let mut queue = Queue::new();
        assert_ne!(queue.request(1, s), Answer::Busy);
        assert_eq!(queue.request(2, x), Answer::Busy);
        queue.enqueue(2, x, 2);
        assert_eq!(queue.request(3, s), Answer::Busy);
        queue.enqueue(3, s, 3);
        assert_ne!(queue.request(1, x), Answer::Busy, "alone among the holders");
        let mut granted = Vec::new();
        queue.release(1, &mut granted);
        assert_eq!(granted, [2]);
        queue.release(2, &mut granted);
        assert_eq!(granted, [2, 3]);
        assert_ne!(queue.request(4, s), Answer::Busy);
        assert_eq!(queue.request(5, x), Answer::Busy);
        queue.enqueue(5, x, 5);
        assert_eq!(queue.request(3, x), Answer::Busy, "4 shares");
        queue.enqueue(3, x, 3);
        assert_eq!(queue.blockers(3)[..], [4]);
        assert_eq!(queue.blockers(5)[..], [3, 4, 3]);
        granted.clear();
        queue.release(4, &mut granted);
        assert_eq!(granted, [3], "ahead of 5");
    }
}
