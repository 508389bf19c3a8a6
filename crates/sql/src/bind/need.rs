//! What a statement needs to be allowed: noted while it is bound, asked each time that it is run.
//!
//! ```text
//! SELECT * FROM v        v: SELECT a FROM t, of ann's
//!   of who runs it       SELECT on v
//!   of ann               SELECT on t
//! ```
//!
//! What a view reads is read with the rights of its owner; functions in it are called with the
//! rights of who reads the view. A function that is SECURITY DEFINER does all with its owner's.
//! Temporary objects are nobody's but the session's, so nothing is asked of them.

use std::ops::Range;

use sqlparser::ast;

use super::{Binder, Clause, Source};
use crate::catalog::{Oid, Privileges, Relation, Routine, Securable, Table, View, is_temporary};
use crate::error::Result;
use crate::parse::walk::has_expression;

/// Privileges on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Oid of the object.
    pub object: Oid,
    /// What it is.
    pub kind: Securable,
    /// All of these.
    pub privileges: Privileges,
    /// Of whom, if not of who runs the statement.
    pub role: Option<Oid>,
}

/// In whose names a statement, or a part of it, is bound; none is who runs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acting {
    /// Who calls functions.
    caller: Option<Oid>,
    /// Who reads and changes tables.
    reader: Option<Oid>,
}

/// A view that a level reads, and by which of the level's relations.
pub(crate) struct ThroughView {
    /// Places of the relations that it stands for.
    pub(super) relations: Range<usize>,
    /// Oid of the view.
    pub(super) oid: Oid,
    /// Who reads it, if that is not who runs the statement.
    pub(super) reader: Option<Oid>,
}

impl Acting {
    /// Who calls functions. In the body of a function he reads and changes tables, too.
    pub(super) fn caller(self) -> Option<Oid> {
        self.caller
    }
}

impl Binder<'_> {
    /// What who runs the statement needs, and what others need.
    pub(crate) fn needs(&self) -> (Vec<Need>, Vec<Need>) {
        self.needs.iter().cloned().partition(|need| need.role.is_none())
    }

    fn note_need(&mut self, object: Oid, kind: Securable, privileges: Privileges, role: Option<Oid>) {
        // Superusers need nothing. One who is none any more has changed the catalog, and the plan goes.
        if role.is_some_and(|role| self.context.catalog.rights(role).superuser) {
            return;
        }
        let of_it = |need: &&mut Need| need.object == object && need.role == role;
        match self.needs.iter_mut().find(of_it) {
            Some(need) => need.privileges = need.privileges | privileges,
            None => self.needs.push(Need { object, kind, privileges, role }),
        }
    }

    /// A table is read or changed.
    pub(crate) fn need(&mut self, table: &Table, privileges: Privileges) {
        if self.context.catalog.has_roles() && !table.temporary {
            self.note_need(table.oid, Securable::Table, privileges, self.acting.reader);
        }
    }

    /// A view, or what it is over, is changed.
    pub(super) fn need_to_change(&mut self, relation: Oid, schema: &str, privileges: Privileges) {
        if self.context.catalog.has_roles() && !is_temporary(schema) {
            self.note_need(relation, Securable::Table, privileges, self.acting.reader);
        }
    }

    /// A relation that a name in FROM means is read.
    pub(super) fn need_to_read(&mut self, relation: &Relation) {
        if !self.context.catalog.has_roles() || relation.is_temporary() {
            return;
        }
        let kind = match relation {
            Relation::Sequence(_) => Securable::Sequence,
            _ => Securable::Table,
        };
        self.note_need(relation.oid(), kind, Privileges::SELECT, self.acting.reader);
    }

    /// Rows of a table that the open level reads are locked, which asks for the right to change
    /// them: of the table, and of the views that lead to it.
    pub(super) fn need_to_lock(&mut self, relation: usize) -> Result<()> {
        let level = self.level()?;
        let Some(Source::Table(table)) = level.select.relations.get(relation).map(|one| &one.source) else {
            return Ok(());
        };
        let oid = table.oid;
        let leading = level.through_views.iter().filter(|view| view.relations.contains(&relation));
        let leading: Vec<(Oid, Option<Oid>)> = leading.map(|view| (view.oid, view.reader)).collect();
        for (view, reader) in leading {
            self.note_need(view, Securable::Table, Privileges::UPDATE, reader);
        }
        for need in self.needs.iter_mut().filter(|need| need.object == oid) {
            need.privileges = need.privileges | Privileges::UPDATE;
        }
        Ok(())
    }

    /// A computed table is read that is for superusers only.
    pub(super) fn need_superuser(&mut self, oid: Oid) {
        if self.context.catalog.has_roles() {
            self.note_need(oid, Securable::Table, Privileges::SELECT, self.acting.reader);
        }
    }

    /// A schema is named by the statement.
    pub(crate) fn need_schema(&mut self, schema: &str) {
        let catalog = self.context.catalog;
        if !catalog.has_roles() || self.view_depth > 0 {
            return;
        }
        if let Some(schema) = catalog.schema(schema).filter(|schema| schema.home.is_none()) {
            self.note_need(schema.oid, Securable::Schema, Privileges::USAGE, self.acting.reader);
        }
    }

    /// A function or procedure is named with its schema. What stands in the default of an argument
    /// is the words of who made the function.
    pub(super) fn need_schema_of_function(&mut self, schema: Option<&str>) {
        if let Some(schema) = schema.filter(|_| self.clause() != Clause::Default) {
            self.need_schema(schema);
        }
    }

    /// A function or procedure is called.
    pub(super) fn need_to_call(&mut self, routine: &Routine) {
        if self.context.catalog.has_roles() && !is_temporary(&routine.schema_name) {
            let kind = Securable::Routine;
            self.note_need(routine.oid, kind, Privileges::EXECUTE, self.acting.caller);
        }
    }

    /// The relations of the open level from a place on are what a view stands for.
    pub(super) fn note_through_view(&mut self, view: &View, from: usize) -> Result<()> {
        if !self.context.catalog.has_roles() || is_temporary(&view.schema_name) {
            return Ok(());
        }
        let reader = self.acting.reader;
        let level = self.level()?;
        let relations = from..level.select.relations.len();
        level.through_views.push(ThroughView { relations, oid: view.oid, reader });
        Ok(())
    }

    /// From here on tables are read as the view's owner may; what was so before is given back.
    pub(super) fn enter_view(&mut self, view: &View) -> Acting {
        let before = self.acting;
        if self.context.catalog.has_roles() && !is_temporary(&view.schema_name) {
            self.acting.reader = Some(self.context.catalog.owner(view.oid));
        }
        before
    }

    /// In whose names the body of a function is bound.
    pub(super) fn acting_in(&self, routine: &Routine) -> Acting {
        let catalog = self.context.catalog;
        if routine.security_definer && catalog.has_roles() {
            let owner = Some(catalog.owner(routine.oid));
            return Acting { caller: owner, reader: owner };
        }
        Acting { reader: self.acting.caller, ..self.acting }
    }

    /// Takes over what the body of a function needs.
    pub(super) fn take_needs(&mut self, inner: Vec<Need>) {
        for need in inner {
            self.note_need(need.object, need.kind, need.privileges, need.role);
        }
    }
}

/// Whether an expression may read a column of the table that a statement changes: it names anything.
pub(crate) fn names_columns(expression: &ast::Expr) -> bool {
    has_expression(expression, |expression| match expression {
        ast::Expr::Identifier(name) => {
            name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("default")
        }
        ast::Expr::CompoundIdentifier(_) => true,
        _ => false,
    })
}
