//! One resource's holders and waiters: pure, requests in, grants out.
//!
//! First come, first served: a request that does not go together with a holder, or with somebody
//! who waits ahead of it, waits. Exceptions:
//! - who holds a mode that covers the request has it already;
//! - who holds a mode that others wait for goes ahead of those others, for they wait for it anyway:
//!   nobody waits for himself;
//! - a row's lock that goes together with all holders is granted although somebody waits for a
//!   stronger one, as in PostgreSQL: so readers and foreign keys' checks do not queue up behind a
//!   writer whom another reader keeps waiting. That somebody is overtaken [`MOST_OVERTAKEN`] times
//!   and no more, whoever else comes or goes in the line meanwhile.
//!
//! Siblings (members of one family, MIP paper §3.2) go together in all their modes, and count as
//! one for the second exception: whoever waits for a member waits for the family. Without that, an
//! instance that was left prepared would block its own retry by way of a stranger who waits between
//! the two.
//!
//! ```text
//! T1 S        holders T1:S
//! T2 X        holders T1:S            waiting T2:X
//! T3 S        holders T1:S T3:S       waiting T2:X        (T2 is overtaken, once)
//! T4 X        holders T1:S T3:S       waiting T2:X T4:X
//! T3 ends     holders T1:S            waiting T2:X T4:X
//! T1 X        holders T1:S|X          waiting T2:X T4:X   (T1 is alone: raised at once)
//! T1 ends     holders T2:X            waiting T4:X
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
//!
//! A queue without waiters, as nearly all are, is its holder and nothing else: the line of waiters
//! is made with the first of them.

use std::collections::VecDeque;

use smallvec::SmallVec;

#[cfg(test)]
use super::deadlock::Edge;
use super::deadlock::{Asked, Whom};
use super::leads::Leads;
use super::mode::{FamilySlot, Mode, Modes};
use crate::TransactionId;

/// How often somebody in a line is overtaken.
pub(super) const MOST_OVERTAKEN: u32 = 32;

/// Who holds which modes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: TransactionId,
    pub(crate) modes: Modes,
    pub(crate) family: Option<FamilySlot>,
    /// It takes away the row, or a key of it (`leaving`).
    leaves: bool,
}

/// Whether both are members of one family.
#[inline]
pub(super) fn siblings(one: Option<FamilySlot>, other: Option<FamilySlot>) -> bool {
    one.is_some() && one == other
}

/// Who waits for which mode; `ticket` is what a grant hands back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting<T> {
    pub(crate) owner: TransactionId,
    pub(crate) mode: Mode,
    pub(crate) ticket: T,
    /// How many grants there had been past the line when it queued.
    since: u32,
}

impl<T> Waiting<T> {
    /// Whether somebody who asks for `mode` behind this one waits for it.
    #[inline]
    fn is_in_the_way_of(&self, mode: Mode) -> bool {
        self.mode.bit() & mode.conflicts() != 0 && !siblings(self.mode.family(), mode.family())
    }
}

/// Answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The owner holds the resource now and did not before.
    Granted,
    /// The owner held these modes, and now the one asked for, too.
    Raised(Modes),
    /// The owner needs nothing that it had not before.
    Held,
    /// Nothing has changed; waiting is the only way.
    Busy,
}

/// Those who wait, first come first.
#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<Waiting<T>>,
    /// How many wait for each mode, and how many of all are siblings of somebody.
    count: [u32; 8],
    members: u32,
    /// Grants past the line so far, in a circle; each waiter knows how many of them came before it.
    /// None is forgotten when somebody leaves: who holds the row and gives up waiting for more, of
    /// whom there may be ever new ones, stood ahead of those who stay.
    passed: u32,
    /// What a search for a deadlock was told.
    leads: Leads,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { waiting: VecDeque::new(), count: [0; 8], members: 0, passed: 0, leads: Leads::default() }
    }
}

impl<T> Line<T> {
    fn insert(&mut self, place: usize, waiting: Waiting<T>) {
        self.count[waiting.mode.bit().ilog2() as usize] += 1;
        self.members += u32::from(waiting.mode.family().is_some());
        self.waiting.insert(place, waiting);
    }

    fn remove(&mut self, place: usize) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(place)?;
        self.count[waiting.mode.bit().ilog2() as usize] -= 1;
        self.members -= u32::from(waiting.mode.family().is_some());
        Some(waiting)
    }

    fn place_of(&self, owner: TransactionId) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.owner == owner)
    }
}

/// Holders and waiters of one resource.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    holders: SmallVec<[Holder; 1]>,
    line: Option<Box<Line<T>>>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { holders: SmallVec::new(), line: None }
    }

    pub(crate) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.line.iter().flat_map(|line| &line.waiting)
    }

    fn length(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.waiting.len())
    }

    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.length() == 0
    }

    pub(crate) fn held_by(&self, owner: TransactionId) -> Modes {
        self.holders.iter().find(|h| h.owner == owner).map_or(0, |h| h.modes)
    }

    /// Records that `owner`, of `family`, holds `modes`, whatever others hold. From outside only
    /// for locks that were granted elsewhere.
    pub(crate) fn hold(&mut self, owner: TransactionId, modes: Modes, family: Option<FamilySlot>) {
        match self.holders.iter_mut().find(|h| h.owner == owner) {
            Some(holder) => holder.modes |= modes,
            None => self.holders.push(Holder { owner, modes, family, leaves: false }),
        }
    }

    /// `owner`, if it is a holder, takes away the row or a key of it.
    pub(super) fn note_leaving(&mut self, owner: TransactionId) {
        if let Some(holder) = self.holders.iter_mut().find(|h| h.owner == owner) {
            holder.leaves = true;
        }
    }

    /// Whether a holder does whom `owner` would have to wait for.
    pub(super) fn is_leaving(&self, owner: TransactionId, mode: Mode) -> bool {
        self.holders_against(owner, mode).any(|holder| holder.leaves)
    }

    /// Where a request stands of somebody who holds `held`, itself or by its siblings: ahead of the
    /// first stranger who waits for that.
    fn place(&self, mode: Mode, held: Modes) -> usize {
        match mode.keeps_out(held) {
            0 => self.length(),
            out => {
                let waits =
                    |w: &Waiting<T>| w.mode.bit() & out != 0 && !siblings(w.mode.family(), mode.family());
                self.waiting().position(waits).unwrap_or(self.length())
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

    /// How many of the first `place` waiters are ahead of a waiter there: a sibling may have been
    /// granted since it queued.
    fn ahead(&self, owner: TransactionId, mode: Mode, place: usize) -> usize {
        match mode.family() {
            None => place,
            Some(_) => place.min(self.place(mode, self.held_with_siblings(owner, mode))),
        }
    }

    /// Holders whom `owner` would have to wait for.
    fn holders_against(&self, owner: TransactionId, mode: Mode) -> impl Iterator<Item = &Holder> {
        let (conflicts, family) = (mode.conflicts(), mode.family());
        let against =
            move |h: &&Holder| h.owner != owner && h.modes & conflicts != 0 && !siblings(h.family, family);
        self.holders.iter().filter(against)
    }

    fn goes_with_holders(&self, owner: TransactionId, mode: Mode) -> bool {
        self.holders_against(owner, mode).next().is_none()
    }

    fn goes_with_line(&self, mode: Mode, place: usize) -> bool {
        !self.waiting().take(place).any(|waiting| waiting.is_in_the_way_of(mode))
    }

    fn free(&self, owner: TransactionId, mode: Mode, place: usize) -> bool {
        self.goes_with_holders(owner, mode) && self.goes_with_line(mode, place)
    }

    /// Whether who asks goes past those of the first `place` waiters who are in its way; counts it.
    /// A sibling does not if siblings wait: they would have to go ahead with it.
    fn overtakes(&mut self, mode: Mode, place: usize) -> bool {
        let Some(line) = &mut self.line else { return false };
        if !mode.may_overtake() || mode.family().is_some() && line.members > 0 {
            return false;
        }
        let passed = line.passed;
        let mut in_the_way = line.waiting.iter().take(place).filter(|w| w.is_in_the_way_of(mode));
        let overtakes = in_the_way.all(|w| passed.wrapping_sub(w.since) < MOST_OVERTAKEN);
        line.passed = passed.wrapping_add(u32::from(overtakes));
        overtakes
    }

    /// Grants if that is possible without waiting.
    pub(crate) fn request(&mut self, owner: TransactionId, mode: Mode) -> Answer {
        if self.is_unused() {
            self.holders.push(Holder { owner, modes: mode.bit(), family: mode.family(), leaves: false });
            return Answer::Granted;
        }
        let held = self.held_by(owner);
        if mode.covered_by(held) {
            // The stronger mode may go with a savepoint; those of statements stay.
            if matches!(mode, Mode::Tree(mode) if mode.is_weak()) {
                self.hold(owner, mode.bit(), None);
            }
            return Answer::Held;
        }
        if !self.goes_with_holders(owner, mode) {
            return Answer::Busy;
        }
        let place = self.place(mode, self.held_with_siblings(owner, mode));
        if !self.goes_with_line(mode, place) && !self.overtakes(mode, place) {
            return Answer::Busy;
        }
        self.hold(owner, mode.bit(), mode.family());
        if held == 0 { Answer::Granted } else { Answer::Raised(held) }
    }

    /// Waits for what `request` refused. An owner waits at most once.
    pub(crate) fn enqueue(&mut self, owner: TransactionId, mode: Mode, ticket: T) {
        debug_assert!(self.waiting().all(|w| w.owner != owner));
        let place = self.place(mode, self.held_with_siblings(owner, mode));
        let line = self.line.get_or_insert_default();
        let since = line.passed;
        line.insert(place, Waiting { owner, mode, ticket, since });
    }

    /// `owner` lets go of everything it holds. Tickets of those who are granted now are appended to
    /// `granted`.
    pub(crate) fn release(&mut self, owner: TransactionId, granted: &mut Vec<T>) {
        self.holders.retain(|h| h.owner != owner);
        self.promote(granted);
    }

    /// `owner` goes back to less than it holds.
    pub(crate) fn lower(&mut self, owner: TransactionId, modes: Modes, granted: &mut Vec<T>) {
        if let Some(holder) = self.holders.iter_mut().find(|h| h.owner == owner) {
            holder.modes &= modes;
        }
        self.holders.retain(|h| h.modes != 0);
        self.promote(granted);
    }

    /// `owner` waits no longer. True if it did.
    pub(crate) fn withdraw(&mut self, owner: TransactionId, granted: &mut Vec<T>) -> bool {
        let Some(line) = &mut self.line else { return false };
        let Some(place) = line.place_of(owner) else { return false };
        line.remove(place);
        self.promote(granted);
        true
    }

    /// Grants whom it can, in the order of the line. Nobody is looked at behind the last one who
    /// could be.
    fn promote(&mut self, granted: &mut Vec<T>) {
        let Some(line) = &self.line else { return };
        let (mut place, mut left, mut members, mut out) = (0, line.count, line.members, 0);
        while let Some(next) = self.line.as_ref().and_then(|line| line.waiting.get(place)) {
            let (owner, mode) = (next.owner, next.mode);
            left[mode.bit().ilog2() as usize] -= 1;
            members -= u32::from(mode.family().is_some());
            if self.free(owner, mode, self.ahead(owner, mode, place)) {
                if let Some(next) = self.line.as_mut().and_then(|line| line.remove(place)) {
                    self.hold(owner, mode.bit(), mode.family());
                    granted.push(next.ticket);
                }
                continue;
            }
            place += 1;
            out |= mode.conflicts();
            // Who is no sibling of anybody waits for all ahead whom it does not go together with.
            if members == 0 && (0..8).all(|at| left[at] == 0 || out & 1 << at != 0) {
                return;
            }
        }
    }

    /// Tells a search for whom the waiting `owner` waits, of those of whom it has not heard yet:
    /// nobody if it does not wait here. Answers whether those ahead of it in the line, who are
    /// another question, may lead further (`leads`).
    pub(crate) fn blockers(
        &mut self,
        owner: TransactionId,
        mode: Mode,
        whom: Whom,
        asked: &mut Asked,
    ) -> bool {
        let Queue { holders, line } = self;
        let Some(line) = line else { return false };
        let Line { waiting: all, count, leads, .. } = &mut **line;
        let waiting = (0..8_usize).filter(|at| count[*at] != 0).fold(0, |set: Modes, at| set | 1 << at);
        match whom {
            Whom::Holders => leads.holders(holders, waiting, (owner, mode), asked),
            Whom::Ahead => {
                leads.ahead(holders, all, waiting, (owner, mode), asked);
                false
            }
        }
    }

    /// The same holders and the same line without its tickets, to try another order.
    pub(crate) fn sketch(&self) -> Queue<()> {
        let mut sketch = Queue { holders: self.holders.clone(), line: None };
        for Waiting { owner, mode, since, .. } in self.waiting() {
            let place = sketch.length();
            let waiting = Waiting { owner: *owner, mode: *mode, ticket: (), since: *since };
            sketch.line.get_or_insert_default().insert(place, waiting);
        }
        sketch
    }

    /// Whether `one` waits ahead of `other`; true if one of them does not wait.
    pub(crate) fn is_ahead(&self, one: TransactionId, other: TransactionId) -> bool {
        let Some(line) = &self.line else { return true };
        line.place_of(one).zip(line.place_of(other)).is_none_or(|(one, other)| one < other)
    }

    /// Moves the waiting `owner` directly ahead of `before`, if both still wait and it is behind.
    pub(crate) fn move_ahead(&mut self, owner: TransactionId, before: TransactionId) {
        if self.is_ahead(owner, before) {
            return;
        }
        let Some(line) = &mut self.line else { return };
        let Some((from, to)) = line.place_of(owner).zip(line.place_of(before)) else { return };
        if let Some(waiting) = line.remove(from) {
            line.insert(to, waiting);
        }
    }

    /// Grants whom another order lets through.
    pub(crate) fn settle(&mut self, granted: &mut Vec<T>) {
        self.promote(granted);
    }
}

#[cfg(test)]
impl<T> Queue<T> {
    /// Everybody for whom the waiting `owner` waits, whether it leads anywhere or not, and whether
    /// only because of the order.
    pub(crate) fn every_blocker(&self, owner: TransactionId) -> Vec<Edge> {
        let Some(line) = &self.line else { return Vec::new() };
        let Some(place) = line.place_of(owner) else { return Vec::new() };
        let mode = line.waiting[place].mode;
        let ahead = line.waiting.range(..self.ahead(owner, mode, place));
        let soft = ahead.filter(|w| w.is_in_the_way_of(mode)).map(|w| Edge { to: w.owner, soft: true });
        let hard = self.holders_against(owner, mode).map(|h| Edge { to: h.owner, soft: false });
        hard.chain(soft).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::mode::{LockMode, STRENGTHS, TREE_MODES, TreeMode};
    use super::*;

    const SIBLING: fn(LockMode) -> Mode = |mode| Mode::Sibling(mode, FamilySlot::MIN);
    const OTHER: fn(LockMode) -> Mode = |mode| Mode::Sibling(mode, FamilySlot::MAX);

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Request(TransactionId, Mode),
        /// Back to what it held of these.
        Lower(TransactionId, Modes),
        Release(TransactionId),
        Withdraw(TransactionId),
    }

    /// The holders to whom a waiter leads within the queue, and who may lead out of it, as they do
    /// not wait here; and itself, if it leads back. All edges, or what a search of this number is
    /// told.
    fn leads_to(
        queue: &mut Queue<TransactionId>,
        from: TransactionId,
        search: Option<u64>,
    ) -> BTreeSet<TransactionId> {
        let (mut found, mut seen, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![from]);
        while let Some(waiter) = next.pop() {
            if !seen.insert(waiter) {
                continue;
            }
            let edges = match search {
                None => queue.every_blocker(waiter),
                Some(search) => blockers_of(queue, waiter, from, search),
            };
            found.extend(edges.iter().filter(|edge| !edge.soft || edge.to == from).map(|edge| edge.to));
            next.extend(edges.iter().map(|edge| edge.to));
        }
        found.retain(|to| *to == from || queue.waiting().all(|w| w.owner != *to));
        found
    }

    /// What a search that began with `start` is told when it asks for both kinds at once.
    fn blockers_of(
        queue: &mut Queue<TransactionId>,
        waiter: TransactionId,
        start: TransactionId,
        search: u64,
    ) -> Vec<Edge> {
        let Some(mode) = queue.waiting().find(|w| w.owner == waiter).map(|w| w.mode) else {
            return Vec::new();
        };
        let beside = waiter != start && queue.waiting().any(|w| w.owner == start);
        let mut asked = Asked { search, start, beside, ..Asked::default() };
        if queue.blockers(waiter, mode, Whom::Holders, &mut asked) {
            queue.blockers(waiter, mode, Whom::Ahead, &mut asked);
        }
        asked.edges
    }

    /// `search` is the number of the last search.
    fn check(queue: &mut Queue<TransactionId>, search: &mut u64, kind: Mode, history: &[Step]) {
        for (i, a) in queue.holders.iter().enumerate() {
            for b in &queue.holders[i + 1..] {
                assert_ne!(a.owner, b.owner, "{history:?}");
                if !siblings(a.family, b.family) {
                    assert_eq!(kind.keeps_out(a.modes) & b.modes, 0, "{queue:?} {history:?}");
                }
            }
        }
        let waiting: Vec<_> = queue.waiting().map(|w| (w.owner, w.mode)).collect();
        for (place, (owner, mode)) in waiting.into_iter().enumerate() {
            let ahead = queue.ahead(owner, mode, place);
            assert!(!queue.free(owner, mode, ahead), "forgotten: {queue:?} {history:?}");
            let all = queue.every_blocker(owner);
            assert!(!all.is_empty(), "waits for nobody: {queue:?} {history:?}");
            let some = blockers_of(queue, owner, owner, *search + 1);
            assert!(some.iter().all(|edge| all.contains(edge)), "{queue:?} {history:?}");
            *search += 2;
            let (all, some) = (leads_to(queue, owner, None), leads_to(queue, owner, Some(*search)));
            assert_eq!(all, some, "{queue:?} {history:?}");
        }
        let count: u32 = queue.line.iter().flat_map(|line| line.count).sum();
        assert_eq!(count as usize, queue.length());
    }

    fn apply(queue: &mut Queue<TransactionId>, step: Step) {
        let mut granted = Vec::new();
        match step {
            Step::Request(owner, mode) => {
                if queue.waiting().all(|w| w.owner != owner) && queue.request(owner, mode) == Answer::Busy {
                    queue.enqueue(owner, mode, owner);
                }
            }
            // Who waits does not roll back to a savepoint.
            Step::Lower(owner, modes) => {
                if queue.waiting().all(|w| w.owner != owner) {
                    queue.lower(owner, modes, &mut granted);
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

    /// Every history of up to `depth` steps of three transactions, with the modes that each may ask
    /// for.
    fn exhaust(modes: [&[Mode]; 3], depth: usize) {
        let mut steps = Vec::new();
        for (owner, modes) in (1..=3).zip(modes) {
            steps.extend(modes.iter().map(|m| Step::Request(owner, *m)));
            steps.extend([Step::Lower(owner, modes[0].bit()), Step::Release(owner), Step::Withdraw(owner)]);
        }
        let (total, mut search) = (steps.len().pow(depth as u32), 0);
        for number in 0..total {
            let (mut rest, mut queue, mut history) = (number, Queue::new(), Vec::new());
            for _ in 0..depth {
                let step = steps[rest % steps.len()];
                rest /= steps.len();
                history.push(step);
                apply(&mut queue, step);
                check(&mut queue, &mut search, modes[0][0], &history);
            }
            for owner in 1..=3 {
                apply(&mut queue, Step::Release(owner));
            }
            assert!(queue.is_unused(), "{history:?}");
        }
    }

    /// Two strengths in longer histories than all four.
    #[test]
    fn every_short_history_of_row_locks() {
        let two = [STRENGTHS[1], STRENGTHS[3]].map(Mode::Row);
        exhaust([&two; 3], 4);
        exhaust([&STRENGTHS.map(Mode::Row); 3], 3);
    }

    /// Two siblings with an ordinary transaction, with a stranger of another family, and all three
    /// siblings.
    #[test]
    fn every_short_history_of_sibling_locks() {
        let two = [STRENGTHS[1], STRENGTHS[3]];
        exhaust([&two.map(SIBLING), &two.map(Mode::Row), &two.map(SIBLING)], 4);
        exhaust([&two.map(SIBLING), &two.map(OTHER), &two.map(SIBLING)], 4);
        exhaust([&STRENGTHS.map(SIBLING), &STRENGTHS.map(Mode::Row), &STRENGTHS.map(SIBLING)], 3);
        exhaust([&two.map(SIBLING); 3], 4);
    }

    #[test]
    fn every_short_history_of_tree_locks() {
        let four = [TreeMode::Read, TreeMode::Write, TreeMode::Share, TreeMode::Exclusive].map(Mode::Tree);
        exhaust([&four; 3], 3);
        exhaust([&TREE_MODES.map(Mode::Tree); 3], 3);
    }

    fn wait(queue: &mut Queue<TransactionId>, owner: TransactionId, mode: Mode) {
        assert_eq!(queue.request(owner, mode), Answer::Busy);
        queue.enqueue(owner, mode, owner);
    }

    fn blockers(queue: &mut Queue<TransactionId>, owner: TransactionId) -> Vec<TransactionId> {
        // Each asks once.
        blockers_of(queue, owner, owner, owner).iter().map(|edge| edge.to).collect()
    }

    #[test]
    fn readers_overtake_a_writer_for_a_while_and_upgrades_go_first() {
        let [s, x] = [LockMode::Shared, LockMode::Exclusive].map(Mode::Row);
        let mut queue = Queue::new();
        assert_eq!(queue.request(1, s), Answer::Granted);
        wait(&mut queue, 2, x);
        assert_eq!(queue.request(3, s), Answer::Granted, "past 2");
        assert_eq!(queue.request(1, x), Answer::Busy, "3 shares");
        let mut granted = Vec::new();
        queue.release(3, &mut granted);
        assert_eq!(queue.request(1, x), Answer::Raised(s.bit()), "alone among the holders");
        wait(&mut queue, 3, s);
        queue.release(1, &mut granted);
        assert_eq!(granted, [2]);
        queue.release(2, &mut granted);
        assert_eq!(granted, [2, 3]);
        assert_eq!(queue.request(4, s), Answer::Granted);
        wait(&mut queue, 5, x);
        wait(&mut queue, 3, x);
        assert_eq!(blockers(&mut queue, 3), [4]);
        assert_eq!(blockers(&mut queue, 5), [3, 4], "whom 3, who goes ahead, waits for as well");
        granted.clear();
        queue.release(4, &mut granted);
        assert_eq!(granted, [3], "ahead of 5");
    }

    #[test]
    fn nobody_is_overtaken_for_ever() {
        let [s, x] = [LockMode::Shared, LockMode::Exclusive].map(Mode::Row);
        let mut queue = Queue::new();
        assert_eq!(queue.request(1, s), Answer::Granted);
        wait(&mut queue, 2, x);
        let readers = 3..3 + u64::from(MOST_OVERTAKEN);
        assert!(readers.clone().all(|reader| queue.request(reader, s) == Answer::Granted));
        wait(&mut queue, readers.end, s);
        let mut granted = Vec::new();
        queue.release(1, &mut granted);
        readers.clone().for_each(|reader| queue.release(reader, &mut granted));
        assert_eq!(granted, [2]);
        queue.release(2, &mut granted);
        assert_eq!(granted, [2, readers.end]);
        assert!(!Mode::Tree(TreeMode::Read).may_overtake());
    }

    /// A time limit, a cancel request or a deadlock of somebody behind the first one makes no room
    /// for others to overtake it.
    #[test]
    fn who_gives_up_behind_lets_nobody_past_the_first() {
        let [s, x] = [LockMode::Shared, LockMode::Exclusive].map(Mode::Row);
        let mut queue = Queue::new();
        assert_eq!(queue.request(1, s), Answer::Granted);
        wait(&mut queue, 2, x);
        let readers = 3..3 + u64::from(MOST_OVERTAKEN);
        assert!(readers.clone().all(|reader| queue.request(reader, s) == Answer::Granted));
        let (late, mut granted) = (readers.end, Vec::new());
        for _ in 0..2 {
            wait(&mut queue, late, s);
            assert!(queue.withdraw(late, &mut granted));
        }
        assert_eq!(granted, []);
        // Once the first one has gone, its place is another one's.
        wait(&mut queue, late, x);
        assert!(queue.withdraw(2, &mut granted));
        assert_eq!(queue.request(late + 1, s), Answer::Granted, "past the other one");
    }

    /// Nor does who stands ahead of the first one, as it holds the row itself and asks for more:
    /// there may be ever new ones, of whom a deadlock or a time limit takes one after the other.
    #[test]
    fn who_gives_up_ahead_lets_nobody_past_the_next() {
        let [s, x] = [LockMode::Shared, LockMode::Exclusive].map(Mode::Row);
        let mut queue = Queue::new();
        assert_eq!(queue.request(1, s), Answer::Granted);
        wait(&mut queue, 2, x);
        let readers = 3..3 + u64::from(MOST_OVERTAKEN);
        assert!(readers.clone().all(|reader| queue.request(reader, s) == Answer::Granted));
        let mut granted = Vec::new();
        for reader in readers.clone() {
            wait(&mut queue, reader, x);
            assert!(queue.is_ahead(reader, 2));
            assert!(queue.withdraw(reader, &mut granted));
        }
        assert_eq!(granted, []);
        wait(&mut queue, readers.end, s);
    }

    /// Neither does who is granted more of what it holds, ahead of the line.
    #[test]
    fn who_is_granted_ahead_lets_nobody_past_the_next() {
        let [ks, s, nx, x] = STRENGTHS.map(Mode::Row);
        let mut queue = Queue::new();
        assert_eq!(queue.request(1, nx), Answer::Granted);
        assert_eq!(queue.request(2, ks), Answer::Granted);
        wait(&mut queue, 3, x);
        let readers = 4..4 + u64::from(MOST_OVERTAKEN);
        assert!(readers.clone().all(|reader| queue.request(reader, ks) == Answer::Granted));
        // It holds what 3 waits for, and is let in before it.
        wait(&mut queue, 2, s);
        let mut granted = Vec::new();
        queue.release(1, &mut granted);
        assert_eq!(granted, [2]);
        wait(&mut queue, readers.end, ks);
    }

    #[test]
    fn another_order_is_granted_in_that_order() {
        let [ks, s, x] = [LockMode::KeyShared, LockMode::Shared, LockMode::Exclusive].map(Mode::Row);
        let mut queue = Queue::new();
        assert_eq!(queue.request(1, ks), Answer::Granted);
        assert_eq!(queue.request(1, Mode::Row(LockMode::NoKeyExclusive)), Answer::Raised(ks.bit()));
        wait(&mut queue, 2, x);
        wait(&mut queue, 3, s);
        let mut granted = Vec::new();
        queue.lower(1, ks.bit(), &mut granted);
        assert_eq!(granted, [], "1 still keeps out 2, and that 3");
        queue.move_ahead(3, 2);
        assert!(queue.is_ahead(3, 2) && !queue.is_ahead(2, 3));
        queue.settle(&mut granted);
        assert_eq!(granted, [3]);
    }
}
