//! The lists of privileges of an object while a statement changes them.
//!
//! The catalog as a transaction sees it is made anew for what is stored, which takes time in
//! proportion to all that there is. So a statement about many objects works on copies of what is
//! said of each, and stores all of them together. Who changes lists has locked them, and changes
//! those of an object once before they are stored.

use crate::catalog::{Access, AclItem, Object, Oid};
use crate::error::Result;
use crate::session::work::Work;

/// What is said of one object, with what a statement has changed.
pub(super) struct Lists {
    object: Oid,
    access: Option<Access>,
    is_changed: bool,
}

impl Lists {
    /// The list of a column.
    pub(super) fn of_column(&self, column: usize) -> &[AclItem] {
        self.access.as_ref().map_or(&[][..], |access| access.column_list(column))
    }
}

impl Work<'_> {
    /// The lists of an object as they are.
    pub(super) fn lists(&self, object: Oid) -> Lists {
        let access = self.catalog.access(object).map(|access| Access::clone(access));
        Lists { object, access, is_changed: false }
    }

    /// Puts an object's list in the place of the one that it had.
    pub(super) fn put_list(&self, lists: &mut Lists, list: Option<Vec<AclItem>>) -> Result<()> {
        match &mut lists.access {
            Some(known) if known.list == list => return Ok(()),
            Some(known) => known.list = list,
            None => lists.access = Some(Access { list, ..self.new_access(lists.object)? }),
        }
        lists.is_changed = true;
        Ok(())
    }

    /// Puts a column's list in the place of the one that it had; one that says nothing goes.
    pub(super) fn put_column_list(&self, lists: &mut Lists, column: usize, list: Vec<AclItem>) -> Result<()> {
        if lists.of_column(column) == list.as_slice() {
            return Ok(());
        }
        let mut access = match lists.access.take() {
            Some(known) => known,
            None => self.new_access(lists.object)?,
        };
        access.put_column_list(column, list);
        (lists.access, lists.is_changed) = (Some(access), true);
        Ok(())
    }

    /// What there is to say of an object of which nothing is said.
    fn new_access(&self, object: Oid) -> Result<Access> {
        let (owner, list) = (self.catalog.owner(object), self.catalog.list(object));
        Ok(Access { oid: self.allocate_oid()?, object, owner, list, columns: Vec::new() })
    }

    /// Stores those that have changed.
    pub(super) fn store_lists(&mut self, all: Vec<Lists>) -> Result<()> {
        let changed = all.into_iter().filter(|lists| lists.is_changed).filter_map(|lists| lists.access);
        self.change_all(changed.map(|access| Object::Access(access.into())))
    }
}
