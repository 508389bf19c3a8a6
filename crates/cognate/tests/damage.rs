//! Damaged files: the server does not start, and says which file is damaged and where. A torn end
//! of the log is no damage.
//!
//! The data folder under test has every kind of file: a manifest, runs of two checkpoints, and a
//! log with records after them, of a server that was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cognate::{Database, Options};
use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{OpenMode, Rng as _, SplitMix};

use crate::process::{Process, command};
use crate::wire::Wire;

const BEFORE: [&str; 3] = [
    "CREATE TABLE item (id int PRIMARY KEY, tag text UNIQUE, note text)",
    "INSERT INTO item SELECT n, 'tag ' || n, repeat(md5(n::text), 3) FROM generate_series(1, 300) AS s (n)",
    "CHECKPOINT",
];
const BETWEEN: [&str; 2] = ["UPDATE item SET note = 'changed' WHERE id <= 50", "CHECKPOINT"];
const AFTER: [&str; 4] = [
    "INSERT INTO item VALUES (1001, 'late', 'one')",
    "UPDATE item SET tag = 'other' WHERE id = 7",
    "DELETE FROM item WHERE id = 8",
    "INSERT INTO item VALUES (1002, 'latest', 'two')",
];

/// What the items must be.
const COUNT_AND_LAST: &str = "SELECT count(*), max(id) FROM item";

/// A folder as a killed server leaves it.
fn fill(folder: &Path) {
    let process = Process::serve(folder, &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    for statement in BEFORE.into_iter().chain(BETWEEN).chain(AFTER) {
        wire.query(statement).unwrap_or_else(|failure| panic!("{statement}: {failure:?}"));
    }
    process.signal("KILL");
    process.wait();
}

/// The files of a data folder that hold data, with their bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for part in ["log", "base"] {
        for entry in fs::read_dir(folder.join(part)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name != "prepared" {
                files.push((path.clone(), fs::read(&path).expect("read")));
            }
        }
    }
    files.sort();
    files
}

/// Length up to the last byte that is not zero: behind it is space that a log prepared for later.
pub(crate) fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Starts a server that must refuse, and returns what it said.
fn refusal(folder: &Path) -> String {
    let data = folder.to_str().expect("UTF-8");
    let mut command =
        command(&["serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "off", "--memory", "64MB"]);
    let output = command.args(["--log", "error"]).stdin(Stdio::null()).output().expect("ran");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(output.stdout, b"", "it said it was ready");
    assert!(said.starts_with("cognate: ") && said.trim_end().lines().count() == 1, "{said}");
    said
}

/// Checks that a message names the file, and an offset not behind the damage.
pub(crate) fn names(said: &str, path: &Path, offset: usize) {
    assert!(said.contains(path.to_str().expect("UTF-8")), "damage at {offset} of {}: {said}", path.display());
    let named = said.split("at byte ").nth(1).and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
    let named = named.unwrap_or_else(|| panic!("no offset: {said}"));
    assert!(named <= offset, "damage at {offset}: {said}");
}

#[test]
fn the_server_refuses_damaged_files_by_name_and_offset() {
    let seed = cognate_env::RealRng.next_u64();
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    let files = files(folder.path());
    let kinds = |extension: &str| {
        files.iter().filter(|(path, _)| path.extension().is_some_and(|found| found == extension)).count()
    };
    assert!(
        kinds("log") >= 1 && kinds("run") >= 2 && files.iter().any(|(path, _)| path.ends_with("MANIFEST"))
    );
    for (path, bytes) in &files {
        let end = written(bytes);
        let drawn = (0..12).map(|_| random.below(end as u64) as usize).collect::<Vec<_>>();
        for offset in [0, 9, end / 2, end - 1].into_iter().chain(drawn) {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 1 << random.below(8);
            fs::write(path, &damaged).expect("written");
            names(&refusal(folder.path()), path, offset);
        }
        // A file that lost its end, or is missing, is damaged as well, unless it is the end of the
        // log.
        if path.extension().is_none_or(|extension| extension != "log") {
            fs::write(path, &bytes[..end / 2]).expect("written");
            names(&refusal(folder.path()), path, end);
            fs::remove_file(path).expect("removed");
            assert!(refusal(folder.path()).contains(path.to_str().expect("UTF-8")), "{}", path.display());
        }
        fs::write(path, bytes).expect("written");
    }
    // Made whole again, it is all there.
    let process = Process::serve(folder.path(), &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    let row = wire.query(COUNT_AND_LAST).expect("a row");
    assert_eq!(row, [[Some("301".to_owned()), Some("1002".to_owned())]]);
}

/// A volume that is not mounted would look like this, and a new database would come of it.
#[test]
fn the_server_refuses_a_folder_whose_log_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(folder.path(), &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    wire.query("CREATE TABLE t (id int PRIMARY KEY)").expect("created");
    process.signal("KILL");
    process.wait();
    let (log, aside) = (folder.path().join("log"), folder.path().join("aside"));
    fs::rename(&log, &aside).expect("moved");
    let data = folder.path().to_str().expect("UTF-8");
    for _ in 0..2 {
        names(&refusal(folder.path()), &log, 0);
        let checked = command(&["check", "--data", data]).output().expect("ran");
        assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    }
    fs::rename(&aside, &log).expect("moved");
    let manifest = folder.path().join("base/MANIFEST");
    fs::rename(&manifest, &aside).expect("moved");
    let made = std::process::Command::new("mkfifo").arg(&manifest).status().expect("ran");
    assert!(made.success());
    let said = refusal(folder.path());
    assert!(said.contains(manifest.to_str().expect("UTF-8")) && said.contains("no plain file"), "{said}");
    fs::rename(&aside, &manifest).expect("moved");
    let process = Process::serve(folder.path(), &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    assert_eq!(wire.query("SELECT count(*) FROM t").expect("a row"), [[Some("0".to_owned())]]);
}

#[test]
fn a_torn_last_record_is_cut_and_the_server_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(folder.path(), &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    wire.query("CREATE TABLE t (id int PRIMARY KEY, note text)").expect("created");
    wire.query("INSERT INTO t VALUES (1, 'kept')").expect("inserted");
    let before = files(folder.path());
    let (manifest, contents) =
        before.iter().find(|(path, _)| path.ends_with("MANIFEST")).expect("a manifest");
    let of_log = |(path, _): &&(PathBuf, Vec<u8>)| path.extension().is_some_and(|found| found == "log");
    let (log, before) = before.iter().find(of_log).expect("a log");
    // Longer than a few sectors, so that it can be torn; the log falls idle only after the kill.
    wire.query("INSERT INTO t SELECT 2, string_agg(md5(n::text), '') FROM generate_series(1, 200) AS s (n)")
        .expect("inserted");
    let after = fs::read(log).expect("read");
    process.signal("KILL");
    process.wait();
    let changed = (0..before.len()).find(|&at| before[at] != after[at]).expect("the log has grown");
    let mut start = changed / 32 * 32;
    // A mark, if the log was idle before the record came.
    while after[start + 7] == 2 {
        start += 32;
    }
    let body = u32::from_le_bytes(after[start + 20..start + 24].try_into().expect("four bytes"));
    let end = start + 32 + body as usize;
    let sectors: Vec<usize> = (start.next_multiple_of(512)..end - 512).step_by(512).collect();
    assert!(sectors.len() > 5, "{start}..{end}");
    for lost in sectors {
        let mut torn = after.clone();
        torn[lost..lost + 512].fill(0);
        // Nothing was written after it.
        torn[end..].fill(0);
        let other = tempfile::tempdir().expect("a folder");
        for (path, bytes) in [(manifest, contents), (log, &torn)] {
            let copy = other.path().join(path.strip_prefix(folder.path()).expect("inside"));
            fs::create_dir_all(copy.parent().expect("a folder")).expect("made");
            fs::write(copy, bytes).expect("written");
        }
        let process = Process::serve(other.path(), &[]);
        let mut wire = Wire::connect(process.address).expect("connected");
        let rows = wire.query("SELECT id FROM t ORDER BY id").expect("rows");
        assert_eq!(rows, [[Some("1".to_owned())]], "lost at {lost}");
        wire.query("INSERT INTO t VALUES (3, 'goes on')").expect("inserted");
    }
}

/// Every byte of every file, in memory: none is skipped without a word.
#[test]
fn a_flip_of_any_byte_is_named() {
    let seed = cognate_env::RealRng.next_u64();
    println!("seed {seed}");
    let (disk, mut random) = (SimDisk::new(seed), SplitMix::new(seed));
    let open = || {
        let mut options = Options::new("data").memory(4 << 20);
        options.disk = disk.handle();
        Database::open_with(options)
    };
    let database = open().expect("opened");
    let mut session = database.session().expect("a session");
    for statement in BEFORE.into_iter().chain(BETWEEN).chain(AFTER) {
        session.execute(statement, &[]).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    drop(session);
    disk.power_off_after(0);
    drop(database);
    disk.restart(Loss::Process);
    let mut flips = 0;
    for (path, bytes) in disk.files() {
        let name = path.to_str().expect("UTF-8").to_owned();
        if name.ends_with("prepared") || name.ends_with("lock") {
            continue;
        }
        // Every byte of what is small; of what is long a few thousand, all over.
        let end = written(&bytes);
        let step = 1 + end / 3000;
        for at in (0..end).step_by(step) {
            let offset = at + random.below(step.min(end - at) as u64) as usize;
            disk.flip(&path, offset as u64, 1 << random.below(8));
            let error =
                open().err().unwrap_or_else(|| panic!("a flip at {offset} of {name} was not noticed"));
            assert_eq!(error.sqlstate, "XX001", "{error}");
            names(&error.message, &path, offset);
            // Nothing was changed by the attempt; the byte as it was makes it whole. It alone is
            // read: all files are megabytes, and this is done thousands of times.
            let mut found = [0_u8];
            let file = disk.handle().open(&path, OpenMode::Read).expect("still there");
            assert_eq!(file.read_at(&mut found, offset as u64).expect("read"), 1);
            disk.flip(&path, offset as u64, found[0] ^ bytes[offset]);
            flips += 1;
        }
    }
    assert!(flips > 5000, "{flips}");
    open().expect("whole again");
}
