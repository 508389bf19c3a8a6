//! GRANT and REVOKE of privileges on columns.
//!
//! ```text
//! GRANT SELECT (a), UPDATE (a, b) ON t TO bob       a {bob=rw/ann}    b {bob=w/ann}
//! REVOKE SELECT ON t FROM bob                       a {bob=w/ann}     b {bob=w/ann}
//! ```
//!
//! A list of a column is beside that of its table, under the same lock. Who may give what on a
//! column is seen from both together; what somebody has given on by a right that a column's list
//! does not say is not looked for. What is taken of a table is taken of each of its columns, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::grant::{Subject, change, privilege};
use super::names::fold;
use super::permission::denied;
use super::resolve::undefined_column;
use crate::catalog::{Access, AclItem, Object, Oid, Privileges, Relation, Securable};
use crate::error::Result;
use crate::parse::GrantStatement;
use crate::session::work::Work;

/// The columns that PostgreSQL has in each table beside the user's, in its order. Nothing can be
/// given on them here, but who takes something of a table without the right to is told of each.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// A column with privileges: its place, if it is no system column, and its name.
type Column<'a> = (Option<usize>, &'a str);

impl Work<'_> {
    /// Does with the columns of a table or view what the statement says of them, and takes on each
    /// what it takes of the table. `of_table` is that, `before` the table's list as it was.
    pub(super) fn grant_on_columns(
        &mut self,
        subject: &Subject,
        statement: &GrantStatement,
        grantees: &[Oid],
        of_table: Privileges,
        before: &[AclItem],
    ) -> Result<()> {
        let mut asked: BTreeMap<usize, Privileges> = BTreeMap::new();
        let implied = of_table & Privileges::COLUMN;
        if !statement.grant && !implied.is_empty() {
            if matches!(self.catalog.relation_by_oid(subject.oid), Some(Relation::Table(_))) {
                for name in SYSTEM_COLUMNS {
                    self.grant_on_column(subject, (None, name), implied, statement, grantees, before)?;
                }
            }
            asked.extend(self.catalog.column_places(subject.oid).into_iter().map(|place| (place, implied)));
        }
        for on in &statement.columns {
            let wanted = match &on.privilege {
                None => Privileges::COLUMN,
                Some(word) => privilege(word, Privileges::COLUMN, "column")?,
            };
            for name in &on.columns {
                let place = self.place_to_grant_on(subject, &fold(name))?;
                let known = asked.entry(place).or_default();
                *known = *known | wanted;
            }
        }
        for (place, asked) in asked {
            let name = self.catalog.column_name(subject.oid, place).unwrap_or_default().to_owned();
            self.grant_on_column(subject, (Some(place), &name), asked, statement, grantees, before)?;
        }
        Ok(())
    }

    /// 42703.
    fn place_to_grant_on(&self, subject: &Subject, name: &str) -> Result<usize> {
        let mut places = self.catalog.column_places(subject.oid).into_iter();
        let found = places.find(|place| self.catalog.column_name(subject.oid, *place) == Some(name));
        found.ok_or_else(|| undefined_column(name, &subject.name))
    }

    fn grant_on_column(
        &mut self,
        subject: &Subject,
        (place, name): Column<'_>,
        asked: Privileges,
        statement: &GrantStatement,
        grantees: &[Oid],
        before: &[AclItem],
    ) -> Result<()> {
        let known = place.zip(self.catalog.access(subject.oid));
        let mut list = known.map_or_else(Vec::new, |(place, access)| access.column_list(place).to_vec());
        let both = [before, list.as_slice()].concat();
        let owner = self.catalog.owner(subject.oid);
        let (grantor, may) = self.best_grantor(owner, &both, asked);
        let shown = format!("column \"{name}\" of relation \"{}\"", subject.name);
        if may.is_empty() && !self.has_any_of(subject.oid, &both) {
            return Err(denied(format!("permission denied for {shown}")));
        }
        let given = asked & may;
        self.warn(&shown, statement, asked != Privileges::COLUMN, asked, given);
        let Some(place) = place else { return Ok(()) };
        for &grantee in grantees {
            change(&mut list, owner, (grantee, grantor), given, statement)?;
        }
        self.set_column_list(subject.oid, place, list)
    }

    /// Whether the session has any privilege on a column: by these items, or whatever lists say.
    fn has_any_of(&self, relation: Oid, items: &[AclItem]) -> bool {
        let Some(rights) = self.rights() else { return true };
        let is_own = |item: &AclItem| item.grantee == 0 || rights.has(item.grantee);
        let has = |item: &AclItem| (item.privileges | item.grantable).has_any(Privileges::COLUMN);
        let of_table = self.catalog.privileges(&rights, relation, Securable::Table, Privileges::COLUMN);
        !of_table.is_empty() || items.iter().any(|item| is_own(item) && has(item))
    }

    /// Stores a column's list; one that says nothing goes.
    pub(super) fn set_column_list(&mut self, object: Oid, column: usize, list: Vec<AclItem>) -> Result<()> {
        let mut access = match self.catalog.access(object) {
            Some(known) if known.column_list(column) == list.as_slice() => return Ok(()),
            Some(known) => Access::clone(known),
            None if list.is_empty() => return Ok(()),
            None => {
                let (oid, owner) = (self.allocate_oid()?, self.catalog.owner(object));
                Access { oid, object, owner, list: self.catalog.list(object), columns: Vec::new() }
            }
        };
        access.put_column_list(column, list);
        self.change(Object::Access(Arc::new(access)))
    }

    /// What was given on a column goes with it. Nobody gives anything on it meanwhile: the lock on
    /// the lists is held until the transaction ends.
    pub(super) async fn forget_column(&mut self, table: Oid, column: usize) -> Result<()> {
        let is_temporary = self.catalog.relation_by_oid(table).is_none_or(Relation::is_temporary);
        if is_temporary || !self.catalog.has_roles() {
            return Ok(());
        }
        self.lock_access(table).await?;
        self.set_column_list(table, column, Vec::new())
    }
}
