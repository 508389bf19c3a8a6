//! Values of enum types with a driver: it asks the catalog what the type is, and sends and reads
//! labels in the binary format.

use std::error::Error;

use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::support::TestServer;

/// A label, of whatever enum type.
#[derive(Debug, PartialEq)]
struct Label(String);

impl<'a> FromSql<'a> for Label {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Label, Box<dyn Error + Sync + Send>> {
        Ok(Label(std::str::from_utf8(raw)?.to_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Enum(_))
    }
}

impl ToSql for Label {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Enum(_))
    }

    to_sql_checked!();
}

fn label(text: &str) -> Label {
    Label(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_knows_enum_types_and_sends_labels() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TABLE person (name text, m mood);
             ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'",
        )
        .await
        .expect("DDL");
    let insert = client.prepare("INSERT INTO person VALUES ($1, $2)").await.expect("prepared");
    let ty = &insert.params()[1];
    assert_eq!((ty.name(), ty.schema()), ("mood", "public"));
    assert_eq!(ty.kind(), &Kind::Enum(vec!["sad".to_owned(), "ok".to_owned(), "happy".to_owned()]));
    assert!(ty.oid() >= 16384);
    for (name, mood) in [("ann", "happy"), ("bob", "sad"), ("cid", "ok")] {
        client.execute(&insert, &[&name, &label(mood)]).await.expect("inserted");
    }
    let refused = client.execute(&insert, &[&"dan", &label("angry")]).await.expect_err("no such label");
    let refused = refused.as_db_error().expect("an answer");
    assert_eq!(refused.code().code(), "22P02");
    assert_eq!(refused.message(), "invalid input value for enum mood: \"angry\"");

    let query = "SELECT m, row(name, m)::text, m::text FROM person WHERE m >= $1 ORDER BY person.m";
    // What a client declares by its oid is the same type.
    for declared in [vec![], vec![ty.clone()]] {
        let select = client.prepare_typed(query, &declared).await.expect("prepared");
        assert_eq!(select.params(), std::slice::from_ref(ty));
        assert_eq!(select.columns()[0].type_(), ty);
        let rows = client.query(&select, &[&label("ok")]).await.expect("rows");
        let found: Vec<(Label, String, String)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let expected = [("ok", "(cid,ok)"), ("happy", "(ann,happy)")];
        assert_eq!(found, expected.map(|(m, row)| (label(m), row.to_owned(), m.to_owned())));
    }

    // Arrays of them, both ways.
    let arrays = client.prepare("SELECT $1::mood[] || 'sad'::mood").await.expect("prepared");
    assert_eq!(arrays.params()[0].kind(), &Kind::Array(ty.clone()));
    let row = client.query_one(&arrays, &[&vec![label("happy"), label("ok")]]).await.expect("a row");
    assert_eq!(row.get::<_, Vec<Label>>(0), ["happy", "ok", "sad"].map(label));
    let declared = client.prepare_typed("SELECT $1", &[arrays.params()[0].clone()]).await.expect("prepared");
    let row = client.query_one(&declared, &[&vec![label("sad")]]).await.expect("a row");
    assert_eq!(row.get::<_, Vec<Label>>(0), [label("sad")]);

    // As text, over the simple protocol.
    let texts = client.simple_query("SELECT m FROM person ORDER BY m").await.expect("rows");
    let texts: Vec<&str> = texts
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["sad", "ok", "happy"]);
    drop(client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_label_is_read_by_who_asks_next() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TABLE t AS SELECT 'sad'::mood AS m")
        .await
        .expect("DDL");
    let select = client.prepare("SELECT m FROM t").await.expect("prepared");
    let read = async |expected: &str| {
        let row = client.query_one(&select, &[]).await.expect("a row");
        assert_eq!(row.get::<_, Label>(0), label(expected));
    };
    read("sad").await;
    let config = format!("host={} port={} user=ann dbname=x", server.address().ip(), server.address().port());
    let (other, connection) = tokio_postgres::connect(&config, NoTls).await.expect("connects");
    tokio::spawn(connection);
    other.batch_execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'").await.expect("renamed");
    read("blue").await;
    drop((client, other));
    server.stop().await;
}
