//! The parts of a statement that are run one by one: statements in its WITH, and queries within it
//! that lock rows.
//!
//! An expression or a join gives rows when it is asked, and cannot wait for a lock or write a row
//! meanwhile. So what does that becomes a *part*: it is run to its end before what reads it, which
//! finds its rows as those of a WITH query. Most statements have no parts, and the binder only
//! notes that one would be needed ([`Binder::wants_parts`]); then all is bound once more, in parts.
//!
//! ```text
//! UPDATE job SET taken = true
//! WHERE id = (SELECT id FROM job WHERE NOT taken ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
//!
//!   part 1, WITH query 0    SELECT id FROM job ... FOR UPDATE SKIP LOCKED
//!   part 0                  UPDATE job SET taken = true WHERE id = (SELECT * FROM 0)
//! ```
//!
//! The binder gives each part a number in the order in which it meets them, and notes which part
//! reads which WITH query. Binding the same statement again gives the same numbers.

use sqlparser::ast::{self, Query as QuerySyntax, SetExpr};

use super::{Binder, Body, Cte, From, Query, Relation, Select, Slot, SlotPart, Source};
use crate::error::Result;
use crate::expr::{Expr, Typed};
use crate::session::OutputColumn;
use crate::types::Type;

/// What the binder knows of a statement's parts.
#[derive(Default)]
pub(super) struct Parts {
    /// The statement is bound in parts.
    split: bool,
    /// It has what needs that.
    wanted: bool,
    /// The part being bound.
    reader: usize,
    /// The number of the next one.
    next: usize,
    /// Which part reads which WITH query.
    reads: Vec<(usize, usize)>,
    locking: Vec<LockingQuery>,
}

/// A query within the statement that locks rows.
#[derive(Debug)]
pub(crate) struct LockingQuery {
    /// Which part it is.
    pub(crate) part: usize,
    /// The number of the WITH query that its rows are those of.
    pub(crate) number: usize,
    pub(crate) query: Query,
}

impl Binder<'_> {
    /// Makes a binder one that binds a statement in parts.
    pub(crate) fn split(mut self) -> Self {
        self.parts.split = true;
        self
    }

    /// Whether what was bound has to be bound in parts.
    pub(crate) fn wants_parts(&self) -> bool {
        self.parts.wanted
    }

    /// The number of the next part.
    pub(crate) fn next_part(&self) -> usize {
        self.parts.next
    }

    /// Binds a part.
    pub(crate) fn part<T>(&mut self, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let part = self.parts.next;
        self.parts.next += 1;
        let around = std::mem::replace(&mut self.parts.reader, part);
        let bound = bind(self);
        self.parts.reader = around;
        bound
    }

    /// Which part reads which WITH query, as far as they are bound.
    pub(crate) fn part_reads(&self) -> &[(usize, usize)] {
        &self.parts.reads
    }

    /// The queries within the statement that lock rows.
    pub(crate) fn take_locking_queries(&mut self) -> Vec<LockingQuery> {
        std::mem::take(&mut self.parts.locking)
    }

    /// The part being bound.
    pub(super) fn reader(&self) -> usize {
        self.parts.reader
    }

    pub(super) fn note_part_read(&mut self, number: usize) {
        if self.parts.split {
            self.parts.reads.push((self.parts.reader, number));
        }
    }

    /// A query of the statement's own WITH, which all parts see.
    pub(crate) fn part_query(&mut self, cte: &ast::Cte, recursive: bool) -> Result<Cte> {
        let name = self.new_cte_name(cte, 0)?;
        self.shared_cte(cte, name, recursive)
    }

    /// A statement of its WITH that changes rows: what `bind` makes of it, and its number among the
    /// WITH queries. `columns` says what it returns.
    pub(crate) fn part_statement<T>(
        &mut self,
        cte: &ast::Cte,
        recursive: bool,
        bind: impl FnOnce(&mut Self) -> Result<T>,
        columns: impl FnOnce(&T) -> Option<Vec<OutputColumn>>,
    ) -> Result<(T, usize)> {
        let name = self.new_cte_name(cte, 0)?;
        let bound = self.changing_cte(&name, recursive, bind)?;
        let number = self.put_changing_cte(&cte.alias, &name, columns(&bound).as_deref())?;
        Ok((bound, number))
    }

    /// Binds a query of a WITH; `shared`: it is a part already, as all parts see it.
    pub(super) fn cte_query(&mut self, syntax: &QuerySyntax, shared: bool) -> Result<Query> {
        match shared {
            true => self.query(syntax, false),
            false => self.query_in_statement(syntax, false),
        }
    }

    /// Binds a query within the statement. If it locks rows, its rows are read from the part that
    /// it is.
    ///
    /// # Errors
    /// 0A000 if it locks rows and refers to a query around it.
    pub(crate) fn query_in_statement(&mut self, syntax: &QuerySyntax, keep_unknown: bool) -> Result<Query> {
        if !locks_rows(syntax) {
            return self.query(syntax, keep_unknown);
        }
        self.parts.wanted = true;
        if !self.parts.split {
            return self.query(syntax, keep_unknown);
        }
        let part = self.parts.next;
        let query = self.part(|binder| binder.query(syntax, false))?;
        if query.is_correlated() {
            return Err(self.lacks("a subquery that locks rows and refers to a query around it"));
        }
        let number = self.cte_count;
        self.cte_count += 1;
        self.note_part_read(number);
        let reading = all_rows(number, query.columns.clone());
        self.parts.locking.push(LockingQuery { part, number, query });
        Ok(reading)
    }
}

fn locks_rows(syntax: &QuerySyntax) -> bool {
    !syntax.locks.is_empty() || matches!(syntax.body.as_ref(), SetExpr::Query(inner) if locks_rows(inner))
}

/// All rows of a WITH query.
pub(crate) fn all_rows(number: usize, columns: Vec<OutputColumn>) -> Query {
    let types: Vec<Type> = columns.iter().map(|column| column.ty).collect();
    let slot = |(place, ty): (usize, &Type)| Slot { relation: 0, part: SlotPart::Column(place), ty: *ty };
    let select = Select {
        slots: types.iter().enumerate().map(slot).collect(),
        from: vec![From::Relation(0)],
        visible: types.len(),
        targets: types.iter().enumerate().map(|(place, ty)| Typed::new(Expr::Slot(place), *ty)).collect(),
        relations: vec![Relation {
            alias: String::new(),
            source: Source::Cte(number),
            slots: (0..types.len()).map(Some).collect(),
            types,
            columns: Some(columns.iter().map(|column| column.name.clone()).collect()),
            key_slot: None,
            nullable: false,
        }],
        ..Select::default()
    };
    Query::of(Body::Select(Box::new(select)), columns)
}
