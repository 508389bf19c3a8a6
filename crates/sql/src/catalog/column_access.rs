//! What others may do with single columns.
//!
//! ```text
//! GRANT SELECT (a), UPDATE (a, b) ON t TO bob       a {bob=rw/ann}    b {bob=w/ann}
//! ```
//!
//! Whoever has a privilege on the table has it on each column; a column's own list says what is
//! given beyond that, and without one nobody has more. So a list of a column that says nothing is
//! not kept. Columns are named by their places, which never change; the lists go with their
//! columns.

use serde::{Deserialize, Serialize};

use super::{Access, AclItem, Catalog, Oid, Privileges, Relation, Rights, Securable};

/// Who may do what with one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnAccess {
    /// Place of the column.
    pub column: usize,
    /// What is given on it.
    pub list: Vec<AclItem>,
}

impl Access {
    /// The list of a column; empty if it has none.
    pub fn column_list(&self, column: usize) -> &[AclItem] {
        let own = self.columns.iter().find(|of| of.column == column);
        own.map_or(&[][..], |of| of.list.as_slice())
    }

    /// Puts a column's list in the place of the one that it had.
    pub fn put_column_list(&mut self, column: usize, list: Vec<AclItem>) {
        self.columns.retain(|of| of.column != column);
        if !list.is_empty() {
            self.columns.push(ColumnAccess { column, list });
            self.columns.sort_by_key(|of| of.column);
        }
    }

    /// Whether one of its lists says that somebody has or gave something.
    pub fn mentions(&self, role: Oid) -> bool {
        let columns = self.columns.iter().flat_map(|of| &of.list);
        self.list.iter().flatten().chain(columns).any(|item| item.is_about(role))
    }
}

impl Catalog {
    /// The name of a column of a table or view, if it is there.
    pub fn column_name(&self, relation: Oid, column: usize) -> Option<&str> {
        match self.relation_by_oid(relation)? {
            Relation::Table(table) => {
                table.columns.get(column).filter(|column| !column.dropped).map(|column| column.name.as_str())
            }
            Relation::View(view) => view.columns.get(column).map(|column| column.name.as_str()),
            Relation::Index(..) | Relation::Sequence(_) => None,
        }
    }

    /// Places of the columns of a table or view.
    pub fn column_places(&self, relation: Oid) -> Vec<usize> {
        match self.relation_by_oid(relation) {
            Some(Relation::Table(table)) => table.visible_columns().map(|(place, _)| place).collect(),
            Some(Relation::View(view)) => (0..view.columns.len()).collect(),
            _ => Vec::new(),
        }
    }

    /// The columns of a table or view that have lists. One may be left of a column that went while
    /// its privileges changed; it is none of these.
    pub fn column_lists(&self, relation: Oid) -> impl Iterator<Item = &ColumnAccess> {
        let all = self.access(relation).into_iter().flat_map(|access| &access.columns);
        all.filter(move |of| self.column_name(relation, of.column).is_some())
    }

    /// Which of these privileges a role has on a column by the column's own list.
    pub fn column_privileges(
        &self,
        rights: &Rights,
        relation: Oid,
        column: usize,
        wanted: Privileges,
    ) -> Privileges {
        let lists = self.column_lists(relation).filter(|of| of.column == column);
        lists.fold(Privileges::NONE, |found, of| found | of_list(&of.list, rights)) & wanted
    }

    /// Which of these privileges a role may give to others by the column's own list.
    pub fn column_grantable(
        &self,
        rights: &Rights,
        relation: Oid,
        column: usize,
        wanted: Privileges,
    ) -> Privileges {
        let lists = self.column_lists(relation).filter(|of| of.column == column);
        let own = lists.flat_map(|of| &of.list).filter(|item| rights.acts_as(item.grantee));
        own.fold(Privileges::NONE, |found, item| found | item.grantable) & wanted
    }

    /// Whether a role has a privilege on a column: by the table's list, or by its own.
    pub fn has_on_column(&self, rights: &Rights, table: Oid, column: usize, wanted: Privileges) -> bool {
        !self.privileges(rights, table, Securable::Table, wanted).is_empty()
            || !self.column_privileges(rights, table, column, wanted).is_empty()
    }

    /// Whether a role has a privilege on one column at least by the columns' own lists.
    pub fn has_on_any_column(&self, rights: &Rights, relation: Oid, wanted: Privileges) -> bool {
        self.column_lists(relation).any(|of| of_list(&of.list, rights).has_any(wanted))
    }

    /// Whether a role has a privilege on each of these columns by the columns' own lists; on one
    /// column at least, if these are none.
    pub fn has_on_columns(
        &self,
        rights: &Rights,
        relation: Oid,
        columns: impl IntoIterator<Item = usize>,
        wanted: Privileges,
    ) -> bool {
        let mut columns = columns.into_iter().peekable();
        if columns.peek().is_none() {
            return self.has_on_any_column(rights, relation, wanted);
        }
        columns.all(|column| self.column_privileges(rights, relation, column, wanted).has_all(wanted))
    }
}

fn of_list(items: &[AclItem], rights: &Rights) -> Privileges {
    let own = items.iter().filter(|item| item.grantee == 0 || rights.acts_as(item.grantee));
    own.fold(Privileges::NONE, |found, item| found | item.privileges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(grantee: Oid) -> AclItem {
        AclItem { grantee, grantor: 1, privileges: Privileges::SELECT, grantable: Privileges::NONE }
    }

    #[test]
    fn lists_of_columns_are_kept_in_order_and_only_if_they_say_something() {
        let mut access = Access { oid: 5, object: 6, owner: 1, list: None, columns: Vec::new() };
        access.put_column_list(2, vec![item(7)]);
        access.put_column_list(0, vec![item(8)]);
        let places: Vec<usize> = access.columns.iter().map(|of| of.column).collect();
        assert_eq!(places, [0, 2]);
        assert!(access.mentions(8) && !access.mentions(9));
        access.put_column_list(0, Vec::new());
        assert!(access.column_list(0).is_empty());
        assert_eq!(access.column_list(2), [item(7)]);
    }

    #[test]
    fn documents_of_earlier_builds_have_no_lists_of_columns() {
        let stored = r#"{"oid":5,"object":6,"owner":1,"list":null}"#;
        let access: Access = serde_json::from_str(stored).unwrap();
        assert!(access.columns.is_empty());
        assert_eq!(serde_json::to_string(&access).unwrap(), stored);
    }
}
