//! Settings of roles: those that a build cannot use any more keep nobody out; two who change them
//! at once.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use cognate_engine::{Access, Database, Isolation, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::catalog::{FIRST_USER_OID, Object, RoleSettings, SettingList, store};
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::{play, simple_query};

fn list(settings: &[(&str, &str)]) -> SettingList {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A database in which these are stored, whatever they say.
fn database(stored: Vec<RoleSettings>) -> SqlDatabase {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let mut t = engine.begin(Isolation::Snapshot, Access::ReadWrite);
    for settings in stored {
        let key = store::key(0, settings.oid);
        let document = store::encode(&Object::RoleSettings(Arc::new(settings))).unwrap();
        t.put(store::CATALOG_TREE, &key, document).unwrap();
    }
    engine.wait_durable(t.commit().unwrap().csn).wait().unwrap();
    SqlDatabase::open(engine).unwrap()
}

fn begin(sql: &SqlDatabase, user: &str, options: &[(&str, &str)]) -> Session {
    let parameters = SessionParameters {
        user: user.to_owned(),
        database: "postgres".to_owned(),
        options: list(options),
        ..SessionParameters::default()
    };
    Session::new(sql.clone(), parameters).unwrap()
}

fn run(session: &mut Session, text: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(simple_query(session, text))
}

fn warnings(session: &mut Session) -> Vec<String> {
    let notices = session.take_notices().into_iter();
    notices
        .map(|notice| format!("{} {}: {}", notice.severity.as_str(), notice.sqlstate, notice.message))
        .collect()
}

fn settings(role: Option<&str>, oid: u32, everywhere: &[(&str, &str)]) -> RoleSettings {
    RoleSettings {
        oid,
        role: role.map(str::to_owned),
        everywhere: list(everywhere),
        ..RoleSettings::default()
    }
}

#[test]
fn what_cannot_be_used_is_a_warning_and_the_rest_applies() {
    let gone = [
        ("cognate.gone", "1"),
        ("nosuch", ""),
        ("", "x"),
        ("lock_timeout", "soon"),
        ("shared_buffers", "1GB"),
        ("server_version", "99"),
        ("cognate.active_limit", "3"),
        ("standard_conforming_strings", "off"),
        ("cognate.retry_of", "somebody"),
        ("work_mem", "8MB"),
        ("my.own", "thing"),
    ];
    let sql = database(vec![
        settings(Some("eve"), FIRST_USER_OID, &gone),
        settings(None, FIRST_USER_OID + 1, &[("lock_timeout", "7s"), ("statement_timeout", "never")]),
    ]);
    let mut eve = begin(&sql, "eve", &[("statement_timeout", "9s")]);
    assert_eq!(
        warnings(&mut eve),
        [
            "WARNING 42704: unrecognized configuration parameter \"cognate.gone\"",
            "WARNING 42704: unrecognized configuration parameter \"nosuch\"",
            "WARNING 42704: unrecognized configuration parameter \"\"",
            "WARNING 22023: invalid value for parameter \"lock_timeout\": \"soon\"",
            "WARNING 55P02: parameter \"shared_buffers\" cannot be changed without restarting the server",
            "WARNING 55P02: parameter \"server_version\" cannot be changed",
            "WARNING 55P02: parameter \"cognate.active_limit\" is the server's and cannot be set for a connection",
            "WARNING 0A000: parameter \"standard_conforming_strings\" = \"off\" is not supported",
            // Of all roles, although the client has asked for another value: it is checked all the
            // same.
            "WARNING 22023: invalid value for parameter \"statement_timeout\": \"never\"",
        ]
    );
    let shown = |session: &mut Session, name: &str| run(session, &format!("SHOW {name}"))[1].clone();
    for (name, value) in
        [("work_mem", "8MB"), ("my.own", "thing"), ("lock_timeout", "7s"), ("statement_timeout", "9s")]
    {
        assert_eq!(shown(&mut eve, name), value, "{name}");
    }
    // They can be taken away by their names.
    let text = "ALTER ROLE eve RESET cognate.gone; ALTER ROLE eve RESET nosuch; \
                ALTER ROLE eve RESET lock_timeout; ALTER ROLE eve SET shared_buffers TO DEFAULT";
    assert_eq!(run(&mut eve, text), ["ALTER ROLE"; 4]);
    assert_eq!(warnings(&mut begin(&sql, "eve", &[])).len(), 5);
    run(&mut eve, "ALTER ROLE eve RESET ALL; ALTER ROLE ALL RESET ALL");
    assert!(warnings(&mut begin(&sql, "eve", &[])).is_empty());
}

#[test]
fn a_role_may_want_no_warnings() {
    let quiet = [("nosuch", "1"), ("client_min_messages", "error")];
    let sql = database(vec![settings(Some("eve"), FIRST_USER_OID, &quiet)]);
    assert!(warnings(&mut begin(&sql, "eve", &[])).is_empty());
    assert_eq!(warnings(&mut begin(&sql, "eve", &[("client_min_messages", "notice")])).len(), 1);
}

/// At a node of a cluster the second one would have to try again: its snapshot is older.
#[test]
fn who_changes_the_settings_of_one_role_waits_for_whoever_does() {
    let answers = play(
        "a: BEGIN; ALTER ROLE eve SET jit = on\n\
         b: ALTER ROLE eve SET geqo = off\n\
         c: ALTER ROLE bob SET geqo = off\n\
         d: ALTER ROLE eve IN DATABASE postgres SET geqo = off\n\
         e: ALTER DATABASE postgres SET geqo = off\n\
         a: COMMIT\n\
         a: SELECT r.rolname, s.setconfig FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole \
            ORDER BY 1, 2",
    );
    let waits = answers[1..5].iter().map(|lines| lines.join(" "));
    assert_eq!(waits.collect::<Vec<_>>(), ["... waits", "ALTER ROLE", "... waits", "ALTER DATABASE"]);
    assert_eq!(answers[5], ["COMMIT", "b: ALTER ROLE", "d: ALTER ROLE"]);
    assert_eq!(
        answers[6][1..],
        ["bob|{geqo=off}", "eve|{geqo=off}", "eve|{jit=on,geqo=off}", "NULL|{geqo=off}", "SELECT 4"]
    );
}

/// Documents of later builds may say more, and those of earlier ones less.
#[test]
fn a_document_may_lack_what_it_does_not_need() {
    for document in [
        r#"c{"oid":16384,"role":"eve","everywhere":[["work_mem","8MB"]]}"#,
        r#"c{"oid":16384,"role":"eve","everywhere":[["work_mem","8MB"]],"in_database":[],"later":[1]}"#,
    ] {
        let Object::RoleSettings(settings) = store::decode(document.as_bytes()).unwrap() else {
            panic!("{document} is something else");
        };
        assert_eq!(settings.everywhere, list(&[("work_mem", "8MB")]));
        assert!(settings.in_database.is_empty());
    }
    assert!(store::decode(br#"c{"oid":16384,"everywhere":{"work_mem":"8MB"}}"#).is_err());
}
