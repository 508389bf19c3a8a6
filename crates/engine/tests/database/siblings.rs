//! Sibling transactions through the public face: what the paper's §§2, 3.2 and 3.3 promise, on a
//! real store.

use std::collections::BTreeMap;

use cognate_engine::sibling::{Begun, Instance, Limits, Mipt, Refusal, State, Text, Told, Xid};
use cognate_engine::{
    Access, Database, Error, Isolation, LockMode, LockOutcome, Options, Transaction, WaitPolicy,
};
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk};

use super::support::{Seed, all, begin, block_on, fresh, in_simulation, seeds, value, write};

const ROW: LockMode = LockMode::Exclusive;

fn xid(text: &str) -> Xid {
    Xid::new(text).unwrap()
}

fn at(number: i64) -> Instance {
    Instance::new(number).unwrap()
}

fn started(database: &Database, name: &str, number: i64) -> Transaction {
    match database.begin_instance(xid(name), at(number), Isolation::Serializable).unwrap() {
        Begun::Active(transaction) => *transaction,
        Begun::Decided(told) => panic!("{:?}", told.table),
    }
}

async fn put(t: &mut Transaction, key: &str, content: &str) {
    t.lock(7, key.as_bytes(), ROW, WaitPolicy::Block).await.unwrap();
    t.put(7, key.as_bytes(), value(content)).unwrap();
}

fn prepared(t: Transaction, result: &str) -> Result<Told, Error> {
    t.prepare_instance(&Text::from("request"), &Text::from(result), value(""), Limits::default())
}

fn states(table: &Mipt) -> String {
    let line = |entry: &cognate_engine::sibling::Entry| {
        format!("{}:{:?}:{}", entry.instance, entry.state, entry.result.as_deref().unwrap_or("-"))
    };
    table.entries.iter().map(line).collect::<Vec<_>>().join(" ")
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn siblings_work_side_by_side_on_pre_images_and_one_commits() {
    let (database, _folder) = fresh();
    write(&database, 7, &[("stock", Some("10"))]);
    let (mut first, mut second) = (started(&database, "x", 1), started(&database, "x", 2));
    put(&mut first, "stock", "9").await;
    // Not blocked, and not shown what its sibling wrote.
    assert_eq!(second.get(7, b"stock").unwrap(), Some(value("10")));
    put(&mut second, "stock", "8").await;
    assert_eq!(first.get(7, b"stock").unwrap(), Some(value("9")));
    let told = prepared(first, "one").unwrap();
    told.durable.await.unwrap();
    assert_eq!(states(&told.table), "1:Prepared:one 2:Active:-");
    let told = prepared(second, "two").unwrap();
    assert_eq!(states(&told.table), "1:Prepared:one 2:Prepared:two");
    assert_eq!(told.table.request.as_deref(), Some("request"));
    // A stranger waits for both.
    let policy = WaitPolicy::SkipLocked;
    assert_eq!(begin(&database).lock(7, b"stock", ROW, policy).await.unwrap(), LockOutcome::Skipped);
    let told = database.commit_instance(&xid("x"), at(1)).unwrap();
    told.durable.await.unwrap();
    assert_eq!(states(&told.table), "1:Committed:one");
    assert_eq!(all(&begin(&database), 7), "stock=9");
    assert!(matches!(begin(&database).lock(7, b"stock", ROW, policy).await, Ok(LockOutcome::Granted { .. })));
    assert_eq!(database.prepared(), []);
    // Again, and too late.
    assert_eq!(states(&database.commit_instance(&xid("x"), at(1)).unwrap().table), "1:Committed:one");
    assert_eq!(
        refusal(database.commit_instance(&xid("x"), at(2))),
        Refusal::DecidedOtherwise { winner: at(1) }
    );
    match database.begin_instance(xid("x"), at(3), Isolation::Serializable).unwrap() {
        Begun::Decided(told) => assert_eq!(states(&told.table), "1:Committed:one"),
        Begun::Active(_) => panic!("the family is decided"),
    }
}

#[tokio::test]
async fn a_prepare_buries_what_is_below_it() {
    let (database, _folder) = fresh();
    let mut slow = started(&database, "x", 1);
    put(&mut slow, "a", "1").await;
    let fast = started(&database, "x", 5);
    let doomed = slow.doomed().unwrap();
    prepared(fast, "five").unwrap();
    doomed.await;
    assert!(matches!(refusal(slow.put(7, b"b", value("1"))), Refusal::InstanceAborted { .. }));
    let told = prepared(slow, "one").unwrap();
    assert_eq!(states(&told.table), "5:Prepared:five");
    assert_eq!(told.table.floor, 5);
    for number in [1, 3] {
        let again = database.begin_instance(xid("x"), at(number), Isolation::Serializable);
        assert_eq!(refusal(again), Refusal::InstanceAborted { instance: at(number), highest: at(5) });
    }
    assert!(matches!(
        begin(&database).lock(7, b"a", ROW, WaitPolicy::SkipLocked).await,
        Ok(LockOutcome::Granted { .. })
    ));
}

/// It is decided and forgotten before its slow instance notices: what that holds is free all the
/// same.
#[tokio::test]
async fn a_prepare_of_a_forgotten_family_leaves_nothing_locked() {
    let (database, _folder) = fresh();
    let mut slow = started(&database, "x", 1);
    put(&mut slow, "a", "1").await;
    prepared(started(&database, "x", 2), "two").unwrap();
    database.commit_instance(&xid("x"), at(2)).unwrap();
    drop(database.forget_family(&xid("x")).unwrap());
    assert_eq!(refusal(prepared(slow, "one")), Refusal::Forgotten);
    let policy = WaitPolicy::SkipLocked;
    assert!(matches!(begin(&database).lock(7, b"a", ROW, policy).await, Ok(LockOutcome::Granted { .. })));
}

#[tokio::test]
async fn a_doomed_instance_does_not_go_on_waiting() {
    let (database, _folder) = fresh();
    let mut holder = begin(&database);
    holder.lock(7, b"a", ROW, WaitPolicy::Block).await.unwrap();
    let mut slow = started(&database, "x", 1);
    let waiting = tokio::spawn(async move { slow.lock(7, b"a", ROW, WaitPolicy::Block).await });
    while database.statistics().waiting_transactions == 0 {
        tokio::task::yield_now().await;
    }
    prepared(started(&database, "x", 2), "two").unwrap();
    database.commit_instance(&xid("x"), at(2)).unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Refused(Refusal::InstanceAborted { .. }))));
    assert_eq!(database.statistics().waiting_transactions, 0);
}

#[tokio::test]
async fn a_number_is_used_once() {
    let (database, _folder) = fresh();
    let first = started(&database, "x", 1);
    let again = || refusal(database.begin_instance(xid("x"), at(1), Isolation::Serializable));
    assert_eq!(again(), Refusal::InstanceInUse { instance: at(1), highest: at(1) });
    first.rollback();
    assert!(matches!(again(), Refusal::InstanceAborted { .. }));
    let second = started(&database, "x", 2);
    prepared(second, "two").unwrap();
    let again = refusal(database.begin_instance(xid("x"), at(2), Isolation::Serializable));
    assert_eq!(again, Refusal::InstanceInUse { instance: at(2), highest: at(2) });
}

#[tokio::test]
async fn refused_operations_change_nothing() {
    let (database, _folder) = fresh();
    let show = |name: &str| database.family(&xid(name)).map(|told| states(&told.table));
    assert_eq!(refusal(show("x")), Refusal::FamilyUnknown);
    assert_eq!(refusal(database.forget_family(&xid("x")).map(drop)), Refusal::FamilyUnknown);
    assert_eq!(
        refusal(database.commit_instance(&xid("x"), at(1))),
        Refusal::InstanceUnknown { instance: at(1) }
    );
    let mut first = started(&database, "x", 1);
    put(&mut first, "a", "1").await;
    assert_eq!(
        refusal(database.commit_instance(&xid("x"), at(1))),
        Refusal::InstanceNotPrepared { instance: at(1) }
    );
    assert_eq!(refusal(database.forget_family(&xid("x")).map(drop)), Refusal::NotDecided);
    prepared(first, "one").unwrap();
    let second = started(&database, "x", 2);
    let other = second.prepare_instance(&"other".into(), &"two".into(), value(""), Limits::default());
    assert_eq!(refusal(other), Refusal::RequestDiffers);
    let limits = Limits { request_bytes: 10, result_bytes: 3 };
    let third = started(&database, "x", 3);
    let large = third.prepare_instance(&"request".into(), &"four".into(), value(""), limits);
    assert_eq!(refusal(large), Refusal::ResultTooLarge { bytes: 4, limit: 3 });
    assert_eq!(show("x").unwrap(), "1:Prepared:one 2:Aborted:- 3:Aborted:-");
    assert_eq!(all(&begin(&database), 7), "");
    database.commit_instance(&xid("x"), at(1)).unwrap();
    assert_eq!(all(&begin(&database), 7), "a=1");
}

#[tokio::test]
async fn families_survive_restarts_and_are_forgotten_for_good() {
    let (mut database, folder) = fresh();
    for name in ["c/1", "c/2", "plain"] {
        let mut first = started(&database, name, 1);
        put(&mut first, name, "1").await;
        prepared(first, "one").unwrap();
        let mut second = started(&database, name, 2);
        put(&mut second, name, "2").await;
        prepared(second, "two").unwrap();
    }
    for round in 0..2 {
        if round == 1 {
            database.close().unwrap();
        }
        drop(database);
        database = Database::open(Options::new(folder.path())).unwrap();
        let doubt = database.in_doubt();
        assert_eq!(doubt.len(), 3);
        assert!(doubt.iter().all(|d| d.instances == [at(1), at(2)] && d.highest == 2 && d.locks == 2));
        assert_eq!(&*doubt[0].request, "request");
        // A third sibling is not in their way, and a stranger is.
        let mut third = started(&database, "c/1", 3 + round);
        put(&mut third, "c/1", "3").await;
        third.rollback();
        let policy = WaitPolicy::SkipLocked;
        assert_eq!(begin(&database).lock(7, b"c/1", ROW, policy).await.unwrap(), LockOutcome::Skipped);
    }
    for name in ["c/1", "c/2", "plain"] {
        let told = database.commit_instance(&xid(name), at(2)).unwrap();
        assert_eq!(states(&told.table), "2:Committed:two");
    }
    drop(database);
    database = Database::open(Options::new(folder.path())).unwrap();
    assert_eq!(all(&begin(&database), 7), "c/1=2 c/2=2 plain=2");
    assert_eq!(states(&database.family(&xid("c/1")).unwrap().table), "2:Committed:two");
    for name in ["c/2", "plain"] {
        database.forget_family(&xid(name)).unwrap().await.unwrap();
    }
    for round in 0..2 {
        for name in ["c/2", "plain"] {
            assert_eq!(refusal(database.family(&xid(name))), Refusal::Forgotten);
            let begun = database.begin_instance(xid(name), at(9), Isolation::Serializable);
            assert_eq!(refusal(begun), Refusal::Forgotten);
            assert_eq!(refusal(database.commit_instance(&xid(name), at(2))), Refusal::Forgotten);
            assert_eq!(refusal(database.forget_family(&xid(name)).map(drop)), Refusal::Forgotten);
        }
        assert_eq!(states(&database.family(&xid("c/1")).unwrap().table), "2:Committed:two");
        if round == 0 {
            database.close().unwrap();
            drop(database);
            database = Database::open(Options::new(folder.path())).unwrap();
        }
    }
    started(&database, "c/3", 1).rollback();
}

/// Its numbers have more gaps than its record has room for.
#[tokio::test]
async fn a_client_that_does_not_count_is_not_executed_again() {
    let (mut database, folder) = fresh();
    let name = |n: i64| format!("c/{}", 10 * n);
    let mut last = None;
    for n in 1..=300 {
        prepared(started(&database, &name(n), 1), "one").unwrap();
        database.commit_instance(&xid(&name(n)), at(1)).unwrap();
        last = Some(database.forget_family(&xid(&name(n))).unwrap());
    }
    last.unwrap().await.unwrap();
    for round in 0..3 {
        for n in 1..=300 {
            let begun = database.begin_instance(xid(&name(n)), at(2), Isolation::Serializable);
            assert_eq!(refusal(begun), Refusal::Forgotten, "round {round}, {n}");
        }
        for other in ["c/15", "c/2995", "c/4000"] {
            started(&database, other, 1).rollback();
        }
        // After what is like a crash, and from the base.
        if round == 1 {
            database.close().unwrap();
        }
        drop(database);
        database = Database::open(Options::new(folder.path())).unwrap();
    }
}

#[tokio::test]
async fn siblings_do_not_close_cycles_with_each_other_and_strangers_do() {
    let (database, _folder) = fresh();
    write(&database, 7, &[("x", Some("50")), ("y", Some("50"))]);
    let skew = async |mut t: Transaction, own: &str| {
        t.get(7, b"x").unwrap();
        t.get(7, b"y").unwrap();
        put(&mut t, own, "-10").await;
        t
    };
    let first = skew(started(&database, "a", 1), "x").await;
    let second = skew(started(&database, "a", 2), "y").await;
    prepared(first, "one").unwrap();
    prepared(second, "two").expect("only one of them will commit");
    let mut stranger = database.begin(Isolation::Serializable, Access::ReadWrite);
    stranger.get(7, b"x").unwrap();
    stranger.get(7, b"y").unwrap();
    stranger.put(7, b"z", value("1")).unwrap();
    stranger.commit().expect("before both");
    let stranger = database.begin(Isolation::Serializable, Access::ReadWrite);
    let rolled_back = skew(started(&database, "b", 1), "z").await;
    drop(stranger);
    prepared(rolled_back, "z").unwrap();
    database.commit_instance(&xid("a"), at(2)).unwrap();
    assert_eq!(all(&begin(&database), 7), "x=50 y=-10 z=1");
}

/// What a table shows as aborted stays so after a crash; what nobody was told need not.
#[tokio::test]
async fn an_abort_that_was_told_survives_a_crash() {
    let (mut database, folder) = fresh();
    started(&database, "told", 1).rollback();
    started(&database, "untold", 1).rollback();
    started(&database, "c/1", 2).rollback();
    let told = database.family(&xid("told")).unwrap();
    told.durable.await.unwrap();
    assert_eq!(states(&told.table), "1:Aborted:-");
    // An instance that cannot be prepared, with one below it that was given up, and an idle one
    // above.
    let open = started(&database, "c/1", 3);
    prepared(started(&database, "c/1", 5), "five").unwrap().durable.await.unwrap();
    started(&database, "c/1", 6).rollback();
    let told = prepared(started(&database, "c/1", 7), "seven").unwrap();
    assert_eq!(states(&told.table), "5:Prepared:five 7:Prepared:seven");
    started(&database, "c/1", 8).rollback();
    let told = database.rollback_instance(&xid("c/1"), at(5)).unwrap();
    assert_eq!(states(&told.table), "7:Prepared:seven 8:Aborted:-");
    told.durable.await.unwrap();
    drop(open);
    drop(database);
    database = Database::open(Options::new(folder.path())).unwrap();
    assert_eq!(states(&database.family(&xid("told")).unwrap().table), "1:Aborted:-");
    let again = |name: &str, number| {
        database.begin_instance(xid(name), at(number), Isolation::Serializable).map(drop)
    };
    assert!(matches!(refusal(again("told", 1)), Refusal::InstanceAborted { .. }));
    assert!(matches!(refusal(again("c/1", 5)), Refusal::InstanceAborted { .. }));
    assert!(matches!(refusal(again("c/1", 8)), Refusal::InstanceAborted { .. }));
    again("untold", 1).unwrap();
    again("told", 2).unwrap();
    assert_eq!(states(&database.family(&xid("c/1")).unwrap().table), "7:Prepared:seven 8:Aborted:-");
}

/// So does what an error says of an instance.
#[tokio::test]
async fn an_abort_that_an_error_told_survives_a_crash() {
    let begun = |database: &Database, name: &str| {
        refusal(database.begin_instance(xid(name), at(1), Isolation::Serializable))
    };
    let (mut database, folder) = fresh();
    for name in ["begin", "commit", "rollback"] {
        started(&database, name, 1).rollback();
        let told = match name {
            "begin" => begun(&database, name),
            "commit" => refusal(database.commit_instance(&xid(name), at(1))),
            _ => refusal(database.rollback_instance(&xid(name), at(1))),
        };
        assert!(matches!(told, Refusal::InstanceAborted { .. }), "{name}: {told:?}");
    }
    // Who is told of it waits for this.
    database.wait_durable(database.certified()).await.unwrap();
    drop(database);
    database = Database::open(Options::new(folder.path())).unwrap();
    for name in ["begin", "commit", "rollback"] {
        assert!(matches!(begun(&database, name), Refusal::InstanceAborted { .. }), "{name}");
    }
}

/// REFUSE is for ever, also of what nobody has begun, and touches nothing that is prepared.
#[tokio::test]
async fn what_is_refused_is_never_prepared() {
    let (mut database, folder) = fresh();
    let told = database.refuse_instances(&xid("c/1"), at(4)).unwrap();
    told.durable.await.unwrap();
    assert_eq!((states(&told.table).as_str(), told.table.request), ("4:Aborted:-", None));
    prepared(started(&database, "x", 2), "two").unwrap();
    let mut slow = started(&database, "x", 5);
    put(&mut slow, "a", "5").await;
    let doomed = slow.doomed().unwrap();
    let told = database.refuse_instances(&xid("x"), at(5)).unwrap();
    assert_eq!(states(&told.table), "2:Prepared:two 5:Aborted:-");
    doomed.await;
    let table = prepared(slow, "five").unwrap().table;
    assert_eq!(states(&table), "2:Prepared:two 5:Aborted:-");
    for round in 0..2 {
        for (name, number) in [("c/1", 3), ("c/1", 4), ("x", 1), ("x", 5)] {
            let begun = database.begin_instance(xid(name), at(number), Isolation::Serializable);
            assert!(matches!(refusal(begun), Refusal::InstanceAborted { .. }), "{round} {name} {number}");
        }
        if round == 0 {
            database.close().unwrap();
            drop(database);
            database = Database::open(Options::new(folder.path())).unwrap();
        }
    }
    prepared(started(&database, "c/1", 5), "five").unwrap();
    let told = database.commit_instance(&xid("c/1"), at(5)).unwrap();
    assert_eq!(states(&told.table), "5:Committed:five");
    let told = database.refuse_instances(&xid("c/1"), at(9)).unwrap();
    assert_eq!(states(&told.table), "5:Committed:five");
    database.forget_family(&xid("c/1")).unwrap().await.unwrap();
    assert_eq!(refusal(database.refuse_instances(&xid("c/1"), at(9))), Refusal::Forgotten);
}

/// Random families on a disk that crashes: decided ones stay decided, prepared ones prepared, and
/// rows say what tables say.
#[test]
fn crashes_change_no_family() {
    for seed in seeds(60) {
        let _named = Seed(seed);
        let (mut random, disk) = (SplitMix::new(seed), SimDisk::new(seed));
        let mut known: std::collections::BTreeMap<String, String> = Default::default();
        for _crash in 0..4 {
            let database = in_simulation(&disk);
            for (name, table) in &known {
                let shown = database.family(&xid(name)).unwrap().table;
                assert_eq!(&states(&shown), table, "seed {seed} {name}");
                let committed = shown.entries.iter().find(|entry| entry.state == State::Committed);
                let row = begin(&database).get(7, name.as_bytes()).unwrap();
                assert_eq!(row, committed.map(|entry| value(&entry.instance.to_string())), "seed {seed}");
            }
            for _ in 0..random.below(20) {
                let name = format!("c/{}", 1 + random.below(6));
                let number = 1 + random.below(5) as i64;
                let told = match random.below(7) {
                    5 => database.refuse_instances(&xid(&name), at(number)),
                    6 => {
                        drop(database.begin_instance(xid(&name), at(number), Isolation::Snapshot));
                        database.family(&xid(&name))
                    }
                    0 | 1 => match database.begin_instance(xid(&name), at(number), Isolation::Snapshot) {
                        Ok(Begun::Active(mut t)) => {
                            block_on(put(&mut t, &name, &number.to_string()));
                            prepared(*t, &format!("r{number}"))
                        }
                        _ => continue,
                    },
                    2 => database.commit_instance(&xid(&name), at(number)),
                    3 => database.rollback_instance(&xid(&name), at(number)),
                    _ => {
                        database.checkpoint().unwrap();
                        continue;
                    }
                };
                if let Ok(told) = told {
                    block_on(told.durable).unwrap();
                    let durable = |entry: &&cognate_engine::sibling::Entry| {
                        matches!(entry.state, State::Prepared | State::Committed)
                            || entry.state == State::Aborted && entry.instance.get() >= told.table.floor
                    };
                    let entries = told.table.entries.iter().filter(durable).cloned().collect();
                    known.insert(name, states(&Mipt { entries, ..told.table.clone() }));
                }
            }
            drop(database);
            disk.restart(if random.one_in(3) { Loss::Process } else { Loss::Power });
        }
    }
}

/// Clients come with their numbers in any order, across restarts and checkpoints: a late instance
/// finds what became of its family, and nobody else does.
#[tokio::test]
async fn what_became_of_a_family_is_found_in_whatever_order_requests_come() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Was {
        Prepared(i64),
        Decided,
        Forgotten,
    }
    for seed in seeds(8) {
        let _named = Seed(seed);
        let (mut database, folder) = fresh();
        let (mut random, mut was, mut number) = (SplitMix::new(seed), BTreeMap::new(), 0);
        for _ in 0..400 {
            let name = format!("{}/{}", ["a", "b", "a/b"][random.below(3) as usize], 1 + random.below(15));
            number += 1;
            let known = was.get(&name).copied();
            match (random.below(40), known) {
                (0, _) => {
                    if random.below(2) == 0 {
                        database.close().unwrap();
                    }
                    drop(database);
                    database = Database::open(Options::new(folder.path())).unwrap();
                }
                (1, _) => database.checkpoint().unwrap(),
                (2..=19, Some(Was::Prepared(instance))) => {
                    database.commit_instance(&xid(&name), at(instance)).unwrap();
                    was.insert(name, Was::Decided);
                }
                (2..=9, Some(Was::Decided)) => {
                    database.forget_family(&xid(&name)).unwrap().await.unwrap();
                    was.insert(name, Was::Forgotten);
                }
                (_, Some(Was::Forgotten)) => {
                    let begun = database.begin_instance(xid(&name), at(number), Isolation::Serializable);
                    assert_eq!(refusal(begun), Refusal::Forgotten, "{name}");
                }
                (_, known) => {
                    let begun = database.begin_instance(xid(&name), at(number), Isolation::Serializable);
                    match (begun.unwrap(), known) {
                        (Begun::Decided(told), Some(Was::Decided)) => {
                            assert_eq!(told.table.request.as_deref(), Some("request"), "{name}");
                        }
                        (Begun::Active(mut instance), None | Some(Was::Prepared(_))) => {
                            put(&mut instance, &name, "1").await;
                            if random.below(3) > 0 {
                                prepared(*instance, "done").unwrap();
                                was.insert(name, Was::Prepared(number));
                            }
                        }
                        (begun, known) => panic!("{name}: {begun:?}, and it was {known:?}"),
                    }
                }
            }
        }
    }
}
