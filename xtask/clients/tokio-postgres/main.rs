//! What programs do with tokio-postgres: read and write all types, tell errors apart, try again,
//! cancel, send many statements at once, read by portals and by COPY, listen.

use std::future::poll_fn;
use std::pin::pin;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use futures_util::TryStreamExt;
use futures_util::future::{join_all, try_join_all};
use postgres_types::{FromSql, ToSql, Type};
use rust_decimal::Decimal;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::error::{DbError, ErrorPosition};
use tokio_postgres::{AsyncMessage, Client, Config, Error, IsolationLevel, NoTls, SimpleQueryMessage};
use uuid::Uuid;

type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, Copy, PartialEq, ToSql, FromSql)]
#[postgres(name = "mood")]
enum Mood {
    #[postgres(name = "sad")]
    Sad,
    #[postgres(name = "happy")]
    Happy,
}

/// A connection, and what comes without being asked for.
async fn connect() -> (Client, UnboundedReceiver<AsyncMessage>) {
    let variable = |name: &str| std::env::var(name).expect(name);
    let mut config = Config::new();
    config.host(variable("PGHOST")).port(variable("PGPORT").parse().expect("a port"));
    config.user(variable("PGUSER")).dbname(variable("PGDATABASE"));
    let (client, mut connection) = config.connect(NoTls).await.expect("connected");
    let (heard, hears) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            let _ = heard.send(message);
        }
    });
    (client, hears)
}

async fn types(client: &Client) -> Result<()> {
    let columns = "id int PRIMARY KEY, flag bool, small int2, large int8, single float4, double float8, exact numeric,
        words text, short varchar(20), raw bytea, day date, hour time, moment timestamp, instant timestamptz, key uuid,
        document jsonb, plain json, numbers int[], names text[], mood mood, moods mood[]";
    client.batch_execute("CREATE TYPE mood AS ENUM ('sad', 'happy')").await?;
    client.batch_execute(&format!("CREATE TABLE kinds ({columns})")).await?;
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).expect("a day");
    let hour = NaiveTime::from_hms_micro_opt(23, 59, 59, 123_456).expect("an hour");
    let exact = Decimal::from_str("-12345.6700").expect("a number");
    let key = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let document = serde_json::json!({ "a": [1, null, "two"] });
    let (raw, numbers) = (vec![0_u8, 1, 254, 255], vec![3_i32, -1]);
    let names = vec![Some("a,b".to_owned()), None];
    let moods = vec![Mood::Sad, Mood::Happy];
    let insert = "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, $21)";
    let values: &[&(dyn ToSql + Sync)] = &[
        &1_i32, &true, &-7_i16, &i64::MAX, &1.5_f32, &-0.1_f64, &exact, &"it's \"quoted\" ü", &"", &raw, &day, &hour,
        &day.and_time(hour), &day.and_time(hour).and_utc(), &key, &document, &document, &numbers, &names, &Mood::Happy,
        &moods,
    ];
    assert_eq!(client.execute(insert, values).await?, 1);
    client.execute("INSERT INTO kinds (id, exact, moods) VALUES (2, $1, $2)", &[&None::<Decimal>, &None::<Vec<Mood>>]).await?;

    let row = client.query_one("SELECT * FROM kinds WHERE id = $1", &[&1_i32]).await?;
    assert!(row.get::<_, bool>("flag"));
    assert_eq!((row.get::<_, i16>("small"), row.get::<_, i64>("large")), (-7, i64::MAX));
    assert_eq!((row.get::<_, f32>("single"), row.get::<_, f64>("double")), (1.5, -0.1));
    assert_eq!(row.get::<_, Decimal>("exact"), exact);
    assert_eq!((row.get::<_, &str>("words"), row.get::<_, &str>("short")), ("it's \"quoted\" ü", ""));
    assert_eq!(row.get::<_, Vec<u8>>("raw"), raw);
    assert_eq!((row.get::<_, NaiveDate>("day"), row.get::<_, NaiveTime>("hour")), (day, hour));
    assert_eq!(row.get::<_, NaiveDateTime>("moment"), day.and_time(hour));
    assert_eq!(row.get::<_, DateTime<Utc>>("instant"), day.and_time(hour).and_utc());
    assert_eq!(row.get::<_, Uuid>("key"), key);
    for column in ["document", "plain"] {
        assert_eq!(row.get::<_, serde_json::Value>(column), document, "{column}");
    }
    assert_eq!(row.get::<_, Vec<i32>>("numbers"), numbers);
    assert_eq!(row.get::<_, Vec<Option<String>>>("names"), names);
    assert_eq!((row.get::<_, Mood>("mood"), row.get::<_, Vec<Mood>>("moods")), (Mood::Happy, moods));
    let row = client.query_one("SELECT * FROM kinds WHERE id = 2", &[]).await?;
    assert_eq!((row.get::<_, Option<Decimal>>("exact"), row.get::<_, Option<Vec<Mood>>>("moods")), (None, None));
    assert_eq!((row.get::<_, Option<bool>>("flag"), row.get::<_, Option<Mood>>("mood")), (None, None));

    let text = "SELECT exact, raw, moment, numbers, names, moods FROM kinds WHERE id = 1";
    let told = client.simple_query(text).await?;
    let row = told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).unwrap_or("NULL")).collect::<Vec<_>>()),
        _ => None,
    });
    let wanted =
        ["-12345.6700", "\\x0001feff", "2024-02-29 23:59:59.123456", "{3,-1}", "{\"a,b\",NULL}", "{sad,happy}"];
    assert_eq!(row.expect("a row"), wanted);
    Ok(())
}

/// What a refusal tells.
fn told(error: &Error) -> &DbError {
    error.as_db_error().unwrap_or_else(|| panic!("{error}"))
}

async fn errors(client: &Client) -> Result<()> {
    let schema = "CREATE TABLE client (id int PRIMARY KEY);
        CREATE TABLE account (id int PRIMARY KEY, client int CONSTRAINT of_client REFERENCES client,
            name text NOT NULL CONSTRAINT one_name UNIQUE, balance int CONSTRAINT not_less CHECK (balance >= 0));
        INSERT INTO client VALUES (1);
        INSERT INTO account VALUES (1, 1, 'a', 0)";
    client.batch_execute(schema).await?;
    let cases = [
        ((2_i32, 1_i32, Some("a"), 0_i32), "23505", Some("one_name"), None, "Key (name)=(a) already exists."),
        ((2, 9, Some("b"), 0), "23503", Some("of_client"), None, "Key (client)=(9) is not present in table \"client\"."),
        ((2, 1, Some("b"), -1), "23514", Some("not_less"), None, "Failing row contains (2, 1, b, -1)."),
        ((2, 1, None, 0), "23502", None, Some("name"), "Failing row contains (2, 1, null, 0)."),
    ];
    for ((id, of, name, balance), code, constraint, column, detail) in cases {
        let inserted = client.execute("INSERT INTO account VALUES ($1, $2, $3, $4)", &[&id, &of, &name, &balance]).await;
        let refused = inserted.expect_err(code);
        let refused = told(&refused);
        assert_eq!(refused.code().code(), code);
        assert_eq!((refused.schema(), refused.table()), (Some("public"), Some("account")), "{code}");
        assert_eq!((refused.constraint(), refused.column()), (constraint, column), "{code}");
        assert_eq!(refused.detail(), Some(detail), "{code}");
    }
    let refused = client.query("SELECT nothing FROM account", &[]).await.expect_err("no column");
    assert_eq!((told(&refused).code().code(), told(&refused).position()), ("42703", Some(&ErrorPosition::Original(8))));
    Ok(())
}

/// Another one changes what the first attempt has read.
async fn retries(client: &mut Client, other: &Client) -> Result<()> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let transaction = client.build_transaction().isolation_level(IsolationLevel::Serializable).start().await?;
        let balance: i32 = transaction.query_one("SELECT balance FROM account WHERE id = 1", &[]).await?.get(0);
        if attempts == 1 {
            other.batch_execute("UPDATE account SET balance = balance + 5").await?;
        }
        let updated = transaction.execute("UPDATE account SET balance = $1 WHERE id = 1", &[&(balance + 1)]).await;
        let ended = match updated {
            Ok(_) => transaction.commit().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => break,
            Err(error) => assert_eq!((told(&error).code().code(), attempts), ("40001", 1), "{error}"),
        }
    }
    let balance: i32 = client.query_one("SELECT balance FROM account WHERE id = 1", &[]).await?.get(0);
    assert_eq!((attempts, balance), (2, 6));
    Ok(())
}

/// A cancel request on a connection of its own, once the statement is there.
async fn cancels(client: &Client, other: &Client) -> Result<()> {
    let process: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let sleeps = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'";
    let token = client.cancel_token();
    let cancel = async {
        while other.query_opt(sleeps, &[&process]).await?.is_none() {}
        token.cancel_query(NoTls).await
    };
    let (slept, cancelled) = tokio::join!(client.batch_execute("SELECT pg_sleep(60)"), cancel);
    cancelled?;
    assert_eq!(told(&slept.expect_err("cancelled")).code().code(), "57014");
    assert_eq!(client.query_one("SELECT 1", &[]).await?.get::<_, i32>(0), 1);
    Ok(())
}

/// Statements of which none waits for the answer of another one.
async fn pipelines(client: &Client) -> Result<()> {
    client.batch_execute("CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)").await?;
    let insert = &client.prepare("INSERT INTO item VALUES ($1, $2)").await?;
    let send = move |id: i32| async move { client.execute(insert, &[&id, &(2 * id)]).await };
    try_join_all((0..500).map(send)).await?;
    let refusals = join_all([1000, 1, 1001].map(send)).await.into_iter().filter_map(std::result::Result::err);
    let codes: Vec<String> = refusals.map(|error| told(&error).code().code().to_owned()).collect();
    assert_eq!(codes, ["23505"]);
    let row = client.query_one("SELECT count(*), sum(n) FROM item", &[]).await?;
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (502, 249_500 + 4002));
    Ok(())
}

/// Rows as they come, by a portal, and by COPY.
async fn streams(client: &mut Client) -> Result<()> {
    let series = "SELECT n FROM generate_series(1, $1::int) n";
    let rows = client.query_raw(series, [100_000_i32]).await?;
    let sum = rows.try_fold(0_i64, |sum, row| async move { Ok(sum + i64::from(row.get::<_, i32>(0))) }).await?;
    assert_eq!(sum, 5_000_050_000);
    let transaction = client.transaction().await?;
    let portal = transaction.bind(series, &[&1000_i32]).await?;
    let mut fetched = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 300).await?;
        if rows.is_empty() {
            break;
        }
        fetched.push(rows.len());
    }
    assert_eq!(fetched, [300, 300, 300, 100]);
    transaction.commit().await?;

    let columns = [Type::INT4, Type::INT4];
    let sink = client.copy_in("COPY item FROM STDIN (FORMAT binary)").await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &columns));
    for id in 2000_i32..4000 {
        writer.as_mut().write(&[&id, &id]).await?;
    }
    assert_eq!(writer.as_mut().finish().await?, 2000);
    let out = client.copy_out("COPY (SELECT * FROM item WHERE id >= 2000 ORDER BY id) TO STDOUT (FORMAT binary)").await?;
    let copied: Vec<_> = BinaryCopyOutStream::new(out, &columns).try_collect().await?;
    assert_eq!((copied.len(), copied[1999].get::<i32>(0), copied[1999].get::<i32>(1)), (2000, 3999, 3999));
    Ok(())
}

/// What another session tells when it commits, and nothing of what it takes back.
async fn notifications(client: &Client, hears: &mut UnboundedReceiver<AsyncMessage>, other: &Client) -> Result<()> {
    client.batch_execute("LISTEN news").await?;
    other.batch_execute("BEGIN; NOTIFY news, 'taken back'; ROLLBACK").await?;
    other.query("SELECT pg_notify('news', $1)", &[&"hello"]).await?;
    loop {
        match hears.recv().await.expect("a message") {
            AsyncMessage::Notification(heard) => {
                assert_eq!((heard.channel(), heard.payload()), ("news", "hello"));
                return Ok(());
            }
            _ => continue,
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let ((mut client, mut hears), (other, _)) = (connect().await, connect().await);
    types(&client).await?;
    errors(&client).await?;
    retries(&mut client, &other).await?;
    cancels(&client, &other).await?;
    pipelines(&client).await?;
    streams(&mut client).await?;
    notifications(&client, &mut hears, &other).await
}
