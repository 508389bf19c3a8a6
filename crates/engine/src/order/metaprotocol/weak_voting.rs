//! Weak voting: a transaction runs at its origin, and its write set is ordered without its reads.
//! Only the origin can say whether those still hold; it votes, and the vote is ordered. Until then
//! others wait behind it.

use super::protocol::{Arrival, Entrance, Found, Protocol, Turn};

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct WeakVoting;

impl Protocol for WeakVoting {
    fn name(&self) -> &'static str {
        "weak_voting"
    }

    fn validate(&self, _: &Arrival) -> Entrance {
        Entrance::CPending
    }

    fn vote(&self, arrival: &Arrival) -> Option<bool> {
        match arrival.found {
            _ if !arrival.is_here() => None,
            Found::Nothing => Some(true),
            Found::Pending => None,
            Found::Resolved => Some(false),
        }
    }

    fn apply(&self, is_here: bool) -> bool {
        !is_here
    }

    fn commit(&self) -> Turn {
        Turn::Install
    }

    fn rollback(&self, is_here: bool) -> bool {
        is_here
    }

    fn is_voting(&self) -> bool {
        true
    }
}
