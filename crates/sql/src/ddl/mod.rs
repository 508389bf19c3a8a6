//! Statements that change the catalog. They run under the session's transaction like any other
//! write.
//!
//! Locks, in the order they are taken: the name of the schema that something is made in, shared
//! (who drops or renames a schema holds it alone), the name of a relation that is made or renamed
//! (so that two sessions cannot both make it), then tables by oid. A view is held by its name, a
//! sequence like a table: whoever changes one stores all of it, so nobody else may be changing it.
//! What a new view, expression or function names is held, too, since nobody else knows of these yet
//! (`held`). A statement that changes a table holds it exclusively, or in a mode that keeps out
//! itself, if readers, or writers as well, see nothing of the change (`alter_table` says why they
//! may go on); one that builds an index without changing what readers see could share it, but holds
//! it exclusively, which is simpler and never slower by much. After each lock the catalog is looked
//! at again: what a name meant before a wait may have changed.

pub(crate) mod alter_column;
pub(crate) mod alter_constraint;
pub(crate) mod alter_relation;
pub(crate) mod alter_table;
mod alter_type;
pub(crate) mod build;
pub(crate) mod comment;
pub(crate) mod computed;
pub(crate) mod constraint;
pub(crate) mod create_index;
pub(crate) mod create_table;
pub(crate) mod database;
pub(crate) mod default_privileges;
pub(crate) mod domain;
pub(crate) mod drop;
mod drop_schema;
pub(crate) mod enum_type;
pub(crate) mod expression;
pub(crate) mod extension;
pub(crate) mod grant;
mod grant_column;
mod held;
pub(crate) mod hints;
pub(crate) mod like;
mod lists;
pub(crate) mod membership;
pub(crate) mod names;
pub(crate) mod owner;
pub(crate) mod permission;
pub(crate) mod request;
pub(crate) mod resolve;
pub(crate) mod role;
pub(crate) mod routine;
pub(crate) mod schema;
pub(crate) mod sequence;
mod storage;
pub(crate) mod temporary;
mod trigger;
pub(crate) mod truncate;
mod turns;
pub(crate) mod user_type;
mod using_index;
pub(crate) mod view;
