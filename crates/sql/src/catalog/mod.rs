//! The catalog of a database: what schemas, tables, indexes, constraints, sequences, views,
//! routines and types of users there are; and what all databases share: which databases and roles,
//! who may do what, and with which settings sessions begin.
//!
//! A [`Catalog`] is an immutable snapshot. The committed one of each database is cached in
//! [`SqlDatabase`](crate::session::SqlDatabase) and replaced whole when a transaction that changed
//! it commits; a transaction with changes of its own sees its private snapshot. Objects are shared
//! by `Arc`, and an unchanged object keeps its `Arc` from one snapshot to the next, so a plan finds
//! out that its tables are still the same by comparing pointers.
//!
//! Objects are stored as one document each in the catalog tree (see [`store`]), written under the
//! transaction that changes them: DDL commits and rolls back with everything else. As in
//! PostgreSQL, name lookup sees the newest committed catalog even when the data snapshot is older;
//! locks on tables keep the two from disagreeing.
//!
//! Oids below 16384 belong to built-in objects; users' objects start there and keep their oid for
//! life.

mod access;
pub mod access_list;
mod collation;
mod column;
mod column_access;
mod constraint;
mod database;
mod domain;
mod enum_type;
mod hints;
mod index;
mod own;
mod role;
mod role_settings;
mod routine;
mod schema;
mod sequence;
mod snapshot;
mod table;
mod temporary;
mod user_type;
mod view;

pub mod store;

pub use access::{Access, AclItem, DefaultAccess, Privileges, Securable};
pub use collation::Collation;
pub use column::{Column, Identity};
pub use column_access::ColumnAccess;
pub use constraint::{Check, ForeignKey, Reference, ReferentialAction};
pub use database::{Database, TEMPLATE0_OID, TEMPLATE1_OID};
pub use domain::{Domain, DomainCheck};
pub use enum_type::{EnumLabel, EnumType};
pub use hints::{Hints, ReplicaIdentity};
pub(crate) use hints::{get as hint_of, put as put_hint};
pub use index::{Computed, Deferrable, Index, IndexColumn, IndexKey, OperatorClass};
pub(crate) use own::OwnCatalog;
pub use role::{
    CHECKPOINT_OID, DATABASE_OWNER_OID, MONITOR_OID, Membership, PREDEFINED, Rights, Role, SIGNAL_OID,
    STATISTICS_OID,
};
pub use role_settings::{RoleSettings, SettingList};
pub use routine::{Argument, ArgumentMode, Behavior, Parallel, Routine, RoutineKind};
pub use schema::{Extension, Schema};
pub use sequence::Sequence;
pub use snapshot::{Catalog, Changes, Object, Relation};
pub use table::{Derived, Table};
pub(crate) use temporary::{
    ALIAS as TEMPORARY_ALIAS, is_temporary, resolve as resolve_schema, schema_name as temporary_schema_name,
};
pub use temporary::{Home, OnCommit};
pub use user_type::UserType;
pub use view::{CheckOption, Named, View};

/// Object identifier, as in PostgreSQL.
pub type Oid = u32;

/// The first oid of users' objects.
pub const FIRST_USER_OID: Oid = 16384;
/// Oid of the schema `pg_catalog`.
pub const PG_CATALOG_OID: Oid = 11;
/// Oid of the schema `public`.
pub const PUBLIC_OID: Oid = 2200;
/// Oid of the schema `information_schema`.
pub const INFORMATION_SCHEMA_OID: Oid = 13000;
/// Oid of the role that owns what nobody else does.
pub const OWNER_OID: Oid = 10;
/// Oid of the initial database.
pub const DATABASE_OID: Oid = 5;
