//! Queries at random over the tables of `committed.sql`: expressions by type, filters, joins, groups, set operations, subqueries.

/// A generator; the same seed gives the same queries.
pub(super) struct Generator(u64);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Int,
    Numeric,
    Text,
    Date,
    Bool,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Generator {
        Generator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn kind(&mut self) -> Kind {
        [Kind::Int, Kind::Numeric, Kind::Text, Kind::Date, Kind::Bool][self.below(5)]
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let leaves: &[&str] = match kind {
            Kind::Int => &["t.id", "t.a", "t.b", "t.s", "1", "7", "-3", "NULL::int"],
            Kind::Numeric => &["t.n", "t.u", "1.5", "0.25", "t.n", "10::numeric"],
            Kind::Text => &["t.x", "t.y", "'ab'", "'B'", "''::text"],
            Kind::Date => &["t.d", "DATE '2024-02-29'", "t.d"],
            Kind::Bool => &["t.ok", "true", "t.ok"],
        };
        self.one(leaves).to_owned()
    }

    fn expr(&mut self, kind: Kind, depth: usize) -> String {
        if depth == 0 || self.below(4) == 0 {
            return self.leaf(kind);
        }
        let depth = depth - 1;
        match (kind, self.below(8)) {
            (Kind::Int, 0) => format!("length({})", self.expr(Kind::Text, depth)),
            (Kind::Int, 1) => format!("({} / {})", self.expr(Kind::Int, depth), self.expr(Kind::Int, depth)),
            (Kind::Int, 2) => {
                format!("({} - {})", self.expr(Kind::Date, depth), self.expr(Kind::Date, depth))
            }
            (Kind::Int, 3) => format!("abs({})", self.expr(Kind::Int, depth)),
            (Kind::Int, _) => {
                let operator = self.one(&["+", "-", "*", "%"]);
                format!("({} {operator} {})", self.expr(Kind::Int, depth), self.expr(Kind::Int, depth))
            }
            (Kind::Numeric, 0) => format!("round({}, 2)", self.expr(Kind::Numeric, depth)),
            (Kind::Numeric, 1) => {
                format!("({} / {})", self.expr(Kind::Numeric, depth), self.expr(Kind::Int, depth))
            }
            (Kind::Numeric, 2) => format!("({})::numeric(12,3)", self.expr(Kind::Int, depth)),
            (Kind::Numeric, _) => {
                let operator = self.one(&["+", "-", "*"]);
                format!(
                    "({} {operator} {})",
                    self.expr(Kind::Numeric, depth),
                    self.expr(Kind::Numeric, depth)
                )
            }
            (Kind::Text, 0) => format!("upper({})", self.expr(Kind::Text, depth)),
            (Kind::Text, 1) => {
                format!("substr({}, {}, 2)", self.expr(Kind::Text, depth), self.one(&["1", "2", "t.s"]))
            }
            (Kind::Text, 2) => format!("({})::text", self.expr(Kind::Int, depth)),
            (Kind::Text, 3) => {
                format!("coalesce({}, {})", self.expr(Kind::Text, depth), self.expr(Kind::Text, depth))
            }
            (Kind::Text, 4) => format!("replace({}, 'a', 'bb')", self.expr(Kind::Text, depth)),
            (Kind::Text, _) => {
                format!("({} || {})", self.expr(Kind::Text, depth), self.expr(Kind::Text, depth))
            }
            (Kind::Date, 0) => {
                format!("({} + {})", self.expr(Kind::Date, depth), self.one(&["1", "t.s", "31"]))
            }
            (Kind::Date, _) => format!("date_trunc('month', {})::date", self.expr(Kind::Date, depth)),
            (Kind::Bool, n) => self.condition(n, depth),
        }
    }

    fn condition(&mut self, which: usize, depth: usize) -> String {
        match which {
            0 => format!("NOT {}", self.expr(Kind::Bool, depth)),
            1 => format!("({}) IS NULL", self.expr(Kind::Int, depth)),
            2 => {
                let operator = self.one(&["AND", "OR"]);
                format!("({} {operator} {})", self.expr(Kind::Bool, depth), self.expr(Kind::Bool, depth))
            }
            3 => format!("{} LIKE {}", self.expr(Kind::Text, depth), self.one(&["'a%'", "'%b%'", "'_'"])),
            4 => {
                let kind = if self.below(2) == 0 { Kind::Int } else { Kind::Numeric };
                let value = self.expr(kind, depth);
                format!("{value} BETWEEN {} AND {}", self.expr(kind, depth), self.expr(kind, depth))
            }
            5 => format!("{} IN (1, {}, NULL)", self.expr(Kind::Int, depth), self.expr(Kind::Int, depth)),
            _ => {
                let kind = [Kind::Int, Kind::Numeric, Kind::Text, Kind::Date][self.below(4)];
                let operator = self.one(&["=", "<>", "<", "<=", ">", ">="]);
                format!("{} {operator} {}", self.expr(kind, depth), self.expr(kind, depth))
            }
        }
    }

    fn source(&mut self) -> String {
        match self.below(6) {
            0 => "t JOIN v ON v.t_id = t.id".to_owned(),
            1 => "t LEFT JOIN v ON v.t_id = t.id AND v.q > 2".to_owned(),
            2 => "v RIGHT JOIN t ON v.t_id = t.a".to_owned(),
            3 => "(SELECT * FROM t WHERE a > 0) t".to_owned(),
            _ => "t".to_owned(),
        }
    }

    fn filter(&mut self) -> String {
        match self.below(6) {
            0 => String::new(),
            1 => format!(" WHERE EXISTS (SELECT 1 FROM v w WHERE w.t_id = t.id AND w.q > {})", self.below(5)),
            2 => " WHERE t.id IN (SELECT t_id FROM v)".to_owned(),
            3 => " WHERE t.a > (SELECT avg(q) FROM v)".to_owned(),
            _ => format!(" WHERE {}", self.expr(Kind::Bool, 2)),
        }
    }

    fn aggregate(&mut self) -> String {
        let int = self.expr(Kind::Int, 1);
        let numeric = self.expr(Kind::Numeric, 1);
        match self.below(8) {
            0 => "count(*)".to_owned(),
            1 => format!("sum({int})"),
            2 => format!("avg({int})"),
            3 => format!("sum({numeric})"),
            4 => format!("max({})", self.expr(Kind::Text, 1)),
            5 => format!("min({numeric})"),
            6 => format!("count(DISTINCT {int})"),
            _ => format!("avg({numeric}) FILTER (WHERE {})", self.expr(Kind::Bool, 1)),
        }
    }

    /// The next query.
    pub(super) fn query(&mut self) -> String {
        match self.below(10) {
            0..=3 => self.plain(),
            4..=6 => self.grouped_by(&[Kind::Int, Kind::Text, Kind::Date, Kind::Bool]),
            7 => {
                let operator = self.one(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
                let kind = [Kind::Int, Kind::Text, Kind::Date][self.below(3)];
                let (left, right) = (self.expr(kind, 2), self.expr(kind, 2));
                format!("SELECT {left} AS c FROM t {operator} SELECT {right} FROM t")
            }
            8 => {
                // There is no least boolean.
                let inner = self.grouped_by(&[Kind::Int, Kind::Text, Kind::Date]);
                format!("WITH g AS ({inner}) SELECT count(*), min(c0) FROM g")
            }
            _ => {
                let kind = self.kind();
                let value = self.expr(kind, 2);
                format!(
                    "SELECT DISTINCT {} AS c FROM t",
                    if kind == Kind::Numeric { "t.n".to_owned() } else { value }
                )
            }
        }
    }

    fn plain(&mut self) -> String {
        let targets: Vec<String> = (0..1 + self.below(4))
            .map(|place| {
                let kind = self.kind();
                let value = self.expr(kind, 3);
                if self.below(2) == 0 { format!("{value} AS c{place}") } else { value }
            })
            .collect();
        let order: Vec<String> = (1..=targets.len()).map(|place| place.to_string()).collect();
        let direction = self.one(&["", " DESC", " NULLS FIRST"]);
        let limit = self.one(&["", " LIMIT 5", " LIMIT 3 OFFSET 2"]);
        let (targets, order) = (targets.join(", "), order.join(", "));
        let (source, filter) = (self.source(), self.filter());
        format!("SELECT {targets} FROM {source}{filter} ORDER BY {order}{direction}{limit}")
    }

    fn grouped_by(&mut self, kinds: &[Kind]) -> String {
        let kind = kinds[self.below(kinds.len())];
        // A bare constant would be a place in the select list.
        let mut key = self.expr(kind, 1);
        while !key.contains("t.") {
            key = self.expr(kind, 1);
        }
        let aggregates: Vec<String> = (0..1 + self.below(3)).map(|_| self.aggregate()).collect();
        let having = if self.below(3) == 0 { " HAVING count(*) > 1" } else { "" };
        let (source, filter, aggregates) = (self.source(), self.filter(), aggregates.join(", "));
        format!("SELECT {key} AS c0, {aggregates} FROM {source}{filter} GROUP BY {key}{having}")
    }
}

/// Columns of `k` that begin its keys or follow in them, with what they are compared with: also of other types, outside the type, and NULL.
const KEYED: &[(&str, &[&str])] = &[
    (
        "g",
        &[
            "-2",
            "0",
            "1",
            "3",
            "2147483647",
            "-2147483648",
            "99999999999",
            "1.0",
            "2.5",
            "2::smallint",
            "NULL",
        ],
    ),
    ("x", &["''", "'a'", "'Z'", "'ä'", "'b'::varchar", "'own'", "NULL::text"]),
    (
        "d",
        &[
            "'2024-01-05'",
            "DATE '2024-02-29'",
            "'infinity'",
            "'-infinity'",
            "TIMESTAMP '2024-01-20 12:00:00'",
        ],
    ),
    (
        "b",
        &[
            "0",
            "1",
            "5::smallint",
            "3000000021",
            "9223372036854775807",
            "-9223372036854775808",
            "1e10",
            "NULL",
        ],
    ),
    ("s", &["0", "3", "5::bigint", "32767", "-32768", "40000", "-40000", "2.5"]),
    ("o", &["true", "false"]),
    (
        "m",
        &[
            "'2024-06-03 00:00:00+00'",
            "TIMESTAMPTZ '2024-06-07 02:00:00+02'",
            "DATE '2024-06-05'",
            "'infinity'",
        ],
    ),
    ("z", &["'\\x'::bytea", "'\\x05'::bytea", "'\\xff'::bytea"]),
    ("q", &["'00000000-0000-0000-0000-000000000108'", "'00000000-0000-0000-0000-000000000150'"]),
];

impl Generator {
    /// A query with conditions on keys of `k`, and the same with the columns hidden in expressions, so that nothing can be found by key.
    pub(super) fn by_key(&mut self) -> [String; 2] {
        let count = 1 + self.below(3);
        let (mut open, mut hidden) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (column, literals) = KEYED[self.below(KEYED.len())];
            let condition = self.key_condition(literals);
            open.push(condition.replace('?', column));
            hidden
                .push(condition.replace('?', &format!("(CASE WHEN g IS NULL THEN NULL ELSE {column} END)")));
        }
        let query = |conditions: &[String]| {
            let conditions = conditions.join(" AND ");
            format!(
                "SELECT g, x, d, row_number() OVER (ORDER BY g, x, d), b FROM k WHERE {conditions} ORDER BY g, x, d"
            )
        };
        [query(&open), query(&hidden)]
    }

    fn key_condition(&mut self, literals: &[&str]) -> String {
        let comparison = self.one(&["=", "=", "<", "<=", ">", ">=", "<>"]).to_owned();
        let (first, second) = (self.one(literals).to_owned(), self.one(literals).to_owned());
        match self.below(9) {
            0 => format!("{first} {comparison} ?"),
            1 => format!("? BETWEEN {first} AND {second}"),
            2 => format!("? IN ({first}, {second}, {first})"),
            3 => format!("(? = {first} OR ? = {second})"),
            4 => format!("(? {comparison} {first} OR ? = {second})"),
            5 => format!("(? = {first} OR g = 1)"),
            6 => format!("? >= {first} AND ? < {second}"),
            7 if self.below(3) == 0 => "? IS NULL".to_owned(),
            _ => format!("? {comparison} {first}"),
        }
    }
}
