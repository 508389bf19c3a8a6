//! COPY in binary format: the bytes are PostgreSQL's, of each type, and data may come in pieces of
//! any length.

use crate::client::{Message, RawClient, message, string};
use crate::support::TestServer;

/// Types, values as text, and what PostgreSQL 15 sends for them.
#[rustfmt::skip]
const VALUES: &[(&str, &str, &str)] = &[
    ("bool", "true", "01"),
    ("bytea", "\\x00ff41", "00ff41"),
    ("\"char\"", "x", "78"),
    ("name", "Ab", "4162"),
    ("int8", "-9007199254740993", "ffdfffffffffffff"),
    ("int2", "-2", "fffe"),
    ("int2vector", "1 -2", "000000010000000000000015000000020000000000000002000100000002fffe"),
    ("int4", "65536", "00010000"),
    ("text", "aä€", "61c3a4e282ac"),
    ("oid", "4294967295", "ffffffff"),
    ("oidvector", "1 2", "00000001000000000000001a000000020000000000000004000000010000000400000002"),
    ("json", "{\"a\": [1, null]}", "7b2261223a205b312c206e756c6c5d7d"),
    ("jsonb", "{\"b\": 2, \"a\": [1.50, null]}", "017b2261223a205b312e35302c206e756c6c5d2c202262223a20327d"),
    ("float4", "1.5", "3fc00000"),
    ("float8", "-0", "8000000000000000"),
    ("float8", "NaN", "7ff8000000000000"),
    ("float8", "-Infinity", "fff0000000000000"),
    ("char(5)", "ab", "6162202020"),
    ("varchar(7)", "abc", "616263"),
    ("date", "2024-02-29", "00002279"),
    ("date", "infinity", "7fffffff"),
    ("date", "0044-03-15 BC", "fff49d7b"),
    ("time", "24:00:00", "000000141dd76000"),
    ("time(3)", "12:34:56.7891", "0000000a8be62608"),
    ("timestamp", "1999-12-31 23:59:59.999999", "ffffffffffffffff"),
    ("timestamp", "-infinity", "8000000000000000"),
    ("timestamptz", "2024-07-01 12:00:00+05:30", "0002bf287ec72a00"),
    ("timestamptz(0)", "2024-07-01 12:00:00.6+00", "0002bf2d1b027240"),
    ("interval", "1 year -2 months 3 days -04:05:06.789", "fffffffc93683578000000030000000a"),
    ("numeric", "0", "0000000000000000"),
    ("numeric", "-12345678901234567890.00012300", "000700044000000804d2162e23340d801ed2000108fc"),
    ("numeric", "1e20", "00010005000000000001"),
    ("numeric", "0.0001", "0001ffff000000040001"),
    ("numeric(6,2)", "3.14159", "000200000000000200030578"),
    ("numeric", "NaN", "00000000c0000000"),
    ("numeric", "Infinity", "00000000d0000020"),
    ("numeric", "-Infinity", "00000000f0000020"),
    ("uuid", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
    ("regclass", "pg_class", "000004eb"),
    ("regtype", "int4", "00000017"),
    ("regproc", "now", "00000513"),
    ("regnamespace", "pg_catalog", "0000000b"),
    ("int4[]", "{1,NULL,3}", "00000001000000010000001700000003000000010000000400000001ffffffff0000000400000003"),
    ("int4[]", "[0:1][2:3]={{1,2},{3,4}}", "000000020000000000000017000000020000000000000002000000020000000400000001000000040000000200000004000000030000000400000004"),
    ("int4[]", "{}", "000000000000000000000017"),
    ("text[]", "{\"a b\",NULL,\"NULL\",\"\"}", "000000010000000100000019000000040000000100000003612062ffffffff000000044e554c4c00000000"),
    ("numeric(4,1)[]", "{1.25,-99.94}", "0000000100000000000006a400000002000000010000000c000200000000000100010bb80000000c000200004000000100632328"),
    ("timestamptz[]", "{2000-01-01 00:00:00+00}", "0000000100000000000004a00000000100000001000000080000000000000000"),
    ("uuid[]", "{00000000-0000-0000-0000-000000000001}", "000000010000000000000b8600000001000000010000001000000000000000000000000000000001"),
    ("bool[]", "{t,f}", "000000010000000000000010000000020000000100000001010000000100"),
    ("jsonb[]", "{\"{\\\"a\\\": 1}\"}", "000000010000000000000eda000000010000000100000009017b2261223a20317d"),
    ("bytea[]", "{\"\\\\x01\"}", "00000001000000000000001100000001000000010000000101"),
    ("varchar(3)[]", "{abc}", "000000010000000000000413000000010000000100000003616263"),
    ("interval[]", "{1 day}", "0000000100000000000004a200000001000000010000001000000000000000000000000100000000"),
];

/// The header of data without an extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: &[u8] = b"\xff\xff";

fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digits).collect()
}

/// A row of these fields.
fn row(fields: &[Option<&[u8]>]) -> Vec<u8> {
    let mut row = (fields.len() as i16).to_be_bytes().to_vec();
    for field in fields {
        row.extend(field.map_or(-1, |bytes| bytes.len() as i32).to_be_bytes());
        row.extend(field.unwrap_or_default());
    }
    row
}

/// All data of a COPY TO STDOUT.
async fn copied(client: &mut RawClient, text: &str) -> Vec<u8> {
    let answer = client.query(text).await;
    assert_eq!(answer[0].tag, 'H', "{text}: {answer:?}");
    let width = i16::from_be_bytes([answer[0].body[1], answer[0].body[2]]);
    // Overall, and for each column.
    assert_eq!(answer[0].body[0], 1);
    assert_eq!(answer[0].body[3..], [0, 1].repeat(width as usize));
    let data = answer.iter().filter(|message| message.tag == 'd');
    data.flat_map(|message| message.body.clone()).collect()
}

/// Gives data in pieces of this length; the last answer before ReadyForQuery.
async fn give(client: &mut RawClient, text: &str, data: &[u8], piece: usize) -> Message {
    client.send(&message(b'Q', &string(text))).await;
    let opened = client.message().await;
    if opened.tag != 'G' {
        client.until_ready().await;
        return opened;
    }
    assert_eq!(opened.body[0], 1);
    let mut sent = Vec::new();
    data.chunks(piece).for_each(|part| sent.extend(message(b'd', part)));
    sent.extend(message(b'c', b""));
    client.send(&sent).await;
    client.until_ready().await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_each_type_are_those_of_postgresql() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    for (ty, text, bytes) in VALUES {
        let bytes = hex(bytes);
        let expected = [HEADER, &row(&[Some(&bytes)]), TRAILER].concat();
        let select = format!("SELECT '{}'::{ty}", text.replace('\'', "''"));
        let written = copied(&mut client, &format!("COPY ({select}) TO STDOUT (FORMAT binary)")).await;
        assert_eq!(written, expected, "{ty} {text}");
        // What was written is read again, byte by byte.
        client.query(&format!("DROP TABLE IF EXISTS t; CREATE TABLE t (a {ty})")).await;
        let done = give(&mut client, "COPY t FROM STDIN WITH BINARY", &expected, 1).await;
        assert_eq!(done.command_tag(), "COPY 1", "{ty} {text}");
        assert_eq!(copied(&mut client, "COPY t TO STDOUT BINARY").await, expected, "{ty} {text}");
        assert_eq!(copied(&mut client, "COPY BINARY t TO STDOUT").await, expected, "{ty} {text}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_by_the_path_of_all_rows() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client
        .query(
            "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN small AS int CHECK (VALUE < 10);
             CREATE TABLE u (n int PRIMARY KEY);
             CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, n int UNIQUE REFERENCES u, m mood,
                 s small, d text DEFAULT 'x', CHECK (n <> 3)); INSERT INTO u VALUES (1), (2), (3), (4)",
        )
        .await;
    let one = 1_i32.to_be_bytes();
    let data = |rows: &[Vec<u8>]| [HEADER.to_vec(), rows.concat(), TRAILER.to_vec()].concat();
    let number = |n: i32| n.to_be_bytes();
    let good =
        data(&[row(&[Some(&one), Some(b"happy"), Some(&number(5))]), row(&[Some(&number(2)), None, None])]);
    const COPY: &str = "COPY t (n, m, s) FROM STDIN (FORMAT binary)";
    assert_eq!(give(&mut client, COPY, &good, 7).await.command_tag(), "COPY 2");
    let answer = client.query("SELECT * FROM t ORDER BY id").await;
    let rows: Vec<_> = answer.iter().filter(|m| m.tag == 'D').map(Message::values).collect();
    let text = |values: [&str; 5]| values.map(|v| (!v.is_empty()).then(|| v.to_owned())).to_vec();
    assert_eq!(rows, [text(["1", "1", "happy", "5", "x"]), text(["2", "2", "", "", "x"])]);
    // Written and read again, as a driver does: header, rows and trailer are those of before.
    assert_eq!(copied(&mut client, "COPY t (n, m, s) TO STDOUT (FORMAT binary)").await, good);
    for (fields, sqlstate, context) in [
        (row(&[Some(&one), None, None]), "23505", Some("COPY t, line 1")),
        (row(&[Some(&number(3)), None, None]), "23514", Some("COPY t, line 1")),
        (row(&[Some(&number(9)), None, None]), "23503", None),
        (row(&[None, Some(b"glad"), None]), "22P02", Some("COPY t, line 1, column m")),
        (row(&[None, None, Some(&number(10))]), "23514", Some("COPY t, line 1, column s")),
        (row(&[None, None, Some(b"10")]), "08P01", Some("COPY t, line 1, column s")),
        (row(&[None, None, Some(b"10345")]), "22P03", Some("COPY t, line 1, column s")),
        (row(&[None, None]), "22P04", Some("COPY t, line 1")),
        (b"\0\x03\xff\xff".to_vec(), "22P04", Some("COPY t, line 1, column n")),
    ] {
        let answer = give(&mut client, COPY, &[HEADER, &fields].concat(), 3).await;
        assert_eq!((answer.sqlstate().as_str(), answer.field('W').as_deref()), (sqlstate, context));
    }
    let after = [HEADER, &row(&[None, None, None]), TRAILER, b"x"].concat();
    let answer = give(&mut client, COPY, &after, 100).await;
    assert_eq!((answer.sqlstate().as_str(), answer.field('W').as_deref()), ("22P04", Some("COPY t, line 2")));
    for (data, said) in [(&b"1\t2\n"[..], "22P04"), (b"", "22P04"), (&HEADER[..13], "22P04")] {
        let answer = give(&mut client, COPY, data, 100).await;
        assert_eq!((answer.sqlstate().as_str(), answer.field('W')), (said, None));
    }
    // Nothing of all this stayed, and a client may change its mind.
    client.send(&message(b'Q', &string(COPY))).await;
    assert_eq!(client.message().await.tag, 'G');
    let new = data(&[row(&[Some(&number(4)), None, None])]);
    client.send(&[message(b'd', &new), message(b'f', b"no more\0")].concat()).await;
    assert_eq!(client.until_ready().await[0].sqlstate(), "57014");
    let answer = client.query("SELECT count(*) FROM t").await;
    assert_eq!(answer[1].values(), [Some("2".to_owned())]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_table_takes_many_rows_and_gives_them_back() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("BEGIN; CREATE TABLE big (n int PRIMARY KEY, t text)").await;
    let rows: Vec<u8> = (0..20_000_i32)
        .flat_map(|n| row(&[Some(&n.to_be_bytes()), Some(format!("row {n}").as_bytes())]))
        .collect();
    let data = [HEADER, &rows, TRAILER].concat();
    assert_eq!(
        give(&mut client, "COPY big FROM STDIN BINARY", &data, 8192).await.command_tag(),
        "COPY 20000"
    );
    client.query("COMMIT").await;
    assert!(copied(&mut client, "COPY (SELECT * FROM big ORDER BY n) TO STDOUT BINARY").await == data);
    // An empty result has a header and a trailer.
    let nothing = copied(&mut client, "COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT 'binary')").await;
    assert_eq!(nothing, [HEADER, TRAILER].concat());
    for (options, said) in [
        ("FORMAT binary, DELIMITER ','", "cannot specify DELIMITER in BINARY mode"),
        ("FORMAT binary, NULL 'x'", "cannot specify NULL in BINARY mode"),
        ("FORMAT binary, HEADER", "cannot specify HEADER in BINARY mode"),
        ("FORMAT binary, QUOTE '\"'", "COPY quote available only in CSV mode"),
    ] {
        let answer = client.query(&format!("COPY big TO STDOUT ({options})")).await;
        assert_eq!(answer[0].field('M').as_deref(), Some(said));
    }
    server.stop().await;
}
