//! Views.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Catalog, Column, Relation, Routine, UserType};

/// A view: a stored query, expanded where it is used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    /// Oid.
    pub oid: u32,
    /// Oid of its schema.
    pub schema: u32,
    /// Name of its schema.
    pub schema_name: String,
    /// Name.
    pub name: String,
    /// The query as SQL text.
    #[serde(deserialize_with = "query_text")]
    pub query: String,
    /// The output columns (only name and type are meaningful).
    pub columns: Vec<Column>,
    /// Search path the query was defined under: its unqualified names are looked up there.
    pub search_path: Vec<String>,
    /// Oids of the tables, views and sequences the query reads, of the functions of users it calls,
    /// the types of users and the sequences it names, and the constraints of primary keys that its
    /// groups rest on.
    pub depends_on: Vec<u32>,
    /// Those of them that its own text names, which other views and the functions of users that it
    /// reads through do not add to; none if the view is older than this list.
    #[serde(default)]
    pub named: Option<Vec<Named>>,
    /// WITH CHECK OPTION.
    #[serde(default)]
    pub check_option: Option<CheckOption>,
    /// COMMENT ON VIEW.
    #[serde(default)]
    pub comment: Option<String>,
}

/// What the text of a view names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Named {
    /// Oid of it.
    pub oid: u32,
    /// Places of the columns of a table, a view or a sequence that are read. Places never change.
    #[serde(default)]
    pub columns: Vec<usize>,
}

impl View {
    /// Oids of what its text names, with the columns; of all that it depends on if more is not
    /// known.
    pub(crate) fn names(&self) -> Vec<(u32, &[usize])> {
        match &self.named {
            Some(named) => named.iter().map(|one| (one.oid, one.columns.as_slice())).collect(),
            None => self.depends_on.iter().map(|oid| (*oid, &[] as &[usize])).collect(),
        }
    }

    /// The relation that a name in its query means. Of those that it depends on it is the first one
    /// on its path: one that came later, in a schema before, does not take that one's place.
    pub(crate) fn relation<'a>(
        &self,
        catalog: &'a Catalog,
        schema: Option<&str>,
        name: &str,
    ) -> Option<&'a Relation> {
        let is_known = |found: &&Relation| self.depends_on.contains(&found.oid());
        let known = |within: &String| catalog.relation(within, name).filter(is_known);
        let path = if schema.is_none() { self.search_path.as_slice() } else { &[] };
        path.iter().find_map(known).or_else(|| catalog.find(&self.search_path, schema, name))
    }

    /// The same of types, but none that the query does not depend on.
    pub(crate) fn known_type<'a>(
        &self,
        catalog: &'a Catalog,
        schema: Option<&str>,
        name: &str,
    ) -> Option<&'a UserType> {
        let known = |within: &str| {
            let found = catalog.user_type(&self.search_path, Some(within), name);
            found.filter(|found| self.depends_on.contains(&found.oid()))
        };
        match schema {
            Some(schema) => known(schema),
            None => self.search_path.iter().find_map(|within| known(within)),
        }
    }

    /// The same of functions and procedures: whether it was made with one of these.
    pub(crate) fn calls(&self, routine: &Routine) -> bool {
        self.depends_on.contains(&routine.oid)
    }
}

/// The text of a query. Some builds stored two signs one behind the other as what begins a comment.
fn query_text<'de, D: Deserializer<'de>>(stored: D) -> Result<String, D::Error> {
    String::deserialize(stored).map(crate::parse::with_signs_apart)
}

/// What rows that are put into a view must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckOption {
    /// The conditions of the view itself.
    Local,
    /// Those of the views that it is over, too.
    Cascaded,
}

impl CheckOption {
    /// Its word, in small letters.
    pub fn word(self) -> &'static str {
        match self {
            CheckOption::Local => "local",
            CheckOption::Cascaded => "cascaded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_an_earlier_build_names_all_that_it_depends_on() {
        let stored = r#"{"oid": 20000, "schema": 2200, "schema_name": "public", "name": "v",
            "query": "SELECT 1", "columns": [], "search_path": [], "depends_on": [16384]}"#;
        let view: View = serde_json::from_str(stored).unwrap();
        let none: &[usize] = &[];
        assert_eq!(view.names(), [(16384_u32, none)]);
        let named = Some(vec![Named { oid: 16390, columns: vec![2] }]);
        assert_eq!(View { named, ..view }.names(), [(16390_u32, [2_usize].as_slice())]);
    }
}
