//! The test kit finds what is declared compatible and is not.

use cognate_composite::matrix::{Line, never, same_item};
use cognate_composite::{Call, Component, Difference, Error, Kit, Result, Service, Undo, service};

use serde_json::{Value, json};

use crate::process::Failure;

/// What the example declares.
#[path = "../../examples/purchase/services.rs"]
#[allow(dead_code, reason = "purchases have numbers, which depend on who came first")]
mod services;

const ADD: Service<i32, ()> = Service::named("tank", "add");
const SET: Service<i32, i32> = Service::named("tank", "set");
const DRAW: Service<i32, ()> = Service::named("tank", "draw");
const LEVEL: Service<(), i32> = Service::named("tank", "level");
const EMPTY: Service<(), ()> = Service::named("tank", "empty");

async fn level(call: Call, (): ()) -> Result<i32> {
    Ok(call.sql().query_one("SELECT level FROM tank", &[]).await?.get(0))
}

async fn raise(call: &Call, by: i32) -> Result<()> {
    call.sql().execute("UPDATE tank SET level = level + $1", &[&by]).await.map(drop)
}

async fn add(call: Call, by: i32) -> Result<()> {
    raise(&call, by).await?;
    call.undo(&-by)
}

async fn draw(call: Call, by: i32) -> Result<()> {
    let lowered = "UPDATE tank SET level = level - $1 WHERE level >= $1";
    match call.sql().execute(lowered, &[&by]).await? {
        0 => Err(Error::refuse("too little is left")),
        _ => call.undo(&by),
    }
}

async fn set(call: Call, to: i32) -> Result<i32> {
    let before: i32 = call.sql().query_one("SELECT level FROM tank", &[]).await?.get(0);
    call.sql().execute("UPDATE tank SET level = $1", &[&to]).await?;
    call.undo(&before)?;
    Ok(before)
}

async fn empty(call: Call, (): ()) -> Result<()> {
    call.sql().execute("UPDATE tank SET level = 0", &[]).await.map(drop)
}

async fn by(undo: Undo, by: i32) -> Result<()> {
    undo.sql().execute("UPDATE tank SET level = level + $1", &[&by]).await.map(drop)
}

async fn back(undo: Undo, to: i32) -> Result<()> {
    undo.sql().execute("UPDATE tank SET level = $1", &[&to]).await.map(drop)
}

async fn kit(lines: &[Line]) -> std::result::Result<(tempfile::TempDir, Kit), Failure> {
    let folder = tempfile::tempdir()?;
    let kit = Component::named("tank")
        .database(&format!("embedded:{}", folder.path().display()))
        .setup([
            "CREATE TABLE IF NOT EXISTS tank (level int NOT NULL)",
            "INSERT INTO tank SELECT 10 WHERE NOT EXISTS (SELECT FROM tank)",
        ])
        .serve(ADD, service(add).item(|_: &i32| "tank").undo(by))
        .serve(SET, service(set).item(|_: &i32| "tank").undo(back))
        .serve(DRAW, service(draw).item(|_: &i32| "tank").undo(by))
        .serve(LEVEL, service(level).item(|(): &()| "tank").reads())
        .serve(EMPTY, service(empty).begins_only())
        .conflicts(lines.iter().cloned())
        .kit(["SELECT level FROM tank"])
        .await?;
    Ok((folder, kit))
}

fn differences(findings: &[cognate_composite::Finding]) -> Vec<&Difference> {
    findings.iter().map(|finding| &finding.difference).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_exchanged_is_not_found() -> std::result::Result<(), Failure> {
    let (_folder, mut kit) = kit(&[never("add", "add"), same_item("add", "set")]).await?;
    kit.sample(ADD, &3)?;
    kit.sample(ADD, &4)?;
    kit.sample(SET, &5)?;
    kit.sample(LEVEL, &())?;
    assert_eq!(kit.check().await?, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_exchanged_is_found() -> std::result::Result<(), Failure> {
    // Two that set lose one of them, and see each other; so does one that reads.
    let (_folder, mut kit) = kit(&[never("set", "set")]).await?;
    kit.sample(SET, &5)?;
    kit.sample(SET, &6)?;
    let findings = kit.check().await?;
    let found = differences(&findings);
    assert!(found.contains(&&Difference::State) && found.contains(&&Difference::Answer), "{findings:?}");
    let (_folder, mut kit) = self::kit(&[never("add", "level")]).await?;
    kit.sample(ADD, &1)?;
    kit.sample(LEVEL, &())?;
    assert!(differences(&kit.check().await?).contains(&&Difference::AnswerBeforeUndo));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_that_overwrites_is_found() -> std::result::Result<(), Failure> {
    // What was set is put back over what was added since.
    let (_folder, mut kit) = kit(&[never("set", "add").one_way()]).await?;
    kit.sample(SET, &5)?;
    kit.sample(ADD, &1)?;
    assert!(differences(&kit.check().await?).contains(&&Difference::Undo));
    Ok(())
}

/// Whoever reads after the other one answers something else than before it, whichever of both is
/// let pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_one_way_only_is_found_by_either_answer() -> std::result::Result<(), Failure> {
    for (held, new) in [("empty", "level"), ("level", "empty")] {
        let (_folder, mut kit) = kit(&[never(held, new).one_way()]).await?;
        kit.sample(EMPTY, &())?;
        kit.sample(LEVEL, &())?;
        let findings = kit.check().await?;
        let found: Vec<(&str, &Difference)> =
            findings.iter().map(|finding| (finding.first.as_str(), &finding.difference)).collect();
        assert_eq!(found, [("level null", &Difference::Answer)], "{held}, {new}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_in_one_order_is_told_apart() -> std::result::Result<(), Failure> {
    let (_folder, mut kit) = kit(&[never("draw", "draw")]).await?;
    kit.sample(DRAW, &7)?;
    kit.sample(DRAW, &8)?;
    let findings = kit.check().await?;
    assert!(!findings.is_empty());
    assert!(findings.iter().all(|finding| finding.difference == Difference::Refusal), "{findings:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_purchase_declares_nothing_that_is_not_so() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| format!("embedded:{}", folder.path().join(name).display());
    let stock = services::stock().database(&at("stock"));
    let mut kit = stock.kit(["SELECT id, stock FROM item ORDER BY id"]).await?;
    for item in [1, 1, 2] {
        for service in ["take", "count"] {
            kit.sample(Service::<Value, Value>::named("stock", service), &json!({ "item": item }))?;
        }
    }
    assert_eq!(kit.check().await?, []);
    let payment = services::payment(true).database(&at("payment"));
    let mut kit = payment.kit(["SELECT id, balance FROM account ORDER BY id"]).await?;
    for customer in [1, 1, 2] {
        let charge = json!({ "customer": customer, "price": 10 });
        kit.sample(Service::<Value, Value>::named("payment", "charge"), &charge)?;
        kit.sample(Service::<Value, Value>::named("payment", "balance"), &json!(customer))?;
    }
    assert_eq!(kit.check().await?, []);
    Ok(())
}
