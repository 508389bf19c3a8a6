//! LISTEN and NOTIFY over the wire.

use crate::process::Process;
use crate::wire::{Wire, message};

fn serve() -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(&folder.path().join("data"), &[]);
    (folder, process)
}

fn connect(process: &Process) -> Wire {
    Wire::connect(process.address).expect("connected")
}

fn run(wire: &mut Wire, text: &str) {
    wire.query(text).expect(text);
}

/// Channel and payload of a notification, and the process that sent it.
fn notification(body: &[u8]) -> (i32, String, String) {
    let (process, rest) = body.split_first_chunk::<4>().expect("a process");
    let mut texts =
        rest.split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"));
    (i32::from_be_bytes(*process), texts.next().expect("a channel"), texts.next().expect("a payload"))
}

/// Payloads up to ReadyForQuery, or so many of them.
fn heard(wire: &mut Wire, most: usize) -> Vec<String> {
    let mut payloads = Vec::new();
    while payloads.len() < most {
        match wire.message() {
            Some((b'A', body)) => payloads.push(notification(&body).2),
            Some((b'Z', _)) => break,
            Some((b'E', body)) => panic!("{}", String::from_utf8_lossy(&body)),
            Some(_) => {}
            None => panic!("the connection broke"),
        }
    }
    payloads
}

/// What a statement's answer brings of notifications.
fn heard_with(wire: &mut Wire, text: &str) -> Vec<String> {
    wire.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat())).expect("sent");
    heard(wire, usize::MAX)
}

#[test]
fn listeners_hear_in_the_order_of_commits() {
    let (_folder, process) = serve();
    let (mut listener, mut sender) = (connect(&process), connect(&process));
    run(&mut listener, "LISTEN news");
    // Idle: it comes by itself, with who sent it.
    let id = sender.query("SELECT pg_backend_pid()").expect("answered")[0][0].clone().expect("a number");
    run(&mut sender, "NOTIFY news, 'first'");
    let (tag, body) = listener.message().expect("a message");
    assert_eq!(tag, b'A');
    assert_eq!(notification(&body), (id.parse().expect("a number"), "news".into(), "first".into()));
    // Without a payload, on another channel, rolled back, the same twice, after a savepoint.
    run(&mut sender, "NOTIFY news");
    run(&mut sender, "NOTIFY other, 'x'");
    run(&mut sender, "BEGIN; NOTIFY news, 'never'; ROLLBACK");
    run(
        &mut sender,
        "BEGIN; NOTIFY news, 'a'; SAVEPOINT s; NOTIFY news, 'b'; NOTIFY news, 'never'; ROLLBACK TO s",
    );
    run(&mut sender, "NOTIFY news, 'b'; NOTIFY news, 'a'; SELECT pg_notify('news', 'c'); COMMIT");
    assert_eq!(heard(&mut listener, 4), ["", "a", "b", "c"]);
    // Two transactions that overlap: the first to commit is the first to be heard.
    let mut other = connect(&process);
    run(&mut sender, "BEGIN; NOTIFY news, 'begun first'");
    run(&mut other, "BEGIN; NOTIFY news, 'committed first'; COMMIT");
    run(&mut sender, "COMMIT");
    assert_eq!(heard(&mut listener, 2), ["committed first", "begun first"]);
    // Not within a transaction; at its end before ReadyForQuery.
    run(&mut listener, "BEGIN");
    run(&mut sender, "NOTIFY news, 'later'");
    assert!(heard_with(&mut listener, "SELECT 1").is_empty());
    assert_eq!(heard_with(&mut listener, "COMMIT"), ["later"]);
    // Its own, and none after UNLISTEN.
    assert_eq!(heard_with(&mut listener, "NOTIFY news, 'own'"), ["own"]);
    assert_eq!(heard_with(&mut listener, "BEGIN; LISTEN more; NOTIFY more, 'm'; COMMIT"), ["m"]);
    run(&mut listener, "UNLISTEN news");
    run(&mut sender, "NOTIFY news, 'unheard'; NOTIFY more, 'heard'");
    assert_eq!(heard(&mut listener, 1), ["heard"]);
    run(&mut listener, "UNLISTEN *");
    run(&mut sender, "NOTIFY more, 'unheard'");
    assert!(heard_with(&mut listener, "SELECT 1").is_empty());
}

/// Nothing is lost while many notify at the same time, and each sender is heard in its order.
#[test]
fn none_is_lost() {
    let (_folder, process) = serve();
    let mut listener = connect(&process);
    run(&mut listener, "LISTEN news");
    run(&mut listener, "CREATE TABLE t (v int)");
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let mut wire = connect(&process);
            std::thread::spawn(move || {
                for at in 0..100 {
                    let write = if at % 3 == 0 { "INSERT INTO t VALUES (1); " } else { "" };
                    run(&mut wire, &format!("{write}SELECT pg_notify('news', '{sender} {at}')"));
                }
            })
        })
        .collect();
    let mut next = [0; 4];
    for payload in heard(&mut listener, 400) {
        let (sender, at) = payload.split_once(' ').expect("two numbers");
        let sender: usize = sender.parse().expect("a number");
        assert_eq!(at, next[sender].to_string(), "of {sender}");
        next[sender] += 1;
    }
    assert_eq!(next, [100; 4]);
    senders.into_iter().for_each(|sender| sender.join().expect("it has sent"));
}

/// Notifies until the listener, the only other session, is ended.
fn notify_to_the_end(sender: &mut Wire) {
    let listeners = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let mut said = 0;
    while sender.query(listeners).expect("answered")[0][0].as_deref() != Some("0") {
        run(
            sender,
            &format!(
                "SELECT pg_notify('news', {said} || repeat('x', 7900) || i) FROM generate_series(1, 100) i"
            ),
        );
        said += 1;
        assert!(said < 1000, "hundreds of megabytes wait");
    }
}

/// A listener that does not read holds up nobody, and is ended at the bound.
#[test]
fn who_does_not_read_is_ended() {
    let (_folder, process) = serve();
    let (mut listener, mut sender) = (connect(&process), connect(&process));
    run(&mut listener, "LISTEN news");
    notify_to_the_end(&mut sender);
    while listener.message().is_some() {}
}

/// Who stays in a transaction is told of nothing meanwhile, and at the bound why it is ended.
#[test]
fn who_stays_in_a_transaction_is_told_why_it_is_ended() {
    let (_folder, process) = serve();
    let (mut listener, mut sender) = (connect(&process), connect(&process));
    run(&mut listener, "LISTEN news");
    run(&mut listener, "BEGIN");
    let usage = "SELECT pg_notification_queue_usage() > 0, pg_notification_queue_usage() < 1";
    let asked = |sender: &mut Wire| sender.query(usage).expect("answered")[0].clone();
    assert_eq!(asked(&mut sender), [Some("f".to_owned()), Some("t".to_owned())]);
    run(&mut sender, "SELECT pg_notify('news', repeat('x', 7900) || i) FROM generate_series(1, 100) i");
    assert_eq!(asked(&mut sender), [Some("t".to_owned()), Some("t".to_owned())]);
    notify_to_the_end(&mut sender);
    let mut farewell = None;
    while let Some((tag, body)) = listener.message() {
        assert_eq!(tag, b'E');
        farewell = Some(String::from_utf8_lossy(&body).into_owned());
    }
    let farewell = farewell.expect("it is told");
    for part in ["SFATAL", "C57P01", "too many notifications unread", "\0DUp to 16 MB", "\0HA session"] {
        assert!(farewell.contains(part), "{part}: {farewell:?}");
    }
}
