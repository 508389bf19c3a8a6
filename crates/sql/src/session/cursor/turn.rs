//! Going back with a cursor that was declared with neither SCROLL nor NO SCROLL.
//!
//! As in PostgreSQL such a cursor can go back if its plan could give its rows backwards. Its rows
//! are not kept, as most cursors only go forwards: when one is asked to go back for the first time,
//! its query is run again with the sight of its declaration, and it is one that scrolls from then
//! on.

use std::sync::Arc;

use cognate_engine::ReadView;
use sqlparser::ast;

use super::super::portal::PortalState;
use super::super::{Action, Portal, Prepared, Session};
use super::NamedCursor;
use crate::error::Result;
use crate::oltp::Cursor;
use crate::parse::FetchCount;
use crate::plan::Plan;

/// What the rows of a cursor come from, to be read again.
pub(super) struct Origin {
    plan: Arc<Plan>,
    view: ReadView,
}

impl Origin {
    /// That of a portal that has begun.
    pub(super) fn of(portal: &Portal) -> Option<Origin> {
        match &portal.state {
            PortalState::Cursor { cursor, view, .. } => {
                Some(Origin { plan: cursor.plan().clone(), view: view.clone() })
            }
            _ => None,
        }
    }
}

/// Whether a cursor is one that scrolls as soon as it is asked to go back.
pub(super) fn can_turn(declare: &ast::Declare, prepared: &Prepared) -> bool {
    match &prepared.planned().action {
        Action::Select(plan) => declare.scroll.is_none() && plan.scans_backward(),
        _ => false,
    }
}

/// Whether a cursor that only goes forwards cannot do this.
pub(super) fn goes_back(cursor: &NamedCursor, count: &FetchCount, counted_only: bool) -> bool {
    let is_on_row = cursor.position > 0 && !cursor.at_end;
    match *count {
        FetchCount::Forward(0) | FetchCount::Backward(0) | FetchCount::Relative(0) => {
            is_on_row && !counted_only
        }
        FetchCount::Forward(count) | FetchCount::Relative(count) => count < 0,
        FetchCount::Absolute(at) => at <= 0 || at as usize <= cursor.position,
        FetchCount::All => false,
        FetchCount::Backward(count) => count > 0,
        FetchCount::BackwardAll => true,
    }
}

impl Session {
    /// Makes a cursor one that scrolls, if it can be, at the place where it stands; whether it is
    /// one now.
    pub(super) async fn turn(&mut self, cursor: &mut NamedCursor) -> Result<bool> {
        let Some(Origin { plan, view }) = cursor.origin.take() else { return Ok(false) };
        let mut portal = cursor.portal.again();
        let again = Box::new(Cursor::new(&plan, portal.parameters.clone()));
        portal.state = PortalState::Cursor { cursor: again, view, rows: 0 };
        portal.begun_in = cursor.portal.begun_in;
        let rows = self.gather_all(&mut portal, false).await?;
        if cursor.at_end {
            cursor.position = rows.number + 1;
        }
        cursor.rows = Some(rows);
        cursor.scroll = true;
        Ok(true)
    }
}
