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

use super::grant::{Subject, change, privilege};
use super::lists::Lists;
use super::permission::denied;
use super::resolve::undefined_column;
use crate::catalog::{AclItem, Oid, Privileges, Relation, Securable};
use crate::error::Result;
use crate::identifier::fold;
use crate::parse::GrantStatement;
use crate::session::work::Work;

/// The columns that PostgreSQL has in each table beside the user's, in its order. Nothing can be
/// given on them here, but who takes something of a table without the right to is told of each.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// What a statement does with a table or view.
#[derive(Clone, Copy)]
pub(super) struct OnRelation<'a> {
    pub(super) subject: &'a Subject,
    pub(super) statement: &'a GrantStatement,
    pub(super) grantees: &'a [Oid],
    /// Its list as it was before.
    pub(super) before: &'a [AclItem],
}

/// A column with privileges: its place, if it is no system column, and its name.
type Column<'a> = (Option<usize>, &'a str);

impl Work<'_> {
    /// Does with the columns of a table or view what the statement says of them, and takes on each
    /// what it takes of the table. `of_table` is that.
    pub(super) fn grant_on_columns(
        &mut self,
        relation: &OnRelation<'_>,
        of_table: Privileges,
        lists: &mut Lists,
    ) -> Result<()> {
        let OnRelation { subject, statement, .. } = *relation;
        let mut asked: BTreeMap<usize, Privileges> = BTreeMap::new();
        let implied = of_table & Privileges::COLUMN;
        if !statement.grant && !implied.is_empty() {
            if matches!(self.catalog.relation_by_oid(subject.oid), Some(Relation::Table(_))) {
                for name in SYSTEM_COLUMNS {
                    self.grant_on_column(relation, (None, name), implied, lists)?;
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
            self.grant_on_column(relation, (Some(place), &name), asked, lists)?;
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
        relation: &OnRelation<'_>,
        (place, name): Column<'_>,
        asked: Privileges,
        lists: &mut Lists,
    ) -> Result<()> {
        let OnRelation { subject, statement, grantees, before } = *relation;
        let mut list = place.map_or_else(Vec::new, |place| lists.of_column(place).to_vec());
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
        self.put_column_list(lists, place, list)
    }

    /// Whether the session has any privilege on a column: by these items, or whatever lists say.
    fn has_any_of(&self, relation: Oid, items: &[AclItem]) -> bool {
        let Some(rights) = self.rights() else { return true };
        let is_own = |item: &AclItem| item.grantee == 0 || rights.has(item.grantee);
        let has = |item: &AclItem| (item.privileges | item.grantable).has_any(Privileges::COLUMN);
        let of_table = self.catalog.privileges(&rights, relation, Securable::Table, Privileges::COLUMN);
        !of_table.is_empty() || items.iter().any(|item| is_own(item) && has(item))
    }

    /// What was given on a column goes with it. Nobody gives anything on it meanwhile: the lock on
    /// the lists is held until the transaction ends.
    pub(super) async fn forget_column(&mut self, table: Oid, column: usize) -> Result<()> {
        let is_temporary = self.catalog.relation_by_oid(table).is_none_or(Relation::is_temporary);
        if is_temporary || !self.catalog.has_roles() {
            return Ok(());
        }
        self.lock_access(table).await?;
        let mut lists = self.lists(table);
        self.put_column_list(&mut lists, column, Vec::new())?;
        self.store_lists(vec![lists])
    }
}
