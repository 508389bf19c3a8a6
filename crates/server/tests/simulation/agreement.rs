//! What all nodes have once a storm is over: the same rows, and the same history behind them.

use std::collections::BTreeMap;
use std::time::Duration;

use cognate_engine::{Access, Database, Isolation};

use super::definition::place;
use super::node::Running;
use super::{KEYS, Storm, key, writer_of};

/// How often it is looked whether all nodes are at one position.
const LOOKS: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// The rows of a node, its position, and the digest of what led there.
type Answer = (BTreeMap<usize, usize>, (u64, [u8; 32]));

impl Storm {
    /// Who wrote each key last, as all nodes have it behind this position.
    pub(super) async fn agreed(&self, last: u64) -> BTreeMap<usize, usize> {
        for running in self.running.values() {
            running.up.engine.wait_applied(last).await.unwrap();
        }
        let mut answers = self.answers();
        // What a node says by itself may have come to some of them only.
        for _ in 0..LOOKS {
            if answers.windows(2).all(|pair| pair[0].1.0 == pair[1].1.0) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            answers = self.answers();
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "seed {}: {answers:?}", self.seed);
        answers.swap_remove(0).0
    }

    fn answers(&self) -> Vec<Answer> {
        let of = |running: &Running| (rows(&running.up.engine), running.up.engine.digest().unwrap());
        self.running.values().map(of).collect()
    }
}

/// Who wrote each key last.
fn rows(engine: &Database) -> BTreeMap<usize, usize> {
    let t = engine.begin(Isolation::Snapshot, Access::ReadWrite);
    let tree = place(&t).unwrap();
    let found = |number: usize| Some((number, writer_of(&t.get(tree, &key(number)).unwrap()?)));
    (0..KEYS).filter_map(found).collect()
}
