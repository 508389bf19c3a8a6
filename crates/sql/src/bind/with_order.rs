//! In which order the queries of a WITH are bound.

use cognate_syntax::{Step, Walker, walk};
use sqlparser::ast;

use super::Binder;
use super::scope::object_name;
use crate::error::{Result, SqlError, sqlstate};

impl Binder<'_> {
    /// The queries of a WITH in an order in which each comes behind those that it reads: under
    /// RECURSIVE it may read later ones. 0A000 if some read each other.
    pub(crate) fn in_order<'w>(&self, with: &'w ast::With) -> Result<Vec<&'w ast::Cte>> {
        let written: Vec<&ast::Cte> = with.cte_tables.iter().collect();
        if !with.recursive || written.len() < 2 {
            return Ok(written);
        }
        let names: Vec<String> = written.iter().map(|cte| object_name(&cte.alias.name)).collect();
        let reads: Vec<Vec<usize>> =
            written.iter().enumerate().map(|(place, cte)| reads(&names, place, &cte.query)).collect();
        let mut order: Vec<usize> = (0..written.len()).collect();
        let mut placed = vec![false; written.len()];
        for place in 0..order.len() {
            let is_next = |at: &usize| reads[order[*at]].iter().all(|read| placed[*read]);
            let Some(next) = (place..order.len()).find(is_next) else {
                if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
                    return Err(named_twice(&names[at]));
                }
                let message = "mutual recursion between WITH items is not implemented";
                let error = SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message);
                return Err(self.at(error, written[order[place]].alias.name.span));
            };
            order.swap(place, next);
            placed[order[place]] = true;
        }
        Ok(order.into_iter().map(|place| written[place]).collect())
    }
}

/// 42712.
pub(super) fn named_twice(name: &str) -> SqlError {
    let message = format!("WITH query name \"{name}\" specified more than once");
    SqlError::new(sqlstate::DUPLICATE_ALIAS, message)
}

/// Which other queries of a WITH are named by the one at a place.
fn reads(names: &[String], place: usize, query: &ast::Query) -> Vec<usize> {
    let mut reads = Reads { names, place, found: vec![], within: vec![], is_call: false };
    let _ = walk(query, &mut reads);
    reads.found
}

struct Reads<'a> {
    names: &'a [String],
    place: usize,
    found: Vec<usize>,
    /// The queries that are walked through, one in the other: the names of the queries of their own
    /// WITH, and how many of these are in sight.
    within: Vec<(Vec<String>, usize)>,
    /// The next name is a function's.
    is_call: bool,
}

impl Walker for Reads<'_> {
    fn query(&mut self, query: &ast::Query) -> Step {
        let own = query.with.as_ref();
        let tables = own.map_or(&[][..], |with| with.cte_tables.as_slice());
        let names: Vec<String> = tables.iter().map(|cte| object_name(&cte.alias.name)).collect();
        let in_sight = if own.is_some_and(|with| with.recursive) { names.len() } else { 0 };
        self.within.push((names, in_sight));
        Step::Continue(())
    }

    fn leaves_query(&mut self) -> Step {
        self.within.pop();
        // The queries of its WITH are the first ones that are met within another.
        if let Some((names, in_sight)) = self.within.last_mut()
            && *in_sight < names.len()
        {
            *in_sight += 1;
        }
        Step::Continue(())
    }

    fn table_factor(&mut self, item: &ast::TableFactor) -> Step {
        self.is_call = matches!(item, ast::TableFactor::Table { args: Some(_), .. });
        Step::Continue(())
    }

    fn relation(&mut self, relation: &ast::ObjectName) -> Step {
        let is_call = std::mem::take(&mut self.is_call);
        if let [ast::ObjectNamePart::Identifier(name)] = relation.0.as_slice()
            && !is_call
        {
            let name = object_name(name);
            let is_hidden = self.within.iter().any(|(own, in_sight)| own[..*in_sight].contains(&name));
            let read = self.names.iter().position(|known| *known == name);
            self.found.extend(read.filter(|at| *at != self.place && !is_hidden));
        }
        Step::Continue(())
    }
}
