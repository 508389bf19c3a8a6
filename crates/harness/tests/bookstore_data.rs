//! The generator is deterministic and of the right size; requests keep to their mix.

use std::collections::{HashMap, HashSet};

use cognate_harness::money::Money;
use cognate_harness::random::Random;
use cognate_harness::workload::bookstore::browser::{Browser, Buyer, Reply, Request, Search};
use cognate_harness::workload::bookstore::generator::{
    LOADED, LoadedOrder, Scale, Table, author_last_name, item_title, other_items, totals, user_name,
};
use cognate_harness::workload::bookstore::interactions::after_prefix;
use cognate_harness::workload::bookstore::mix::{INTERACTIONS, Interaction, Mix};

fn rows(scale: &Scale, table: Table) -> Vec<Vec<String>> {
    let mut text = String::new();
    for n in 1..=table.units(scale) {
        table.write(scale, n, &mut text);
    }
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn equal_seeds_give_equal_rows_and_others_differ() {
    let scale = Scale::new(300, 1, 7).unwrap();
    let again = Scale::new(300, 1, 7).unwrap();
    let other = Scale::new(300, 1, 8).unwrap();
    for table in LOADED {
        assert_eq!(rows(&scale, table), rows(&again, table), "{}", table.name());
        assert_ne!(rows(&scale, table), rows(&other, table), "{}", table.name());
    }
}

#[test]
fn tables_have_the_sizes_and_widths_of_tpc_w() {
    let scale = Scale::new(1000, 1, 1).unwrap();
    let expected = [
        (Table::Country, 92, 4),
        (Table::Address, 5760, 7),
        (Table::Customer, 2880, 17),
        (Table::Author, 250, 6),
        (Table::Item, 1000, 22),
        (Table::Orders, 2592, 11),
        (Table::Payment, 2592, 9),
    ];
    for (table, count, columns) in expected {
        let rows = rows(&scale, table);
        assert_eq!(rows.len(), count, "{}", table.name());
        assert!(rows.iter().all(|row| row.len() == columns), "{}", table.name());
        let keys: HashSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(keys.len(), count, "{}: keys", table.name());
    }
    let lines = rows(&scale, Table::OrderLine);
    let per_order = lines.len() as f64 / f64::from(scale.orders());
    assert!((2.8..3.2).contains(&per_order), "{per_order} lines an order");
}

#[test]
fn loaded_orders_are_consistent_with_their_lines() {
    let scale = Scale::new(500, 1, 3).unwrap();
    for n in 1..=scale.orders() {
        let order = LoadedOrder::generate(&scale, n);
        assert!((1..=5).contains(&order.lines.len()));
        assert!(order.lines.iter().all(|line| (1..=500).contains(&line.item)));
        let gross: Money = order.lines.iter().map(|line| line.cost * i64::from(line.quantity)).sum();
        let units = order.lines.iter().map(|line| i64::from(line.quantity)).sum();
        assert_eq!(totals(gross, units, order.discount).total, order.total, "order {n}");
    }
}

#[test]
fn strings_fit_their_columns_and_need_no_escape() {
    let scale = Scale::new(400, 1, 5).unwrap();
    for table in LOADED {
        for row in rows(&scale, table) {
            assert!(
                row.iter().flat_map(|cell| cell.bytes()).all(|b| (b' '..0x7f).contains(&b) && b != b'\\')
            );
        }
    }
    for row in rows(&scale, Table::Item) {
        assert!(row[1].len() <= 60 && row[6].len() <= 500, "{row:?}");
        assert_eq!(row[1].trim(), row[1], "blanks at the ends");
        let stock: i32 = row[17].parse().unwrap();
        assert!((10..=30).contains(&stock));
    }
}

#[test]
fn searches_look_for_what_was_loaded() {
    let scale = Scale::new(400, 1, 5).unwrap();
    assert_eq!(rows(&scale, Table::Item)[16][1], item_title(&scale, 17));
    assert_eq!(rows(&scale, Table::Author)[16][2], author_last_name(&scale, 17));
    assert_eq!(rows(&scale, Table::Customer)[16][1], user_name(17));
    assert_eq!(user_name(1029), "OGBAALNG");
    assert!("abcd" < after_prefix("abc").as_str() && "abczzz" < after_prefix("abc").as_str());
    assert_eq!(after_prefix("abz"), "ab{");
}

#[test]
fn shares_sum_to_all_in_every_mix() {
    for mix in [Mix::Browsing, Mix::Shopping, Mix::Ordering] {
        assert_eq!(mix.shares().iter().sum::<u32>(), 10_000, "{mix:?}");
    }
    // TPC-W's own split: browsing pages are 95, 80 and 50 percent.
    let browsing = |mix: Mix| mix.shares()[..6].iter().sum::<u32>();
    assert_eq!([Mix::Browsing, Mix::Shopping, Mix::Ordering].map(browsing), [9_500, 8_000, 5_000]);
}

#[test]
fn browsers_keep_to_the_mix_and_only_buy_full_carts() {
    let seed = 11;
    println!("seed {seed}");
    let scale = Scale::new(1000, 1, seed).unwrap();
    for mix in [Mix::Browsing, Mix::Shopping, Mix::Ordering] {
        let mut browser = Browser::new(scale, mix, 0);
        let mut counts: HashMap<Interaction, u32> = HashMap::new();
        let mut filled: HashSet<i32> = HashSet::new();
        let (requests, mut next_cart) = (200_000, 1);
        for _ in 0..requests {
            let request = browser.next_request();
            *counts.entry(request.interaction()).or_default() += 1;
            let reply = match &request {
                Request::ShoppingCart(change) => {
                    let id = change.cart.unwrap_or_else(|| {
                        next_cart += 1;
                        next_cart
                    });
                    filled.insert(id);
                    Reply::Cart { id, filled: true }
                }
                Request::BuyRequest { cart, buyer } => {
                    assert!(filled.contains(cart), "Buy Request of an empty cart");
                    Reply::Customer(match buyer {
                        Buyer::Returning(customer) => *customer,
                        Buyer::New(_) => 1_000_000,
                    })
                }
                Request::BuyConfirm(purchase) => {
                    assert!(filled.remove(&purchase.cart), "Buy Confirm of an empty cart");
                    Reply::Ordered
                }
                _ => Reply::Page,
            };
            browser.answered(&request, &reply);
        }
        for (interaction, share) in INTERACTIONS.into_iter().zip(mix.shares()) {
            let expected = f64::from(share) / 10_000.0;
            let got = f64::from(*counts.get(&interaction).unwrap_or(&0)) / f64::from(requests);
            // Five standard deviations of the draw, and the few carts that are still owed.
            let slack = 5.0 * (expected / f64::from(requests)).sqrt() + 0.0005;
            assert!((got - expected).abs() < slack, "{mix:?} {interaction:?}: {got} instead of {expected}");
        }
    }
}

#[test]
fn browsers_with_one_number_send_the_same_requests() {
    let scale = Scale::new(1000, 1, 2).unwrap();
    let (mut one, mut two) = (Browser::new(scale, Mix::Shopping, 4), Browser::new(scale, Mix::Shopping, 4));
    let mut other = Browser::new(scale, Mix::Shopping, 5);
    let mut different = 0;
    for _ in 0..500 {
        let request = one.next_request();
        assert_eq!(request, two.next_request());
        different += u32::from(request != other.next_request());
        if let Request::SearchResults(Search::Author(prefix) | Search::Title(prefix)) = &request {
            assert!(!prefix.is_empty() && prefix.len() <= 4);
        }
    }
    assert!(different > 400, "{different}");
}

#[test]
fn popular_items_are_much_more_popular() {
    let mut random = Random::new(1);
    let mut counts = vec![0_u32; 10_001];
    for _ in 0..1_000_000 {
        counts[random.skewed(10_000) as usize] += 1;
    }
    assert_eq!(counts[0], 0);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let top: u32 = counts[..100].iter().sum();
    assert!(top > 100_000, "the hundred most popular of 10,000 drew only {top} of a million");
    let drawn = counts.iter().filter(|n| **n > 0).count();
    assert!(drawn > 9_000, "only {drawn} of 10,000 were ever drawn");
}

#[test]
fn other_items_are_five_others() {
    let mut random = Random::new(3);
    for n in 1..=100 {
        let others = other_items(&mut random, 100, n);
        let different: HashSet<i32> = others.into_iter().chain([n]).collect();
        assert_eq!(different.len(), 6);
    }
}

#[test]
fn scales_out_of_range_are_refused() {
    assert!(Scale::new(99, 1, 1).is_err());
    assert!(Scale::new(1000, 0, 1).is_err());
    assert!(Scale::new(1000, 100_001, 1).is_err());
}
