//! Expressions and how PostgreSQL 15 prints them, taken from its own answers.

use super::super::tests::{column, table, with_source};
use super::*;

/// Given, plain, pretty.
type Printed = (&'static str, &'static str, &'static str);

fn numbered(name: &str, ty: Type) -> crate::catalog::Column {
    column(name, ty, false, None)
}

/// A table with a column of each of these types.
fn all_types() -> Table {
    let id = |name, id| numbered(name, Type::new(id));
    table(
        20000,
        "zz",
        vec![
            id("a", TypeId::Int4),
            numbered("b", Type::varchar(10)),
            numbered("c", Type::modified(TypeId::NumericArray, Type::numeric(10, 2).modifier)),
            numbered("d", Type::modified(TypeId::Timestamptz, 3)),
            id("e", TypeId::Int4),
            id("f", TypeId::Int8),
            id("g", TypeId::Text),
            id("h", TypeId::Bool),
            id("j", TypeId::Float8),
            id("k", TypeId::Date),
            id("l", TypeId::Int4),
            id("m", TypeId::Text),
            numbered("o", Type::bpchar(3)),
            id("p", TypeId::Interval),
            id("q", TypeId::Timestamp),
            id("r", TypeId::Numeric),
            id("s", TypeId::Int2),
            id("t", TypeId::Jsonb),
            id("u", TypeId::Uuid),
            id("y", TypeId::Text),
            id("z", TypeId::Text),
            id("Odd name", TypeId::Int4),
        ],
        vec![],
    )
}

#[test]
fn checks_print_as_in_postgresql() {
    let table = all_types();
    let mut wrong = vec![];
    with_source(|source| {
        for &(given, plain, pretty) in CHECKS {
            for (style, expected) in [(Style::Plain, plain), (Style::Pretty, pretty)] {
                let printed = check(source, &table, given, style);
                if printed != expected {
                    wrong.push(format!("{given}\n  printed  {printed}\n  expected {expected}"));
                }
                // What was printed means the same and prints the same again.
                let again = check(source, &table, &printed, style);
                if again != printed {
                    wrong.push(format!("{printed}\n  again    {again}"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn defaults_print_as_in_postgresql() {
    let table = all_types();
    let mut wrong = vec![];
    with_source(|source| {
        for &(given, plain, pretty) in DEFAULTS {
            let (name, text) = given.split_once(' ').unwrap();
            let place = table.column_place(name).unwrap();
            for (style, expected) in [(Style::Plain, plain), (Style::Pretty, pretty)] {
                let printed = default(source, &table, place, text, style);
                if printed != expected {
                    wrong.push(format!("{given}\n  printed  {printed}\n  expected {expected}"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_understood_stays_as_it_was() {
    let table = all_types();
    with_source(|source| {
        assert_eq!(check(source, &table, "no_such(a) > 0", Style::Plain), "(no_such(a) > 0)");
        assert_eq!(check(source, &table, "no_such(a) > 0", Style::Pretty), "no_such(a) > 0");
        assert_eq!(check(source, &table, "nowhere = ", Style::Pretty), "nowhere = ");
    });
}

const CHECKS: &[Printed] = &[
    (
        "l > 0 and l < 10 or l is null",
        "(((l > 0) AND (l < 10)) OR (l IS NULL))",
        "l > 0 AND l < 10 OR l IS NULL",
    ),
    ("m in ('a','b')", "(m = ANY (ARRAY['a'::text, 'b'::text]))", "m = ANY (ARRAY['a'::text, 'b'::text])"),
    ("length(m) > 2", "(length(m) > 2)", "length(m) > 2"),
    ("a between 1 and 5", "((a >= 1) AND (a <= 5))", "a >= 1 AND a <= 5"),
    ("a not between 1 and 5", "((a < 1) OR (a > 5))", "a < 1 OR a > 5"),
    (
        "y ~ '^a' or y like 'b%'",
        "((y ~ '^a'::text) OR (y ~~ 'b%'::text))",
        "y ~ '^a'::text OR y ~~ 'b%'::text",
    ),
    ("y is distinct from z", "(y IS DISTINCT FROM z)", "y IS DISTINCT FROM z"),
    ("y is not distinct from z", "(NOT (y IS DISTINCT FROM z))", "NOT y IS DISTINCT FROM z"),
    ("not (a = 3)", "(NOT (a = 3))", "NOT a = 3"),
    ("b <> m", "((b)::text <> m)", "b::text <> m"),
    (
        "case when a > 1 then true else false end",
        "\nCASE\n    WHEN (a > 1) THEN true\n    ELSE false\nEND",
        "\nCASE\n    WHEN a > 1 THEN true\n    ELSE false\nEND",
    ),
    (
        "case a when 1 then true when 2 then h end",
        "\nCASE a\n    WHEN 1 THEN true\n    WHEN 2 THEN h\n    ELSE NULL::boolean\nEND",
        "\nCASE a\n    WHEN 1 THEN true\n    WHEN 2 THEN h\n    ELSE NULL::boolean\nEND",
    ),
    ("coalesce(a, 0) > 0", "(COALESCE(a, 0) > 0)", "COALESCE(a, 0) > 0"),
    ("cast(a as text) <> ''", "((a)::text <> ''::text)", "a::text <> ''::text"),
    ("j > -1.5", "(j > ('-1.5'::numeric)::double precision)", "j > '-1.5'::numeric::double precision"),
    ("o = 'abc'", "(o = 'abc'::bpchar)", "o = 'abc'::bpchar"),
    (
        "b = 'x' and d < '2030-01-01'",
        "(((b)::text = 'x'::text) AND (d < '2030-01-01 00:00:00+00'::timestamp with time zone))",
        "b::text = 'x'::text AND d < '2030-01-01 00:00:00+00'::timestamp with time zone",
    ),
    ("f = any(array[1,2])", "(f = ANY (ARRAY[1, 2]))", "f = ANY (ARRAY[1, 2])"),
    (
        "extract(year from d) > 2000",
        "(EXTRACT(year FROM d) > (2000)::numeric)",
        "EXTRACT(year FROM d) > 2000::numeric",
    ),
    ("k + interval '1 day' > d", "((k + '1 day'::interval) > d)", "(k + '1 day'::interval) > d"),
    ("a % 2 = 0", "((a % 2) = 0)", "(a % 2) = 0"),
    ("-a < 3", "((- a) < 3)", "(- a) < 3"),
    ("s + a > f", "((s + a) > f)", "(s + a) > f"),
    ("f > 5 and (a>1 and l>2)", "((f > 5) AND ((a > 1) AND (l > 2)))", "f > 5 AND a > 1 AND l > 2"),
    ("(f > 5 and a>1) and l>2", "((f > 5) AND (a > 1) AND (l > 2))", "f > 5 AND a > 1 AND l > 2"),
    ("f > 5 or a > 1 and l > 2", "((f > 5) OR ((a > 1) AND (l > 2)))", "f > 5 OR a > 1 AND l > 2"),
    ("(f > 5 or a > 1) and l > 2", "(((f > 5) OR (a > 1)) AND (l > 2))", "(f > 5 OR a > 1) AND l > 2"),
    ("b is not null and (h is true)", "((b IS NOT NULL) AND (h IS TRUE))", "b IS NOT NULL AND h IS TRUE"),
    ("h", "h", "h"),
    ("not h and b like 'x'", "((NOT h) AND ((b)::text ~~ 'x'::text))", "NOT h AND b::text ~~ 'x'::text"),
    (
        "r > 0.5 and r < 1e10",
        "((r > 0.5) AND (r < '10000000000'::numeric))",
        "r > 0.5 AND r < '10000000000'::numeric",
    ),
    ("a in (1,2)", "(a = ANY (ARRAY[1, 2]))", "a = ANY (ARRAY[1, 2])"),
    ("a not in (1,2)", "(a <> ALL (ARRAY[1, 2]))", "a <> ALL (ARRAY[1, 2])"),
    ("a in (7)", "(a = 7)", "a = 7"),
    (
        "b in ('x','y')",
        "((b)::text = ANY ((ARRAY['x'::character varying, 'y'::character varying])::text[]))",
        "b::text = ANY (ARRAY['x'::character varying, 'y'::character varying]::text[])",
    ),
    (
        "substring(g from 1 for 2) = 'x'",
        "(SUBSTRING(g FROM 1 FOR 2) = 'x'::text)",
        "SUBSTRING(g FROM 1 FOR 2) = 'x'::text",
    ),
    (
        "substring(g, 1, 2) = 'x'",
        r#"("substring"(g, 1, 2) = 'x'::text)"#,
        r#""substring"(g, 1, 2) = 'x'::text"#,
    ),
    ("position('x' in g) > 0", "(POSITION(('x'::text) IN (g)) > 0)", "POSITION(('x'::text) IN (g)) > 0"),
    ("g || b = 'z'", "((g || (b)::text) = 'z'::text)", "(g || b::text) = 'z'::text"),
    ("trim(g) <> ''", "(TRIM(BOTH FROM g) <> ''::text)", "TRIM(BOTH FROM g) <> ''::text"),
    ("r in (1,2.5)", "(r = ANY (ARRAY[(1)::numeric, 2.5]))", "r = ANY (ARRAY[1::numeric, 2.5])"),
    ("nullif(a,1) > 0", "(NULLIF(a, 1) > 0)", "NULLIF(a, 1) > 0"),
    ("greatest(a,2) > 1", "(GREATEST(a, 2) > 1)", "GREATEST(a, 2) > 1"),
    (
        "b similar to 'x'",
        "((b)::text ~ similar_to_escape('x'::text))",
        "b::text ~ similar_to_escape('x'::text)",
    ),
    (
        "b ilike 'x%' escape '!'",
        "((b)::text ~~* like_escape('x%'::text, '!'::text))",
        "b::text ~~* like_escape('x%'::text, '!'::text)",
    ),
    ("r >= 0", "(r >= (0)::numeric)", "r >= 0::numeric"),
    ("a + 1 * 2 - 3 > 4", "(((a + (1 * 2)) - 3) > 4)", "(a + 1 * 2 - 3) > 4"),
    ("(a + 1) * 2 > 4", "(((a + 1) * 2) > 4)", "((a + 1) * 2) > 4"),
    ("a - (1 - 2) > 4", "((a - (1 - 2)) > 4)", "(a - (1 - 2)) > 4"),
    (r#""Odd name" > 0"#, r#"("Odd name" > 0)"#, r#""Odd name" > 0"#),
    ("upper(lower(g)) = 'X'", "(upper(lower(g)) = 'X'::text)", "upper(lower(g)) = 'X'::text"),
    ("char_length(g) >= 3", "(char_length(g) >= 3)", "char_length(g) >= 3"),
    ("a::numeric(10,2) > 0.1", "((a)::numeric(10,2) > 0.1)", "a::numeric(10,2) > 0.1"),
    (
        "g::varchar(5) = 'a'",
        "(((g)::character varying(5))::text = 'a'::text)",
        "g::character varying(5)::text = 'a'::text",
    ),
    ("h = true", "(h = true)", "h = true"),
    ("h is not false", "(h IS NOT FALSE)", "h IS NOT FALSE"),
    ("(a > 1) = h", "((a > 1) = h)", "(a > 1) = h"),
    (
        "u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "(u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid)",
        "u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
    ),
    (
        "q < '2020-01-01 10:00'",
        "(q < '2020-01-01 10:00:00'::timestamp without time zone)",
        "q < '2020-01-01 10:00:00'::timestamp without time zone",
    ),
    ("k > '2020-01-01'", "(k > '2020-01-01'::date)", "k > '2020-01-01'::date"),
    ("g = 'it''s'", "(g = 'it''s'::text)", "g = 'it''s'::text"),
    (r#"g = E'a\\b'"#, r#"(g = 'a\b'::text)"#, r#"g = 'a\b'::text"#),
    ("t ->> 'x' = 'y'", "((t ->> 'x'::text) = 'y'::text)", "(t ->> 'x'::text) = 'y'::text"),
    ("a = l and s = 1", "((a = l) AND (s = 1))", "a = l AND s = 1"),
    ("p > '1 day'", "(p > '1 day'::interval)", "p > '1 day'::interval"),
    ("a > 3000000000", "(a > '3000000000'::bigint)", "a > '3000000000'::bigint"),
    ("a = (-1)", "(a = '-1'::integer)", "a = '-1'::integer"),
    (
        "d at time zone 'UTC' > '2020-01-01'",
        "((d AT TIME ZONE 'UTC'::text) > '2020-01-01 00:00:00'::timestamp without time zone)",
        "(d AT TIME ZONE 'UTC'::text) > '2020-01-01 00:00:00'::timestamp without time zone",
    ),
    ("round(r, 2) = r", "(round(r, 2) = r)", "round(r, 2) = r"),
    ("abs(a) < 5", "(abs(a) < 5)", "abs(a) < 5"),
    ("(a is null) = (l is null)", "((a IS NULL) = (l IS NULL))", "(a IS NULL) = (l IS NULL)"),
    (
        "a is not null or l is not null",
        "((a IS NOT NULL) OR (l IS NOT NULL))",
        "a IS NOT NULL OR l IS NOT NULL",
    ),
    ("f::int > 3", "((f)::integer > 3)", "f::integer > 3"),
    ("j::numeric > 1.5", "((j)::numeric > 1.5)", "j::numeric > 1.5"),
    ("(k - '2020-01-01'::date) > 3", "((k - '2020-01-01'::date) > 3)", "(k - '2020-01-01'::date) > 3"),
    ("array[a, l] = array[1, 2]", "(ARRAY[a, l] = ARRAY[1, 2])", "ARRAY[a, l] = ARRAY[1, 2]"),
    ("g not like 'x%'", "(g !~~ 'x%'::text)", "g !~~ 'x%'::text"),
    ("zz.a > 0", "(a > 0)", "a > 0"),
];

const DEFAULTS: &[Printed] = &[
    ("b 'q'", "'q'::character varying", "'q'::character varying"),
    ("c '{}'", "'{}'::numeric[]", "'{}'::numeric[]"),
    ("d now()", "now()", "now()"),
    ("e -1", "'-1'::integer", "'-1'::integer"),
    ("f 5", "5", "5"),
    ("g 'a'||'b'", "('a'::text || 'b'::text)", "'a'::text || 'b'::text"),
    ("h true", "true", "true"),
    (
        "e 3000000000-2999999999",
        "('3000000000'::bigint - '2999999999'::bigint)",
        "('3000000000'::bigint - '2999999999'::bigint)",
    ),
    ("j 1.5", "1.5", "1.5"),
    ("k '2020-01-01'", "'2020-01-01'::date", "'2020-01-01'::date"),
    ("o 'x'", "'x'::bpchar", "'x'::bpchar"),
    ("p '1 day'", "'1 day'::interval", "'1 day'::interval"),
    ("q current_timestamp", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
    ("r 0", "0", "0"),
    ("s 1", "1", "1"),
    ("t '{}'", "'{}'::jsonb", "'{}'::jsonb"),
    ("u gen_random_uuid()", "gen_random_uuid()", "gen_random_uuid()"),
    ("g upper('x')", "upper('x'::text)", "upper('x'::text)"),
    ("d current_timestamp", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
    ("k current_date", "CURRENT_DATE", "CURRENT_DATE"),
    ("e (1 + 2) * 3", "((1 + 2) * 3)", "(1 + 2) * 3"),
    ("r 1.50", "1.50", "1.50"),
    ("f 5000000000", "'5000000000'::bigint", "'5000000000'::bigint"),
    ("g 'x'::text", "'x'::text", "'x'::text"),
    ("g 'x'::varchar(3)", "'x'::character varying(3)", "'x'::character varying(3)"),
    ("h 1 > 2", "(1 > 2)", "1 > 2"),
    ("c array[1.5, 2]", "ARRAY[1.5, (2)::numeric]", "ARRAY[1.5, 2::numeric]"),
    ("g current_user", "CURRENT_USER", "CURRENT_USER"),
    ("q localtimestamp", "LOCALTIMESTAMP", "LOCALTIMESTAMP"),
    ("d current_timestamp(3)", "CURRENT_TIMESTAMP(3)", "CURRENT_TIMESTAMP(3)"),
    (
        "d '2020-01-01 00:00:00+00'",
        "'2020-01-01 00:00:00+00'::timestamp with time zone",
        "'2020-01-01 00:00:00+00'::timestamp with time zone",
    ),
    ("d now() + interval '1 day'", "(now() + '1 day'::interval)", "(now() + '1 day'::interval)"),
    ("e length('abc')", "length('abc'::text)", "length('abc'::text)"),
    ("b null::varchar", "NULL::character varying", "NULL::character varying"),
    ("j -1", "'-1'::integer", "'-1'::integer"),
    (r#"g E'a\nb'"#, "'a\nb'::text", "'a\nb'::text"),
    ("y ''", "''::text", "''::text"),
];
