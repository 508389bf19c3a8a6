//! What a query does besides reading, as it is written: rows that its WITH changes, rows that a
//! part of it locks.

use std::ops::ControlFlow;

use cognate_syntax::{Step, Walker, walk};
use sqlparser::ast::{Query, SetExpr, Statement};

/// Whether a body is a statement that changes rows.
pub(crate) fn changes_rows(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// Whether a query within a statement, or one of its WITH, locks or changes rows.
pub(crate) fn locks_rows_within(sql: &Statement) -> bool {
    let depth = usize::from(!matches!(sql, Statement::Query(_)));
    walk(sql, &mut Within { depth }).is_break()
}

struct Within {
    /// So many queries are around, the statement too if it is none.
    depth: usize,
}

impl Walker for Within {
    fn query(&mut self, query: &Query) -> Step {
        let is_within = self.depth > 0;
        self.depth += 1;
        match is_within && (!query.locks.is_empty() || changes_rows(&query.body)) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn leaves_query(&mut self) -> Step {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}
