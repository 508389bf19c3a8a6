//! Random types and values, for the property tests.

use std::hash::{BuildHasher, RandomState};

use cognate_sql::types::{Array, Datum, Dimension, Inet, Interval, Numeric, Type, TypeId};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

/// A configuration with this many cases. The seed is printed; `COGNATE_SEED` sets it.
pub(crate) fn config(cases: u32) -> Config {
    let given = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("COGNATE_SEED={seed}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}

const SCALARS: &[TypeId] = &[
    TypeId::Bool,
    TypeId::Int2,
    TypeId::Int4,
    TypeId::Int8,
    TypeId::Float4,
    TypeId::Float8,
    TypeId::Numeric,
    TypeId::Text,
    TypeId::Varchar,
    TypeId::Name,
    TypeId::Bytea,
    TypeId::Date,
    TypeId::Time,
    TypeId::Timestamp,
    TypeId::Timestamptz,
    TypeId::Interval,
    TypeId::Uuid,
    TypeId::Inet,
    TypeId::Cidr,
    TypeId::Json,
    TypeId::Jsonb,
    TypeId::Oid,
    TypeId::Xid,
    TypeId::Xid8,
    TypeId::PgLsn,
];

/// Any type that a column can have, some with modifiers, some arrays.
pub(crate) fn any_type() -> impl Strategy<Value = Type> {
    prop_oneof![
        6 => prop::sample::select(SCALARS).prop_map(Type::new),
        1 => (1u32..12).prop_map(Type::bpchar),
        1 => (1u16..30, 0i16..20).prop_map(|(p, s)| Type::numeric(p.max(s as u16), s)),
        2 => prop::sample::select(SCALARS).prop_map(|id| Type::new(id.array().expect("an array type"))),
    ]
}

/// Types whose keys order.
pub(crate) fn key_type() -> impl Strategy<Value = Type> {
    any_type().prop_filter("json has no order", |ty| !matches!(ty.id, TypeId::Json | TypeId::JsonArray))
}

/// Addresses that often share their first bits.
fn inet() -> impl Strategy<Value = Inet> {
    let byte = || prop_oneof![4 => 0u8..3, 1 => any::<u8>()];
    let v4 = (prop::array::uniform4(byte()), 0u8..=32);
    let v6 = (prop::array::uniform16(byte()), 0u8..=128);
    prop_oneof![
        v4.prop_map(|(address, bits)| Inet::v4(address, bits).expect("few enough bits")),
        v6.prop_map(|(address, bits)| Inet::v6(address, bits).expect("few enough bits")),
    ]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        prop::sample::select(vec![
            0.0,
            -0.0,
            1.0,
            -1.5,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE
        ]),
        (-1000i32..1000).prop_map(f64::from),
    ]
}

/// Numerics of all sizes, near each other and far apart.
pub(crate) fn numeric() -> impl Strategy<Value = Numeric> {
    prop_oneof![
        4 => (-10_000i64..10_000, 0u16..6).prop_map(|(m, s)| Numeric::new(i128::from(m), s)),
        2 => (any::<i64>(), 0u16..25).prop_map(|(m, s)| Numeric::new(i128::from(m), s)),
        2 => (any::<i128>(), 0u16..50).prop_map(|(m, s)| Numeric::new(m, s)),
        2 => ("-?[0-9]{1,80}", "[0-9]{0,60}").prop_map(|(i, f)| format!("{i}.{f}").parse().expect("a number")),
        1 => ("-?[0-9]{1,5}", -30i32..30).prop_map(|(m, e)| format!("{m}e{e}").parse().expect("a number")),
        1 => prop::sample::select(vec![
            Numeric::NAN,
            Numeric::INFINITY,
            Numeric::NEG_INFINITY,
            Numeric::ZERO,
            Numeric::new(0, 5),
            Numeric::new(10, 1),
            Numeric::new(100, 2),
        ]),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,4}", "[a-c \\\\%_\"'{},]{0,8}", "\\PC{0,12}", "[\\x01-\\x03a]{0,4}"]
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        (-100i32..100).prop_map(|n| n.to_string()),
        Just("1.0".to_owned()),
        Just("1.50e1".to_owned()),
        "[ab]{0,3}".prop_map(|s| format!("\"{s}\"")),
        Just("\"\\u00e9\\n\\\"\"".to_owned()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec(("[ab]{0,2}", inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(k, v)| format!("\"{k}\" :{v}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

fn interval() -> impl Strategy<Value = Interval> {
    let near = (-3i32..3, -40i32..40, -90_000_000_000i64..90_000_000_000);
    let far = (any::<i32>(), any::<i32>(), any::<i64>());
    prop_oneof![near, far].prop_map(|(months, days, micros)| Interval { months, days, micros })
}

fn scalar(ty: Type) -> BoxedStrategy<Datum> {
    match ty.id {
        TypeId::Bool => any::<bool>().prop_map(Datum::Bool).boxed(),
        TypeId::Int2 => any::<i16>().prop_map(Datum::Int2).boxed(),
        TypeId::Int4 => prop_oneof![any::<i32>(), -3..3].prop_map(Datum::Int4).boxed(),
        TypeId::Int8 => prop_oneof![any::<i64>(), -3i64..3].prop_map(Datum::Int8).boxed(),
        TypeId::Float4 => float().prop_map(|f| Datum::Float4(f as f32)).boxed(),
        TypeId::Float8 => float().prop_map(Datum::Float8).boxed(),
        TypeId::Numeric => match ty.precision_and_scale() {
            Some((precision, scale)) => numeric()
                .prop_filter_map("too many digits", move |n| n.fit(precision, scale).ok())
                .prop_map(Datum::Numeric)
                .boxed(),
            None => numeric().prop_map(Datum::Numeric).boxed(),
        },
        TypeId::Name => "[a-z]{0,63}".prop_map(Datum::from).boxed(),
        TypeId::Bpchar => {
            let limit = ty.character_limit().unwrap_or(8);
            let padded = move |text: String| {
                let cut: String = text.chars().take(limit).collect();
                format!("{cut:limit$}")
            };
            "[ab äz]{0,12}".prop_map(move |t| Datum::Bpchar(padded(t).into())).boxed()
        }
        TypeId::Bytea => prop::collection::vec(prop_oneof![any::<u8>(), 0u8..2, Just(255)], 0..6)
            .prop_map(|bytes| Datum::Bytea(bytes.into()))
            .boxed(),
        TypeId::Date => prop_oneof![-2_451_545i32..2_145_031_949, -3i32..3, Just(i32::MAX), Just(i32::MIN)]
            .prop_map(Datum::Date)
            .boxed(),
        TypeId::Time => (0i64..=86_400_000_000).prop_map(Datum::Time).boxed(),
        TypeId::Timestamp => timestamp().prop_map(Datum::Timestamp).boxed(),
        TypeId::Timestamptz => timestamp().prop_map(Datum::Timestamptz).boxed(),
        TypeId::Interval => interval().prop_map(Datum::Interval).boxed(),
        TypeId::Uuid => any::<[u8; 16]>().prop_map(Datum::Uuid).boxed(),
        TypeId::Inet => inet().prop_map(Datum::Inet).boxed(),
        TypeId::Cidr => inet().prop_map(|value| Datum::Inet(value.network())).boxed(),
        TypeId::Json => json().prop_map(Datum::from).boxed(),
        TypeId::Jsonb => json().prop_map(|text| read(Type::new(TypeId::Jsonb), &text)).boxed(),
        TypeId::Oid | TypeId::Xid => any::<u32>().prop_map(Datum::Oid).boxed(),
        TypeId::Xid8 | TypeId::PgLsn => prop_oneof![any::<u64>(), 0u64..3].prop_map(Datum::Unsigned).boxed(),
        _ => text().prop_map(Datum::from).boxed(),
    }
}

/// Reads a value that must be readable.
pub(crate) fn read(ty: Type, text: &str) -> Datum {
    Datum::from_text(ty, text, &Default::default()).expect("it reads")
}

fn timestamp() -> impl Strategy<Value = i64> {
    prop_oneof![
        -211_813_488_000_000_000i64..9_223_371_331_200_000_000,
        -86_400_000_000i64..86_400_000_000,
        Just(i64::MAX),
        Just(i64::MIN)
    ]
}

/// Any value of a type, never NULL itself.
pub(crate) fn value(ty: Type) -> BoxedStrategy<Datum> {
    let Some(element) = ty.element() else { return scalar(ty) };
    let id = element.id;
    let items = prop_oneof![1 => Just(Datum::Null).boxed(), 6 => scalar(element)];
    let shapes =
        (prop::sample::select(vec![(1usize, 0usize), (1, 1), (2, 1), (2, 2), (1, 3), (3, 1)]), -2i32..3);
    (shapes, prop::collection::vec(items, 9))
        .prop_map(move |(((rows, columns), lower), items)| {
            let elements: Vec<Datum> = items.into_iter().take(rows * columns).collect();
            let lengths = match (rows, columns) {
                (_, 0) => vec![],
                (1, n) => vec![n],
                (m, n) => vec![m, n],
            };
            let dimensions = lengths.into_iter().map(|length| Dimension { length, lower }).collect();
            Array { element: id, dimensions, elements }.into()
        })
        .boxed()
}

/// A value or NULL.
pub(crate) fn datum(ty: Type) -> BoxedStrategy<Datum> {
    prop_oneof![1 => Just(Datum::Null).boxed(), 8 => value(ty)].boxed()
}

/// The value to the last detail, where `==` sees equal ones as the same.
pub(crate) fn exactly(datum: &Datum) -> String {
    match datum {
        Datum::Float4(value) if value.is_nan() => "NaN".to_owned(),
        Datum::Float8(value) if value.is_nan() => "NaN".to_owned(),
        other => format!("{other:?}"),
    }
}
