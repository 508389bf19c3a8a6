//! The metaprotocol: transactions of several replication protocols in one total order
//! (shared paper: "Evaluation of a Metaprotocol for Database Replication Adaptability", §2).
//!
//! Two lists. *log* has who was delivered and is not yet part of what everybody sees; *tocommit*
//! has who of them still is to commit, in the order of delivery. An entry of the log is *resolved*
//! (it commits, and it is known what it writes), *c-pending* (what it writes is known, and not
//! whether it commits) or *w-pending* (it commits, and nobody knows yet what it writes). Who meets
//! a pending entry *depends* on it; where that is resolved, dependencies go, in cascade.
//!
//! What a protocol is lies in a file of its own, as the five operations of [`Protocol`]. Pure:
//! events in, effects out. What two transactions have to do with each other is the footprint's
//! business.
//!
//! # Figure 1, line by line
//!
//! ```text
//! I.1    bot := L-TOI             the engine: `struck`, when a transaction is sealed
//! II.1   A                        Active::validate      w-pending, committable
//! II.2   C                        Certification         refused | resolved | c-pending
//! II.3   WV-1                     WeakVoting            c-pending
//! II.4   WV-2                     Lists::vote           resolved, or out of the lists; cascade
//! III.1  head(tocommit)           Lists::head
//! III.2  apply, commit            Protocol::apply, Protocol::commit; then Lists::end
//! III.2d w-pending               Lists::end with what it wrote; cascade
//! III.2e vote                    Protocol::vote, as soon as nothing is left to depend on
//! ```
//!
//! Where this departs from the figure, on purpose:
//! - A vote is an entry of the order, and binds its origin as everybody else. So "first in the
//!   order wins" settles what becomes of a transaction whose origin is lost before it has voted:
//!   anybody may order the vote against it (the paper has no answer to that).
//! - The origin validates at delivery, as the paper's implementation does, not at the head of the
//!   list. So votes do not wait for one another, and a list of voters is resolved in one round.
//! - Who has come to its end leaves the log: what later ones have to know of it is in the window of
//!   locks and in the certifier's graph.
//! - Who is judged at its turn is not refused for somebody in the log: also a voter that was voted
//!   for may be refused at its own turn, and then the other one commits. So that one stays
//!   c-pending until its turn, and who meets it waits.
//!
//! # The example of §2.5
//!
//! ```text
//! deliver A            log: A w-pending
//! deliver W {x y}      log: A w, W c-pending (from elsewhere: it waits for its vote)
//! deliver C1 {y z}     C1 c-pending: depends on A (anything) and on W (y)
//! deliver C2 {z}       C2 c-pending: depends on A and on C1 (z)
//! A ends, wrote {p q}  A leaves; C1 depends on W, C2 on C1
//! vote: W commits      W resolved; C1 is refused, for y; so C2 depends on nobody: resolved
//! ```

pub(crate) mod active;
pub(crate) mod certification;
#[cfg(test)]
mod primary_copy;
pub(crate) mod protocol;
#[cfg(test)]
mod tests;
pub(crate) mod weak_voting;

use std::collections::VecDeque;

pub(crate) use protocol::{Arrival, Entrance, Found, Kind, Protocol, Turn};

use crate::{Csn, TransactionId};

/// What a transaction has to do with others.
pub(crate) trait Footprint {
    /// Whether this one cannot commit if `earlier`, which it did not know of, has committed.
    fn meets(&self, earlier: &Self) -> bool;
}

/// An entry of the log.
#[derive(Debug)]
pub(crate) struct Entry<F> {
    /// Its place in the order (TOI).
    pub(crate) position: Csn,
    pub(crate) id: TransactionId,
    /// Where it ran, and whether that is this node.
    origin: u16,
    is_here: bool,
    protocol: &'static dyn Protocol,
    /// Its verdict is known at its turn only, whatever it depends on.
    at_turn: bool,
    kind: Kind,
    committable: bool,
    /// Nothing as long as nobody knows it.
    footprint: Option<F>,
    /// Those whose end this one waits for.
    depends_on: Vec<Csn>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// This node's vote about a transaction of its own is to be ordered.
    Vote { id: TransactionId, commits: bool },
    /// The transaction at this position does not commit. `undo`: it ran here, and is rolled back.
    Refuse { position: Csn, undo: bool },
}

/// A transaction that is delivered.
#[derive(Debug)]
pub(crate) struct Delivery<F> {
    pub(crate) position: Csn,
    pub(crate) id: TransactionId,
    pub(crate) bot: Csn,
    /// Where it ran.
    pub(crate) origin: u16,
    pub(crate) protocol: &'static dyn Protocol,
    /// What it writes and locks, and, at its origin, what it read.
    pub(crate) footprint: Option<F>,
    /// Somebody who has left the log since `bot` does not go together with it.
    pub(crate) is_overtaken: bool,
    /// More than footprints has a say in its verdict (the certifier's graph, who is prepared), and
    /// is asked at its turn.
    pub(crate) at_turn: bool,
}

/// How many entries there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) log: usize,
    pub(crate) tocommit: usize,
    pub(crate) c_pending: usize,
    pub(crate) w_pending: usize,
}

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Lists<F> {
    /// The node whose lists they are.
    node: u16,
    log: VecDeque<Entry<F>>,
    tocommit: VecDeque<Csn>,
}

impl<F: Footprint> Lists<F> {
    pub(crate) fn new(node: u16) -> Lists<F> {
        Lists { node, log: VecDeque::new(), tocommit: VecDeque::new() }
    }

    /// Whether nobody is in the lists.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// How many entries there are.
    pub(crate) fn counts(&self) -> Counts {
        let of = |kind: Kind| self.log.iter().filter(|entry| entry.kind == kind).count();
        Counts {
            log: self.log.len(),
            tocommit: self.tocommit.len(),
            c_pending: of(Kind::CPending),
            w_pending: of(Kind::WPending),
        }
    }

    /// Step II for all but votes: the next transaction of the order. What is to be done is added to
    /// `effects`.
    pub(crate) fn deliver(&mut self, delivery: Delivery<F>, effects: &mut Vec<Effect>) {
        let Delivery { position, id, bot, origin, protocol, footprint, is_overtaken, at_turn } = delivery;
        assert!(
            self.log.back().is_none_or(|last| last.position < position),
            "transactions are delivered in their order"
        );
        let is_here = origin == self.node;
        let (found, depends_on) = self.look(bot, footprint.as_ref(), is_overtaken);
        let arrival = Arrival { origin, node: self.node, found };
        // Whoever is in its way is in the log still, and may come to nothing.
        let is_open = at_turn && found == Found::Resolved && !is_overtaken;
        let (kind, committable) = match protocol.validate(&arrival) {
            Entrance::Refused if is_open => (Kind::CPending, true),
            Entrance::Refused => {
                effects.push(Effect::Refuse { position, undo: protocol.rollback(is_here) });
                return;
            }
            Entrance::Resolved if at_turn => (Kind::CPending, true),
            Entrance::Resolved => (Kind::Resolved, true),
            Entrance::CPending => (Kind::CPending, false),
            Entrance::WPending => (Kind::WPending, true),
        };
        if let Some(commits) = protocol.vote(&arrival) {
            effects.push(Effect::Vote { id, commits });
        }
        let depends_on = if arrival.found == Found::Pending { depends_on } else { Vec::new() };
        let entry = Entry {
            position,
            id,
            origin,
            is_here,
            protocol,
            at_turn,
            kind,
            committable,
            footprint,
            depends_on,
        };
        self.log.push_back(entry);
        self.tocommit.push_back(position);
    }

    /// What a transaction meets among those who were delivered before it and that it did not know
    /// of.
    fn look(&self, bot: Csn, footprint: Option<&F>, is_overtaken: bool) -> (Found, Vec<Csn>) {
        let mut depends_on = Vec::new();
        let mut found = if is_overtaken { Found::Resolved } else { Found::Nothing };
        for earlier in self.log.iter().filter(|earlier| earlier.position > bot) {
            let meets = |footprint: &F| earlier.footprint.as_ref().is_none_or(|other| footprint.meets(other));
            match earlier.kind {
                // Nobody knows yet what it writes.
                Kind::WPending => depends_on.push(earlier.position),
                _ if !footprint.is_some_and(meets) => {}
                Kind::Resolved => found = Found::Resolved,
                Kind::CPending => depends_on.push(earlier.position),
            }
        }
        if found == Found::Nothing && !depends_on.is_empty() {
            found = Found::Pending;
        }
        (found, depends_on)
    }

    /// Step II for a vote. The first one counts; those about who is not in the lists are late.
    pub(crate) fn vote(&mut self, id: TransactionId, commits: bool, effects: &mut Vec<Effect>) {
        let voting = |entry: &&mut Entry<F>| entry.id == id && entry.protocol.is_voting();
        let Some(entry) = self.log.iter_mut().find(voting) else { return };
        if entry.committable {
            return;
        }
        let position = entry.position;
        if commits {
            (entry.kind, entry.committable) = (Kind::Resolved, true);
            self.resolve(position, true, effects);
        } else {
            self.refuse(position, effects);
        }
    }

    /// What a transaction in the lists has to do with others, if that is known.
    pub(crate) fn footprint_mut(&mut self, id: TransactionId) -> Option<&mut F> {
        self.log.iter_mut().find(|entry| entry.id == id)?.footprint.as_mut()
    }

    /// Step III.1: whose turn it is, and what its turn is; nobody's as long as the first one waits.
    pub(crate) fn head(&self) -> Option<(Csn, Turn)> {
        let first = *self.tocommit.front()?;
        let entry = self.log.iter().find(|entry| entry.position == first)?;
        entry.committable.then(|| (first, entry.protocol.commit()))
    }

    /// Who is first, if it waits, and by which protocol: everybody behind it waits, too.
    pub(crate) fn pauses(&self) -> Option<(Csn, TransactionId, &'static str)> {
        let first = *self.tocommit.front()?;
        let entry = self.log.iter().find(|entry| entry.position == first)?;
        (!entry.committable).then(|| (first, entry.id, entry.protocol.name()))
    }

    /// The rest of step III: the first one has come to its end, and leaves the lists. `wrote` is
    /// what turned out to be its footprint, where nobody knew that before.
    pub(crate) fn end(&mut self, position: Csn, commits: bool, wrote: Option<F>, effects: &mut Vec<Effect>) {
        let at = self.log.iter().position(|entry| entry.position == position);
        let Some(at) = at else { return };
        if let Some(wrote) = wrote {
            self.log[at].footprint = Some(wrote);
        }
        self.log[at].kind = Kind::Resolved;
        self.resolve(position, commits, effects);
        self.leave(position);
    }

    /// It does not commit: out of the lists, and who depends on it does not any more.
    fn refuse(&mut self, position: Csn, effects: &mut Vec<Effect>) {
        let Some(entry) = self.log.iter().find(|entry| entry.position == position) else { return };
        effects.push(Effect::Refuse { position, undo: entry.protocol.rollback(entry.is_here) });
        self.resolve(position, false, effects);
        self.leave(position);
    }

    fn leave(&mut self, position: Csn) {
        self.log.retain(|entry| entry.position != position);
        self.tocommit.retain(|waiting| *waiting != position);
    }

    /// What becomes of those who depend on an entry, now that it is known whether it commits and
    /// what it writes; and of those who depend on them.
    fn resolve(&mut self, position: Csn, commits: bool, effects: &mut Vec<Effect>) {
        let Some(at) = self.log.iter().position(|entry| entry.position == position) else { return };
        let (mut resolved, mut refused) = (Vec::new(), Vec::new());
        let (before, later) = self.log.make_contiguous().split_at_mut(at + 1);
        let known = before[at].footprint.as_ref().filter(|_| commits);
        for entry in later.iter_mut().filter(|entry| entry.depends_on.contains(&position)) {
            let meets = matches!((&entry.footprint, known), (Some(own), Some(other)) if own.meets(other));
            entry.depends_on.retain(|earlier| *earlier != position);
            let found = match (meets, entry.depends_on.is_empty()) {
                (true, _) => Found::Resolved,
                (false, true) => Found::Nothing,
                (false, false) => continue,
            };
            let arrival = Arrival { origin: entry.origin, node: self.node, found };
            if entry.protocol.is_voting() {
                entry.depends_on.clear();
                let vote = entry.protocol.vote(&arrival);
                effects.extend(vote.map(|commits| Effect::Vote { id: entry.id, commits }));
            } else if meets && entry.at_turn {
                // What it has met may come to nothing at its own turn, which is before this one's.
                entry.depends_on.clear();
                entry.committable = true;
            } else if meets {
                refused.push(entry.position);
            } else if entry.kind == Kind::CPending {
                entry.committable = true;
                if !entry.at_turn {
                    entry.kind = Kind::Resolved;
                    resolved.push(entry.position);
                }
            }
        }
        // In cascade.
        for position in refused {
            self.refuse(position, effects);
        }
        for position in resolved {
            self.resolve(position, true, effects);
        }
    }

    /// The entries, in their order, with what they wait for.
    #[cfg(test)]
    fn entries(&self) -> impl Iterator<Item = (Csn, Kind, &[Csn])> {
        self.log.iter().map(|entry| (entry.position, entry.kind, entry.depends_on.as_slice()))
    }
}
