//! Plans of a session that looks names up otherwise than who prepared the statement: it has
//! temporary objects, another `search_path` by now, or its user has a schema of his name. Prepared
//! statements are shared by sessions, and so are the plans that take the place of their first ones;
//! but in such a session the same name may stand for another table. So what it plans again it keeps
//! here.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Planned, Prepared};
use crate::parse;

/// So many plans are kept; one more, and they are all made again when they are needed.
const PLANS_MAX: usize = 256;

/// The plans, by their statements' addresses, which the statements beside them keep taken.
#[derive(Default)]
pub(super) struct OwnPlans(HashMap<usize, (Arc<Prepared>, Arc<Planned>)>);

fn address(prepared: &Arc<Prepared>) -> usize {
    Arc::as_ptr(prepared).addr()
}

impl OwnPlans {
    /// The last plan of a statement.
    #[inline]
    pub(super) fn get(&self, prepared: &Arc<Prepared>) -> Option<Arc<Planned>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&address(prepared)).map(|(_, planned)| planned.clone())
    }

    /// Keeps a plan, unless it is of the few that are too deep to be dropped just anywhere.
    pub(super) fn keep(&mut self, prepared: &Arc<Prepared>, planned: Planned) -> Arc<Planned> {
        let planned = Arc::new(planned);
        if prepared.depth() <= parse::SHALLOW {
            if self.0.len() >= PLANS_MAX {
                self.0.clear();
            }
            self.0.insert(address(prepared), (prepared.clone(), planned.clone()));
        }
        planned
    }

    /// The session looks the statement's names up as others do, by now.
    pub(super) fn forget(&mut self, prepared: &Arc<Prepared>) {
        self.0.remove(&address(prepared));
    }

    /// The session's statements go.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
