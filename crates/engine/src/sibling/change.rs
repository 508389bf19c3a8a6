//! What of an operation on a family is durable.

use super::{Instance, Text};

/// A durable change of a family; what is stored of it is in `stored`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// The instance is prepared, and tombstones stand below it.
    Prepare {
        /// The instance.
        instance: Instance,
        /// The family's request.
        request: Text,
        /// The instance's result.
        result: Text,
    },
    /// Instances are aborted that were prepared or active.
    Abort {
        /// The instances.
        instances: Vec<Instance>,
    },
    /// All instances up to this one are aborted, none of which is prepared above the floor.
    Refuse {
        /// The instance.
        upto: Instance,
    },
    /// A prepared instance is committed, all others are aborted.
    Commit {
        /// The instance.
        winner: Instance,
    },
    /// The family is forgotten.
    Forget,
}
