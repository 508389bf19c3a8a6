//! The types there are: their oids, names, sizes and categories, in one table.

use super::datetime::interval_text;
use super::{Datum, DomainUse, FormatContext};

/// PostgreSQL's type categories, which guide the choice among overloaded functions and operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// `A`.
    Array,
    /// `B`.
    Boolean,
    /// `D`: dates, times, timestamps.
    DateTime,
    /// `E`: enum types, which users make.
    Enum,
    /// `I`: addresses of hosts and networks.
    Network,
    /// `N`: numbers and oids.
    Numeric,
    /// `P`: pseudo-types.
    Pseudo,
    /// `S`.
    String,
    /// `T`: intervals.
    Timespan,
    /// `U`.
    UserDefined,
    /// `X`: the type of untyped literals.
    Unknown,
    /// `Z`: internal.
    Internal,
}

impl Category {
    /// The letter in `pg_type.typcategory`.
    pub fn letter(self) -> char {
        match self {
            Category::Array => 'A',
            Category::Boolean => 'B',
            Category::DateTime => 'D',
            Category::Enum => 'E',
            Category::Network => 'I',
            Category::Numeric => 'N',
            Category::Pseudo => 'P',
            Category::String => 'S',
            Category::Timespan => 'T',
            Category::UserDefined => 'U',
            Category::Unknown => 'X',
            Category::Internal => 'Z',
        }
    }
}

struct Entry {
    id: TypeId,
    oid: u32,
    internal_name: &'static str,
    sql_name: &'static str,
    length: i16,
    category: Category,
    preferred: bool,
    related: Option<TypeId>,
}

macro_rules! types {
    ($($id:ident $array:tt $oid:literal $array_oid:literal $internal:literal $sql:literal $length:literal $category:ident $preferred:literal;)*) => {
        types!(@define [] [] $($id $array $oid $array_oid $internal $sql $length $category $preferred;)*);
    };
    (@define [$($ids:ident)*] [$($entries:tt)*]) => {
        /// A data type, without its modifier.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum TypeId { $($ids),* }

        static TABLE: &[Entry] = &[$($entries)*];
    };
    (@define [$($ids:ident)*] [$($entries:tt)*] $id:ident - $oid:literal $array_oid:literal $internal:literal $sql:literal $length:literal $category:ident $preferred:literal; $($rest:tt)*) => {
        types!(@define [$($ids)* $id] [$($entries)* Entry { id: TypeId::$id, oid: $oid, internal_name: $internal, sql_name: $sql,
            length: $length, category: Category::$category, preferred: $preferred, related: None },] $($rest)*);
    };
    (@define [$($ids:ident)*] [$($entries:tt)*] $id:ident $array:ident $oid:literal $array_oid:literal $internal:literal $sql:literal $length:literal $category:ident $preferred:literal; $($rest:tt)*) => {
        types!(@define [$($ids)* $id $array] [$($entries)*
            Entry { id: TypeId::$id, oid: $oid, internal_name: $internal, sql_name: $sql, length: $length,
                category: Category::$category, preferred: $preferred, related: Some(TypeId::$array) },
            Entry { id: TypeId::$array, oid: $array_oid, internal_name: concat!("_", $internal), sql_name: concat!($sql, "[]"), length: -1,
                category: Category::Array, preferred: false, related: Some(TypeId::$id) },
        ] $($rest)*);
    };
}

types! {
    // id, id of its array, oid, oid of its array, internal name, SQL name, length in bytes (-1
    // variable), category, preferred
    Bool BoolArray 16 1000 "bool" "boolean" 1 Boolean true;
    Bytea ByteaArray 17 1001 "bytea" "bytea" -1 UserDefined false;
    InternalChar InternalCharArray 18 1002 "char" "\"char\"" 1 Internal false;
    Name NameArray 19 1003 "name" "name" 64 String false;
    Int8 Int8Array 20 1016 "int8" "bigint" 8 Numeric false;
    Int2 Int2Array 21 1005 "int2" "smallint" 2 Numeric false;
    Int2vector Int2vectorArray 22 1006 "int2vector" "int2vector" -1 Array false;
    Int4 Int4Array 23 1007 "int4" "integer" 4 Numeric false;
    Regproc RegprocArray 24 1008 "regproc" "regproc" 4 Numeric false;
    Text TextArray 25 1009 "text" "text" -1 String true;
    Oid OidArray 26 1028 "oid" "oid" 4 Numeric true;
    Xid XidArray 28 1011 "xid" "xid" 4 UserDefined false;
    Oidvector OidvectorArray 30 1013 "oidvector" "oidvector" -1 Array false;
    Json JsonArray 114 199 "json" "json" -1 UserDefined false;
    Cidr CidrArray 650 651 "cidr" "cidr" -1 Network false;
    Float4 Float4Array 700 1021 "float4" "real" 4 Numeric false;
    Float8 Float8Array 701 1022 "float8" "double precision" 8 Numeric true;
    Unknown - 705 0 "unknown" "unknown" -2 Unknown false;
    Inet InetArray 869 1041 "inet" "inet" -1 Network true;
    Bpchar BpcharArray 1042 1014 "bpchar" "character" -1 String false;
    Varchar VarcharArray 1043 1015 "varchar" "character varying" -1 String false;
    Date DateArray 1082 1182 "date" "date" 4 DateTime false;
    Time TimeArray 1083 1183 "time" "time without time zone" 8 DateTime false;
    Timestamp TimestampArray 1114 1115 "timestamp" "timestamp without time zone" 8 DateTime false;
    Timestamptz TimestamptzArray 1184 1185 "timestamptz" "timestamp with time zone" 8 DateTime true;
    Interval IntervalArray 1186 1187 "interval" "interval" 16 Timespan true;
    Numeric NumericArray 1700 1231 "numeric" "numeric" -1 Numeric false;
    Regprocedure RegprocedureArray 2202 2207 "regprocedure" "regprocedure" 4 Numeric false;
    Regclass RegclassArray 2205 2210 "regclass" "regclass" 4 Numeric false;
    Regtype RegtypeArray 2206 2211 "regtype" "regtype" 4 Numeric false;
    Record RecordArray 2249 2287 "record" "record" -1 Pseudo false;
    Any - 2276 0 "any" "\"any\"" 4 Pseudo false;
    AnyArray - 2277 0 "anyarray" "anyarray" -1 Pseudo false;
    Void - 2278 0 "void" "void" 4 Pseudo false;
    AnyElement - 2283 0 "anyelement" "anyelement" 4 Pseudo false;
    Enum EnumArray 3500 9001 "anyenum" "anyenum" 8 Enum false;
    AnyNonArray - 2776 0 "anynonarray" "anynonarray" 4 Pseudo false;
    Uuid UuidArray 2950 2951 "uuid" "uuid" 16 UserDefined false;
    AnyCompatible - 5077 0 "anycompatible" "anycompatible" 4 Pseudo false;
    AnyCompatibleArray - 5078 0 "anycompatiblearray" "anycompatiblearray" -1 Pseudo false;
    PgLsn PgLsnArray 3220 3221 "pg_lsn" "pg_lsn" 8 UserDefined false;
    Jsonb JsonbArray 3802 3807 "jsonb" "jsonb" -1 UserDefined false;
    Regnamespace RegnamespaceArray 4089 4090 "regnamespace" "regnamespace" 4 Numeric false;
    Regrole RegroleArray 4096 4097 "regrole" "regrole" 4 Numeric false;
    Xid8 Xid8Array 5069 271 "xid8" "xid8" 8 UserDefined false;
    PgSnapshot PgSnapshotArray 5038 5039 "pg_snapshot" "pg_snapshot" -1 UserDefined false;
    TxidSnapshot TxidSnapshotArray 2970 2949 "txid_snapshot" "txid_snapshot" -1 UserDefined false;
    Regoper RegoperArray 2203 2208 "regoper" "regoper" 4 Numeric false;
    Regoperator RegoperatorArray 2204 2209 "regoperator" "regoperator" 4 Numeric false;
}

impl TypeId {
    fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// Every type, in declaration order.
    pub fn all() -> impl Iterator<Item = TypeId> {
        TABLE.iter().map(|entry| entry.id)
    }

    /// `pg_type.oid`.
    pub fn oid(self) -> u32 {
        self.entry().oid
    }

    /// The type with this `pg_type.oid`.
    pub fn from_oid(oid: u32) -> Option<TypeId> {
        TABLE.iter().find(|entry| entry.oid == oid && oid != 0).map(|entry| entry.id)
    }

    /// `pg_type.typname`: `int4`, `_int4`.
    pub fn internal_name(self) -> &'static str {
        self.entry().internal_name
    }

    /// The SQL spelling without modifier: `integer`, `integer[]`.
    pub fn sql_name(self) -> &'static str {
        self.entry().sql_name
    }

    /// `pg_type.typlen`: bytes, -1 for variable length.
    pub fn length(self) -> i16 {
        self.entry().length
    }

    /// `pg_type.typcategory`.
    pub fn category(self) -> Category {
        self.entry().category
    }

    /// `pg_type.typispreferred`: the type a category prefers to convert to.
    pub fn is_preferred(self) -> bool {
        self.entry().preferred
    }

    /// A true array type (not int2vector or oidvector)?
    pub fn is_array(self) -> bool {
        self.entry().internal_name.starts_with('_')
    }

    /// The type of the elements, of arrays and of int2vector and oidvector.
    pub fn element(self) -> Option<TypeId> {
        match self {
            TypeId::Int2vector => Some(TypeId::Int2),
            TypeId::Oidvector => Some(TypeId::Oid),
            _ if self.is_array() => self.entry().related,
            _ => None,
        }
    }

    /// The array type over this type.
    pub fn array(self) -> Option<TypeId> {
        if self.is_array() { None } else { self.entry().related }
    }

    /// A pseudo-type such as `anyelement`, which no column can have?
    pub fn is_pseudo(self) -> bool {
        self.category() == Category::Pseudo || self == TypeId::RecordArray
    }

    /// smallint, integer or bigint?
    pub fn is_integer(self) -> bool {
        matches!(self, TypeId::Int2 | TypeId::Int4 | TypeId::Int8)
    }

    /// oid or one of its aliases such as regclass?
    pub fn is_oid(self) -> bool {
        matches!(
            self,
            TypeId::Oid
                | TypeId::Regclass
                | TypeId::Regtype
                | TypeId::Regproc
                | TypeId::Regprocedure
                | TypeId::Regnamespace
                | TypeId::Regrole
                | TypeId::Regoper
                | TypeId::Regoperator
        )
    }

    /// A snapshot by ids of transactions?
    pub fn is_snapshot(self) -> bool {
        matches!(self, TypeId::PgSnapshot | TypeId::TxidSnapshot)
    }

    /// The type of an internal or SQL name, lower case, without modifier, such as `int4`,
    /// `integer`, `varchar`, `double precision`, `timestamp with time zone`, `_int4`, `integer[]`.
    pub fn from_name(name: &str) -> Option<TypeId> {
        if let Some(element) = name.strip_suffix("[]") {
            let element = TypeId::from_name(element.trim_end())?;
            return if element.is_array() { Some(element) } else { element.array() };
        }
        let alias = match name {
            "int" => TypeId::Int4,
            "float" => TypeId::Float8,
            "decimal" | "dec" => TypeId::Numeric,
            "time" => TypeId::Time,
            "timestamp" => TypeId::Timestamp,
            "char" => TypeId::Bpchar,
            "\"char\"" => TypeId::InternalChar,
            "national character" | "nchar" => TypeId::Bpchar,
            "char varying" | "national character varying" => TypeId::Varchar,
            _ => {
                return TABLE
                    .iter()
                    .find(|entry| entry.internal_name == name || entry.sql_name == name)
                    .map(|entry| entry.id);
            }
        };
        Some(alias)
    }

    /// The type that `pg_type.typname` names.
    pub fn from_internal_name(name: &str) -> Option<TypeId> {
        TABLE.iter().find(|entry| entry.internal_name == name).map(|entry| entry.id)
    }

    /// Whether a value of this type can be this datum (NULL always can).
    pub fn holds(self, datum: &Datum) -> bool {
        use TypeId::*;
        match datum {
            Datum::Null => true,
            Datum::Bool(_) => self == Bool,
            Datum::Int2(_) => self == Int2,
            Datum::Int4(_) => self == Int4,
            Datum::Int8(_) => self == Int8,
            Datum::Float4(_) => self == Float4,
            Datum::Float8(_) => self == Float8,
            Datum::Numeric(_) => self == Numeric,
            Datum::Text(_) => {
                matches!(self, Text | Varchar | Name | InternalChar | Json | Unknown) || self.is_snapshot()
            }
            Datum::Bpchar(_) => self == Bpchar,
            Datum::Jsonb(_) => self == Jsonb,
            Datum::Bytea(_) => self == Bytea,
            Datum::Date(_) => self == Date,
            Datum::Time(_) => self == Time,
            Datum::Timestamp(_) => self == Timestamp,
            Datum::Timestamptz(_) => self == Timestamptz,
            Datum::Interval(_) => self == Interval,
            Datum::Uuid(_) => self == Uuid,
            Datum::Inet(_) => matches!(self, Inet | Cidr),
            Datum::Enum(_) => self == Enum,
            Datum::Oid(_) => self.is_oid() || self == Xid,
            Datum::Unsigned(_) => matches!(self, PgLsn | Xid8),
            Datum::Array(_) => self.category() == Category::Array,
            Datum::Record(_) => self == TypeId::Record,
        }
    }
}

/// A type with its modifier, as a column or expression has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Which type.
    pub id: TypeId,
    /// PostgreSQL's typmod: for varchar and char `4 + n`, for numeric `4 + (precision << 16 |
    /// scale)`, for times the number of fractional digits, for arrays that of the elements; -1 is
    /// none. For an enum type its oid: that says which one it is.
    pub modifier: i32,
    /// Which domain it is of, if it is of one.
    pub domain: DomainUse,
}

impl Type {
    /// A type without modifier.
    pub const fn new(id: TypeId) -> Type {
        Type::modified(id, -1)
    }

    /// A type with a modifier.
    pub const fn modified(id: TypeId, modifier: i32) -> Type {
        Type { id, modifier, domain: DomainUse::None }
    }

    /// The enum type with this oid.
    pub const fn of_enum(oid: u32) -> Type {
        Type::modified(TypeId::Enum, oid as i32)
    }

    /// The oid of the enum type that it is, if it is one.
    pub fn enum_oid(self) -> Option<u32> {
        (self.id == TypeId::Enum && self.modifier > 0).then_some(self.modifier as u32)
    }

    /// An enum type, or an array of one?
    pub fn is_of_enum(self) -> bool {
        matches!(self.id, TypeId::Enum | TypeId::EnumArray)
    }

    /// The oid of the enum type that it is or has elements of.
    pub fn enum_named(self) -> Option<u32> {
        (self.is_of_enum() && self.modifier > 0).then_some(self.modifier as u32)
    }

    /// `pg_type.oid`. The array type over an enum type or a domain has the oid behind that one's.
    pub fn oid(self) -> u32 {
        let array = u32::from(self.id == TypeId::EnumArray);
        match self.domain {
            DomainUse::Value(oid) => oid,
            DomainUse::Elements(oid) => oid + 1,
            DomainUse::None => self.enum_named().map_or(self.id.oid(), |oid| oid + array),
        }
    }

    /// The type without a modifier and of no domain; which enum type it is stays.
    pub fn plain(self) -> Type {
        if self.is_of_enum() { self.bare() } else { Type::new(self.id) }
    }

    /// The modifier as clients see it: enum types and domains have none.
    pub fn shown_modifier(self) -> i32 {
        if self.is_of_enum() || self.domain != DomainUse::None { -1 } else { self.modifier }
    }

    /// `pg_type.typlen`: a client sees an enum value as PostgreSQL's four bytes.
    pub fn shown_length(self) -> i16 {
        if self.id == TypeId::Enum { 4 } else { self.id.length() }
    }

    /// varchar(n).
    pub const fn varchar(length: u32) -> Type {
        Type::modified(TypeId::Varchar, 4 + length as i32)
    }

    /// char(n).
    pub const fn bpchar(length: u32) -> Type {
        Type::modified(TypeId::Bpchar, 4 + length as i32)
    }

    /// numeric(precision, scale).
    pub const fn numeric(precision: u16, scale: i16) -> Type {
        Type::modified(TypeId::Numeric, 4 + (((precision as i32) << 16) | (scale as i32 & 0x7ff)))
    }

    /// The type of the elements of an array type, with the array's modifier.
    pub fn element(self) -> Option<Type> {
        let domain = match self.domain {
            DomainUse::Elements(oid) => DomainUse::Value(oid),
            DomainUse::None | DomainUse::Value(_) => DomainUse::None,
        };
        self.id.element().map(|id| Type { id, modifier: self.modifier, domain })
    }

    /// Largest number of characters of varchar(n) or char(n).
    pub fn character_limit(self) -> Option<usize> {
        match self.id {
            TypeId::Varchar | TypeId::Bpchar if self.modifier >= 4 => usize::try_from(self.modifier - 4).ok(),
            _ => None,
        }
    }

    /// Precision and scale of numeric(p, s).
    pub fn precision_and_scale(self) -> Option<(i32, i32)> {
        if self.id != TypeId::Numeric || self.modifier < 4 {
            return None;
        }
        let packed = self.modifier - 4;
        // The scale is an 11-bit two's complement number.
        let scale = ((packed & 0x7ff) ^ 1024) - 1024;
        Some(((packed >> 16) & 0xffff, scale))
    }

    /// Fractional digits of time, timestamp, timestamptz and interval, if limited.
    pub fn fractional_digits(self) -> Option<u32> {
        match self.id {
            TypeId::Time | TypeId::Timestamp | TypeId::Timestamptz if self.modifier >= 0 => {
                u32::try_from(self.modifier).ok()
            }
            TypeId::Interval if self.modifier >= 0 && self.modifier & 0xffff != 0xffff => {
                u32::try_from(self.modifier & 0xffff).ok()
            }
            _ => None,
        }
    }

    /// As `format_type` prints it, with the names of users' types.
    pub fn format_with(self, context: &FormatContext) -> String {
        let name = |oid| context.objects.as_deref().and_then(|objects| objects.type_name(oid));
        let is_user = self.user_type().is_some();
        // Behind a user's type is its array type, and is named so.
        let name = is_user.then(|| name(self.oid())).flatten();
        name.unwrap_or_else(|| self.format())
    }

    /// As `format_type` prints it: `character varying(10)`, `numeric(5,2)`, `timestamp(3) without
    /// time zone`, `interval day to second(3)`.
    pub fn format(self) -> String {
        if let Some(element) = self.element().filter(|_| self.id.is_array()) {
            return format!("{}[]", element.format());
        }
        if let Some(limit) = self.character_limit() {
            return format!("{}({limit})", self.id.sql_name());
        }
        if let Some((precision, scale)) = self.precision_and_scale() {
            return format!("numeric({precision},{scale})");
        }
        if self.id == TypeId::Interval {
            let digits = self.fractional_digits().map(|digits| format!("({digits})")).unwrap_or_default();
            return format!("interval{}{digits}", interval_text::field_names(self.modifier));
        }
        if let Some(digits) = self.fractional_digits() {
            let name = self.id.sql_name();
            return match name.split_once(' ') {
                Some((head, tail)) => format!("{head}({digits}) {tail}"),
                None => format!("{name}({digits})"),
            };
        }
        // A bpchar without a length is not `character`, which means character(1).
        if self.id == TypeId::Bpchar { "bpchar".to_owned() } else { self.id.sql_name().to_owned() }
    }
}

impl From<TypeId> for Type {
    fn from(id: TypeId) -> Type {
        Type::new(id)
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.format())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_declaration_order() {
        for (index, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.id as usize, index);
            assert_eq!(TypeId::from_oid(entry.oid), Some(entry.id));
            assert_eq!(
                TypeId::from_name(entry.internal_name).map(|t| t == entry.id),
                Some(entry.internal_name != "char")
            );
        }
    }

    #[test]
    fn modifiers_print() {
        assert_eq!(Type::numeric(5, -2).format(), "numeric(5,-2)");
        assert_eq!(Type::modified(TypeId::Timestamptz, 3).format(), "timestamp(3) with time zone");
        assert_eq!(Type::modified(TypeId::VarcharArray, 14).format(), "character varying(10)[]");
    }
}
