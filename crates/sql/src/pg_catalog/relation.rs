//! Relations and their columns: `pg_class`, `pg_attribute`, `pg_attrdef`, `pg_namespace`,
//! sequences, and the views that list relations of one kind.

use std::sync::Arc;

use super::deparse::Style;
use super::names::{AnyRelation, system_schema_oid};
use super::type_facts::{TypeFacts, facts};
use super::types::row_type;
use super::value::{NULL, array, attribute_number};
use super::viewer::Viewer;
use super::{Source, SystemTable, acl, all, definition, deparse};
use crate::catalog::{
    Catalog, Collation, Column, INFORMATION_SCHEMA_OID, Identity, Index, IndexKey, OWNER_OID, Oid,
    PG_CATALOG_OID, Privileges, Relation, Securable, Sequence, Table, View, hint_of, is_temporary,
};
use crate::types::{Datum, Type, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[
    &PG_CLASS,
    &PG_ATTRIBUTE,
    &PG_ATTRDEF,
    &PG_NAMESPACE,
    &PG_SEQUENCE,
    &PG_SEQUENCES,
    &PG_TABLES,
    &PG_INDEXES,
    &PG_VIEWS,
];

/// `pg_am.oid` of heap, which tables say they have.
const HEAP: Oid = 2;
/// `pg_am.oid` of btree, as which all indexes are stored.
pub(super) const BTREE: Oid = 403;
/// `pg_am.oid` of hash, which some are told to have.
pub(super) const HASH: Oid = 405;

/// A row of `pg_class`.
struct Entry {
    oid: Oid,
    name: String,
    schema: Oid,
    kind: char,
    method: Oid,
    tree: u32,
    columns: usize,
    checks: usize,
    indexed: bool,
    rules: bool,
    triggers: bool,
    temporary: bool,
    replica_identity: char,
    options: Vec<String>,
    owner: Oid,
    list: Datum,
}

impl Entry {
    /// With owner and privileges: an index has those of its table.
    fn owned(self, source: &Source<'_>) -> Entry {
        let owned = match source.catalog.relation_by_oid(self.oid) {
            Some(Relation::Index(table, _)) => table.oid,
            _ => self.oid,
        };
        let list = if owned == self.oid { acl::of(source, owned) } else { NULL };
        Entry { owner: source.catalog.owner(owned), list, ..self }
    }

    fn new(oid: Oid, name: &str, schema: Oid, kind: char, columns: usize) -> Entry {
        Entry {
            oid,
            name: name.to_owned(),
            schema,
            kind,
            method: 0,
            tree: 0,
            columns,
            checks: 0,
            indexed: false,
            rules: false,
            triggers: false,
            temporary: false,
            replica_identity: 'n',
            options: Vec::new(),
            owner: OWNER_OID,
            list: NULL,
        }
    }

    fn of_table(table: &Table) -> Entry {
        Entry {
            method: HEAP,
            tree: table.tree,
            checks: table.checks.len(),
            indexed: !table.indexes.is_empty(),
            // PostgreSQL checks foreign keys by triggers on both tables, and psql asks for foreign
            // keys only where it is told of triggers.
            triggers: !table.foreign_keys.is_empty() || !table.referenced_by.is_empty(),
            temporary: table.temporary,
            replica_identity: table.hints.replica_identity.letter(),
            // Those of the table for long values are that one's, which is none here. Dumps would
            // say them with their names in quotes, which PostgreSQL does not know.
            options: table.options.iter().filter(|one| !one.starts_with("toast.")).cloned().collect(),
            ..Entry::new(table.oid, &table.name, table.schema, 'r', table.columns.len())
        }
    }

    fn of_index(table: &Table, index: &Index) -> Entry {
        Entry {
            method: if index.hash { HASH } else { BTREE },
            tree: index.tree,
            temporary: table.temporary,
            options: index.options.clone(),
            ..Entry::new(index.oid, &index.name, table.schema, 'i', index.shown().count())
        }
    }

    fn of_system(table: &SystemTable) -> Entry {
        let kind = if table.view { 'v' } else { 'r' };
        Entry {
            method: if table.view { 0 } else { HEAP },
            rules: table.view,
            ..Entry::new(table.oid, table.name, system_schema_oid(table), kind, table.columns.len())
        }
    }
}

impl Entry {
    fn of_sequence(sequence: &Sequence) -> Entry {
        Entry {
            temporary: sequence.is_temporary(),
            ..Entry::new(sequence.oid, &sequence.name, sequence.schema, 'S', SEQUENCE_COLUMNS.len())
        }
    }

    fn of_view(view: &View) -> Entry {
        let check = view.check_option.map(|option| format!("check_option={}", option.word()));
        Entry {
            rules: true,
            temporary: is_temporary(&view.schema_name),
            options: check.into_iter().collect(),
            ..Entry::new(view.oid, &view.name, view.schema, 'v', view.columns.len())
        }
    }
}

fn entries(catalog: &Catalog) -> Vec<Entry> {
    let mut entries = Vec::new();
    for table in catalog.tables() {
        entries.push(Entry::of_table(table));
        entries.extend(table.indexes.iter().map(|index| Entry::of_index(table, index)));
    }
    entries.extend(catalog.sequences().map(|sequence| Entry::of_sequence(sequence)));
    entries.extend(catalog.views().map(|view| Entry::of_view(view)));
    entries.extend(all().map(Entry::of_system));
    entries
}

fn entry(catalog: &Catalog, oid: Oid) -> Option<Entry> {
    match AnyRelation::by_oid(catalog, oid)? {
        AnyRelation::Stored(Relation::Table(table)) => Some(Entry::of_table(table)),
        AnyRelation::Stored(Relation::Index(table, oid)) => {
            table.index(*oid).map(|index| Entry::of_index(table, index))
        }
        AnyRelation::Stored(Relation::Sequence(sequence)) => Some(Entry::of_sequence(sequence)),
        AnyRelation::Stored(Relation::View(view)) => Some(Entry::of_view(view)),
        AnyRelation::System(table) => Some(Entry::of_system(table)),
    }
}

/// The columns of a sequence read as a table.
pub(super) const SEQUENCE_COLUMNS: [(&str, TypeId); 3] =
    [("last_value", TypeId::Int8), ("log_cnt", TypeId::Int8), ("is_called", TypeId::Bool)];

fn count(number: usize) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

/// The rows that a table had when its statistics were gathered; -1 if they are not.
fn known_rows(source: &Source<'_>, kind: char, tree: u32) -> f32 {
    let known = source.server.table_statistics(tree).filter(|_| kind == 'r');
    known.map_or(-1.0, |known| known.rows as f32)
}

/// The blocks of such a table; as in PostgreSQL none are known before. Programs divide the rows by
/// them, to tell from the size how many there are now.
fn known_blocks(source: &Source<'_>, kind: char, tree: u32) -> i32 {
    let known = source.server.table_statistics(tree).filter(|_| kind == 'r');
    known.map_or(0, |_| i32::try_from(source.tree_blocks(tree)).unwrap_or(i32::MAX))
}

system_table! {
    static PG_CLASS = 1259 table "pg_catalog"."pg_class",
    |source| entries(source.catalog).into_iter().map(|entry| (source, entry.owned(source))) => |(source, entry)|,
    [by oid(key) => entry(source.catalog, key).map(|entry| (source, entry.owned(source)))],
    oid: Oid = entry.oid,
    relname: Name = entry.name,
    relnamespace: Oid = entry.schema,
    reltype: Oid = if matches!(entry.kind, 'r' | 'v') { row_type(entry.oid) } else { 0 },
    reloftype: Oid = 0,
    relowner: Oid = entry.owner,
    relam: Oid = entry.method,
    relfilenode: Oid = entry.tree,
    reltablespace: Oid = 0,
    relpages: Int4 = known_blocks(source, entry.kind, entry.tree),
    reltuples: Float4 = known_rows(source, entry.kind, entry.tree),
    relallvisible: Int4 = 0,
    reltoastrelid: Oid = 0,
    relhasindex: Bool = entry.indexed,
    relisshared: Bool = false,
    relpersistence: InternalChar = if entry.temporary { 't' } else { 'p' },
    relkind: InternalChar = entry.kind,
    relnatts: Int2 = count(entry.columns),
    relchecks: Int2 = count(entry.checks),
    relhasrules: Bool = entry.rules,
    relhastriggers: Bool = entry.triggers,
    relhassubclass: Bool = false,
    relrowsecurity: Bool = false,
    relforcerowsecurity: Bool = false,
    relispopulated: Bool = true,
    relreplident: InternalChar = entry.replica_identity,
    relispartition: Bool = false,
    relrewrite: Oid = 0,
    relfrozenxid: Xid = if entry.kind == 'r' { source.eval.session.transaction_id() as u32 } else { 0 },
    relminmxid: Xid = if entry.kind == 'r' { 1 } else { 0 },
    relacl: TextArray = entry.list,
    reloptions: TextArray = (!entry.options.is_empty()).then(|| array(TypeId::Text, entry.options)),
    relpartbound: Text = NULL,
}

/// A row of `pg_attribute`.
struct Attribute {
    relation: Oid,
    name: String,
    /// Of a dropped column the type it had, which its layout still follows.
    ty: Type,
    collation: Option<Collation>,
    dropped: bool,
    number: i16,
    not_null: bool,
    default: bool,
    missing: Datum,
    identity: Option<Identity>,
    generated: bool,
    /// SET STATISTICS.
    statistics: Option<i32>,
    /// SET STORAGE.
    storage: Option<char>,
    /// SET of options.
    options: Vec<String>,
}

impl Attribute {
    fn new(relation: Oid, name: &str, ty: Type, place: usize) -> Attribute {
        Attribute {
            relation,
            name: name.to_owned(),
            ty,
            collation: None,
            dropped: false,
            number: attribute_number(place),
            not_null: false,
            default: false,
            missing: NULL,
            identity: None,
            generated: false,
            statistics: None,
            storage: None,
            options: Vec::new(),
        }
    }

    fn of_column(relation: Oid, place: usize, column: &Column) -> Attribute {
        let number = attribute_number(place);
        if column.dropped {
            let name = format!("........pg.dropped.{number}........");
            return Attribute { dropped: true, ..Attribute::new(relation, &name, column.ty, place) };
        }
        Attribute {
            collation: column.collation,
            not_null: column.not_null,
            default: default_of(column).is_some(),
            missing: column.missing.clone(),
            identity: column.identity,
            generated: column.generated.is_some(),
            ..Attribute::new(relation, &column.name, column.ty, place)
        }
    }

    fn missing_array(&self) -> Datum {
        if self.missing.is_null() || self.ty.id != TypeId::Text {
            return NULL;
        }
        array(TypeId::Text, [self.missing.clone()])
    }

    fn options_array(&self) -> Datum {
        if self.options.is_empty() { NULL } else { array(TypeId::Text, self.options.clone()) }
    }

    fn facts(&self) -> TypeFacts {
        facts(self.ty.id)
    }

    /// How its values are to be stored; of values that are always short nothing can be said.
    fn storage(&self) -> char {
        let own = self.facts().storage;
        self.storage.filter(|_| own != 'p').unwrap_or(own)
    }
}

impl Attribute {
    fn of_table(table: &Table) -> impl Iterator<Item = Attribute> {
        let columns = table.columns.iter().enumerate();
        columns.map(|(place, column)| Attribute {
            statistics: hint_of(&table.hints.statistics, place),
            storage: hint_of(&table.hints.storage, place),
            options: table.hints.options_of(place).to_vec(),
            ..Attribute::of_column(table.oid, place, column)
        })
    }

    fn of_index(table: &Table, index: &Index) -> impl Iterator<Item = Attribute> {
        index.shown().enumerate().filter_map(|(place, key)| {
            let (name, ty, collation) = match key {
                IndexKey::Column(of) => {
                    table.columns.get(of).map(|column| (&column.name, column.ty, column.collation))
                }
                IndexKey::Expression(of) => index.expression(of).map(|one| (&one.name, one.ty, None)),
            }?;
            let said = index.columns.get(place).and_then(|part| part.collation);
            let statistics = table.hints.statistics_of_index(index.oid, place);
            let attribute = Attribute::new(index.oid, name, ty, place);
            Some(Attribute { collation: said.or(collation), statistics, ..attribute })
        })
    }

    fn of_sequence(sequence: &Sequence) -> impl Iterator<Item = Attribute> {
        SEQUENCE_COLUMNS.iter().enumerate().map(|(place, (name, id))| Attribute {
            not_null: true,
            ..Attribute::new(sequence.oid, name, Type::new(*id), place)
        })
    }

    fn of_view(view: &View) -> impl Iterator<Item = Attribute> {
        let columns = view.columns.iter().enumerate();
        columns.map(|(place, column)| Attribute::new(view.oid, &column.name, column.ty, place))
    }

    fn of_system(table: &SystemTable) -> impl Iterator<Item = Attribute> {
        let columns = table.columns.iter().enumerate();
        columns.map(|(place, (name, ty))| Attribute::new(table.oid, name, *ty, place))
    }
}

fn attributes(catalog: &Catalog) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    for table in catalog.tables() {
        attributes.extend(Attribute::of_table(table));
        attributes.extend(table.indexes.iter().flat_map(|index| Attribute::of_index(table, index)));
    }
    attributes.extend(catalog.sequences().flat_map(|sequence| Attribute::of_sequence(sequence)));
    attributes.extend(catalog.views().flat_map(|view| Attribute::of_view(view)));
    attributes.extend(all().flat_map(Attribute::of_system));
    attributes
}

/// The columns of one relation.
fn attributes_of(catalog: &Catalog, oid: Oid) -> Vec<Attribute> {
    match AnyRelation::by_oid(catalog, oid) {
        Some(AnyRelation::Stored(Relation::Table(table))) => Attribute::of_table(table).collect(),
        Some(AnyRelation::Stored(Relation::Index(table, oid))) => {
            table.index(*oid).into_iter().flat_map(|index| Attribute::of_index(table, index)).collect()
        }
        Some(AnyRelation::Stored(Relation::Sequence(sequence))) => Attribute::of_sequence(sequence).collect(),
        Some(AnyRelation::Stored(Relation::View(view))) => Attribute::of_view(view).collect(),
        Some(AnyRelation::System(table)) => Attribute::of_system(table).collect(),
        None => Vec::new(),
    }
}

system_table! {
    static PG_ATTRIBUTE = 1249 table "pg_catalog"."pg_attribute",
    |source| attributes(source.catalog).into_iter().map(|one| (source, one)) => |(source, attribute)|,
    [by attrelid(key) => attributes_of(source.catalog, key).into_iter().map(|one| (source, one))],
    attrelid: Oid = attribute.relation,
    attname: Name = attribute.name.clone(),
    atttypid: Oid = if attribute.dropped { 0 } else { attribute.ty.oid() },
    attstattarget: Int4 = if attribute.dropped { 0 } else { attribute.statistics.unwrap_or(-1) },
    attlen: Int2 = attribute.ty.shown_length(),
    attnum: Int2 = attribute.number,
    attndims: Int4 = i32::from(attribute.ty.id.is_array()),
    attcacheoff: Int4 = -1,
    atttypmod: Int4 = attribute.ty.shown_modifier(),
    attbyval: Bool = attribute.facts().by_value,
    attalign: InternalChar = attribute.facts().align,
    attstorage: InternalChar = attribute.storage(),
    attcompression: InternalChar = "",
    attnotnull: Bool = attribute.not_null,
    atthasdef: Bool = attribute.default,
    atthasmissing: Bool = !attribute.missing.is_null(),
    attidentity: InternalChar = match attribute.identity {
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
        None => "",
    },
    attgenerated: InternalChar = if attribute.generated { "s" } else { "" },
    attisdropped: Bool = attribute.dropped,
    attislocal: Bool = true,
    attinhcount: Int4 = 0,
    attcollation: Oid = attribute.collation.map_or(attribute.facts().collation, Collation::oid),
    attacl: TextArray = acl::of_column(source, attribute.relation, attribute.number),
    attoptions: TextArray = attribute.options_array(),
    attfdwoptions: TextArray = NULL,
    attmissingval: TextArray = attribute.missing_array(),
}

/// The DEFAULT that PostgreSQL would show, or what a generated column is. An identity column has a
/// sequence instead.
pub(super) fn default_of(column: &Column) -> Option<&str> {
    let generated = column.generated.as_ref().map(|generated| generated.text.as_str());
    if column.dropped || column.identity.is_some() { None } else { generated.or(column.default.as_deref()) }
}

/// A column with a default. The default's oid holds within one catalog only: defaults are no
/// objects of their own here.
pub(super) struct Default<'a> {
    pub(super) oid: Oid,
    pub(super) table: &'a Arc<Table>,
    pub(super) place: usize,
    pub(super) text: &'a str,
}

/// All defaults.
pub(super) fn defaults(catalog: &Catalog) -> impl Iterator<Item = Default<'_>> {
    /// Far from the oids of users' objects, which are given out from below.
    const FIRST: Oid = 0xC000_0000;
    let columns = catalog.tables().flat_map(|table| {
        let columns = table.columns.iter().enumerate();
        columns.filter_map(move |(place, column)| Some((table, place, default_of(column)?)))
    });
    (FIRST..).zip(columns).map(|(oid, (table, place, text))| Default { oid, table, place, text })
}

system_table! {
    static PG_ATTRDEF = 2604 table "pg_catalog"."pg_attrdef",
    |source| defaults(source.catalog).map(|default| (source, default)) => |(source, default)|,
    [by adrelid(key) => defaults(source.catalog)
        .filter(move |default| default.table.oid == key)
        .map(|default| (source, default))],
    oid: Oid = default.oid,
    adrelid: Oid = default.table.oid,
    adnum: Int2 = attribute_number(default.place),
    adbin: Text = deparse::default(source, default.table, default.place, default.text, Style::Plain),
}

system_table! {
    static PG_NAMESPACE = 2615 table "pg_catalog"."pg_namespace",
    |source| schemas(source.catalog).into_iter().map(|schema| (source, schema)) => |(source, (oid, name))|,
    [by oid(key) => schemas(source.catalog)
        .into_iter()
        .filter(move |(oid, _)| *oid == key)
        .map(|schema| (source, schema))],
    oid: Oid = oid,
    nspname: Name = name,
    nspowner: Oid = source.catalog.owner(oid),
    nspacl: TextArray = acl::of(source, oid),
}

/// All schemas by oid, the built-in ones too.
pub(super) fn schemas(catalog: &Catalog) -> Vec<(Oid, String)> {
    let mut schemas: Vec<(Oid, String)> = catalog.schemas().map(|s| (s.oid, s.name.clone())).collect();
    for (oid, name) in [(PG_CATALOG_OID, "pg_catalog"), (INFORMATION_SCHEMA_OID, "information_schema")] {
        if !schemas.iter().any(|(known, _)| *known == oid) {
            schemas.push((oid, name.to_owned()));
        }
    }
    schemas.sort();
    schemas
}

system_table! {
    static PG_SEQUENCE = 2224 table "pg_catalog"."pg_sequence",
    |source| source.catalog.sequences() => |sequence|,
    [by seqrelid(key) => source.catalog.sequence_by_oid(key)],
    seqrelid: Oid = sequence.oid,
    seqtypid: Oid = sequence.ty.id.oid(),
    seqstart: Int8 = sequence.start,
    seqincrement: Int8 = sequence.increment,
    seqmax: Int8 = sequence.maximum,
    seqmin: Int8 = sequence.minimum,
    seqcache: Int8 = sequence.cache,
    seqcycle: Bool = sequence.cycle,
}

/// Sequences, and whether the session may know their values. Those of other sessions are left out.
fn sequences<'a>(source: &Source<'a>) -> Vec<(&'a Arc<Sequence>, bool)> {
    let (viewer, wanted) = (Viewer::new(source), Privileges::SELECT | Privileges::USAGE);
    let all = source.catalog.sequences().filter(|known| !viewer.is_of_another_session(known.schema));
    all.map(|known| (known, viewer.may(known.oid, Securable::Sequence, wanted))).collect()
}

system_table! {
    static PG_SEQUENCES = 12048 view "pg_catalog"."pg_sequences",
    |source| sequences(source).into_iter().map(|row| (source, row)) => |(source, (sequence, is_known))|,
    schemaname: Name = sequence.schema_name.clone(),
    sequencename: Name = sequence.name.clone(),
    sequenceowner: Name = acl::owner(source, sequence.oid),
    data_type: Regtype = sequence.ty.id.oid(),
    start_value: Int8 = sequence.start,
    min_value: Int8 = sequence.minimum,
    max_value: Int8 = sequence.maximum,
    increment_by: Int8 = sequence.increment,
    cycle: Bool = sequence.cycle,
    cache_size: Int8 = sequence.cache,
    last_value: Int8 = is_known.then(|| source.server.last_value(sequence)).flatten(),
}

/// A row of `pg_tables`.
struct TableRow {
    oid: Oid,
    schema: String,
    name: String,
    indexed: bool,
    triggers: bool,
}

fn tables(catalog: &Catalog) -> Vec<TableRow> {
    let stored = catalog.tables().map(|table| TableRow {
        oid: table.oid,
        schema: table.schema_name.clone(),
        name: table.name.clone(),
        indexed: !table.indexes.is_empty(),
        triggers: !table.foreign_keys.is_empty() || !table.referenced_by.is_empty(),
    });
    let built_in = all().filter(|table| !table.view).map(|table| TableRow {
        oid: table.oid,
        schema: table.schema.to_owned(),
        name: table.name.to_owned(),
        indexed: false,
        triggers: false,
    });
    stored.chain(built_in).collect()
}

system_table! {
    static PG_TABLES = 12033 view "pg_catalog"."pg_tables",
    |source| tables(source.catalog).into_iter().map(|table| (source, table)) => |(source, table)|,
    schemaname: Name = table.schema,
    tablename: Name = table.name,
    tableowner: Name = acl::owner(source, table.oid),
    tablespace: Name = NULL,
    hasindexes: Bool = table.indexed,
    hasrules: Bool = false,
    hastriggers: Bool = table.triggers,
    rowsecurity: Bool = false,
}

/// All indexes with their tables.
pub(super) fn indexes(catalog: &Catalog) -> impl Iterator<Item = (&Arc<Table>, &Index)> {
    catalog.tables().flat_map(|table| table.indexes.iter().map(move |index| (table, index)))
}

system_table! {
    static PG_INDEXES = 12043 view "pg_catalog"."pg_indexes",
    |source| indexes(source.catalog) => |(table, index)|,
    schemaname: Name = table.schema_name.clone(),
    tablename: Name = table.name.clone(),
    indexname: Name = index.name.clone(),
    tablespace: Name = NULL,
    indexdef: Text = definition::index(source, table, index, Style::Plain),
}

system_table! {
    static PG_VIEWS = 12028 view "pg_catalog"."pg_views",
    |source| source.catalog.views().map(|v: &Arc<View>| (source, v)) => |(source, view)|,
    schemaname: Name = view.schema_name.clone(),
    viewname: Name = view.name.clone(),
    viewowner: Name = acl::owner(source, view.oid),
    definition: Text = definition::view(view, source),
}
