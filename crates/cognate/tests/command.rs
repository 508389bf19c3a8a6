//! Starting, refusing to start, stopping; and what thousands of clients leave behind.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cluster::{free_port, retried};
use crate::process::{Process, command, fails, read_all};
use crate::wire::Wire;

/// A start-up packet of protocol 3.0 for user `a`.
const START: &[u8] = b"\0\0\0\x10\0\x03\0\0user\0a\0\0";
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Reads up to the first ReadyForQuery.
fn until_ready(socket: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"Z\0\0\0\x05I") {
        socket.read_exact(&mut byte).expect("more");
        seen.push(byte[0]);
    }
}

#[test]
fn it_says_once_how_to_connect_and_stops_when_told() {
    let folder = tempfile::tempdir().expect("a folder");
    for signal in ["TERM", "INT"] {
        let process = Process::serve(folder.path(), &[]);
        let port = process.address.port();
        assert_eq!(process.ready, format!("ready  psql -h 127.0.0.1 -p {port} -d postgres -U cognate\n"));
        let mut client = process.connect();
        client.write_all(START).expect("sent");
        until_ready(&mut client);
        process.signal(signal);
        let farewell = String::from_utf8_lossy(&read_all(&mut client)).into_owned();
        assert!(farewell.contains("C57P01"), "{farewell:?}");
        assert!(process.wait().success());
    }
}

/// Many systems begin with fewer than its connections may be, and without any left its log could
/// not go on.
#[test]
fn it_has_as_many_files_as_the_system_gives() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = env!("CARGO_BIN_EXE_cognate");
    let mut child = Command::new("/bin/sh")
        .args(["-c", "ulimit -S -n 128 && exec \"$0\" \"$@\"", server, "serve", "--data"])
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0", "--http", "off", "--memory", "64MB", "--log", "warn"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id()));
    child.kill().expect("killed");
    child.wait().expect("waited");
    assert!(ready.starts_with("ready  "), "{ready:?}");
    let limits = limits.expect("its limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("the bound");
    let bounds: Vec<&str> = files.split_whitespace().take(2).collect();
    assert_eq!(bounds[0], bounds[1], "the one in force, and the highest");
}

/// Each thread that serves needs some of them.
#[test]
fn without_files_for_its_threads_it_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("/bin/sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_cognate"), "serve", "--data"])
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0", "--http", "off", "--worker-threads", "100", "--log", "error"])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("cognate: cannot start the serving threads: "), "{said}");
}

/// A name that was mistyped, or the folder above, is not found sound, and nothing is made in it.
#[test]
fn only_the_folder_of_a_database_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("made");
    for arguments in [&["check"][..], &["node", "init"]] {
        let look = |expected: &str| {
            let arguments = [arguments, &["--data", other.to_str().expect("UTF-8")]].concat();
            let (code, said) = fails(&arguments);
            assert!(code == Some(1) && said.contains(expected), "{arguments:?}: {said}");
        };
        look("there is no database in ");
        // As in a folder of PostgreSQL's.
        std::fs::create_dir(other.join("base")).expect("made");
        look("there is no database in ");
        std::fs::remove_dir(other.join("base")).expect("empty still");
        std::fs::write(other.join("backup.txt"), "").expect("written");
        look(" is a backup");
        std::fs::remove_file(other.join("backup.txt")).expect("removed");
        assert_eq!(std::fs::read_dir(&other).expect("listed").count(), 0, "{arguments:?}");
    }
}

/// What cannot be used changes nothing, and ends nobody.
#[test]
fn a_hang_up_reads_the_configuration_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cognate.toml");
    // Never half of it.
    let say = |text: &str| {
        std::fs::write(file.with_extension("new"), text).expect("written");
        std::fs::rename(file.with_extension("new"), &file).expect("renamed");
    };
    say("active_limit = '7'\n");
    let config = file.to_str().expect("UTF-8");
    let process = Process::serve(&folder.path().join("data"), &["--config", config]);
    let mut wire = Wire::connect(process.address).expect("connected");
    let mut limit = || wire.query("SHOW cognate.active_limit").expect("a limit")[0][0].clone();
    assert_eq!(limit().as_deref(), Some("7"));
    for wanted in ["9", "5"] {
        say("colour = 'red'\n");
        let before = limit();
        process.signal("HUP");
        assert_eq!(limit(), before);
        say(&format!("active_limit = '{wanted}'\n"));
        process.signal("HUP");
        while limit().as_deref() != Some(wanted) {
            std::thread::yield_now();
        }
    }
    drop(wire);
    process.signal("TERM");
    assert!(process.wait().success());
}

/// What is said of the log takes effect with the rest of a file, or not at all: the refusal itself
/// would not be told otherwise.
#[test]
fn a_file_that_cannot_be_used_does_not_change_what_is_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cognate.toml");
    std::fs::write(&file, "log = 'warn'\n").expect("written");
    let (data, config) = (folder.path().join("data"), file.to_str().expect("UTF-8"));
    let mut server = command(&["serve", "--listen", "127.0.0.1:0", "--http", "off", "--memory", "64MB"]);
    let mut child = server.arg("--data").arg(data).args(["--config", config]).spawn().expect("started");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    assert!(ready.starts_with("ready  "), "{ready:?}");
    // The file is in order, and there is no such certificate.
    std::fs::write(&file, "log = 'off'\n[tls]\ncert = '/nowhere'\nkey = '/nowhere'\n").expect("written");
    let hang_up = Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    assert!(hang_up.expect("kill runs").success());
    let said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let (told, refusal) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut said = said.map_while(Result::ok);
        // Nobody listens any more if it comes too late.
        let _ = told.send(said.find(|line| line.contains("stays as it was")));
    });
    // Far more than it takes: what is not told never comes.
    let refusal = refusal.recv_timeout(Duration::from_secs(120)).ok().flatten();
    child.kill().expect("killed");
    reading.join().expect("read");
    child.wait().expect("waited");
    assert!(refusal.is_some_and(|line| line.contains("/nowhere")));
}

/// The first of ports for the nodes of a trial: for clients, for other nodes, for HTTP.
fn trial_port(nodes: u16) -> u16 {
    loop {
        let held: Vec<TcpListener> = (0..nodes).map(|_| free_port()).collect();
        let at = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let port = at(&held[0]);
        // No other test is given one of them before the nodes have them.
        let follow = (port..).zip(&held).all(|(port, listener)| at(listener) == port);
        let others = [100, 200].into_iter().flat_map(|above| (0..nodes).map(move |node| above + node));
        let others: Vec<_> = others.map(|above| TcpListener::bind(("127.0.0.1", port + above))).collect();
        if follow && others.iter().all(Result::is_ok) {
            return port;
        }
    }
}

/// A service manager tells the one process that it has started.
#[test]
fn a_trial_of_three_nodes_is_one_database_until_it_is_told_to_stop() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), trial_port(3));
    let (data, base) = (folder.path().to_str().expect("UTF-8"), port.to_string());
    let mut trial =
        command(&["cluster", "--nodes", "3", "--data", data, "--base-port", &base, "--memory", "64MB"]);
    let trial = trial.env("COGNATE_LOG", "warn").stderr(Stdio::inherit());
    let mut trial = trial.spawn().expect("started");
    let mut said = BufReader::new(trial.stdout.take().expect("piped")).lines();
    let mut ready: Vec<String> = (0..3).map(|_| said.next().expect("a line").expect("read")).collect();
    ready.sort();
    for (node, line) in (1..).zip(&ready) {
        let own = format!("-p {} ", port + node - 1);
        assert!(line.starts_with(&format!("node {node}  ready  psql ")) && line.contains(&own), "{line:?}");
    }
    let at = |node: u16| SocketAddr::from(([127, 0, 0, 1], port + node - 1));
    let connect = |node: u16| Wire::connect(at(node)).expect("connected");
    retried(&mut connect(1), "CREATE TABLE item (id int PRIMARY KEY)");
    // The table comes to them a moment later.
    for node in [2, 3] {
        while connect(node).query("SELECT id FROM item").is_err() {}
        retried(&mut connect(node), &format!("INSERT INTO item VALUES ({node})"));
    }
    let mut one = connect(1);
    while one.query("SELECT id FROM item").expect("read").len() < 2 {}
    drop(one);
    let stop = Command::new("kill").args(["-TERM", &trial.id().to_string()]).status();
    assert!(stop.expect("kill runs").success());
    assert!(trial.wait().expect("ended").success());
    for node in 1..=3 {
        assert!(TcpStream::connect(at(node)).is_err(), "node {node} is still there");
    }
}

/// A terminal's interrupt goes to all processes in the foreground.
#[test]
fn a_trial_of_a_cluster_stops_in_order_when_its_terminal_interrupts_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, port) = (folder.path().to_str().expect("UTF-8"), trial_port(1).to_string());
    let mut trial =
        command(&["cluster", "--nodes", "1", "--data", data, "--base-port", &port, "--memory", "64MB"]);
    let trial = trial.env("COGNATE_LOG", "warn").stderr(Stdio::inherit()).process_group(0);
    let mut trial = trial.spawn().expect("started");
    let mut output = BufReader::new(trial.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert!(line.starts_with("node 1  ready  psql "), "{line:?}");
    let secret = std::fs::metadata(folder.path().join("secret")).expect("made at the first start");
    assert_eq!(secret.permissions().mode() & 0o077, 0, "nobody else reads it");
    let group = format!("-{}", trial.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().expect("kill runs").success());
    assert!(trial.wait().expect("ended").success());
}

/// Opening would make a database of any folder.
#[test]
fn only_a_database_becomes_the_first_node_of_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("notes"), "of somebody").expect("written");
    let data = folder.path().to_str().expect("UTF-8");
    let (code, said) = fails(&["node", "init", "--data", data]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no database in") && said.contains(data), "{said}");
    let left = std::fs::read_dir(folder.path()).expect("listed").count();
    assert_eq!(left, 1, "the folder is as it was");
    let (_, said) = fails(&["node", "init", "--data", "/nonexistent"]);
    assert!(said.contains("there is no folder /nonexistent"), "{said}");
}

/// Nobody would be served, and whoever started it would wait for that.
#[test]
fn a_trial_whose_nodes_cannot_start_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("UTF-8");
    let taken = free_port();
    let port = taken.local_addr().expect("an address").port().to_string();
    let (code, said) = fails(&["cluster", "--nodes", "1", "--data", data, "--base-port", &port]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the port is in use") && said.contains("node 1 ended with"), "{said}");
}

#[test]
fn what_stops_a_start_is_said_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = taken.local_addr().expect("an address").to_string();
    let file = folder.path().join("cognate.toml");
    std::fs::write(&file, "colour = 'blue'\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let serve = ["serve", "--data", data, "--http", "off", "--log", "error"];
    for (arguments, expected) in [
        (vec!["--listen", &taken], "the port is in use"),
        (vec!["--listen", "0.0.0.0:21599"], "a password is needed"),
        (vec!["--listen", "nonsense"], "listen: \"nonsense\" is not an address"),
        (vec!["--memory", "lots"], "memory: \"lots\" is not a size"),
        (vec!["--config", file], "unknown field `colour`"),
        (vec!["--config", "/nonexistent"], "cannot read configuration file /nonexistent"),
        (vec!["--tls-cert", "/nonexistent"], "no key"),
        (vec!["--password-file", "/nonexistent"], "cannot read password file /nonexistent"),
        (vec!["--data", "/proc/nonexistent"], "/proc/nonexistent"),
    ] {
        let arguments: Vec<_> = serve.iter().copied().chain(arguments.iter().copied()).collect();
        // A repeated option is an error of its own; the later one is meant here.
        let repeated = arguments.iter().filter(|a| **a == "--data").count() > 1;
        let arguments = if repeated { [&arguments[..1], &arguments[3..]].concat() } else { arguments };
        let (code, said) = fails(&arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("cognate: ") && said.trim_end().lines().count() == 1, "{said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn a_folder_is_served_once_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Process::serve(folder.path(), &[]);
    let data = folder.path().to_str().expect("UTF-8");
    let (code, said) =
        fails(&["serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "off", "--log", "error"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(data), "{said}");
    drop(first);
    // A killed server leaves no lock behind.
    Process::serve(folder.path(), &[]);
}

#[test]
fn ten_thousand_connects_and_drops_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(folder.path(), &[]);
    let round = |count: usize| {
        for i in 0..count {
            let mut client = process.connect();
            if i % 3 > 0 {
                client.write_all(START).expect("sent");
            }
            if i % 3 > 1 {
                until_ready(&mut client);
                client.write_all(TERMINATE).expect("sent");
            }
        }
        // One after the other through the server's door: when this one is answered, those before it
        // were accepted.
        let mut last = process.connect();
        last.write_all(START).expect("sent");
        until_ready(&mut last);
        drop(last);
    };
    round(1_000);
    let bytes_before = process.resident_bytes();
    round(9_000);
    let idle = Process::serve(&folder.path().join("other"), &[]).open_files();
    while process.open_files() > idle {
        std::thread::yield_now();
    }
    let growth = process.resident_bytes().saturating_sub(bytes_before);
    assert!(growth < 8 << 20, "memory grew by {growth} bytes over 9,000 connections");
}

#[test]
fn two_thousand_idle_sessions_are_cheap_and_one_more_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(folder.path(), &["--max-connections", "2000"]);
    let before = process.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..2_000 {
        let mut client = process.connect();
        client.write_all(START).expect("sent");
        until_ready(&mut client);
        clients.push(client);
    }
    let each = (process.resident_bytes() - before) / 2_000;
    // Without optimization the future of a connection is about twice as large.
    assert!(
        each < if cfg!(debug_assertions) { 64 << 10 } else { 40 << 10 },
        "an idle session takes {each} bytes"
    );
    let mut refused = process.connect();
    refused.write_all(START).expect("sent");
    assert!(String::from_utf8_lossy(&read_all(&mut refused)).contains("C53300"));
}
