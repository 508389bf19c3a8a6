//! The monitor of a database, as its view shows it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::monitor::{Class, Fingerprint, Finished, Protocol, Surroundings};
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

#[test]
fn the_view_shows_classes_and_why_they_have_their_protocols() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let disk = SimDisk::new(1);
    let mut options = Options::new("/data");
    options.disk = disk.handle();
    let database = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    let mut session = Session::new(database.clone(), SessionParameters::default()).unwrap();
    let mut ask = |text: &str| runtime.block_on(simple_query(&mut session, text)).join("\n");

    let columns = "SELECT attname, atttypid::regtype FROM pg_attribute \
                   WHERE attrelid = 'cognate_protocol_choice'::regclass ORDER BY attnum";
    assert_eq!(
        ask(columns),
        "attname|atttypid\nclass|text\nchosen|text\nestimates|text\nsince|timestamp with time zone\n\
         form|text\nSELECT 5"
    );
    assert_eq!(ask("SELECT * FROM cognate_protocol_choice"), "class|chosen|estimates|since|form\nSELECT 0");

    let text: Arc<str> = "UPDATE item SET stock = stock - 1 WHERE id IN (5, 7)".into();
    let mut class = Class::new();
    class.add(Fingerprint::of(&text), &text);
    let monitor = database.monitor();
    monitor.tell(Surroundings { nodes: 3, applier_busy: None });
    // 2001-01-01 00:00:00 UTC.
    let mut now = 366 * 86_400 * 1_000_000;
    assert_eq!(monitor.choose(&class, true, now), Protocol::Certification);
    let since = "SELECT class, chosen, since AT TIME ZONE 'UTC' FROM cognate_protocol_choice";
    assert_eq!(
        ask(since),
        "class|chosen|timezone\n\
         UPDATE item SET stock = stock - ? WHERE id IN (?)|certification|2001-01-01 00:00:00\nSELECT 1"
    );
    // The same in pieces, and where nobody runs it again, are classes of their own.
    assert_eq!(monitor.choose(&class, false, now), Protocol::Certification);
    assert_eq!(monitor.choose_told(&class, now), Protocol::Active);
    let forms = "SELECT chosen, form FROM cognate_protocol_choice ORDER BY form";
    assert_eq!(
        ask(forms),
        "chosen|form\ncertification|piecemeal\ncertification|whole\nactive|whole, not retried\nSELECT 3"
    );
    for number in 0..200 {
        now += 10_000;
        let finished = Finished {
            class: class.id(),
            fit_for_active: true,
            committed: number % 2 == 0,
            conflict: Some(number % 2 == 1),
            execution_us: 200,
            order_us: 1000,
            round_trips: 1,
            ..Finished::default()
        };
        monitor.finished(&finished, now);
    }
    let chosen = "SELECT chosen, since > '2001-01-01Z', since < '2001-01-01 00:00:02Z', \
                  estimates LIKE 'certification % us, weak_voting % us, active % us: active because \
                  certification would repeat % of its attempts' FROM cognate_protocol_choice \
                  WHERE form = 'whole'";
    assert!(ask(chosen).contains("active|t|t|t"), "{}", ask("SELECT estimates FROM cognate_protocol_choice"));
}
