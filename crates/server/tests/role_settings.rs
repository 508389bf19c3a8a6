//! Settings that sessions begin with, as clients meet them.

use std::sync::Arc;

use cognate_engine::{Access, Database, Isolation, Options};
use cognate_server::config::Settings;
use cognate_sql::catalog::{FIRST_USER_OID, Object, RoleSettings, store};

use crate::client::{Message, RawClient, startup, tags};
use crate::support::TestServer;

/// A connection, and what came before it was ready.
async fn begin(server: &TestServer, parameters: &[(&str, &str)]) -> (RawClient, Vec<Message>) {
    let mut client = RawClient::silent(server.address()).await;
    client.send(&startup(3 << 16, parameters)).await;
    let greeting = client.until_ready().await;
    (client, greeting)
}

/// A reported setting's value.
fn reported(greeting: &[Message], name: &str) -> Option<String> {
    let statuses = greeting.iter().filter(|message| message.tag == 'S');
    let pairs = statuses.map(|message| String::from_utf8(message.body.clone()).expect("text"));
    let mut values = pairs.filter_map(|pair| {
        let mut words = pair.split('\0');
        (words.next() == Some(name)).then(|| words.next().unwrap_or_default().to_owned())
    });
    values.next()
}

async fn shown(client: &mut RawClient, name: &str) -> String {
    client.query(&format!("SHOW {name}")).await[1].values()[0].clone().expect("a value")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_with_what_is_stored_for_it() {
    let server = TestServer::start().await;
    let (mut ann, greeting) = begin(&server, &[("user", "ann"), ("database", "shop")]).await;
    assert_eq!(reported(&greeting, "DateStyle").as_deref(), Some("ISO, MDY"));
    for text in [
        "ALTER DATABASE shop SET default_transaction_isolation = 'read committed'",
        "ALTER DATABASE shop SET application_name = 'nameless'",
        "ALTER ROLE eve SET datestyle = 'German'",
        "ALTER ROLE eve IN DATABASE shop SET lock_timeout = '5s'",
    ] {
        let answer = ann.query(text).await;
        assert!(tags(&answer) == "C" && text.starts_with(answer[0].command_tag()), "{text}");
    }
    assert_eq!(shown(&mut ann, "transaction_isolation").await, "serializable", "it began before");
    let eve = [("user", "eve"), ("database", "shop")];
    let (mut client, greeting) = begin(&server, &eve).await;
    assert_eq!(reported(&greeting, "DateStyle").as_deref(), Some("German, DMY"));
    assert_eq!(reported(&greeting, "application_name").as_deref(), Some("nameless"));
    assert!(greeting.iter().all(|message| message.tag != 'N'));
    assert_eq!(shown(&mut client, "transaction_isolation").await, "read committed");
    assert_eq!(shown(&mut client, "lock_timeout").await, "5s");
    // What the client asks for wins, however it does.
    let asking = [eve[0], eve[1], ("application_name", "eves"), ("options", "-c lock_timeout=6s")];
    let (mut client, greeting) = begin(&server, &[&asking[..], &[("datestyle", "sql")]].concat()).await;
    assert_eq!(reported(&greeting, "DateStyle").as_deref(), Some("SQL, MDY"));
    assert_eq!(reported(&greeting, "application_name").as_deref(), Some("eves"));
    assert_eq!(shown(&mut client, "lock_timeout").await, "6s");
    assert_eq!(tags(&client.query("DISCARD ALL").await), "C");
    assert_eq!(shown(&mut client, "lock_timeout").await, "6s");
    // She is not the superuser.
    for (text, message) in [
        ("ALTER ROLE ann RESET ALL", "permission denied"),
        ("ALTER ROLE ALL SET jit = on", "must be superuser to alter settings globally"),
        ("ALTER DATABASE shop RESET ALL", "must be owner of database shop"),
    ] {
        let answer = client.query(text).await;
        assert_eq!(
            (answer[0].sqlstate(), answer[0].field('M').as_deref()),
            ("42501".to_owned(), Some(message))
        );
    }
    assert_eq!(tags(&client.query("ALTER ROLE eve RESET ALL").await), "C");
    // It is there after a restart.
    let folder = server.stop().await;
    let running = TestServer::open(Settings::default(), folder.path().join("data")).await;
    let server = TestServer { running, folder };
    let (mut client, greeting) = begin(&server, &eve).await;
    assert_eq!(reported(&greeting, "DateStyle").as_deref(), Some("ISO, MDY"));
    assert_eq!(shown(&mut client, "lock_timeout").await, "5s");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_setting_that_nobody_knows_is_a_warning_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let engine = Database::open(Options::new(&data)).expect("a database");
    let pairs = [("cognate.gone", "1"), ("lock_timeout", "5s"), ("work_mem", "much")];
    let everywhere = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let settings = RoleSettings {
        oid: FIRST_USER_OID,
        role: Some("eve".to_owned()),
        everywhere,
        ..RoleSettings::default()
    };
    let document = store::encode(&Object::RoleSettings(Arc::new(settings))).expect("a document");
    let mut t = engine.begin(Isolation::Snapshot, Access::ReadWrite);
    t.put(store::CATALOG_TREE, &store::key(0, FIRST_USER_OID), document).expect("written");
    t.commit().expect("committed");
    engine.close().expect("closed");
    drop(engine);
    let server = TestServer { running: TestServer::open(Settings::default(), data).await, folder };
    let (mut client, greeting) = begin(&server, &[("user", "eve")]).await;
    // After AuthenticationOk, before the first ParameterStatus.
    assert!(tags(&greeting).starts_with("RNNS"), "{}", tags(&greeting));
    let told = greeting[1..3]
        .iter()
        .map(|notice| ['V', 'C', 'M'].map(|code| notice.field(code).unwrap_or_default()).join(" "));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "WARNING 42704 unrecognized configuration parameter \"cognate.gone\"",
            "WARNING 22023 invalid value for parameter \"work_mem\": \"much\"",
        ]
    );
    assert_eq!(shown(&mut client, "lock_timeout").await, "5s");
    assert!(client.query("SELECT 1").await.iter().all(|message| message.tag != 'N'), "once is enough");
    server.stop().await;
}
