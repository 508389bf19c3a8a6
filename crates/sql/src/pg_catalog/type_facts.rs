//! What `pg_type` says of the built-in types beyond what [`TypeId`] knows, with PostgreSQL's own
//! numbers.

use crate::types::TypeId;

/// Oid and name of a function, 0 and nothing for none.
type FunctionName = (u32, &'static str);

/// Passing, layout, collation and functions of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeFacts {
    /// Passed by value.
    pub(super) by_value: bool,
    /// `b` base or `p` pseudo-type.
    pub(super) kind: char,
    /// Alignment letter.
    pub(super) align: char,
    /// Storage letter.
    pub(super) storage: char,
    /// Oid of its collation, 0 for none.
    pub(super) collation: u32,
    /// in, out, receive, send, typmod in, typmod out.
    pub(super) functions: [FunctionName; 6],
}

/// What reads and writes arrays.
pub(super) const ARRAY_FUNCTIONS: [FunctionName; 4] =
    [(750, "array_in"), (751, "array_out"), (2400, "array_recv"), (2401, "array_send")];
/// What reads and writes enum types.
pub(super) const ENUM_FUNCTIONS: [FunctionName; 4] =
    [(3506, "enum_in"), (3507, "enum_out"), (3532, "enum_recv"), (3533, "enum_send")];
/// What reads domains; the type under one has what writes them.
pub(super) const DOMAIN_FUNCTIONS: [FunctionName; 2] = [(2597, "domain_in"), (2598, "domain_recv")];
/// Subscripts arrays.
pub(super) const ARRAY_SUBSCRIPT: FunctionName = (6179, "array_subscript_handler");
/// Subscripts int2vector, oidvector and name.
pub(super) const RAW_ARRAY_SUBSCRIPT: FunctionName = (6180, "raw_array_subscript_handler");
/// Subscripts jsonb.
pub(super) const JSONB_SUBSCRIPT: FunctionName = (6098, "jsonb_subscript_handler");
/// Gathers statistics of arrays.
pub(super) const ARRAY_ANALYZE: FunctionName = (3816, "array_typanalyze");

type Row = (u32, bool, char, char, char, u32, [FunctionName; 6]);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    (16, true, 'b', 'c', 'p', 0, [(1242, "boolin"), (1243, "boolout"), (2436, "boolrecv"), (2437, "boolsend"), (0, ""), (0, "")]),
    (17, false, 'b', 'i', 'x', 0, [(1244, "byteain"), (31, "byteaout"), (2412, "bytearecv"), (2413, "byteasend"), (0, ""), (0, "")]),
    (18, true, 'b', 'c', 'p', 0, [(1245, "charin"), (33, "charout"), (2434, "charrecv"), (2435, "charsend"), (0, ""), (0, "")]),
    (19, false, 'b', 'c', 'p', 950, [(34, "namein"), (35, "nameout"), (2422, "namerecv"), (2423, "namesend"), (0, ""), (0, "")]),
    (20, true, 'b', 'd', 'p', 0, [(460, "int8in"), (461, "int8out"), (2408, "int8recv"), (2409, "int8send"), (0, ""), (0, "")]),
    (21, true, 'b', 's', 'p', 0, [(38, "int2in"), (39, "int2out"), (2404, "int2recv"), (2405, "int2send"), (0, ""), (0, "")]),
    (22, false, 'b', 'i', 'p', 0, [(40, "int2vectorin"), (41, "int2vectorout"), (2410, "int2vectorrecv"), (2411, "int2vectorsend"), (0, ""), (0, "")]),
    (23, true, 'b', 'i', 'p', 0, [(42, "int4in"), (43, "int4out"), (2406, "int4recv"), (2407, "int4send"), (0, ""), (0, "")]),
    (24, true, 'b', 'i', 'p', 0, [(44, "regprocin"), (45, "regprocout"), (2444, "regprocrecv"), (2445, "regprocsend"), (0, ""), (0, "")]),
    (25, false, 'b', 'i', 'x', 100, [(46, "textin"), (47, "textout"), (2414, "textrecv"), (2415, "textsend"), (0, ""), (0, "")]),
    (26, true, 'b', 'i', 'p', 0, [(1798, "oidin"), (1799, "oidout"), (2418, "oidrecv"), (2419, "oidsend"), (0, ""), (0, "")]),
    (28, true, 'b', 'i', 'p', 0, [(50, "xidin"), (51, "xidout"), (2440, "xidrecv"), (2441, "xidsend"), (0, ""), (0, "")]),
    (30, false, 'b', 'i', 'p', 0, [(54, "oidvectorin"), (55, "oidvectorout"), (2420, "oidvectorrecv"), (2421, "oidvectorsend"), (0, ""), (0, "")]),
    (114, false, 'b', 'i', 'x', 0, [(321, "json_in"), (322, "json_out"), (323, "json_recv"), (324, "json_send"), (0, ""), (0, "")]),
    (650, false, 'b', 'i', 'm', 0, [(1267, "cidr_in"), (1427, "cidr_out"), (2498, "cidr_recv"), (2499, "cidr_send"), (0, ""), (0, "")]),
    (700, true, 'b', 'i', 'p', 0, [(200, "float4in"), (201, "float4out"), (2424, "float4recv"), (2425, "float4send"), (0, ""), (0, "")]),
    (701, true, 'b', 'd', 'p', 0, [(214, "float8in"), (215, "float8out"), (2426, "float8recv"), (2427, "float8send"), (0, ""), (0, "")]),
    (705, false, 'p', 'c', 'p', 0, [(109, "unknownin"), (110, "unknownout"), (2416, "unknownrecv"), (2417, "unknownsend"), (0, ""), (0, "")]),
    (869, false, 'b', 'i', 'm', 0, [(910, "inet_in"), (911, "inet_out"), (2496, "inet_recv"), (2497, "inet_send"), (0, ""), (0, "")]),
    (1042, false, 'b', 'i', 'x', 100, [(1044, "bpcharin"), (1045, "bpcharout"), (2430, "bpcharrecv"), (2431, "bpcharsend"), (2913, "bpchartypmodin"), (2914, "bpchartypmodout")]),
    (1043, false, 'b', 'i', 'x', 100, [(1046, "varcharin"), (1047, "varcharout"), (2432, "varcharrecv"), (2433, "varcharsend"), (2915, "varchartypmodin"), (2916, "varchartypmodout")]),
    (1082, true, 'b', 'i', 'p', 0, [(1084, "date_in"), (1085, "date_out"), (2468, "date_recv"), (2469, "date_send"), (0, ""), (0, "")]),
    (1083, true, 'b', 'd', 'p', 0, [(1143, "time_in"), (1144, "time_out"), (2470, "time_recv"), (2471, "time_send"), (2909, "timetypmodin"), (2910, "timetypmodout")]),
    (1114, true, 'b', 'd', 'p', 0, [(1312, "timestamp_in"), (1313, "timestamp_out"), (2474, "timestamp_recv"), (2475, "timestamp_send"), (2905, "timestamptypmodin"), (2906, "timestamptypmodout")]),
    (1184, true, 'b', 'd', 'p', 0, [(1150, "timestamptz_in"), (1151, "timestamptz_out"), (2476, "timestamptz_recv"), (2477, "timestamptz_send"), (2907, "timestamptztypmodin"), (2908, "timestamptztypmodout")]),
    (1186, false, 'b', 'd', 'p', 0, [(1160, "interval_in"), (1161, "interval_out"), (2478, "interval_recv"), (2479, "interval_send"), (2903, "intervaltypmodin"), (2904, "intervaltypmodout")]),
    (1700, false, 'b', 'i', 'm', 0, [(1701, "numeric_in"), (1702, "numeric_out"), (2460, "numeric_recv"), (2461, "numeric_send"), (2917, "numerictypmodin"), (2918, "numerictypmodout")]),
    (2202, true, 'b', 'i', 'p', 0, [(2212, "regprocedurein"), (2213, "regprocedureout"), (2446, "regprocedurerecv"), (2447, "regproceduresend"), (0, ""), (0, "")]),
    (2203, true, 'b', 'i', 'p', 0, [(2214, "regoperin"), (2215, "regoperout"), (2448, "regoperrecv"), (2449, "regopersend"), (0, ""), (0, "")]),
    (2204, true, 'b', 'i', 'p', 0, [(2216, "regoperatorin"), (2217, "regoperatorout"), (2450, "regoperatorrecv"), (2451, "regoperatorsend"), (0, ""), (0, "")]),
    (2205, true, 'b', 'i', 'p', 0, [(2218, "regclassin"), (2219, "regclassout"), (2452, "regclassrecv"), (2453, "regclasssend"), (0, ""), (0, "")]),
    (2206, true, 'b', 'i', 'p', 0, [(2220, "regtypein"), (2221, "regtypeout"), (2454, "regtyperecv"), (2455, "regtypesend"), (0, ""), (0, "")]),
    (2249, false, 'p', 'd', 'x', 0, [(2290, "record_in"), (2291, "record_out"), (2402, "record_recv"), (2403, "record_send"), (0, ""), (0, "")]),
    (2276, true, 'p', 'i', 'p', 0, [(2294, "any_in"), (2295, "any_out"), (0, ""), (0, ""), (0, ""), (0, "")]),
    (2277, false, 'p', 'd', 'x', 0, [(2296, "anyarray_in"), (2297, "anyarray_out"), (2502, "anyarray_recv"), (2503, "anyarray_send"), (0, ""), (0, "")]),
    (2278, true, 'p', 'i', 'p', 0, [(2298, "void_in"), (2299, "void_out"), (3120, "void_recv"), (3121, "void_send"), (0, ""), (0, "")]),
    (2283, true, 'p', 'i', 'p', 0, [(2312, "anyelement_in"), (2313, "anyelement_out"), (0, ""), (0, ""), (0, ""), (0, "")]),
    (2776, true, 'p', 'i', 'p', 0, [(2777, "anynonarray_in"), (2778, "anynonarray_out"), (0, ""), (0, ""), (0, ""), (0, "")]),
    (3500, true, 'p', 'i', 'p', 0, [(3504, "anyenum_in"), (3505, "anyenum_out"), (0, ""), (0, ""), (0, ""), (0, "")]),
    (2950, false, 'b', 'c', 'p', 0, [(2952, "uuid_in"), (2953, "uuid_out"), (2961, "uuid_recv"), (2962, "uuid_send"), (0, ""), (0, "")]),
    (3220, true, 'b', 'd', 'p', 0, [(3229, "pg_lsn_in"), (3230, "pg_lsn_out"), (3238, "pg_lsn_recv"), (3239, "pg_lsn_send"), (0, ""), (0, "")]),
    (3802, false, 'b', 'i', 'x', 0, [(3806, "jsonb_in"), (3804, "jsonb_out"), (3805, "jsonb_recv"), (3803, "jsonb_send"), (0, ""), (0, "")]),
    (4089, true, 'b', 'i', 'p', 0, [(4084, "regnamespacein"), (4085, "regnamespaceout"), (4087, "regnamespacerecv"), (4088, "regnamespacesend"), (0, ""), (0, "")]),
    (5077, true, 'p', 'i', 'p', 0, [(5086, "anycompatible_in"), (5087, "anycompatible_out"), (0, ""), (0, ""), (0, ""), (0, "")]),
    (5078, false, 'p', 'd', 'x', 0, [(5088, "anycompatiblearray_in"), (5089, "anycompatiblearray_out"), (5090, "anycompatiblearray_recv"), (5091, "anycompatiblearray_send"), (0, ""), (0, "")]),
    (4096, true, 'b', 'i', 'p', 0, [(4098, "regrolein"), (4092, "regroleout"), (4094, "regrolerecv"), (4095, "regrolesend"), (0, ""), (0, "")]),
    (5038, false, 'b', 'd', 'x', 0, [(5055, "pg_snapshot_in"), (5056, "pg_snapshot_out"), (5057, "pg_snapshot_recv"), (5058, "pg_snapshot_send"), (0, ""), (0, "")]),
    (2970, false, 'b', 'd', 'x', 0, [(2939, "txid_snapshot_in"), (2940, "txid_snapshot_out"), (2941, "txid_snapshot_recv"), (2942, "txid_snapshot_send"), (0, ""), (0, "")]),
    (5069, true, 'b', 'd', 'p', 0, [(5070, "xid8in"), (5081, "xid8out"), (5082, "xid8recv"), (5083, "xid8send"), (0, ""), (0, "")]),
];

/// The facts of an enum type.
pub(super) fn enum_facts() -> TypeFacts {
    let [input, output, receive, send] = ENUM_FUNCTIONS;
    let functions = [input, output, receive, send, (0, ""), (0, "")];
    TypeFacts { kind: 'e', functions, ..base(TypeId::Enum) }
}

/// The facts of a domain over a type of these facts.
pub(super) fn domain_facts(base: TypeFacts) -> TypeFacts {
    let [_, output, _, send, ..] = base.functions;
    let [input, receive] = DOMAIN_FUNCTIONS;
    TypeFacts { kind: 'd', functions: [input, output, receive, send, (0, ""), (0, "")], ..base }
}

/// The facts of a type; of an array type those that follow from its elements'.
pub(super) fn facts(id: TypeId) -> TypeFacts {
    if id.is_array() {
        let element = id.element().map_or_else(|| base(TypeId::Text), base);
        let [input, output, receive, send] = ARRAY_FUNCTIONS;
        let [.., modifier_in, modifier_out] = element.functions;
        return TypeFacts {
            by_value: false,
            kind: if id.is_pseudo() { 'p' } else { 'b' },
            align: if element.align == 'd' { 'd' } else { 'i' },
            storage: 'x',
            collation: element.collation,
            functions: [input, output, receive, send, modifier_in, modifier_out],
        };
    }
    base(id)
}

/// PostgreSQL's letter for how values of a type are stored if nothing else is said.
pub(crate) fn storage_of(id: TypeId) -> char {
    facts(id).storage
}

/// Whether values of a type are ordered by a collation.
pub(crate) fn is_collatable(id: TypeId) -> bool {
    facts(id).collation != 0
}

fn base(id: TypeId) -> TypeFacts {
    let row = TABLE.iter().find(|row| row.0 == id.oid()).unwrap_or(&TABLE[0]);
    let (_, by_value, kind, align, storage, collation, functions) = *row;
    TypeFacts { by_value, kind, align, storage, collation, functions }
}

/// The functions named here: oid, name, and the type they belong to (0 for those of arrays
/// and domains).
pub(super) fn functions() -> impl Iterator<Item = (FunctionName, u32)> {
    let general = [ARRAY_SUBSCRIPT, RAW_ARRAY_SUBSCRIPT, JSONB_SUBSCRIPT, ARRAY_ANALYZE];
    let of_types = TABLE.iter().flat_map(|row| row.6.into_iter().map(|function| (function, row.0)));
    let of_arrays = ARRAY_FUNCTIONS.into_iter().chain(general).map(|function| (function, 0));
    let of_enums = ENUM_FUNCTIONS.into_iter().map(|function| (function, TypeId::Enum.oid()));
    let of_domains = DOMAIN_FUNCTIONS.into_iter().map(|function| (function, 0));
    of_types.chain(of_arrays).chain(of_enums).chain(of_domains).filter(|((oid, _), _)| *oid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_facts() {
        for id in TypeId::all().filter(|id| !id.is_array()) {
            assert!(TABLE.iter().any(|row| row.0 == id.oid()), "{id:?}");
        }
    }
}
