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
//!
//! Who may not do all that with a table may do it with those columns on which he has the privilege,
//! so a need says which columns are read, and which get values. A column is read where a name, a
//! star or a whole row is resolved to it: names carry with them whose need that is. Of a table that
//! is changed nothing need be read.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cognate_syntax::has_expression;
use sqlparser::ast;

use super::{Binder, Clause, Source, base_table, schema_of_type};
use crate::catalog::{
    Catalog, FIRST_USER_OID, Named, Oid, Privileges, Relation, Routine, Securable, Table, View, is_temporary,
};
use crate::error::Result;

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
    /// The columns on which SELECT, INSERT and UPDATE do, too.
    pub columns: NeededColumns,
}

/// Places of the columns of a table or view that a statement is about. Where there are none, a
/// privilege on any column is enough: `SELECT count(*)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededColumns {
    /// Those that are read.
    pub read: BTreeSet<usize>,
    /// Those that new rows are given values of.
    pub inserted: BTreeSet<usize>,
    /// Those that are set.
    pub updated: BTreeSet<usize>,
}

/// Stands among the places for a column that is none of the user's: `tableoid`. Nothing can be
/// given on it.
const SYSTEM_COLUMN: usize = usize::MAX;

/// What who reads a column needs: the number of the need, and the place of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnRead {
    need: usize,
    column: usize,
    /// Whether it is by reading it that SELECT is asked for.
    asks: bool,
}

impl ColumnRead {
    /// The same of another column.
    pub(super) fn of(self, column: usize) -> ColumnRead {
        ColumnRead { column, ..self }
    }

    /// The same where SELECT is asked for elsewhere, or not at all.
    pub(super) fn unasked(self) -> ColumnRead {
        ColumnRead { asks: false, ..self }
    }
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

    fn note_need(
        &mut self,
        object: Oid,
        kind: Securable,
        privileges: Privileges,
        role: Option<Oid>,
    ) -> Option<ColumnRead> {
        // Superusers need nothing. One who is none any more has changed the catalog, and the plan
        // goes.
        if role.is_some_and(|role| self.context.catalog.rights(role).superuser) {
            return None;
        }
        let known = self.needs.iter().position(|need| need.object == object && need.role == role);
        let need = known.unwrap_or(self.needs.len());
        match self.needs.get_mut(need) {
            Some(need) => need.privileges = need.privileges | privileges,
            None => {
                self.needs.push(Need { object, kind, privileges, role, columns: NeededColumns::default() });
            }
        }
        Some(ColumnRead { need, column: 0, asks: true })
    }

    /// A column is read.
    pub(super) fn note_read(&mut self, read: Option<ColumnRead>) {
        let Some(ColumnRead { need, column, asks }) = read else { return };
        if let Some(need) = self.needs.get_mut(need) {
            need.columns.read.insert(column);
            need.privileges = if asks { need.privileges | Privileges::SELECT } else { need.privileges };
        }
    }

    /// A column is read as a part of the whole row. A query that is to be stored does not name it.
    pub(super) fn note_row_read(&mut self, read: Option<ColumnRead>) {
        if self.noting.is_none() {
            self.note_read(read);
        }
    }

    /// A column is read of the same table that is none of the user's.
    pub(super) fn note_system_read(&mut self, read: Option<ColumnRead>) {
        self.note_read(read.map(|read| read.of(SYSTEM_COLUMN)));
    }

    /// A table is changed. What is read of it the names say that
    /// [`need_what_names_read`](Binder::need_what_names_read) is told of.
    pub(crate) fn need(&mut self, table: &Table, privileges: Privileges) {
        if self.context.catalog.has_roles() && !table.temporary {
            self.note_need(table.oid, Securable::Table, privileges, self.acting.reader);
        }
    }

    /// The names of the open level are those of a table that the statement changes: what they are
    /// resolved to is read of it.
    pub(crate) fn need_what_names_read(&mut self, table: &Table) -> Result<()> {
        let role = self.acting.reader;
        let known = self.needs.iter().position(|need| need.object == table.oid && need.role == role);
        let read = known.map(|need| ColumnRead { need, column: 0, asks: true });
        let level = self.level()?;
        level.namespace = std::mem::take(&mut level.namespace).read_as(read);
        Ok(())
    }

    /// Columns of a table that is changed are read or given values; it is changed through these
    /// views, the innermost first.
    pub(crate) fn need_columns(
        &mut self,
        views: &[Arc<View>],
        table: &Table,
        privilege: Privileges,
        places: &[usize],
    ) {
        if !self.context.catalog.has_roles() {
            return;
        }
        let before = self.acting;
        for view in views.iter().rev() {
            let columns = columns_over(view, self.context.catalog, places);
            self.note_columns(view.oid, privilege, &columns);
            self.enter_view(view);
        }
        self.note_columns(table.oid, privilege, places);
        self.acting = before;
    }

    fn note_columns(&mut self, object: Oid, privilege: Privileges, columns: &[usize]) {
        let role = self.acting.reader;
        let of_it = |need: &&mut Need| need.object == object && need.role == role;
        let Some(need) = self.needs.iter_mut().find(of_it) else { return };
        need.privileges = need.privileges | privilege;
        let noted = match privilege {
            Privileges::INSERT => &mut need.columns.inserted,
            Privileges::UPDATE => &mut need.columns.updated,
            _ => &mut need.columns.read,
        };
        noted.extend(columns);
    }

    /// Places of the columns of a table that the statement gives values, as far as anybody needs to
    /// be allowed to.
    pub(crate) fn given_columns(&self, table: &Table) -> Vec<usize> {
        let of_it = self.needs.iter().filter(|need| need.object == table.oid);
        of_it.flat_map(|need| need.columns.inserted.union(&need.columns.updated).copied()).collect()
    }

    /// A view, or what it is over, is changed.
    pub(super) fn need_to_change(
        &mut self,
        relation: Oid,
        schema: &str,
        privileges: Privileges,
    ) -> Option<ColumnRead> {
        if !self.context.catalog.has_roles() || is_temporary(schema) {
            return None;
        }
        self.note_need(relation, Securable::Table, privileges, self.acting.reader)
    }

    /// Whether a need is to be noted of what stands at this place. Of a query that is to be stored
    /// it is what its own text names: nobody runs it, so nothing is asked of anybody.
    fn is_needed(&mut self, is_temporary: bool) -> bool {
        match self.noting.is_some() {
            true => self.noted().is_some(),
            false => self.context.catalog.has_roles() && !is_temporary,
        }
    }

    /// What the text of a query that is to be stored names: what it reads, with the columns, what
    /// it calls, and these.
    pub(super) fn named_by_text(&self, needed: &[Oid]) -> Vec<Named> {
        let is_named = |need: &&Need| {
            let is_known = need.kind != Securable::Schema && need.object >= FIRST_USER_OID;
            is_known && need.role.is_none()
        };
        let columns = |need: &Need| {
            let read = need.columns.read.iter().copied();
            read.filter(|column| *column != SYSTEM_COLUMN).collect()
        };
        let needs = self.needs.iter().filter(is_named);
        let mut all: Vec<Named> =
            needs.map(|need| Named { oid: need.object, columns: columns(need) }).collect();
        for oid in needed {
            if all.iter().all(|named| named.oid != *oid) {
                all.push(Named { oid: *oid, columns: vec![] });
            }
        }
        all
    }

    /// A relation that a name in FROM means is read.
    pub(super) fn need_to_read(&mut self, relation: &Relation) -> Option<ColumnRead> {
        if !self.is_needed(relation.is_temporary()) {
            return None;
        }
        let kind = match relation {
            Relation::Sequence(_) => Securable::Sequence,
            _ => Securable::Table,
        };
        self.note_need(relation.oid(), kind, Privileges::SELECT, self.acting.reader)
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

    /// A type is named, perhaps with its schema. What stands in a default, in a constraint, in an
    /// index or in a generated column is the words of who made it.
    pub(super) fn need_schema_of_type(&mut self, data_type: &ast::DataType) {
        let stored = [
            Clause::Check,
            Clause::Default,
            Clause::INDEX_EXPRESSION,
            Clause::INDEX_PREDICATE,
            Clause::GENERATED_COLUMN,
        ];
        if !stored.contains(&self.clause())
            && let Some(schema) = schema_of_type(data_type)
        {
            self.need_schema(&schema);
        }
    }

    /// A function or procedure is called.
    pub(super) fn need_to_call(&mut self, routine: &Routine) {
        if self.is_needed(is_temporary(&routine.schema_name)) {
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

    /// Takes over what the body of a function needs. It is not the text of a query that is to be
    /// stored.
    pub(super) fn take_needs(&mut self, inner: Vec<Need>) {
        if self.noting.is_some() {
            return;
        }
        for need in inner {
            let known = self.note_need(need.object, need.kind, need.privileges, need.role);
            if let Some(known) = known.and_then(|known| self.needs.get_mut(known.need)) {
                known.columns.read.extend(need.columns.read);
                known.columns.inserted.extend(need.columns.inserted);
                known.columns.updated.extend(need.columns.updated);
            }
        }
    }
}

/// Places of the columns of a view that stand for these columns of the table under it.
fn columns_over(view: &Arc<View>, catalog: &Catalog, places: &[usize]) -> Vec<usize> {
    let Ok(base) = base_table(view, catalog, false) else { return Vec::new() };
    let over = |place: &usize| {
        base.columns.iter().position(|(_, column)| matches!(column, Ok(known) if known == place))
    };
    places.iter().filter_map(over).collect()
}

/// Whether an expression may read a column of the table that a statement changes: it names
/// anything.
pub(crate) fn names_columns(expression: &ast::Expr) -> bool {
    has_expression(expression, |expression| match expression {
        ast::Expr::Identifier(name) => {
            name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("default")
        }
        ast::Expr::CompoundIdentifier(_) => true,
        ast::Expr::Function(call) => has_star(&call.args),
        _ => false,
    })
}

/// Whether an argument is `t.*`.
pub(super) fn has_star(arguments: &ast::FunctionArguments) -> bool {
    let ast::FunctionArguments::List(list) = arguments else { return false };
    list.args.iter().any(|argument| {
        matches!(argument, ast::FunctionArg::Unnamed(ast::FunctionArgExpr::QualifiedWildcard(_)))
    })
}
