//! `kill -9` of the real process under load, twenty times over one folder.
//!
//! The kill comes when the clients have got a drawn number of acknowledgements, so the moment is
//! any one within the transactions that run at that time.

use std::sync::mpsc;
use std::thread;

use cognate_env::{Rng as _, SplitMix};

use super::judge::judge;
use super::load::{Ledger, Sql, create};
use super::observer::{self, Observer};
use crate::process::Process;
use crate::wire::{Failure, Rows, Wire};

const ROUNDS: u64 = 20;
const CLIENTS: i64 = 6;
const OBSERVERS: u64 = 3;

impl Sql for Wire {
    fn run(&mut self, text: &str) -> Result<Rows, Failure> {
        self.query(text)
    }
}

#[test]
fn twenty_kills_lose_nothing_acknowledged_and_leave_nothing_else() {
    let seed = cognate_env::RealRng.next_u64();
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Process::serve(folder.path(), &[]);
    create(&mut Wire::connect(process.address).expect("connected"));
    observer::create(&mut Wire::connect(process.address).expect("connected"));
    let mut ledgers: Vec<Ledger> = (1..=CLIENTS).map(|client| Ledger::new(client, seed)).collect();
    let mut observers: Vec<Observer> = (0..OBSERVERS).map(|name| Observer::new(name, seed)).collect();
    for _ in 0..ROUNDS {
        let acknowledgements = random.below(60);
        let checkpoint_at = random.below(100);
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for ledger in &mut ledgers {
                let (tell, address) = (tell.clone(), process.address);
                scope.spawn(move || {
                    let mut wire = Wire::connect(address)?;
                    loop {
                        match ledger.transact(&mut wire) {
                            Ok(true) => _ = tell.send(()),
                            Ok(false) => {}
                            // A killed process says nothing: an error that comes is the server's
                            // own failure.
                            Err(Failure::Error { sqlstate, message, .. }) => panic!("{sqlstate}: {message}"),
                            Err(Failure::Broken) => return Err(Failure::Broken),
                        }
                    }
                    #[allow(unreachable_code, reason = "gives the closure its type")]
                    Ok::<(), Failure>(())
                });
            }
            for observer in &mut observers {
                let address = process.address;
                scope.spawn(move || {
                    let told = |failure: Failure| match failure {
                        Failure::Error { sqlstate, message, .. } => panic!("{sqlstate}: {message}"),
                        Failure::Broken => {}
                    };
                    let Ok(mut wire) = Wire::connect(address) else { return };
                    let mut result = observer.connected(&mut wire);
                    while result.is_ok() {
                        result = observer.act(&mut wire);
                    }
                    _ = result.map_err(told);
                });
            }
            for n in 0..acknowledgements {
                told.recv().expect("clients that go on");
                if n == checkpoint_at {
                    let mut wire = Wire::connect(process.address).expect("connected");
                    wire.query("CHECKPOINT").expect("a checkpoint");
                }
            }
            process.signal("KILL");
        });
        process.wait();
        process = Process::serve(folder.path(), &[]);
        judge(&mut Wire::connect(process.address).expect("connected"), &mut ledgers);
        observer::judge(&mut Wire::connect(process.address).expect("connected"), &observers);
    }
    assert!(observers.iter().all(|observer| observer.told > 0), "an observer was told nothing");
    assert!(ledgers.iter().all(|ledger| !ledger.things.items.is_empty()), "a client got nothing done");
}
