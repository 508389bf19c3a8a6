//! What must be there after a crash: each client's things, totals that are their sums, notes that
//! belong to items, and indexes that say what the tables say.

use std::collections::BTreeMap;

use super::load::{IDS, Item, Ledger, OWNERS, Sql, Things};

fn read(sql: &mut dyn Sql, text: &str) -> Vec<Vec<String>> {
    let rows = sql.run(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
    rows.into_iter().map(|row| row.into_iter().map(|value| value.expect("no NULL")).collect()).collect()
}

fn number(text: &str) -> i64 {
    text.parse().expect("a number")
}

/// Reads everything and judges it; the ledgers go on from what is there.
pub(super) fn judge(sql: &mut dyn Sql, ledgers: &mut [Ledger]) {
    let mut items = BTreeMap::new();
    for row in read(sql, "SELECT id, owner, tag, amount FROM item") {
        let item = Item { owner: number(&row[1]), tag: row[2].clone(), amount: number(&row[3]) };
        assert_eq!(items.insert(number(&row[0]), item), None, "item {} is there twice", row[0]);
    }
    let tables: Vec<String> =
        read(sql, "SELECT relname FROM pg_class WHERE relname LIKE 'own\\_%' AND relkind = 'r'").concat();
    let mut rest = items.clone();
    for ledger in ledgers.iter_mut() {
        let first = ledger.client * IDS;
        let own = rest.extract_if(first..first + IDS, |_, _| true).collect();
        let name = format!("own_{}", ledger.client);
        let table = tables.contains(&name).then(|| {
            let rows = read(sql, &format!("SELECT number FROM {name}"));
            assert_eq!(rows.len(), 1, "{name} holds {rows:?}");
            number(&rows[0][0])
        });
        ledger.judge(Things { items: own, table });
    }
    assert_eq!(rest, BTreeMap::new(), "nobody's items");
    sums(sql, &items);
    notes(sql, &items);
    indexes(sql, &items);
}

fn sums(sql: &mut dyn Sql, items: &BTreeMap<i64, Item>) {
    let mut totals = vec![0; OWNERS as usize];
    for item in items.values() {
        totals[item.owner as usize] += item.amount;
    }
    let found: Vec<i64> =
        read(sql, "SELECT total FROM owner ORDER BY id").iter().map(|row| number(&row[0])).collect();
    assert_eq!(found, totals, "totals of the owners");
}

fn notes(sql: &mut dyn Sql, items: &BTreeMap<i64, Item>) {
    let expected: Vec<(i64, String)> =
        items.iter().filter_map(|(id, item)| Some((*id, item.note()?))).collect();
    let found: Vec<(i64, String)> = read(sql, "SELECT item, body FROM note ORDER BY item")
        .into_iter()
        .map(|row| (number(&row[0]), row[1].clone()))
        .collect();
    assert_eq!(found, expected, "notes");
}

/// The same items through each index.
fn indexes(sql: &mut dyn Sql, items: &BTreeMap<i64, Item>) {
    let mut by_tag: Vec<(&str, i64)> = items.iter().map(|(id, item)| (item.tag.as_str(), *id)).collect();
    by_tag.sort_unstable();
    let found = read(sql, "SELECT tag, id FROM item WHERE tag >= '' ORDER BY tag");
    let found: Vec<(&str, i64)> = found.iter().map(|row| (row[0].as_str(), number(&row[1]))).collect();
    assert_eq!(found, by_tag, "the index on tag");
    for owner in 0..OWNERS {
        let of_owner = items.iter().filter(|(_, item)| item.owner == owner).map(|(id, _)| *id);
        let found = read(sql, &format!("SELECT id FROM item WHERE owner = {owner} ORDER BY id"));
        let found: Vec<i64> = found.iter().map(|row| number(&row[0])).collect();
        assert_eq!(found, of_owner.collect::<Vec<_>>(), "the index on owner");
    }
}
