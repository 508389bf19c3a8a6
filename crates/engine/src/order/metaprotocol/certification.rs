//! Certification: a transaction runs at its origin, its write set is ordered, and every node comes
//! to the same verdict about it by what was ordered since. In this engine its reads are ordered,
//! too, and the certifier judges them when it is the transaction's turn.

use super::protocol::{Arrival, Entrance, Found, Protocol, Turn};

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Certification;

impl Protocol for Certification {
    fn name(&self) -> &'static str {
        "certification"
    }

    fn validate(&self, arrival: &Arrival) -> Entrance {
        match arrival.found {
            Found::Nothing => Entrance::Resolved,
            Found::Pending => Entrance::CPending,
            Found::Resolved => Entrance::Refused,
        }
    }

    fn vote(&self, _: &Arrival) -> Option<bool> {
        None
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
}
