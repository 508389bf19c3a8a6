//! What a node shows that differs from the others of its cluster: nothing of what it has.
//!
//! Nodes compare what they have come to, and one that has come to something else stops serving. Its
//! rows are nobody's answer then, be they asked for by a statement, a COPY or a backup. Views that
//! say how it is are answered, and the programs of the order are executed there as everywhere.
//!
//! So is a node that cannot read the catalog which was delivered to it: by the one before it would
//! find other rows, or none.
//!
//! A node that only has stopped, since it cannot go on, is another matter: what it has is what the
//! others had, and may be read.

use std::collections::VecDeque;

use cognate_engine::Csn;
use parking_lot::Mutex;

use super::{Nodes, Planned, Session};
use crate::error::{Result, SqlError, sqlstate};

/// So many internal errors are remembered.
const DEFECTS_MAX: usize = 3;

/// The last internal errors of statements that every node executes: where in the order, and what
/// they say. Mostly all nodes have met them; if this one alone has, it differs from the others.
#[derive(Default)]
pub(super) struct Defects(Mutex<VecDeque<String>>);

impl Nodes {
    /// A statement of the order has failed at this node, since an invariant of ours does not hold.
    pub(super) fn note_defect(&self, position: Csn, error: &SqlError) {
        tracing::warn!(position, %error, "a statement that every node executes has met a defect");
        let mut defects = self.defects.0.lock();
        if defects.len() == DEFECTS_MAX {
            defects.pop_front();
        }
        defects.push_back(format!("position {position}: {}", error.message));
    }

    /// The last such errors, each with its position.
    pub fn defects(&self) -> Vec<String> {
        self.defects.0.lock().iter().cloned().collect()
    }

    /// A statement has met a file that is damaged. The others have what was in it, and the rest of
    /// what this node has may be read.
    pub(super) fn note_damage(&self, error: &SqlError) {
        if self.damaged.set(format!("{}: rebuild this node", error.message)).is_ok() {
            tracing::error!(%error, "a file of this node is damaged");
        }
    }

    /// What file of this node is damaged, and where, if a statement has met one.
    pub fn damage(&self) -> Option<String> {
        self.damaged.get().cloned()
    }

    /// What this node has is not what the others have, as the reason says: from now on nobody is
    /// shown it, and nothing is written by it.
    pub fn differ(&self, reason: String) {
        // What differs once stays so.
        let _ = self.differs.set(reason);
    }

    /// In what it differs, if it does.
    pub fn difference(&self) -> Option<String> {
        self.differs.get().cloned()
    }

    /// 25006 if this node differs from the others.
    pub(super) fn check_alike(&self) -> Result<()> {
        let Some(reason) = self.differs.get() else { return Ok(()) };
        let what = "this node differs from the others, and shows nobody what it has";
        Err(SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, what)
            .with_detail(reason.clone())
            .with_hint("Connect to another node: see cognate_nodes."))
    }
}

impl Session {
    /// 25006 if a statement is about tables, and this node differs from the others.
    pub(super) fn check_tables_alike(&self, planned: &Planned) -> Result<()> {
        let nodes = self.database.nodes();
        // Whose turn it is has been ordered.
        if nodes.differs.get().is_none() || planned.tables.is_empty() || self.is_ordered() {
            return Ok(());
        }
        nodes.check_alike()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_defects_are_kept_and_other_answers_of_their_code_are_none() {
        let nodes = Nodes::default();
        assert!(!SqlError::new(sqlstate::INTERNAL_ERROR, "an answer").is_defect);
        for position in 1..=4 {
            let defect = SqlError::internal("broken");
            assert!(defect.is_defect);
            nodes.note_defect(position, &defect);
        }
        assert_eq!(nodes.defects(), ["position 2: broken", "position 3: broken", "position 4: broken"]);
    }
}
