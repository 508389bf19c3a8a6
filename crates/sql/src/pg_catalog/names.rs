//! Names: how objects are found by them, which are visible without a schema, and how they print.

use std::sync::Arc;

use super::types::row_relation;
use super::{SystemTable, function, operation, procedure, role, routine, table, table_by_oid};
use crate::catalog::{
    Catalog, INFORMATION_SCHEMA_OID, Oid, PG_CATALOG_OID, Relation, Routine, UserType, resolve_schema,
};
use crate::identifier::{fold_text, quote_identifier};
use crate::types::{ObjectNames, Type};

/// Schema and name, both quoted where needed.
pub(super) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// The parts of a dotted name, as they are looked up. `None` if it is none.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    loop {
        let part;
        if let Some(quoted) = rest.strip_prefix('"') {
            let (name, after) = quoted_part(quoted)?;
            part = fold_text(&name, true);
            rest = after.trim_start();
        } else {
            let end = rest.find(['.', '"', ' ']).unwrap_or(rest.len());
            part = fold_text(&rest[..end], false);
            rest = rest[end..].trim_start();
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        if rest.is_empty() {
            return Some(parts);
        }
        rest = rest.strip_prefix('.')?.trim_start();
    }
}

/// The name up to the closing quote, and what follows it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let quote = rest.find('"')?;
        name.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

/// A relation of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyRelation<'a> {
    /// A user's.
    Stored(&'a Relation),
    /// A built-in one.
    System(&'static SystemTable),
}

impl<'a> AnyRelation<'a> {
    pub(super) fn by_oid(catalog: &'a Catalog, oid: Oid) -> Option<AnyRelation<'a>> {
        match catalog.relation_by_oid(oid) {
            Some(relation) => Some(AnyRelation::Stored(relation)),
            None => table_by_oid(oid).map(AnyRelation::System),
        }
    }

    pub(super) fn by_name(catalog: &'a Catalog, schema: &str, name: &str) -> Option<AnyRelation<'a>> {
        match catalog.relation(schema, name) {
            Some(relation) => Some(AnyRelation::Stored(relation)),
            None => table(schema, name).map(AnyRelation::System),
        }
    }

    /// By its possibly qualified name as SQL writes it.
    pub(super) fn find(catalog: &'a Catalog, path: &[String], text: &str) -> Option<AnyRelation<'a>> {
        match split(text)?.as_slice() {
            [name] => path.iter().find_map(|schema| AnyRelation::by_name(catalog, schema, name)),
            [schema, name] => AnyRelation::by_name(catalog, resolve_schema(path, schema), name),
            [database, schema, name] if catalog.is_own_name(database) => {
                AnyRelation::by_name(catalog, resolve_schema(path, schema), name)
            }
            _ => None,
        }
    }

    pub(super) fn oid(self) -> Oid {
        match self {
            AnyRelation::Stored(relation) => relation.oid(),
            AnyRelation::System(table) => table.oid,
        }
    }

    pub(super) fn name(self) -> &'a str {
        match self {
            AnyRelation::Stored(relation) => relation.name(),
            AnyRelation::System(table) => table.name,
        }
    }

    pub(super) fn schema(self) -> &'a str {
        match self {
            AnyRelation::Stored(relation) => relation.schema_name(),
            AnyRelation::System(table) => table.schema,
        }
    }

    /// Does its bare name lead to it?
    pub(super) fn is_visible(self, catalog: &Catalog, path: &[String]) -> bool {
        let first = path.iter().find_map(|schema| AnyRelation::by_name(catalog, schema, self.name()));
        first.is_some_and(|first| first.oid() == self.oid())
    }

    /// As `regclass` prints it: with its schema only if its bare name does not lead to it.
    pub(super) fn display(self, catalog: &Catalog, path: &[String]) -> String {
        if self.is_visible(catalog, path) {
            return quote_identifier(self.name());
        }
        qualified(self.schema(), self.name())
    }
}

/// Oid of a built-in or users' schema.
pub(super) fn schema_oid(catalog: &Catalog, name: &str) -> Option<Oid> {
    match name {
        "pg_catalog" => Some(PG_CATALOG_OID),
        "information_schema" => Some(INFORMATION_SCHEMA_OID),
        _ => catalog.schema(name).map(|schema| schema.oid),
    }
}

/// Oid of the schema of a system table.
pub(super) fn system_schema_oid(table: &SystemTable) -> Oid {
    if table.schema == "pg_catalog" { PG_CATALOG_OID } else { INFORMATION_SCHEMA_OID }
}

/// Finds objects by name, and names by oid, in one catalog under one search path.
#[derive(Clone, Debug)]
pub struct CatalogNames {
    catalog: Arc<Catalog>,
    search_path: Vec<String>,
    user: String,
}

impl CatalogNames {
    /// `search_path` has the schemas in the order they are searched, `pg_catalog` included; `user`
    /// is the name of the session's role.
    pub fn new(catalog: Arc<Catalog>, search_path: Vec<String>, user: String) -> CatalogNames {
        CatalogNames { catalog, search_path, user }
    }

    /// The functions and procedures of a possibly qualified name, but for those that one with the
    /// same arguments hides, which is found earlier.
    fn functions(&self, name: &str) -> Vec<Oid> {
        let parts = split(name).unwrap_or_default();
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return Vec::new(),
        };
        let is_built_in = schema.is_none_or(|schema| schema == "pg_catalog");
        let built_in = procedure::named(name).filter(|_| is_built_in);
        let mut found: Vec<(Oid, Vec<Oid>)> =
            built_in.map(|procedure| (procedure.oid, procedure.arguments.clone())).collect();
        for (_, routine) in self.catalog.routines_named(&self.search_path, schema, name) {
            let arguments: Vec<Oid> = inputs(routine).collect();
            if found.iter().all(|(_, known)| *known != arguments) {
                found.push((routine.oid, arguments));
            }
        }
        found.into_iter().map(|(oid, _)| oid).collect()
    }
}

/// Oids of the types of a routine's inputs.
fn inputs(routine: &Routine) -> impl Iterator<Item = Oid> {
    routine.inputs().map(|input| input.ty.oid())
}

/// A type's name as `format_type` prints it: with its schema only if its bare name does not lead to
/// it.
pub(super) fn user_type_name(catalog: &Catalog, path: &[String], ty: &UserType) -> String {
    if catalog.user_type(path, None, ty.name()).is_some_and(|found| found.oid() == ty.oid()) {
        return quote_identifier(ty.name());
    }
    qualified(ty.schema_name(), ty.name())
}

impl ObjectNames for CatalogNames {
    fn is_own_database(&self, name: &str) -> bool {
        self.catalog.is_own_name(name)
    }

    fn relation_oid(&self, name: &str) -> Option<u32> {
        AnyRelation::find(&self.catalog, &self.search_path, name).map(AnyRelation::oid)
    }

    fn relation_name(&self, oid: u32) -> Option<String> {
        let relation = AnyRelation::by_oid(&self.catalog, oid)?;
        Some(relation.display(&self.catalog, &self.search_path))
    }

    fn function_oid(&self, name: &str) -> Option<u32> {
        match self.functions(name).as_slice() {
            [oid] => Some(*oid),
            _ => None,
        }
    }

    fn has_several_functions(&self, name: &str) -> bool {
        self.functions(name).len() > 1
    }

    fn function_name(&self, oid: u32) -> Option<String> {
        if let Some(routine) = self.catalog.routine_by_oid(oid) {
            return Some(routine::display(&self.catalog, &self.search_path, routine));
        }
        procedure::by_oid(oid).map(|procedure| quote_identifier(procedure.name))
    }

    fn procedure_oid(&self, name: &str, arguments: &[u32]) -> Option<u32> {
        let parts = split(name)?;
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return None,
        };
        let is_built_in = schema.is_none_or(|schema| schema == "pg_catalog");
        if let Some(procedure) = procedure::by_arguments(name, arguments).filter(|_| is_built_in) {
            return Some(procedure.oid);
        }
        let mut named = self.catalog.routines_named(&self.search_path, schema, name);
        let found = named.find(|(_, routine)| inputs(routine).eq(arguments.iter().copied()));
        found.map(|(_, routine)| routine.oid)
    }

    fn procedure_name(&self, oid: u32) -> Option<String> {
        let name = self.function_name(oid)?;
        let arguments: Vec<Oid> = match self.catalog.routine_by_oid(oid) {
            Some(routine) => inputs(routine).collect(),
            None => procedure::by_oid(oid)?.arguments.clone(),
        };
        let shown = |oid: Oid| self.type_name(oid).unwrap_or_else(|| function::type_name(oid));
        let shown: Vec<String> = arguments.into_iter().map(shown).collect();
        Some(format!("{name}({})", shown.join(",")))
    }

    fn operator_name(&self, oid: u32, with_operands: bool) -> Option<String> {
        operation::operator_name(oid, with_operands)
    }

    fn schema_oid(&self, name: &str) -> Option<u32> {
        match split(name)?.as_slice() {
            [name] => schema_oid(&self.catalog, name),
            _ => None,
        }
    }

    fn schema_name(&self, oid: u32) -> Option<String> {
        match oid {
            PG_CATALOG_OID => Some("pg_catalog".to_owned()),
            INFORMATION_SCHEMA_OID => Some("information_schema".to_owned()),
            _ => self.catalog.schema_by_oid(oid).map(|schema| quote_identifier(&schema.name)),
        }
    }

    fn role_oid(&self, name: &str) -> Option<u32> {
        match split(name)?.as_slice() {
            [name] => role::oid(&self.catalog, &self.user, name),
            _ => None,
        }
    }

    fn role_name(&self, oid: u32) -> Option<String> {
        role::name(&self.catalog, &self.user, oid).map(|name| quote_identifier(&name))
    }

    fn user_type(&self, schema: Option<&str>, name: &str) -> Option<Type> {
        self.catalog.user_type(&self.search_path, schema, name).map(UserType::ty)
    }

    fn named_type_oid(&self, name: &str) -> Option<u32> {
        let name = name.trim();
        let element = name.trim_end_matches("[]");
        let ty = match split(element).unwrap_or_default().as_slice() {
            [name] => self.user_type(None, name),
            [schema, name] => self.user_type(Some(schema), name),
            _ => None,
        };
        // Behind a type is its array type.
        let oid = |ty: Type| if element == name { ty.oid() } else { ty.oid() + 1 };
        ty.map(oid).or_else(|| {
            let folded = name.to_lowercase();
            function::other_type(folded.strip_prefix("pg_catalog.").unwrap_or(&folded))
        })
    }

    fn type_name(&self, oid: u32) -> Option<String> {
        let name = |oid| {
            let ty = self.catalog.user_type_by_oid(oid)?;
            Some(user_type_name(&self.catalog, &self.search_path, &ty))
        };
        // That of a relation's rows is called as the relation is.
        let of_rows = || {
            let (relation, is_array) = row_relation(oid)?;
            Some(format!("{}{}", self.relation_name(relation)?, if is_array { "[]" } else { "" }))
        };
        // Behind a type is its array type.
        let of_user = name(oid).or_else(|| Some(format!("{}[]", name(oid.checked_sub(1)?)?)));
        of_user.or_else(of_rows).or_else(|| function::other_type_name(oid))
    }

    fn enum_position(&self, ty: u32, label: &str) -> Option<i64> {
        let ty = self.catalog.enum_by_oid(ty)?;
        Some(ty.labels[ty.place(label)?].position)
    }

    fn enum_label(&self, ty: u32, position: i64) -> Option<String> {
        self.catalog.enum_by_oid(ty)?.label_at(position).map(str::to_owned)
    }

    fn enum_positions(&self, ty: u32) -> Vec<i64> {
        let ty = self.catalog.enum_by_oid(ty);
        ty.into_iter().flat_map(|ty| ty.labels.iter().map(|label| label.position)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, expected) in [
            ("a", "a"),
            ("a1", "a1"),
            ("a1$", "\"a1$\""),
            ("1a", "\"1a\""),
            ("A", "\"A\""),
            ("user", "\"user\""),
            ("a\"b", "\"a\"\"b\""),
        ] {
            assert_eq!(quote_identifier(name), expected);
        }
        assert_eq!(quote_identifier(""), "\"\"");
        assert_eq!(quote_identifier("name"), "name");
    }

    #[test]
    fn dotted_names_split() {
        let parts = |text: &str| split(text).map(|parts| parts.join("|"));
        assert_eq!(parts("A"), Some("a".to_owned()));
        assert_eq!(parts("public.\"A b\""), Some("public|A b".to_owned()));
        assert_eq!(parts("\"a\"\"b\" . c"), Some("a\"b|c".to_owned()));
        assert_eq!(parts("a."), None);
        assert_eq!(parts("\"a"), None);
        assert_eq!(parts(""), None);
        assert_eq!(parts("a b"), None);
    }
}
