//! The table of call-level locks of one component (paper, §§3.2 and 3.3).
//!
//! A lock belongs to one call: a service, and the item that the call is about. It is taken before
//! the call runs and kept until its root ends here: committed, or undone call by call. So the order
//! in which roots went through conflicting calls is one and the same at all components.
//!
//! # The sibling rule
//!
//! Calls of one root may conflict, and then follow each other, but never overlap: the second begins
//! after the first one's local commit. Three cases would wait for themselves and are told apart:
//!
//! - the holder is an *ancestor* of the new call: it ends only after the new one has;
//! - the holder is *closed* (it has no undo, so its local transaction stays open until the root
//!   ends): the new one would wait for it inside the database;
//! - otherwise the new one waits until the holder has committed.
//!
//! ```text
//! root r: take(7) runs                    lock r.1 take 7, running
//! root q: take(7)      conflict           holder r
//! root r: take(7)      sibling            waits for r.1
//! r.1 commits                             lock r.1 take 7, done
//! root r: take(7)      granted            beside its own lock
//! root q: take(7)      conflict           until r ends
//! ```
//!
//! Pure: it knows neither time nor who waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::matrix::{Conflict, Matrix, ServiceId};
use crate::name::{CallId, RootId};

/// What a call is about; empty for services that declare no item.
pub type Item = Arc<str>;

/// Where a call that holds a lock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// Its local transaction is under way.
    Running,
    /// Its local transaction has committed.
    Open,
    /// It has answered, and its local transaction stays open until the root ends.
    Closed,
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Held {
    root: RootId,
    call: CallId,
    holding: Holding,
}

/// Whether a call may run now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// It has its lock.
    Granted,
    /// Another call of the same root has to commit first.
    Sibling(CallId),
    /// Another root holds a lock that conflicts.
    Conflict {
        /// Which root.
        holder: RootId,
        /// By a call of which service.
        service: ServiceId,
        /// About what.
        item: Item,
    },
    /// A closed call of the same root holds a lock that conflicts.
    ClosedSibling(CallId),
    /// An ancestor of the call holds a lock that conflicts.
    Ancestor(CallId),
}

/// All locks of a component.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LockTable {
    held: BTreeMap<(ServiceId, Item), Vec<Held>>,
}

/// What asks for a lock.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The root.
    pub root: &'a RootId,
    /// The call.
    pub call: &'a CallId,
    /// The calls that it is part of, the root's first.
    pub ancestors: &'a [CallId],
    /// The service.
    pub service: ServiceId,
    /// The item.
    pub item: &'a Item,
}

impl LockTable {
    /// Takes a lock, or says what is in its way. Of several things the worst is named.
    pub fn acquire(&mut self, matrix: &Matrix, request: Request<'_>) -> Grant {
        let grant = self.look(matrix, request);
        if grant == Grant::Granted {
            self.hold(request, Holding::Running);
        }
        grant
    }

    /// What [`LockTable::acquire`] would answer.
    pub fn look(&self, matrix: &Matrix, request: Request<'_>) -> Grant {
        let Request { service: new, item, .. } = request;
        let mut worst = Grant::Granted;
        for service in 0..matrix.services().len() as ServiceId {
            match matrix.cell(service, new) {
                Conflict::Never => {}
                Conflict::SameItem => {
                    if let Some((key, held)) = self.held.get_key_value(&(service, Arc::clone(item))) {
                        held.iter().for_each(|held| meet(held, key, request, &mut worst));
                    }
                }
                Conflict::Always => {
                    let from = (service, Item::from(""));
                    let of_service = self.held.range(from..).take_while(|((its, _), _)| *its == service);
                    for (key, held) in of_service {
                        held.iter().for_each(|held| meet(held, key, request, &mut worst));
                    }
                }
            }
        }
        worst
    }

    /// Takes a lock without asking: one that was held before a restart.
    pub fn hold(&mut self, request: Request<'_>, holding: Holding) {
        let Request { root, call, service, item, .. } = request;
        let held = self.held.entry((service, Arc::clone(item))).or_default();
        assert!(!held.iter().any(|held| held.root == *root && held.call == *call), "a lock taken twice");
        held.push(Held { root: root.clone(), call: call.clone(), holding });
    }

    /// The call has answered: its siblings may follow.
    pub fn answered(&mut self, root: &RootId, call: &CallId, service: ServiceId, item: &Item, to: Holding) {
        let held = self.held.get_mut(&(service, Arc::clone(item)));
        let held =
            held.and_then(|held| held.iter_mut().find(|held| held.root == *root && held.call == *call));
        held.expect("a call that runs holds its lock").holding = to;
    }

    /// Gives a lock back.
    pub fn release(&mut self, root: &RootId, call: &CallId, service: ServiceId, item: &Item) {
        let key = (service, Arc::clone(item));
        let held = self.held.get_mut(&key).expect("a lock that is given back is held");
        let before = held.len();
        held.retain(|held| held.root != *root || held.call != *call);
        assert_eq!(held.len() + 1, before, "a lock that is given back is held once");
        if held.is_empty() {
            self.held.remove(&key);
        }
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many locks are held.
    pub fn len(&self) -> usize {
        self.held.values().map(Vec::len).sum()
    }
}

/// Has a lock that conflicts count for the answer.
fn meet(held: &Held, (service, item): &(ServiceId, Item), request: Request<'_>, worst: &mut Grant) {
    let met = if held.root != *request.root {
        Grant::Conflict { holder: held.root.clone(), service: *service, item: Arc::clone(item) }
    } else if held.call == *request.call {
        return;
    } else if request.ancestors.contains(&held.call) {
        Grant::Ancestor(held.call.clone())
    } else {
        match held.holding {
            Holding::Running => Grant::Sibling(held.call.clone()),
            Holding::Open => return,
            Holding::Closed => Grant::ClosedSibling(held.call.clone()),
        }
    };
    if rank(&met) > rank(worst) {
        *worst = met;
    }
}

fn rank(grant: &Grant) -> u8 {
    match grant {
        Grant::Granted => 0,
        Grant::Sibling(_) => 1,
        Grant::Conflict { .. } => 2,
        Grant::ClosedSibling(_) => 3,
        Grant::Ancestor(_) => 4,
    }
}
