//! A fourth protocol, to show what one takes: all updates run at one node, the primary, and are
//! committed everywhere as they come from there. Those that ran elsewhere are refused.

use super::protocol::{Arrival, Entrance, Found, Protocol, Turn};

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct PrimaryCopy {
    /// The primary.
    pub(crate) primary: u16,
}

impl Protocol for PrimaryCopy {
    fn name(&self) -> &'static str {
        "primary_copy"
    }

    fn validate(&self, arrival: &Arrival) -> Entrance {
        match (arrival.origin == self.primary, arrival.found) {
            (false, _) => Entrance::Refused,
            // Only transactions of other protocols can be in the way: the primary orders its own.
            (true, Found::Resolved) => Entrance::Refused,
            (true, Found::Pending) => Entrance::CPending,
            (true, Found::Nothing) => Entrance::Resolved,
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
