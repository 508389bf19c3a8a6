//! What a transaction may see of others, and whether it may write.

/// What a transaction may see of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the transaction; first updater wins.
    Snapshot,
    /// As `Snapshot`, and the commit is refused where no serial order would explain it
    /// (`Options::serializable` says how that is found out).
    Serializable,
}

/// Whether a transaction may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads at the visible mark, and writes.
    ReadWrite,
    /// Reads at the durable mark: never waits for a flush, and never sees what a crash could take
    /// back.
    ReadOnly,
}
