//! Rounds of load on a real server, each ended by `kill -9` at a random moment, a restart and a
//! judgement.
//!
//! A round: clients run transactions that insert, change and remove entries, move the entries'
//! amounts between accounts, and at times roll back on purpose. The server is killed; it is started
//! again on the same folder; then
//! - each client's entries are judged against its ledger (see [`super::ledger`]);
//! - the accounts' balances are those that the entries make;
//! - the unique index and the plain index give the same entries as the table, entry by entry.
//!
//! The next round goes on with the same data, so damage done early is seen late too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::{Client, Config};

use super::ledger::{Change, Entry, EntryKey, Ledger, balances};
use crate::error::{DatabaseContext, Error, Result, is_retryable};
use crate::peer::{self, System};
use crate::random::Random;

/// What each account begins with.
const INITIAL: i64 = 1_000_000;
/// How long after a kill the clients may take to notice.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);

/// How the rounds are run.
#[derive(Clone, Copy, Debug)]
pub struct CrashPlan {
    /// How often the server is killed.
    pub rounds: u32,
    /// Clients under load.
    pub clients: i32,
    /// Accounts that the entries move amounts between.
    pub accounts: i32,
    /// The longest time from the beginning of the load to the kill.
    pub longest: Duration,
    /// Determines the moments of the kills and all requests (not their interleaving).
    pub seed: u64,
}

/// What a round showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundResult {
    /// Transactions acknowledged in this round.
    pub acknowledged: u64,
    /// Transactions in doubt at the kill, and how many of these had committed.
    pub in_doubt: u64,
    /// See [`RoundResult::in_doubt`].
    pub in_doubt_committed: u64,
    /// Entries in the table after the restart.
    pub entries: usize,
    /// Seconds from the start of the process until it answered.
    pub restart_seconds: f64,
}

/// Makes the tables of the ledger.
pub async fn create(system: &System, plan: &CrashPlan) -> Result<()> {
    let client = system.client().await?;
    let statements = [
        "CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL)".to_owned(),
        "CREATE TABLE entry (client integer NOT NULL, number integer NOT NULL, source integer NOT NULL, \
         target integer NOT NULL, amount bigint NOT NULL, tag text NOT NULL, note text NOT NULL, \
         PRIMARY KEY (client, number))"
            .to_owned(),
        "CREATE UNIQUE INDEX entry_tag ON entry (tag)".to_owned(),
        "CREATE INDEX entry_source ON entry (source)".to_owned(),
    ];
    system.execute_each(&client, &statements).await?;
    let insert = client
        .prepare("INSERT INTO account (id, balance) VALUES ($1, $2)")
        .await
        .at(&system.name, "preparing an insert")?;
    for id in 1..=plan.accounts {
        client.execute(&insert, &[&id, &INITIAL]).await.at(&system.name, "filling the accounts")?;
    }
    Ok(())
}

/// One round: load, kill, restart, judgement.
pub async fn round(
    system: &mut System,
    plan: &CrashPlan,
    number: u32,
    ledgers: &mut Vec<Ledger>,
) -> Result<RoundResult> {
    let before: u64 = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    let mut random = Random::stream(plan.seed, 0, u64::from(number));
    let moment = Duration::from_millis(random.between(20, plan.longest.as_millis().max(21) as i64) as u64);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for ledger in std::mem::take(ledgers) {
        let random = Random::stream(plan.seed, 1 + u64::from(number), ledger.client as u64);
        let (config, stop) = (system.config().clone(), Arc::clone(&stop));
        let accounts = plan.accounts;
        tasks.spawn(async move { load(config, ledger, random, accounts, &stop).await });
    }
    tokio::time::sleep(moment).await;
    let name = system.name.clone();
    let server = system
        .cognate()
        .ok_or_else(|| Error::Usage("only a server started here can be killed".to_owned()))?;
    server.kill()?;
    stop.store(true, Ordering::Release);
    let noticed = tokio::time::timeout(NOTICE_LIMIT, tasks.join_all()).await;
    *ledgers = noticed
        .map_err(|_| Error::Timeout("clients did not notice that the server was killed".to_owned()))?
        .into_iter()
        .collect::<Result<Vec<Ledger>, String>>()
        .map_err(|text| Error::Violation(format!("{name}: round {number}: {text}")))?;
    let restart = server.restart().await?;
    let in_doubt = ledgers.iter().filter(|ledger| ledger.in_doubt.is_some()).count() as u64;
    let (entries, in_doubt_committed) = judge(system, plan, number, ledgers).await?;
    Ok(RoundResult {
        acknowledged: ledgers.iter().map(|ledger| ledger.acknowledged).sum::<u64>() - before,
        in_doubt,
        in_doubt_committed,
        entries,
        restart_seconds: restart.as_secs_f64(),
    })
}

/// How a transaction of the load ended.
enum Ended {
    Acknowledged,
    Refused,
    /// The connection broke; true if the COMMIT had been sent.
    Broken {
        commit_sent: bool,
    },
}

/// Runs transactions until the connection breaks. An error that no kill explains is returned as
/// text.
async fn load(
    config: Config,
    mut ledger: Ledger,
    mut random: Random,
    accounts: i32,
    stop: &AtomicBool,
) -> Result<Ledger, String> {
    let Ok(client) = peer::connect(&config).await else {
        // Killed before this client was even connected.
        return Ok(ledger);
    };
    while !stop.load(Ordering::Acquire) {
        let change = draw(&ledger, &mut random, accounts);
        let give_up = random.chance(10);
        match transact(&client, &ledger, &change, give_up).await? {
            Ended::Acknowledged => ledger.acknowledge(&change),
            Ended::Refused => {}
            Ended::Broken { commit_sent } => {
                ledger.in_doubt = commit_sent.then_some(change);
                break;
            }
        }
    }
    Ok(ledger)
}

/// Draws a transaction: one to three new entries, at times a changed and a removed one.
fn draw(ledger: &Ledger, random: &mut Random, accounts: i32) -> Change {
    let client = ledger.client;
    let next = ledger.entries.last_key_value().map_or(1, |((_, number), _)| number + 1);
    let mut change = Change::default();
    for number in next..next + random.int(1, 3) {
        change.put.push(((client, number), draw_entry(random, accounts, client, number)));
    }
    let old: Vec<EntryKey> = match ledger.entries.len() {
        0..4 => Vec::new(),
        _ => {
            let at = random.int(1, next - 1);
            ledger.entries.range((client, at)..).take(2).map(|(key, _)| *key).collect()
        }
    };
    if let [changed, removed] = old[..] {
        if random.chance(30) {
            change.put.push((changed, draw_entry(random, accounts, client, changed.1)));
        }
        if random.chance(30) {
            change.removed.push(removed);
        }
    }
    change
}

fn draw_entry(random: &mut Random, accounts: i32, client: i32, number: i32) -> Entry {
    let source = random.int(1, accounts);
    let target = source % accounts + 1;
    let mut tag = String::new();
    random.letters(12, 12, &mut tag);
    let tag = format!("{tag}-{client}-{number}");
    Entry { source, target, amount: random.between(1, 100), tag }
}

async fn transact(client: &Client, ledger: &Ledger, change: &Change, give_up: bool) -> Result<Ended, String> {
    let mut commit_sent = false;
    let done = async {
        client.batch_execute("BEGIN").await?;
        for (key, entry) in &change.put {
            write_entry(client, *key, entry, ledger.entries.get(key)).await?;
        }
        for key in &change.removed {
            client.execute("DELETE FROM entry WHERE client = $1 AND number = $2", &[&key.0, &key.1]).await?;
            if let Some(old) = ledger.entries.get(key) {
                transfer(client, old.target, old.source, old.amount).await?;
            }
        }
        if give_up {
            return client.batch_execute("ROLLBACK").await.map(|()| Ended::Refused);
        }
        commit_sent = true;
        client.batch_execute("COMMIT").await.map(|()| Ended::Acknowledged)
    };
    let error = match done.await {
        Ok(ended) => return Ok(ended),
        Err(error) => error,
    };
    if is_retryable(&error) {
        return match client.batch_execute("ROLLBACK").await {
            Ok(()) => Ok(Ended::Refused),
            Err(_) => Ok(Ended::Broken { commit_sent: false }),
        };
    }
    // A killed process sends no error message: one that comes is the server's own failure.
    match error.as_db_error() {
        None => Ok(Ended::Broken { commit_sent }),
        Some(_) => Err(format!("client {}: {}", ledger.client, crate::error::describe(&error))),
    }
}

async fn write_entry(
    client: &Client,
    key: EntryKey,
    entry: &Entry,
    old: Option<&Entry>,
) -> Result<(), tokio_postgres::Error> {
    let Entry { source, target, amount, tag } = entry;
    let sql = match old {
        None => {
            "INSERT INTO entry (source, target, amount, tag, note, client, number) \
             VALUES ($1, $2, $3, $4, repeat($4, 10), $5, $6)"
        }
        Some(old) => {
            transfer(client, old.target, old.source, old.amount).await?;
            "UPDATE entry SET source = $1, target = $2, amount = $3, tag = $4, note = repeat($4, 20) \
             WHERE client = $5 AND number = $6"
        }
    };
    client.execute(sql, &[source, target, amount, tag, &key.0, &key.1]).await?;
    transfer(client, *source, *target, *amount).await
}

async fn transfer(
    client: &Client,
    source: i32,
    target: i32,
    amount: i64,
) -> Result<(), tokio_postgres::Error> {
    // The lower number first: no two clients wait for each other.
    let mut steps = [(source, -amount), (target, amount)];
    steps.sort_unstable();
    for (account, change) in steps {
        client
            .execute("UPDATE account SET balance = balance + $2 WHERE id = $1", &[&account, &change])
            .await?;
    }
    Ok(())
}

/// Reads everything back and judges it; returns the number of entries and of committed transactions
/// in doubt.
async fn judge(
    system: &System,
    plan: &CrashPlan,
    number: u32,
    ledgers: &mut [Ledger],
) -> Result<(usize, u64)> {
    let violated = |text: String| Error::Violation(format!("{}: round {number}: {text}", system.name));
    let client = system.client().await?;
    let held = read_entries(system, &client, "SELECT client, number, source, target, amount, tag FROM entry")
        .await?;
    let mut by_client: BTreeMap<i32, BTreeMap<EntryKey, Entry>> = BTreeMap::new();
    for (key, entry) in &held {
        by_client.entry(key.0).or_default().insert(*key, entry.clone());
    }
    let mut committed = 0;
    for ledger in ledgers {
        let own = by_client.remove(&ledger.client).unwrap_or_default();
        committed += u64::from(ledger.judge(own).map_err(violated)?);
    }
    if let Some(stranger) = by_client.keys().next() {
        return Err(violated(format!("entries of client {stranger}, which does not exist")));
    }
    judge_balances(system, &client, plan, &held).await?.map_err(violated)?;
    judge_indexes(system, &client, plan, &held).await?.map_err(violated)?;
    Ok((held.len(), committed))
}

async fn read_entries(system: &System, client: &Client, sql: &str) -> Result<BTreeMap<EntryKey, Entry>> {
    let rows = client.query(sql, &[]).await.at(&system.name, sql)?;
    let mut entries = BTreeMap::new();
    for row in rows {
        let key = (row.get(0), row.get(1));
        let entry = Entry { source: row.get(2), target: row.get(3), amount: row.get(4), tag: row.get(5) };
        if entries.insert(key, entry).is_some() {
            return Err(Error::Violation(format!("{}: entry {key:?} is there twice ({sql})", system.name)));
        }
    }
    Ok(entries)
}

type Judgement = Result<(), String>;

async fn judge_balances(
    system: &System,
    client: &Client,
    plan: &CrashPlan,
    held: &BTreeMap<EntryKey, Entry>,
) -> Result<Judgement> {
    let sql = "SELECT id, balance FROM account ORDER BY id";
    let rows = client.query(sql, &[]).await.at(&system.name, sql)?;
    let found: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
    let expected = balances(held, plan.accounts, INITIAL);
    Ok(match found == expected {
        true => Ok(()),
        false => {
            let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
            Err(format!("{wrong} of {} accounts do not hold what the entries make", plan.accounts))
        }
    })
}

/// The table through its indexes: every entry by its tag, and the entries of every account by
/// source.
async fn judge_indexes(
    system: &System,
    client: &Client,
    plan: &CrashPlan,
    held: &BTreeMap<EntryKey, Entry>,
) -> Result<Judgement> {
    let name = &system.name;
    let by_tag = client
        .prepare("SELECT client, number FROM entry WHERE tag = $1")
        .await
        .at(name, "preparing a read by tag")?;
    for (key, entry) in held {
        let rows = client.query(&by_tag, &[&entry.tag]).await.at(name, "reading by tag")?;
        let found: Vec<EntryKey> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        if found != [*key] {
            return Ok(Err(format!("the unique index gives {found:?} for the tag of entry {key:?}")));
        }
    }
    let in_order =
        "SELECT client, number, source, target, amount, tag FROM entry WHERE tag >= '' ORDER BY tag";
    if read_entries(system, client, in_order).await? != *held {
        return Ok(Err("a scan of the unique index differs from the table".to_owned()));
    }
    let by_source = client
        .prepare("SELECT client, number FROM entry WHERE source = $1 ORDER BY client, number")
        .await
        .at(name, "preparing a read by source")?;
    for account in 1..=plan.accounts {
        let rows = client.query(&by_source, &[&account]).await.at(name, "reading by source")?;
        let found: Vec<EntryKey> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let expected: Vec<EntryKey> =
            held.iter().filter(|(_, entry)| entry.source == account).map(|(key, _)| *key).collect();
        if found != expected {
            return Ok(Err(format!(
                "the index on source gives {} entries for account {account}, the table {}",
                found.len(),
                expected.len()
            )));
        }
    }
    Ok(Ok(()))
}
