//! Cognate inside a program: tables, transactions, and how long a point read takes.
//!
//! `cargo run --release --example embedded` (a folder may be given; otherwise a temporary one is
//! used and removed)

use std::time::Instant;

use cognate::{Database, Session};

const ITEMS: i32 = 10_000;
const READS: u32 = 200_000;

fn main() -> cognate::Result<()> {
    let given = std::env::args().nth(1).map(std::path::PathBuf::from);
    let folder = given
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("cognate-embedded-{}", std::process::id())));
    let database = Database::open(&folder)?;
    let outcome = run(&database);
    database.close()?;
    if given.is_none() {
        // A leftover in the temporary folder is not worth a failure.
        let _ = std::fs::remove_dir_all(&folder);
    }
    outcome
}

fn run(database: &Database) -> cognate::Result<()> {
    let mut session = database.session()?;
    session.run_script(
        "DROP TABLE IF EXISTS item;
         CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, stock int NOT NULL CHECK (stock >= 0))",
    )?;
    fill(&mut session)?;
    sell(&mut session, 7, 3)?;

    // What fails leaves nothing behind: the check constraint refuses a negative stock.
    let refused = sell(&mut session, 7, 1_000_000).expect_err("more than there is");
    println!("a sale of a million: {refused}");

    let row = session.query_one("SELECT name, stock FROM item WHERE id = $1", &[&7])?;
    println!("{}: {} left", row.get::<String>("name")?, row.get::<i32>("stock")?);

    read_points(&mut session)
}

fn fill(session: &mut Session) -> cognate::Result<()> {
    let started = Instant::now();
    let mut load = session.begin()?;
    let insert = load.prepare("INSERT INTO item VALUES ($1, $2, $3)")?;
    for id in 0..ITEMS {
        load.execute(&insert, &[&id, &format!("item {id}"), &100])?;
    }
    load.commit()?;
    println!("{ITEMS} rows loaded in {:.0?}, durable", started.elapsed());
    Ok(())
}

fn sell(session: &mut Session, id: i32, count: i32) -> cognate::Result<()> {
    let mut sale = session.begin()?;
    let stock: i32 = sale.query_one("SELECT stock FROM item WHERE id = $1 FOR UPDATE", &[&id])?.get(0)?;
    sale.execute("UPDATE item SET stock = $2 WHERE id = $1", &[&id, &(stock - count)])?;
    sale.commit()
}

fn read_points(session: &mut Session) -> cognate::Result<()> {
    let read = session.prepare("SELECT name, stock FROM item WHERE id = $1")?;
    let started = Instant::now();
    let mut total = 0_i64;
    for i in 0..READS {
        let id = (i.wrapping_mul(2_654_435_761) % ITEMS as u32) as i32;
        total += session.query_one(&read, &[&id])?.get::<i64>(1)?;
    }
    let each = started.elapsed() / READS;
    println!("{READS} point reads, {each:.2?} each (checksum {total})");
    Ok(())
}
