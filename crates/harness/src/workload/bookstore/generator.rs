//! Every row of the bookstore as a pure function of (seed, table, number), and the loader that
//! copies them in.
//!
//! ```text
//!   country 92 · author I/4 · item I · customer 2880·E · address 2·customer · orders 0.9·customer
//!   order_line 1 to 5 an order, 3 on average · cc_xacts one an order · carts: none, they come by the run
//! ```
//!
//! Dates are written as text relative to a fixed day, so that two loads with one seed are equal
//! byte by byte.

use std::fmt::Write as _;
use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio_postgres::Client;

use super::schema;
use crate::error::{DatabaseContext, Error, Result};
use crate::money::Money;
use crate::peer::System;
use crate::progress;
use crate::random::Random;

/// Countries, as in TPC-W.
pub const COUNTRIES: i32 = 92;

/// TPC-W's 24 subjects.
pub const SUBJECTS: [&str; 24] = [
    "ARTS",
    "BIOGRAPHIES",
    "BUSINESS",
    "CHILDREN",
    "COMPUTERS",
    "COOKING",
    "HEALTH",
    "HISTORY",
    "HOME",
    "HUMOR",
    "LITERATURE",
    "MYSTERY",
    "NON-FICTION",
    "PARENTING",
    "POLITICS",
    "REFERENCE",
    "RELIGION",
    "ROMANCE",
    "SELF-HELP",
    "SCIENCE-NATURE",
    "SCIENCE-FICTION",
    "SPORTS",
    "YOUTH",
    "TRAVEL",
];

/// Ways of shipping.
pub const SHIP_TYPES: [&str; 6] = ["AIR", "UPS", "FEDEX", "SHIP", "COURIER", "MAIL"];
/// Kinds of credit card.
pub const CARD_TYPES: [&str; 5] = ["VISA", "MASTERCARD", "DISCOVER", "AMEX", "DINERS"];
const STATUSES: [&str; 4] = ["PROCESSING", "SHIPPED", "PENDING", "DENIED"];
const BACKINGS: [&str; 5] = ["HARDBACK", "PAPERBACK", "USED", "AUDIO", "LIMITED"];
const CURRENCIES: [&str; 8] = ["Dollars", "Pounds", "Euros", "Yen", "Francs", "Crowns", "Pesos", "Rupees"];

/// The tax on an order's items, in hundredths of a percent: 8.25 %.
pub const TAX: i64 = 825;
/// What shipping costs: this much, and as much as [`SHIP_PER_UNIT`] for each unit.
pub const SHIP_BASE: Money = Money(300);
/// Added to [`SHIP_BASE`] for each unit ordered.
pub const SHIP_PER_UNIT: Money = Money(100);
/// A sale that leaves less than this many in stock brings [`REFILL`] more.
pub const STOCK_LOW: i32 = 10;
/// How many a refill brings.
pub const REFILL: i32 = 21;

/// How much is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Books on offer.
    pub items: i32,
    /// Emulated browsers that the customer base is sized for; 2,880 customers each.
    pub browsers: i32,
    /// The seed of all data and of all requests.
    pub seed: u64,
}

impl Scale {
    /// Checks the limits: at least 100 items and one browser, and numbers that fit the `integer`
    /// columns.
    pub fn new(items: i32, browsers: i32, seed: u64) -> Result<Scale> {
        if !(100..=10_000_000).contains(&items) {
            return Err(Error::Usage(format!("--items {items}: from 100 to 10000000")));
        }
        if !(1..=100_000).contains(&browsers) {
            return Err(Error::Usage(format!("--browsers {browsers}: from 1 to 100000")));
        }
        Ok(Scale { items, browsers, seed })
    }

    /// Loaded customers.
    pub fn customers(&self) -> i32 {
        2_880 * self.browsers
    }

    /// Loaded addresses.
    pub fn addresses(&self) -> i32 {
        2 * self.customers()
    }

    /// Loaded orders; each has one payment.
    pub fn orders(&self) -> i32 {
        self.customers() / 10 * 9
    }

    /// Authors.
    pub fn authors(&self) -> i32 {
        (self.items / 4).max(1)
    }

    fn random(&self, table: Table, row: i32) -> Random {
        Random::stream(self.seed, table as u64, row as u64)
    }

    /// How many of an item were in stock when it was loaded.
    pub fn initial_stock(&self, item: i32) -> i32 {
        let mut random = Random::stream(self.seed, STOCK_STREAM, item as u64);
        random.int(STOCK_LOW, STOCK_LOW + REFILL - 1)
    }
}

const STOCK_STREAM: u64 = 1_000;
const LINES_STREAM: u64 = 1_001;

/// The loaded tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the tables' own names")]
pub enum Table {
    Country = 1,
    Address,
    Customer,
    Author,
    Item,
    Orders,
    OrderLine,
    Payment,
}

/// The loaded tables in load order.
pub const LOADED: [Table; 8] = [
    Table::Country,
    Table::Address,
    Table::Customer,
    Table::Author,
    Table::Item,
    Table::Orders,
    Table::OrderLine,
    Table::Payment,
];

impl Table {
    /// The table's name.
    pub fn name(self) -> &'static str {
        match self {
            Table::Country => "country",
            Table::Address => "address",
            Table::Customer => "customer",
            Table::Author => "author",
            Table::Item => "item",
            Table::Orders => "orders",
            Table::OrderLine => "order_line",
            Table::Payment => "cc_xacts",
        }
    }

    /// How many generator rows the table has; for `order_line` these are orders, each with its
    /// lines.
    pub fn units(self, scale: &Scale) -> i32 {
        match self {
            Table::Country => COUNTRIES,
            Table::Address => scale.addresses(),
            Table::Customer => scale.customers(),
            Table::Author => scale.authors(),
            Table::Item => scale.items,
            Table::Orders | Table::OrderLine | Table::Payment => scale.orders(),
        }
    }

    /// Appends row `n` (from 1) as tab-separated COPY text; for `order_line` all lines of order
    /// `n`.
    pub fn write(self, scale: &Scale, n: i32, out: &mut String) {
        let mut random = scale.random(self, n);
        match self {
            Table::Country => country(&mut random, n, out),
            Table::Address => Address::generate(&mut random).write(n, out),
            Table::Customer => customer(scale, &mut random, n, out),
            Table::Author => author(&mut random, n, out),
            Table::Item => item(scale, &mut random, n, out),
            Table::Orders => order(scale, &mut random, n, out),
            Table::OrderLine => order_lines(scale, n, out),
            Table::Payment => payment(scale, &mut random, n, out),
        }
    }
}

/// Writes one line of tab-separated values.
macro_rules! line {
    ($out:expr, $($value:expr),+ $(,)?) => {{
        let mut first = true;
        $(
            if !std::mem::take(&mut first) { $out.push('\t'); }
            let _ = write!($out, "{}", $value);
        )+
        $out.push('\n');
    }};
}

fn text(random: &mut Random, low: i32, high: i32) -> String {
    let mut text = String::with_capacity(high as usize);
    random.letters(low, high, &mut text);
    text
}

/// Words of letters, `low` to `high` characters in all.
fn words(random: &mut Random, low: i32, high: i32) -> String {
    let length = random.int(low, high) as usize;
    let mut text = String::with_capacity(length + 12);
    while text.len() < length {
        if !text.is_empty() {
            text.push(' ');
        }
        random.letters(2, 10, &mut text);
    }
    text.truncate(length);
    // A blank at the end would be lost by systems that trim, so there is none.
    text.truncate(text.trim_end().len());
    text
}

fn digits(random: &mut Random, n: i32) -> String {
    let mut text = String::new();
    random.digits(n, &mut text);
    text
}

/// Year-month-day within some past years; every month is taken as 28 days long.
fn date(random: &mut Random, first_year: i32, last_year: i32) -> String {
    let (year, month, day) = (random.int(first_year, last_year), random.int(1, 12), random.int(1, 28));
    format!("{year:04}-{month:02}-{day:02}")
}

/// TPC-W's user names: each decimal digit of the customer's number as a syllable.
pub fn user_name(customer: i32) -> String {
    const SYLLABLES: [&str; 10] = ["BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"];
    customer.to_string().bytes().map(|digit| SYLLABLES[usize::from(digit - b'0')]).collect()
}

/// The name of country `n` (from 1).
pub fn country_name(n: i32) -> String {
    format!("Country {n:02}")
}

fn country(random: &mut Random, n: i32, out: &mut String) {
    let exchange = random.between(10_000, 900_000_000);
    let exchange = format!("{}.{:06}", exchange / 1_000_000, exchange % 1_000_000);
    line!(out, n, country_name(n), exchange, random.pick(&CURRENCIES));
}

/// A postal address, loaded or entered by a customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// First line of the street.
    pub street1: String,
    /// Second line of the street.
    pub street2: String,
    /// City.
    pub city: String,
    /// State.
    pub state: String,
    /// Postal code.
    pub zip: String,
    /// Number of the country, from 1 to [`COUNTRIES`].
    pub country: i32,
}

impl Address {
    /// Draws an address.
    pub fn generate(random: &mut Random) -> Address {
        Address {
            street1: words(random, 15, 40),
            street2: words(random, 15, 40),
            city: text(random, 4, 30),
            state: text(random, 2, 20),
            zip: digits(random, 8),
            country: random.int(1, COUNTRIES),
        }
    }

    /// The address that was loaded under this number.
    pub fn loaded(scale: &Scale, n: i32) -> Address {
        Address::generate(&mut scale.random(Table::Address, n))
    }

    fn write(&self, n: i32, out: &mut String) {
        line!(out, n, self.street1, self.street2, self.city, self.state, self.zip, self.country);
    }
}

fn customer(scale: &Scale, random: &mut Random, n: i32, out: &mut String) {
    let name = user_name(n);
    let since = date(random, 2005, 2009);
    line!(
        out,
        n,
        name,
        name.to_lowercase(),
        text(random, 8, 15),
        text(random, 8, 15),
        random.int(1, scale.addresses()),
        digits(random, 12),
        format!("{}@{}.com", name, text(random, 2, 9)),
        since,
        since,
        format!("{since} 12:00:00"),
        format!("{since} 14:00:00"),
        Money(random.between(0, 50)),
        Money(0),
        Money(random.between(0, 99_999)),
        date(random, 1930, 1990),
        words(random, 100, 400),
    );
}

/// The last name of author `n`; searches by author begin with a part of it.
pub fn author_last_name(scale: &Scale, n: i32) -> String {
    text(&mut scale.random(Table::Author, n), 6, 20)
}

fn author(random: &mut Random, n: i32, out: &mut String) {
    let last = text(random, 6, 20);
    line!(
        out,
        n,
        text(random, 3, 20),
        last,
        text(random, 1, 20),
        date(random, 1800, 1990),
        words(random, 125, 500)
    );
}

/// The title of item `n`; searches by title begin with a part of it.
pub fn item_title(scale: &Scale, n: i32) -> String {
    words(&mut scale.random(Table::Item, n), 14, 60)
}

fn item(scale: &Scale, random: &mut Random, n: i32, out: &mut String) {
    let title = words(random, 14, 60);
    // The first I/4 items give each author one book; the rest are drawn.
    let author = if n <= scale.authors() { n } else { random.int(1, scale.authors()) };
    let retail = random.between(100, 99_999);
    let cost = Money(retail).share(random.between(5_000, 10_000));
    let related = other_items(random, scale.items, n);
    line!(
        out,
        n,
        title,
        author,
        date(random, 1990, 2009),
        words(random, 14, 60),
        random.pick(&SUBJECTS),
        words(random, 100, 500),
        related[0],
        related[1],
        related[2],
        related[3],
        related[4],
        format!("img{}/thumb_{n}.gif", n % 100),
        format!("img{}/image_{n}.gif", n % 100),
        Money(retail),
        cost,
        date(random, 2009, 2010),
        scale.initial_stock(n),
        digits(random, 13),
        random.int(20, 9_999),
        random.pick(&BACKINGS),
        format!("{}x{}x{}", random.int(1, 99), random.int(1, 99), random.int(1, 99)),
    );
}

/// Five different items, none of them `n`.
pub fn other_items(random: &mut Random, items: i32, n: i32) -> [i32; 5] {
    let mut found = [0; 5];
    for place in 0..5 {
        found[place] = loop {
            let item = random.int(1, items);
            if item != n && !found[..place].contains(&item) {
                break item;
            }
        };
    }
    found
}

/// One line of a loaded order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedLine {
    /// The item.
    pub item: i32,
    /// How many.
    pub quantity: i32,
    /// The price of one.
    pub cost: Money,
}

/// What a loaded order's three tables agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedOrder {
    /// Its lines, 1 to 5.
    pub lines: Vec<LoadedLine>,
    /// The customer's discount in percent.
    pub discount: i64,
    /// Items after the discount.
    pub sub_total: Money,
    /// Tax on the items.
    pub tax: Money,
    /// Everything, with shipping.
    pub total: Money,
}

impl LoadedOrder {
    /// The order that was loaded under this number.
    pub fn generate(scale: &Scale, n: i32) -> LoadedOrder {
        let mut random = Random::stream(scale.seed, LINES_STREAM, n as u64);
        let lines: Vec<LoadedLine> = (0..random.int(1, 5))
            .map(|_| LoadedLine {
                item: random.skewed(scale.items),
                quantity: random.int(1, 10),
                cost: Money(random.between(100, 99_999)),
            })
            .collect();
        let discount = random.between(0, 50);
        let gross = lines.iter().map(|line| line.cost * i64::from(line.quantity)).sum();
        let units = lines.iter().map(|line| i64::from(line.quantity)).sum();
        let Totals { sub_total, tax, total, .. } = totals(gross, units, discount);
        LoadedOrder { lines, discount, sub_total, tax, total }
    }
}

/// What an order or a cart adds up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Items after the discount.
    pub sub_total: Money,
    /// Tax on the items.
    pub tax: Money,
    /// Shipping; nothing for nothing.
    pub shipping: Money,
    /// The sum of the three.
    pub total: Money,
}

/// Adds up an order of `units` units that cost `gross` together, for a customer with a discount in
/// percent.
pub fn totals(gross: Money, units: i64, discount: i64) -> Totals {
    let sub_total = gross.share(10_000 - 100 * discount);
    let tax = sub_total.share(TAX);
    let shipping = if units == 0 { Money(0) } else { SHIP_BASE + SHIP_PER_UNIT * units };
    Totals { sub_total, tax, shipping, total: sub_total + tax + shipping }
}

fn order(scale: &Scale, random: &mut Random, n: i32, out: &mut String) {
    let order = LoadedOrder::generate(scale, n);
    let day = date(random, 2009, 2009);
    line!(
        out,
        n,
        random.int(1, scale.customers()),
        format!("{day} 10:00:00"),
        order.sub_total,
        order.tax,
        order.total,
        random.pick(&SHIP_TYPES),
        format!("{day} 18:00:00"),
        random.int(1, scale.addresses()),
        random.int(1, scale.addresses()),
        random.pick(&STATUSES),
    );
}

fn order_lines(scale: &Scale, n: i32, out: &mut String) {
    let order = LoadedOrder::generate(scale, n);
    let mut random = scale.random(Table::OrderLine, n);
    for (index, row) in order.lines.iter().enumerate() {
        let comment = words(&mut random, 20, 100);
        line!(out, n, index + 1, row.item, row.quantity, row.cost, Money(order.discount), comment);
    }
}

fn payment(scale: &Scale, random: &mut Random, n: i32, out: &mut String) {
    let order = LoadedOrder::generate(scale, n);
    line!(
        out,
        n,
        random.pick(&CARD_TYPES),
        digits(random, 16),
        words(random, 14, 30),
        date(random, 2012, 2014),
        digits(random, 15),
        order.total,
        "2009-12-28 10:00:00",
        random.int(1, COUNTRIES),
    );
}

/// How much COPY text is sent at once.
const CHUNK: usize = 64 << 10;

/// Makes the tables on a system, fills them and makes indexes and foreign keys. An earlier
/// bookstore is removed.
pub async fn load(system: &System, scale: &Scale) -> Result<()> {
    let client = system.client().await?;
    system.execute_each(&client, &schema::drop_all()).await?;
    system.execute_each(&client, &schema::create(scale)).await?;
    let total = LOADED.iter().map(|table| table.units(scale) as u64).sum();
    let bar = progress::steps(&format!("{}: loading the bookstore", system.name), total);
    for table in LOADED {
        copy(system, &client, scale, table, &bar).await?;
    }
    bar.finish_and_clear();
    let spinner = progress::spinner(&format!("{}: indexes and foreign keys", system.name));
    let finished = system.execute_each(&client, &schema::finish()).await;
    // So that no checkpoint owed to the load falls into the measured window; not every system has
    // the statement.
    let _ = client.batch_execute("CHECKPOINT").await;
    spinner.finish_and_clear();
    finished
}

async fn copy(
    system: &System,
    client: &Client,
    scale: &Scale,
    table: Table,
    bar: &indicatif::ProgressBar,
) -> Result<()> {
    let doing = || format!("loading {}", table.name());
    let sink =
        client.copy_in(&format!("COPY {} FROM STDIN", table.name())).await.at(&system.name, doing())?;
    let mut sink = pin!(sink);
    let mut chunk = String::with_capacity(CHUNK + 4096);
    let units = table.units(scale);
    for n in 1..=units {
        table.write(scale, n, &mut chunk);
        if chunk.len() >= CHUNK || n == units {
            let full = std::mem::replace(&mut chunk, String::with_capacity(CHUNK + 4096));
            sink.send(Bytes::from(full)).await.at(&system.name, doing())?;
        }
        bar.inc(1);
    }
    sink.finish().await.at(&system.name, doing())?;
    Ok(())
}
