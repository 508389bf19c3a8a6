//! The checker passes a sound store and catches each kind of violation planted into it.

use cognate_harness::money::Money;
use cognate_harness::workload::bookstore::generator::{LoadedOrder, Scale, totals};
use cognate_harness::workload::bookstore::invariants::{
    Acknowledged, Cart, CartLine, Contents, Order, OrderLine, violations,
};

fn scale() -> Scale {
    Scale::new(200, 1, 9).expect("a scale in range")
}

/// The store as loaded, one order that came by the run, and one cart.
fn sound() -> Contents {
    let scale = scale();
    let mut contents = Contents {
        stock: (1..=scale.items).map(|item| (item, scale.initial_stock(item))).collect(),
        customers: (1..=scale.customers()).map(|id| (id, id)).collect(),
        addresses: (1..=scale.addresses()).collect(),
        ..Contents::default()
    };
    for id in 1..=scale.orders() {
        let loaded = LoadedOrder::generate(&scale, id);
        for (line, number) in loaded.lines.iter().zip(1..) {
            contents.lines.push(OrderLine {
                order: id,
                number,
                item: line.item,
                quantity: line.quantity,
                cost: line.cost,
                discount: Money(loaded.discount),
            });
        }
        let (sub_total, tax, total) = (loaded.sub_total, loaded.tax, loaded.total);
        contents.orders.push(Order { id, customer: 1, sub_total, tax, total });
        contents.payments.push((id, total));
    }
    let id = scale.orders() + 1;
    let (item, quantity, cost, discount) = (17, 4, Money(1_999), Money(15));
    let sums = totals(cost * 4, 4, 15);
    contents.orders.push(Order {
        id,
        customer: 5,
        sub_total: sums.sub_total,
        tax: sums.tax,
        total: sums.total,
    });
    contents.lines.push(OrderLine { order: id, number: 1, item, quantity, cost, discount });
    contents.payments.push((id, sums.total));
    let stock = &mut contents.stock[16].1;
    *stock = if *stock - quantity < 10 { *stock - quantity + 21 } else { *stock - quantity };
    let sums = totals(Money(500) * 2, 2, 0);
    let (sub_total, tax, shipping, total) = (sums.sub_total, sums.tax, sums.shipping, sums.total);
    contents.carts.push(Cart { id: 1, sub_total, tax, shipping, total });
    contents.cart_lines.push(CartLine { cart: 1, item: 3, quantity: 2, cost: Money(500) });
    contents
}

fn found(plant: impl FnOnce(&mut Contents)) -> Vec<String> {
    let mut contents = sound();
    plant(&mut contents);
    violations(&contents, &scale(), Some(&Acknowledged { orders: 1, unknown_orders: 0 }))
}

fn assert_found(kind: &str, plant: impl FnOnce(&mut Contents)) {
    let found = found(plant);
    assert!(found.iter().any(|text| text.starts_with(kind)), "no '{kind}' in {found:#?}");
}

#[test]
fn a_sound_store_passes() {
    assert_eq!(found(|_| {}), Vec::<String>::new());
}

#[test]
fn wrong_stock_is_found() {
    assert_found("stock", |c| c.stock[3].1 -= 1);
    assert_found("stock", |c| c.stock[3].1 = -1);
    assert_found("stock", |c| c.stock[3].1 += 21);
    assert_found("stock", |c| c.stock[16].1 += 4); // the sale's update lost
    assert_found("stock", |c| {
        c.stock.pop();
    });
}

#[test]
fn orders_that_do_not_add_up_are_found() {
    assert_found("order lines", |c| c.lines.retain(|line| line.order != 5));
    assert_found("order lines", |c| c.lines[0].number += 1);
    assert_found("order lines", |c| c.lines[0].order = 1_000_000);
    assert_found("order totals", |c| c.orders[9].total = c.orders[9].total + Money(1));
    assert_found("order totals", |c| c.orders[9].tax = c.orders[9].tax - Money(1));
    assert_found("order totals", |c| c.lines[0].quantity += 1);
}

#[test]
fn wrong_payments_are_found() {
    assert_found("payments", |c| {
        c.payments.remove(7);
    });
    assert_found("payments", |c| c.payments.push(c.payments[7]));
    assert_found("payments", |c| c.payments[7].1 = Money(1));
    assert_found("payments", |c| c.payments.push((2_000_000, Money(1))));
}

#[test]
fn wrong_carts_are_found() {
    assert_found("carts", |c| c.carts[0].total = Money(0));
    assert_found("carts", |c| c.cart_lines[0].quantity = 11);
    assert_found("carts", |c| c.cart_lines[0].cart = 99);
    assert_found("carts", |c| c.cart_lines.clear());
}

#[test]
fn lost_rows_are_found() {
    assert_found("customers", |c| {
        c.customers.remove(100);
    });
    assert_found("customers", |c| {
        c.addresses.remove(100);
    });
    assert_found("customers", |c| c.customers[4].1 = 90_000_000);
    assert_found("customers", |c| c.orders[4].customer = 90_000_000);
}

#[test]
fn acknowledged_orders_are_counted() {
    let check = |orders, unknown_orders| {
        let acknowledged = Acknowledged { orders, unknown_orders };
        violations(&sound(), &scale(), Some(&acknowledged)).len()
    };
    assert_eq!(check(1, 0), 0);
    assert_eq!(check(0, 1), 0, "the one of unknown fate happened");
    assert_eq!(check(1, 1), 0, "the one of unknown fate did not happen");
    assert_eq!(check(2, 0), 1, "an acknowledged order is lost");
    assert_eq!(check(0, 0), 1, "an order that nobody was told of");
}

#[test]
fn many_violations_are_summed_up() {
    let found = found(|c| c.payments.clear());
    assert!(found.len() < 10, "{} lines", found.len());
    assert!(found.iter().any(|text| text.contains("more")), "{found:#?}");
}
