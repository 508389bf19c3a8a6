//! What the tests share.

use std::ops::Bound;

use cognate_engine::{Access, Database, Isolation, Key, Options, Transaction, TreeId, Value};
use cognate_env::sim::SimDisk;

/// An empty database in a folder of its own, gone with the guard.
pub(crate) fn fresh() -> (Database, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Database::open(Options::new(folder.path())).unwrap(), folder)
}

/// A database on a simulated disk.
pub(crate) fn in_simulation(disk: &SimDisk) -> Database {
    let mut options = Options::new("data");
    options.disk = disk.handle();
    Database::open(options).unwrap()
}

pub(crate) fn begin(database: &Database) -> Transaction {
    database.begin(Isolation::Snapshot, Access::ReadWrite)
}

pub(crate) fn value(text: &str) -> Value {
    Value::copy_from_slice(text.as_bytes())
}

/// Commits the given writes (`None` deletes).
pub(crate) fn write(database: &Database, tree: TreeId, rows: &[(&str, Option<&str>)]) {
    let mut t = begin(database);
    for (key, content) in rows {
        match content {
            Some(content) => t.put(tree, key.as_bytes(), value(content)).unwrap(),
            None => t.delete(tree, key.as_bytes()).unwrap(),
        }
    }
    t.commit().unwrap();
}

pub(crate) fn rows(
    t: &Transaction,
    tree: TreeId,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    reverse: bool,
) -> Vec<(Key, Value)> {
    let mut scan = t.scan(tree, range.0, range.1, reverse).unwrap();
    std::iter::from_fn(|| scan.next().unwrap()).collect()
}

pub(crate) fn all(t: &Transaction, tree: TreeId) -> String {
    let rows = rows(t, tree, (Bound::Unbounded, Bound::Unbounded), false);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    rows.iter().map(|(k, v)| format!("{}={}", text(k), text(v))).collect::<Vec<_>>().join(" ")
}

/// Seeds to try: `count`, or that many times `COGNATE_TEST_ROUNDS` for a long run.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let factor = std::env::var("COGNATE_TEST_ROUNDS").ok().and_then(|factor| factor.parse().ok());
    0..count * factor.unwrap_or(1)
}

/// Names the seed of a round that panics.
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// Runs a future on the calling thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
