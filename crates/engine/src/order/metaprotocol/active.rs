//! Active replication: the statements are ordered, and every node executes them when it is their
//! turn. No transaction of it is ever refused for another one's sake, and nothing is known of what
//! it writes before it was executed.

use super::protocol::{Arrival, Entrance, Protocol, Turn};

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Active;

impl Protocol for Active {
    fn name(&self) -> &'static str {
        "active"
    }

    fn validate(&self, _: &Arrival) -> Entrance {
        Entrance::WPending
    }

    fn vote(&self, _: &Arrival) -> Option<bool> {
        None
    }

    fn apply(&self, _: bool) -> bool {
        // Its origin has nothing of it either.
        true
    }

    fn commit(&self) -> Turn {
        Turn::Execute
    }

    fn rollback(&self, _: bool) -> bool {
        false
    }
}
