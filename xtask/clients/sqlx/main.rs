//! What programs do with sqlx: migrate, read and write all types, tell errors apart, try again,
//! stream.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::migrate::Migrator;
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgListener, PgPool, PgPoolCopyExt, PgPoolOptions};
use sqlx::types::chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use sqlx::types::{Decimal, Json, Uuid};
use sqlx::{Acquire, Executor, Row};

type Result<T> = std::result::Result<T, sqlx::Error>;

#[derive(Debug, Clone, Copy, PartialEq, sqlx::Type)]
#[sqlx(type_name = "mood", rename_all = "lowercase")]
enum Mood {
    Sad,
    Happy,
}

#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
struct All {
    id: i32,
    flag: Option<bool>,
    small: Option<i16>,
    large: Option<i64>,
    single: Option<f32>,
    double: Option<f64>,
    exact: Option<Decimal>,
    words: Option<String>,
    short: Option<String>,
    bytes: Option<Vec<u8>>,
    day: Option<NaiveDate>,
    hour: Option<NaiveTime>,
    moment: Option<NaiveDateTime>,
    instant: Option<DateTime<Utc>>,
    span: Option<PgInterval>,
    key: Option<Uuid>,
    document: Option<Json<serde_json::Value>>,
    plain: Option<Json<serde_json::Value>>,
    numbers: Option<Vec<i32>>,
    names: Option<Vec<Option<String>>>,
    mood: Option<Mood>,
    moods: Option<Vec<Mood>>,
}

const COLUMNS: &str = "id int PRIMARY KEY, flag bool, small int2, large int8, single float4, double float8, exact numeric,
    words text, short varchar(20), bytes bytea, day date, hour time, moment timestamp, instant timestamptz,
    span interval, key uuid, document jsonb, plain json, numbers int[], names text[], mood mood, moods mood[]";

fn row() -> All {
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).unwrap();
    let hour = NaiveTime::from_hms_micro_opt(23, 59, 59, 123_456).unwrap();
    let document = serde_json::json!({ "a": [1, null, "two"] });
    All {
        id: 1,
        flag: Some(true),
        small: Some(-7),
        large: Some(i64::MAX),
        single: Some(1.5),
        double: Some(-0.1),
        exact: Some(Decimal::from_str("-12345.6700").unwrap()),
        words: Some("it's \"quoted\" \u{1f40e}".to_owned()),
        short: Some(String::new()),
        bytes: Some(vec![0, 1, 254, 255]),
        day: Some(day),
        hour: Some(hour),
        moment: Some(day.and_time(hour)),
        instant: Some(day.and_time(hour).and_utc()),
        span: Some(PgInterval { months: 14, days: -3, microseconds: 4_005_006 }),
        key: Some(Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)),
        document: Some(Json(document.clone())),
        plain: Some(Json(document)),
        numbers: Some(vec![3, -1]),
        names: Some(vec![Some("a,b".to_owned()), None]),
        mood: Some(Mood::Happy),
        moods: Some(vec![Mood::Sad, Mood::Happy]),
    }
}

async fn migrate(pool: &PgPool) -> Result<()> {
    let migrator = Migrator::new(Path::new("migrations")).await.expect("the migrations are read");
    // Two programs start at once: an advisory lock keeps them apart.
    let (one, two) = tokio::join!(migrator.run(pool), migrator.run(pool));
    one.expect("migrated");
    two.expect("migrated already");
    migrator.run(pool).await.expect("a second run has nothing to do");
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations WHERE success").fetch_one(pool).await?;
    assert_eq!(count, 2);
    migrator.undo(pool, 0).await.expect("undone");
    migrator.run(pool).await.expect("and done again");
    Ok(())
}

async fn types(pool: &PgPool) -> Result<()> {
    pool.execute(sqlx::AssertSqlSafe(format!("CREATE TABLE everything ({COLUMNS})"))).await?;
    let all = row();
    let insert = "INSERT INTO everything VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
        $20, $21, $22)";
    for given in [Some(all.clone()), None] {
        let (id, given) = (if given.is_some() { 1 } else { 2 }, given.as_ref());
        sqlx::query(insert)
            .bind(id)
            .bind(given.and_then(|all| all.flag))
            .bind(given.and_then(|all| all.small))
            .bind(given.and_then(|all| all.large))
            .bind(given.and_then(|all| all.single))
            .bind(given.and_then(|all| all.double))
            .bind(given.and_then(|all| all.exact))
            .bind(given.and_then(|all| all.words.clone()))
            .bind(given.and_then(|all| all.short.clone()))
            .bind(given.and_then(|all| all.bytes.clone()))
            .bind(given.and_then(|all| all.day))
            .bind(given.and_then(|all| all.hour))
            .bind(given.and_then(|all| all.moment))
            .bind(given.and_then(|all| all.instant))
            .bind(given.and_then(|all| all.span.clone()))
            .bind(given.and_then(|all| all.key))
            .bind(given.and_then(|all| all.document.clone()))
            .bind(given.and_then(|all| all.plain.clone()))
            .bind(given.and_then(|all| all.numbers.clone()))
            .bind(given.and_then(|all| all.names.clone()))
            .bind(given.and_then(|all| all.mood))
            .bind(given.and_then(|all| all.moods.clone()))
            .execute(pool)
            .await?;
    }
    // Prepared statements answer in binary.
    let binary: Vec<All> = sqlx::query_as("SELECT * FROM everything ORDER BY id").fetch_all(pool).await?;
    assert_eq!(binary[0], all);
    assert!(binary[1].flag.is_none() && binary[1].moods.is_none() && binary[1].exact.is_none());
    // Statements that are not prepared answer in text; of a few types sqlx reads binary only.
    let text = "SELECT id, flag, small, large, single, double, exact, words, short, bytes, day, hour, moment, instant, key, document,
        plain, numbers, names, mood FROM everything WHERE id = 1";
    let text = sqlx::raw_sql(text).fetch_one(pool).await?;
    assert_eq!(text.try_get::<Option<bool>, _>("flag")?, all.flag);
    assert_eq!(text.try_get::<Option<i16>, _>("small")?, all.small);
    assert_eq!(text.try_get::<Option<i64>, _>("large")?, all.large);
    assert_eq!(text.try_get::<Option<f32>, _>("single")?, all.single);
    assert_eq!(text.try_get::<Option<f64>, _>("double")?, all.double);
    assert_eq!(text.try_get::<Option<Decimal>, _>("exact")?, all.exact);
    assert_eq!(text.try_get::<Option<String>, _>("words")?, all.words);
    assert_eq!(text.try_get::<Option<Vec<u8>>, _>("bytes")?, all.bytes);
    assert_eq!(text.try_get::<Option<NaiveDate>, _>("day")?, all.day);
    assert_eq!(text.try_get::<Option<NaiveTime>, _>("hour")?, all.hour);
    assert_eq!(text.try_get::<Option<NaiveDateTime>, _>("moment")?, all.moment);
    assert_eq!(text.try_get::<Option<DateTime<Utc>>, _>("instant")?, all.instant);
    assert_eq!(text.try_get::<Option<Uuid>, _>("key")?, all.key);
    assert_eq!(text.try_get::<Option<Json<serde_json::Value>>, _>("document")?, all.document);
    assert_eq!(text.try_get::<Option<Vec<i32>>, _>("numbers")?, all.numbers);
    assert_eq!(text.try_get::<Option<Vec<Option<String>>>, _>("names")?, all.names);
    assert_eq!(text.try_get::<Option<Mood>, _>("mood")?, all.mood);
    // What the macros ask at compile time.
    let mut connection = pool.acquire().await?;
    let described = connection.describe(sqlx::SqlStr::from_static("SELECT id, words FROM everything WHERE id = $1")).await?;
    assert_eq!((described.columns().len(), described.nullable(0), described.nullable(1)), (2, Some(false), Some(true)));
    Ok(())
}

/// The failure of a statement, with all that it tells.
async fn failure(pool: &PgPool, text: &'static str) -> Box<PgDatabaseError> {
    match sqlx::query(text).execute(pool).await {
        Err(sqlx::Error::Database(error)) => error.downcast(),
        other => panic!("{text}: {other:?}"),
    }
}

async fn errors(pool: &PgPool) -> Result<()> {
    sqlx::query("INSERT INTO account (owner, balance) VALUES ('ann', 100), ('bob', 50)").execute(pool).await?;
    let cases = [
        ("INSERT INTO account (owner) VALUES ('ann')", "23505", "account", Some("account_owner_unique"), None),
        ("INSERT INTO account (owner, balance) VALUES ('eve', -1)", "23514", "account", Some("account_balance_check"), None),
        ("INSERT INTO account (owner) VALUES (NULL)", "23502", "account", None, Some("owner")),
        ("INSERT INTO entry (account) VALUES (99)", "23503", "entry", Some("entry_account_fkey"), None),
    ];
    for (text, code, table, constraint, column) in cases {
        let error = failure(pool, text).await;
        let told = (error.code(), error.schema(), error.table(), error.constraint(), error.column());
        assert_eq!(told, (code, Some("public"), Some(table), constraint, column), "{text}");
        assert!(error.detail().is_some(), "{text}");
    }
    let error = failure(pool, "SELECT nothing FROM account").await;
    assert_eq!(error.code(), "42703");
    assert!(error.position().is_some());
    // What has failed goes back as a whole, to a savepoint, too.
    let mut outer = pool.begin().await?;
    sqlx::query("UPDATE account SET balance = 1").execute(&mut *outer).await?;
    let mut inner = outer.begin().await?;
    let refused = sqlx::query("INSERT INTO account (owner) VALUES ('ann')").execute(&mut *inner).await;
    assert!(refused.is_err_and(|error| error.as_database_error().is_some_and(|error| error.is_unique_violation())));
    inner.rollback().await?;
    let sum: Decimal = sqlx::query_scalar("SELECT sum(balance) FROM account").fetch_one(&mut *outer).await?;
    assert_eq!(sum, Decimal::from(2));
    drop(outer);
    let sum: Decimal = sqlx::query_scalar("SELECT sum(balance) FROM account").fetch_one(pool).await?;
    assert_eq!(sum, Decimal::from(150));
    Ok(())
}

/// Moves 1 from ann to bob if all of both is what it was; another one changes that in the first
/// attempt.
async fn transfer(pool: &PgPool, attempt: usize) -> Result<()> {
    let mut transaction = pool.begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE").await?;
    let sum: Decimal = sqlx::query_scalar("SELECT sum(balance) FROM account").fetch_one(&mut *transaction).await?;
    if attempt == 0 {
        sqlx::query("UPDATE account SET balance = balance + 1 WHERE owner = 'bob'").execute(pool).await?;
    }
    sqlx::query("UPDATE account SET balance = $1 WHERE owner = 'bob'").bind(sum).execute(&mut *transaction).await?;
    transaction.commit().await
}

async fn retries(pool: &PgPool) -> Result<()> {
    let mut attempt = 0;
    while let Err(error) = transfer(pool, attempt).await {
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        assert_eq!((code.as_str(), attempt), ("40001", 0), "{error}");
        attempt += 1;
    }
    assert_eq!(attempt, 1, "the first attempt is refused");
    let bob: Decimal = sqlx::query_scalar("SELECT balance FROM account WHERE owner = 'bob'").fetch_one(pool).await?;
    assert_eq!(bob, Decimal::from(151));
    Ok(())
}

async fn streams(pool: &PgPool) -> Result<()> {
    let mut copy = pool.copy_in_raw("COPY entry (account) FROM STDIN (FORMAT csv)").await?;
    let lines: String = (0..20_000).map(|_| "1\n").collect();
    copy.send(lines.as_bytes()).await?;
    assert_eq!(copy.finish().await?, 20_000);
    let mut rows = sqlx::query("SELECT id FROM entry ORDER BY id").fetch(pool);
    let (mut count, mut last) = (0, 0);
    while let Some(row) = rows.try_next().await? {
        let id: i64 = row.get(0);
        assert!(id > last, "{id} after {last}");
        (count, last) = (count + 1, id);
    }
    assert_eq!(count, 20_000);
    drop(rows);
    // A stream that is given up leaves its connection fit for others.
    let mut rows = sqlx::query("SELECT id FROM entry").fetch(pool);
    rows.try_next().await?;
    drop(rows);
    let many = sqlx::query("SELECT id FROM entry WHERE id = ANY($1)").bind(vec![2_i64, 7, 9]).fetch_all(pool).await?;
    assert_eq!(many.len(), 3);
    // A query that is cancelled by another session.
    let mut connection = pool.acquire().await?;
    let process: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *connection).await?;
    let slept = sqlx::query("SELECT pg_sleep(100)").execute(&mut *connection);
    // Whether it has begun is not known, so it is cancelled until it ends.
    let cancel = async {
        loop {
            let cancel = sqlx::query("SELECT pg_cancel_backend($1)").bind(process);
            cancel.execute(pool).await.expect("asked");
        }
    };
    let slept: Result<_> = tokio::select! { slept = slept => slept, () = cancel => unreachable!() };
    let code = slept.unwrap_err().as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
    assert_eq!(code, "57014");
    drop(connection);
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("news").await?;
    sqlx::query("SELECT pg_notify('news', $1)").bind("hello").execute(pool).await?;
    let heard = listener.recv().await?;
    assert_eq!((heard.channel(), heard.payload()), ("news", "hello"));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = PgConnectOptions::new().application_name("client");
    let pool = PgPoolOptions::new()
        .max_connections(5)
        .acquire_timeout(Duration::from_secs(30))
        .test_before_acquire(true)
        .connect_with(options)
        .await?;
    migrate(&pool).await?;
    types(&pool).await?;
    errors(&pool).await?;
    retries(&pool).await?;
    streams(&pool).await?;
    pool.close().await;
    Ok(())
}
