//! Finding a family among few and among many, by one client: through the wire, and in this process
//! on one thread, by SQL as `SHOW MIPT` does, and in the engine alone.
//!
//! Two databases: one with a thousand decided families (an empty one has nothing to find), one with
//! a million forgotten ones and a tenth as many decided ones; each after a checkpoint, so that
//! nothing of a family is in memory but what the block cache holds. Forgotten XIDs have no client's
//! number, so that each leaves a row of its own: numbered ones would leave one row a client, and
//! BEGIN of a client's next number searches nothing. Timed are the table of a random decided family
//! (`family`, in the engine; `show`, `SELECT * FROM cognate_mip_show($1)`), and BEGIN of a fresh
//! XID with its rollback (`begin`), which has to find that nothing is known of it.
//!
//! The goal is about what a client waits for, through the wire. A search in a tree is logarithmic:
//! 1.1 million keys are twenty halvings, two thousand are eleven, and the few families lie in the
//! processor's caches, the many do not. So in the engine alone *flat* cannot be one; a scan would
//! be 500 times. Each is timed in several passes over the same keys, in turns on both databases.
//! The first reads blocks that the cache does not have, which costs a read of the file each: how
//! many is told by the growth of the cache, and what they cost by the first pass, which does not
//! count.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use cognate_engine::sibling::{Begun, Instance, Limits, Text, Xid};
use cognate_engine::{Database, Isolation, Options, Value};
use serde_json::{Map, json};

use super::{Bench, blank, median, median_ratio};
use crate::error::{DatabaseContext, Error, IoContext, Result};
use crate::peer::{System, fresh_folder};
use crate::progress;
use crate::random::Random;
use crate::report::{align, number};

type Parameters = Map<String, serde_json::Value>;

/// The table of a family, through the wire.
pub(super) const SHOW: &str = "lookup_wire_show_of_few";
/// BEGIN of a fresh XID and its rollback, through the wire.
pub(super) const BEGIN: &str = "lookup_wire_begin_of_few";

/// Decided families of the small database.
const FEW: u32 = 1_000;
/// Operations of a pass: more than the engine keeps of families that were begun and given up, for
/// each pass begins the same ones.
const PASS: u32 = 24_000;
/// Operations of a pass through the wire.
const WIRE_PASS: u32 = 4_000;
/// Passes that count.
const PASSES: usize = 9;
/// The folders of the databases.
const NAMES: [&str; 2] = ["few", "many"];

fn failed(error: cognate_engine::Error) -> Error {
    Error::Server(format!("the engine: {error}"))
}

/// Measures both.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let folder = fresh_folder(bench.args.server.directory.as_deref())?;
    let (families, seed) = (bench.args.families, bench.args.seed);
    let path = folder.path().to_owned();
    let measured = tokio::task::spawn_blocking(move || both(&path, families, seed)).await;
    let mut stores = measured.map_err(|panic| Error::Server(format!("the lookups failed: {panic}")))??;
    by_wire(bench, folder.path(), &mut stores).await?;
    let [few, many] = stores;
    let mut rows = vec![
        [
            "families",
            "family µs",
            "first pass",
            "its misses",
            "begin µs",
            "first pass",
            "its misses",
            "show µs",
            "wire: show µs",
            "wire: begin µs",
        ]
        .map(str::to_owned),
    ];
    for of in [&few, &many] {
        let mut row = vec![of.name.clone()];
        for op in [&of.family, &of.begin] {
            row.extend([number(median(&op.micros)), number(op.first_micros), op.first_misses.to_string()]);
        }
        row.extend([&of.show, &of.wire_show, &of.wire_begin].map(|passes| number(median(passes))));
        rows.extend(<[String; 10]>::try_from(row));
    }
    println!("{}", align(&rows, 1));
    for (of, small) in [(&few, None), (&many, Some(&few))] {
        bench.push(blank("cognate", of.in_engine(seed, small)));
        bench.push(blank("cognate", of.by_statements(seed, small)));
    }
    Ok(())
}

/// What was timed of one operation.
#[derive(Default)]
struct Timed {
    /// Microseconds each, in the first pass.
    first_micros: f64,
    /// Blocks that came into the cache in it, by its growth.
    first_misses: u64,
    /// Microseconds each, by pass.
    micros: Vec<f64>,
}

struct Store {
    name: String,
    /// Open until it is asked by SQL.
    database: Option<Database>,
    seed: u64,
    live: u32,
    family: Timed,
    begin: Timed,
    /// Microseconds of each by SQL in this process, by pass.
    show: Vec<f64>,
    /// Through the wire.
    wire_show: Vec<f64>,
    wire_begin: Vec<f64>,
}

fn both(folder: &Path, families: u32, seed: u64) -> Result<[Store; 2]> {
    let mut stores = [
        Store::fill(&folder.join("few"), 0, FEW, seed)?,
        Store::fill(&folder.join("many"), families, families / 10, seed)?,
    ];
    for store in &mut stores {
        store.first()?;
    }
    for pass in 0..PASSES {
        for turn in 0..2 {
            let store = &mut stores[(turn + pass) % 2];
            let micros = store.pass(LIVE, Store::find)?;
            store.family.micros.push(micros);
            let micros = store.pass(FRESH, Store::begin_fresh)?;
            store.begin.micros.push(micros);
        }
    }
    for store in &mut stores {
        if let Some(database) = store.database.take() {
            database.close().map_err(failed)?;
        }
    }
    by_sql(folder, &mut stores).map_err(|error| Error::Server(error.to_string()))?;
    Ok(stores)
}

/// Times the tables of random families by SQL, in turns; the first pass fills the caches.
fn by_sql(folder: &Path, stores: &mut [Store; 2]) -> cognate::Result<()> {
    let mut sessions = Vec::new();
    for (store, name) in stores.iter().zip(NAMES) {
        let database = cognate::Database::open(folder.join(name))?;
        let mut session = database.session()?;
        let show = session.prepare("SELECT * FROM cognate_mip_show($1)")?;
        let names = store.names(LIVE).map_err(|error| cognate::Error::internal(error.to_string()))?;
        sessions.push((database, session, show, names));
    }
    for pass in 0..=PASSES {
        for turn in 0..2 {
            let index = (turn + pass) % 2;
            let (_, session, show, names) = &mut sessions[index];
            let since = Instant::now();
            for name in names.iter() {
                black_box(session.query(&*show, &[&name.as_str()])?);
            }
            if pass > 0 {
                stores[index].show.push(since.elapsed().as_secs_f64() * 1e6 / names.len() as f64);
            }
        }
    }
    for (database, session, ..) in sessions {
        drop(session);
        database.close()?;
    }
    Ok(())
}

/// The same through the wire, and BEGIN and ROLLBACK of fresh XIDs, by one client of a server each.
async fn by_wire(bench: &Bench<'_>, folder: &Path, stores: &mut [Store; 2]) -> Result<()> {
    const GRACE: Duration = Duration::from_secs(10);
    let mut clients = Vec::new();
    for name in NAMES {
        let mut system = System::start_cognate(&bench.args.server.cognate()).await?;
        if let Some(server) = system.cognate() {
            server.stop(GRACE);
            std::fs::remove_dir_all(server.data()).doing("removing an empty database")?;
            std::fs::rename(folder.join(name), server.data()).doing("giving a server its database")?;
            server.restart().await?;
        }
        let client = system.client().await?;
        let prepare = async |sql: &str| client.prepare(sql).await.at(name, sql);
        let show = prepare("SELECT * FROM cognate_mip_show($1)").await?;
        let begin = prepare("SELECT * FROM cognate_mip_begin($1, 1)").await?;
        let rollback = prepare("ROLLBACK").await?;
        clients.push((system, client, show, begin, rollback));
    }
    for pass in 0..=PASSES {
        for turn in 0..2 {
            let index = (turn + pass) % 2;
            let (_, client, show, begin, rollback) = &clients[index];
            let store = &mut stores[index];
            let live = store.names(LIVE)?;
            let since = Instant::now();
            for name in live.iter().take(WIRE_PASS as usize) {
                client.query_one(show, &[&name.as_str()]).await.at(NAMES[index], "showing a family")?;
            }
            let shown = since.elapsed();
            // Others in each pass: those that were begun and given up are known for a while.
            let first = PASS + pass as u32 * WIRE_PASS;
            let fresh: Result<Vec<Xid>> =
                (first..first + WIRE_PASS).map(|n| xid(store.seed, FRESH, n)).collect();
            let fresh = fresh?;
            let since = Instant::now();
            for name in &fresh {
                client.query(begin, &[&name.as_str()]).await.at(NAMES[index], "BEGIN MIP")?;
                client.execute(rollback, &[]).await.at(NAMES[index], "ROLLBACK")?;
            }
            let begun = since.elapsed();
            if pass > 0 {
                let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(WIRE_PASS);
                store.wire_show.push(micros(shown));
                store.wire_begin.push(micros(begun));
            }
        }
    }
    Ok(())
}

/// The name of a family: no client's number, and spread over all keys.
fn xid(seed: u64, kind: u64, n: u32) -> Result<Xid> {
    let name = Random::stream(seed, kind, u64::from(n)).next_u64();
    Xid::new(format!("{name:016x}-{n:08x}")).map_err(|refusal| failed(refusal.into()))
}

const FORGOTTEN: u64 = 71;
const LIVE: u64 = 72;
const FRESH: u64 = 73;

fn first_instance() -> Result<Instance> {
    Instance::new(1).map_err(|refusal| failed(refusal.into()))
}

fn begin(database: &Database, xid: Xid) -> Result<cognate_engine::Transaction> {
    match database.begin_instance(xid, first_instance()?, Isolation::Snapshot).map_err(failed)? {
        Begun::Active(transaction) => Ok(*transaction),
        Begun::Decided(_) => Err(Error::Violation("a fresh family is decided".to_owned())),
    }
}

impl Store {
    fn parameters(&self, way: &str, seed: u64) -> Parameters {
        let case = format!("lookup {way}, {}", self.name);
        Map::from_iter([("case".to_owned(), json!(case)), ("seed".to_owned(), json!(seed))])
    }

    /// What was measured in the engine alone; `few` is the small database, if this is the other.
    fn in_engine(&self, seed: u64, few: Option<&Store>) -> Parameters {
        let mut params = self.parameters("in the engine", seed);
        for (name, op, few) in [
            ("family", &self.family, few.map(|few| &few.family)),
            ("begin", &self.begin, few.map(|few| &few.begin)),
        ] {
            params.insert(format!("{name}_us"), json!(median(&op.micros)));
            params.insert(format!("{name}_us_of_passes"), json!(op.micros));
            params.insert(format!("{name}_us_first_pass"), json!(op.first_micros));
            params.insert(format!("{name}_misses_first_pass"), json!(op.first_misses));
            if let Some(few) = few {
                params.insert(format!("lookup_{name}_of_few"), json!(median_ratio(&op.micros, &few.micros)));
            }
        }
        params
    }

    /// What was measured by statements, at the level that sessions have by themselves.
    fn by_statements(&self, seed: u64, few: Option<&Store>) -> Parameters {
        let mut params = self.parameters("by SQL", seed);
        params.insert("isolation".to_owned(), json!("serializable"));
        for (name, ratio, passes, few) in [
            ("show", "lookup_show_of_few", &self.show, few.map(|few| &few.show)),
            ("wire_show", SHOW, &self.wire_show, few.map(|few| &few.wire_show)),
            ("wire_begin", BEGIN, &self.wire_begin, few.map(|few| &few.wire_begin)),
        ] {
            params.insert(format!("{name}_us"), json!(median(passes)));
            params.insert(format!("{name}_us_of_passes"), json!(passes));
            if let Some(few) = few {
                params.insert(ratio.to_owned(), json!(median_ratio(passes, few)));
            }
        }
        params
    }

    fn fill(path: &Path, forgotten: u32, live: u32, seed: u64) -> Result<Store> {
        let database = Database::open(Options::new(path)).map_err(failed)?;
        let bar = progress::steps("families", u64::from(forgotten) + u64::from(live));
        let (request, result) = (Text::from("a request"), Text::from("its result"));
        let decide = |xid: &Xid| -> Result<cognate_engine::DurableWait> {
            let transaction = begin(&database, xid.clone())?;
            transaction
                .prepare_instance(&request, &result, Value::new(), Limits::default())
                .map_err(failed)?;
            Ok(database.commit_instance(xid, first_instance()?).map_err(failed)?.durable)
        };
        for n in 0..forgotten {
            let xid = xid(seed, FORGOTTEN, n)?;
            decide(&xid)?;
            let durable = database.forget_family(&xid).map_err(failed)?;
            if n % 1_000 == 999 {
                durable.wait().map_err(failed)?;
                bar.inc(1_000);
            }
        }
        for n in 0..live {
            let durable = decide(&xid(seed, LIVE, n)?)?;
            if n % 1_000 == 999 {
                durable.wait().map_err(failed)?;
                bar.inc(1_000);
            }
        }
        database.checkpoint().map_err(failed)?;
        bar.finish_and_clear();
        let name = format!("{live} decided, {forgotten} forgotten");
        Ok(Store {
            name,
            database: Some(database),
            seed,
            live,
            family: Timed::default(),
            begin: Timed::default(),
            show: Vec::new(),
            wire_show: Vec::new(),
            wire_begin: Vec::new(),
        })
    }

    /// The first passes: of what they cost, the reads of blocks are the most.
    fn first(&mut self) -> Result<()> {
        const BLOCK: u64 = 4096;
        let cached =
            |store: &Store| store.database().map_or(0, |database| database.statistics().base.cache_bytes);
        let before = cached(self);
        self.family.first_micros = self.pass(LIVE, Store::find)?;
        let between = cached(self);
        self.family.first_misses = (between - before.min(between)) / BLOCK;
        self.begin.first_micros = self.pass(FRESH, Store::begin_fresh)?;
        let after = cached(self);
        self.begin.first_misses = (after - between.min(after)) / BLOCK;
        Ok(())
    }

    /// The names of random live families, or of fresh ones: the same in each pass.
    fn names(&self, kind: u64) -> Result<Vec<Xid>> {
        let mut random = Random::stream(self.seed, 74, 0);
        let name = |n: u32, random: &mut Random| match kind {
            LIVE => xid(self.seed, LIVE, random.between(0, i64::from(self.live) - 1) as u32),
            _ => xid(self.seed, kind, n),
        };
        (0..PASS).map(|n| name(n, &mut random)).collect()
    }

    /// Times an operation on live families, or on fresh ones; microseconds each.
    fn pass(&self, kind: u64, operation: impl Fn(&Store, Xid) -> Result<()>) -> Result<f64> {
        // Making the names is not what is timed.
        let names = self.names(kind)?;
        let since = Instant::now();
        for xid in names {
            operation(self, xid)?;
        }
        Ok(since.elapsed().as_secs_f64() * 1e6 / f64::from(PASS))
    }

    fn database(&self) -> Result<&Database> {
        self.database.as_ref().ok_or_else(|| Error::Missing("the engine's database".to_owned()))
    }

    fn find(&self, xid: Xid) -> Result<()> {
        black_box(self.database()?.family(&xid).map_err(failed)?);
        Ok(())
    }

    fn begin_fresh(&self, xid: Xid) -> Result<()> {
        begin(self.database()?, xid)?.rollback();
        Ok(())
    }
}
