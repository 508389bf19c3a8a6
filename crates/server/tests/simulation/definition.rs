//! What is no client's transaction over rows in a storm: definitions, which move all rows into
//! another tree as a table that is rewritten does, and blocks of numbers, of which no two nodes
//! have the same, as those of a sequence.
//!
//! Whoever reads or writes rows locks the table, finds out which tree has them, and is refused if
//! that is newer than its snapshot.

use cognate_engine::{Access, Error, Isolation, LockMode, Transaction, TreeId, TreeMode, Value, WaitPolicy};
use cognate_env::SplitMix;

use super::history::{Deed, Told};
use super::{KEYS, TREE, World, answer, key, told, writer_of};

/// Where it says which tree has the rows, and which block is next.
pub(crate) const CATALOG: TreeId = 1008;
/// What is locked of the table as a whole.
const TABLE: TreeId = 999;
const PLACE: &[u8] = b"place of the rows";
const BLOCK: &[u8] = b"next block";

/// The tree that has the rows. The table is locked until the end.
pub(crate) async fn tree_of(t: &mut Transaction) -> Result<TreeId, Error> {
    locked(t, TreeMode::Write).await
}

async fn locked(t: &mut Transaction, mode: TreeMode) -> Result<TreeId, Error> {
    t.lock_tree(TABLE, mode, WaitPolicy::NoWait).await?;
    if !t.is_ordered() {
        t.check_unchanged(CATALOG, PLACE)?;
    }
    place(t)
}

/// The tree that has the rows, for who looks at them alone.
pub(crate) fn place(t: &Transaction) -> Result<TreeId, Error> {
    Ok(t.get(CATALOG, PLACE)?.map_or(TREE, |tree| number(&tree) as TreeId))
}

fn number(value: &[u8]) -> usize {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

fn written(number: usize) -> Value {
    Value::copy_from_slice(number.to_string().as_bytes())
}

/// Moves all rows into a new tree.
pub(super) async fn rewrite(world: &World, random: &mut SplitMix) {
    let Some(up) = world.any_up(random) else { return };
    let id = world.number();
    let mut t = up.engine.begin(world.level(), Access::ReadWrite);
    let mut deed = Deed {
        id,
        name: format!("definition {id}"),
        read: Vec::new(),
        wrote: Vec::new(),
        told: Told::Refused,
        decision: None,
        transaction: t.id(),
        protocol: "definition",
    };
    if moved(&mut t, &mut deed).await.is_err() {
        return;
    }
    t.name_request(&deed.name);
    deed.told = told(answer(&up, t.commit_in_order()).await);
    world.note(deed);
}

async fn moved(t: &mut Transaction, deed: &mut Deed) -> Result<(), Error> {
    let old = locked(t, TreeMode::Exclusive).await?;
    let new = t.create_tree();
    for number in 0..KEYS {
        let found = t.get(old, &key(number))?;
        deed.read.push((number, found.as_deref().map(writer_of)));
        if let Some(value) = found {
            t.put(new, &key(number), value)?;
        }
    }
    t.lock(CATALOG, PLACE, LockMode::NoKeyExclusive, WaitPolicy::NoWait).await?;
    t.put(CATALOG, PLACE, written(new as usize))?;
    t.drop_tree(old);
    Ok(())
}

/// Takes the next block of numbers. Whoever is told that it has one has it alone.
pub(super) async fn take_block(world: &World, random: &mut SplitMix) {
    let Some(up) = world.any_up(random) else { return };
    let mut t = up.engine.begin(Isolation::Snapshot, Access::ReadWrite);
    let Ok(block) = taken(&mut t).await else { return };
    if told(answer(&up, t.commit_in_order()).await) == Told::Committed {
        let is_new = world.blocks.lock().unwrap().insert(block);
        assert!(is_new, "block {block} was given to two");
    }
}

async fn taken(t: &mut Transaction) -> Result<usize, Error> {
    t.lock(CATALOG, BLOCK, LockMode::NoKeyExclusive, WaitPolicy::NoWait).await?;
    t.check_unchanged(CATALOG, BLOCK)?;
    let block = next_block(t)?;
    t.put(CATALOG, BLOCK, written(block + 1))?;
    Ok(block)
}

/// The block that nobody has.
pub(crate) fn next_block(t: &Transaction) -> Result<usize, Error> {
    Ok(t.get(CATALOG, BLOCK)?.map_or(0, |next| number(&next)))
}
