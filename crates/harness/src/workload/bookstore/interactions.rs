//! What each of the fourteen interactions does in the database.
//!
//! Pages of one read run as one statement of its own; pages that read several tables for one
//! picture do so in a read-only transaction; everything that writes is a transaction of its own.
//! Statements are prepared once a connection and sent one at a time, as an application server does.
//!
//! Buy Confirm, the heart of it, as a history of statements:
//! ```text
//!   BEGIN
//!   read the customer: discount, address          find or enter the shipping address (one in twenty)
//!   read the cart's lines                          in item order, so that two buyers cannot deadlock on stock
//!   insert the order -> its number
//!   each line: insert the order line, lower the item's stock (refill when low)
//!   insert the payment · delete the cart's lines · set the cart's totals to nothing
//!   COMMIT
//! ```

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::Isolation;
use super::browser::{Buyer, CartChange, ItemChange, NewCustomer, Purchase, Reply, Request, Search};
use super::generator::{Address, REFILL, STOCK_LOW, country_name, totals, user_name};
use crate::money::Money;

/// Declares the prepared statements of a connection: a field and its SQL each.
macro_rules! statements {
    ($($name:ident: $sql:expr;)+) => {
        #[derive(Debug)]
        struct Statements { $($name: Statement,)+ }

        impl Statements {
            async fn prepare(client: &Client) -> Result<Statements, Error> {
                Ok(Statements { $($name: client.prepare($sql).await?,)+ })
            }
        }

        /// Every statement of the bookstore with its name, for tests and for looking at plans.
        pub const SQL: &[(&str, &str)] = &[$((stringify!($name), $sql),)+];
    };
}

statements! {
    begin: "BEGIN";
    begin_read_only: "BEGIN READ ONLY";
    commit: "COMMIT";
    customer_name: "SELECT c_fname, c_lname FROM customer WHERE c_id = $1";
    user_name: "SELECT c_uname FROM customer WHERE c_id = $1";
    related: "SELECT i_related1, i_related2, i_related3, i_related4, i_related5 FROM item WHERE i_id = $1";
    thumbnails: "SELECT i_id, i_thumbnail FROM item WHERE i_id IN ($1, $2, $3, $4, $5)";
    new_products: "SELECT i_id, i_title, a_fname, a_lname FROM item JOIN author ON a_id = i_a_id \
        WHERE i_subject = $1 ORDER BY i_pub_date DESC, i_title LIMIT 50";
    best_sellers: "SELECT i_id, i_title, a_fname, a_lname, SUM(ol_qty) AS sold \
        FROM order_line JOIN item ON i_id = ol_i_id JOIN author ON a_id = i_a_id \
        WHERE ol_o_id > (SELECT MAX(o_id) - 3333 FROM orders) AND i_subject = $1 \
        GROUP BY i_id, i_title, a_fname, a_lname ORDER BY sold DESC, i_id LIMIT 50";
    product: "SELECT i_title, i_publisher, i_subject, i_desc, i_image, i_srp, i_cost, i_stock, i_isbn, i_page, \
        i_backing, i_dimensions, a_fname, a_lname FROM item JOIN author ON a_id = i_a_id WHERE i_id = $1";
    search_author: "SELECT i_id, i_title, a_fname, a_lname FROM author JOIN item ON i_a_id = a_id \
        WHERE a_lname >= $1 AND a_lname < $2 ORDER BY i_title LIMIT 50";
    search_title: "SELECT i_id, i_title, a_fname, a_lname FROM item JOIN author ON a_id = i_a_id \
        WHERE i_title >= $1 AND i_title < $2 ORDER BY i_title LIMIT 50";
    search_subject: "SELECT i_id, i_title, a_fname, a_lname FROM item JOIN author ON a_id = i_a_id \
        WHERE i_subject = $1 ORDER BY i_title LIMIT 50";
    new_cart: "INSERT INTO shopping_cart (sc_id, sc_time, sc_sub_total, sc_tax, sc_ship_cost, sc_total) \
        VALUES (nextval('cart_id'), now(), 0, 0, 0, 0) RETURNING sc_id";
    add_to_cart: "INSERT INTO shopping_cart_line (scl_sc_id, scl_i_id, scl_qty, scl_cost) \
        SELECT $1, i_id, $3, i_cost FROM item WHERE i_id = $2 \
        ON CONFLICT (scl_sc_id, scl_i_id) \
        DO UPDATE SET scl_qty = LEAST(shopping_cart_line.scl_qty + EXCLUDED.scl_qty, 10)";
    first_line: "SELECT scl_i_id FROM shopping_cart_line WHERE scl_sc_id = $1 ORDER BY scl_i_id LIMIT 1";
    change_line: "UPDATE shopping_cart_line SET scl_qty = $3 WHERE scl_sc_id = $1 AND scl_i_id = $2";
    delete_line: "DELETE FROM shopping_cart_line WHERE scl_sc_id = $1 AND scl_i_id = $2";
    cart_lines: "SELECT scl_i_id, scl_qty, scl_cost, i_title, i_srp, i_backing \
        FROM shopping_cart_line JOIN item ON i_id = scl_i_id WHERE scl_sc_id = $1 ORDER BY scl_i_id";
    set_totals: "UPDATE shopping_cart SET sc_time = now(), sc_sub_total = $2, sc_tax = $3, sc_ship_cost = $4, \
        sc_total = $5 WHERE sc_id = $1";
    cart_totals: "SELECT sc_sub_total, sc_tax, sc_ship_cost, sc_total FROM shopping_cart WHERE sc_id = $1";
    returning_customer: "SELECT c_id, c_passwd, c_fname, c_lname, c_phone, c_email, c_discount, addr_street1, \
        addr_street2, addr_city, addr_state, addr_zip, co_name \
        FROM customer JOIN address ON addr_id = c_addr_id JOIN country ON co_id = addr_co_id WHERE c_uname = $1";
    log_in: "UPDATE customer SET c_login = now(), c_expiration = now() + interval '2 hours' WHERE c_id = $1";
    find_country: "SELECT co_id FROM country WHERE co_name = $1";
    find_address: "SELECT addr_id FROM address WHERE addr_zip = $1 AND addr_street1 = $2 AND addr_street2 = $3 \
        AND addr_city = $4 AND addr_state = $5 AND addr_co_id = $6";
    new_address: "INSERT INTO address (addr_id, addr_street1, addr_street2, addr_city, addr_state, addr_zip, \
        addr_co_id) VALUES (nextval('address_id'), $1, $2, $3, $4, $5, $6) RETURNING addr_id";
    next_customer: "SELECT nextval('customer_id')";
    new_customer: "INSERT INTO customer (c_id, c_uname, c_passwd, c_fname, c_lname, c_addr_id, c_phone, c_email, \
        c_since, c_last_login, c_login, c_expiration, c_discount, c_balance, c_ytd_pmt, c_birthdate, c_data) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, current_date, current_date, now(), now() + interval '2 hours', \
        $9, 0, 0, date '1980-01-01', $10)";
    buyer: "SELECT c_fname, c_lname, c_discount, c_addr_id, addr_co_id FROM customer \
        JOIN address ON addr_id = c_addr_id WHERE c_id = $1";
    lines_to_buy: "SELECT scl_i_id, scl_qty, scl_cost FROM shopping_cart_line WHERE scl_sc_id = $1 \
        ORDER BY scl_i_id";
    new_order: "INSERT INTO orders (o_id, o_c_id, o_date, o_sub_total, o_tax, o_total, o_ship_type, o_ship_date, \
        o_bill_addr_id, o_ship_addr_id, o_status) VALUES (nextval('order_id'), $1, now(), $2, $3, $4, $5, \
        now() + interval '3 days', $6, $7, 'PENDING') RETURNING o_id";
    new_order_line: "INSERT INTO order_line (ol_o_id, ol_id, ol_i_id, ol_qty, ol_cost, ol_discount, ol_comments) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    take_stock: "UPDATE item SET i_stock = CASE WHEN i_stock - $2 < $3 THEN i_stock - $2 + $4 \
        ELSE i_stock - $2 END WHERE i_id = $1";
    new_payment: "INSERT INTO cc_xacts (cx_o_id, cx_type, cx_num, cx_name, cx_expire, cx_xact_amt, cx_xact_date, \
        cx_co_id) VALUES ($1, $2, $3, $4, current_date + 730, $5, now(), $6)";
    empty_cart: "DELETE FROM shopping_cart_line WHERE scl_sc_id = $1";
    customer_by_id: "SELECT c_uname, c_passwd FROM customer WHERE c_id = $1";
    last_order: "SELECT o_id FROM orders WHERE o_c_id = $1 ORDER BY o_id DESC LIMIT 1";
    order: "SELECT o_date, o_sub_total, o_tax, o_total, o_ship_type, o_ship_date, o_status, cx_type, \
        bill.addr_street1, bill.addr_city, bill.addr_zip, bill_country.co_name, \
        ship.addr_street1, ship.addr_city, ship.addr_zip, ship_country.co_name \
        FROM orders JOIN cc_xacts ON cx_o_id = o_id \
        JOIN address AS bill ON bill.addr_id = o_bill_addr_id \
        JOIN country AS bill_country ON bill_country.co_id = bill.addr_co_id \
        JOIN address AS ship ON ship.addr_id = o_ship_addr_id \
        JOIN country AS ship_country ON ship_country.co_id = ship.addr_co_id WHERE o_id = $1";
    order_lines: "SELECT ol_i_id, i_title, i_publisher, ol_qty, ol_cost, ol_discount, ol_comments \
        FROM order_line JOIN item ON i_id = ol_i_id WHERE ol_o_id = $1 ORDER BY ol_id";
    change_item: "UPDATE item SET i_cost = $2, i_image = $3, i_thumbnail = $4, i_pub_date = current_date \
        WHERE i_id = $1";
    bought_with: "SELECT ol.ol_i_id FROM orders o JOIN order_line ol ON ol.ol_o_id = o.o_id \
        WHERE o.o_id > (SELECT MAX(o_id) - 10000 FROM orders) AND ol.ol_i_id <> $1 AND o.o_c_id IN \
        (SELECT o2.o_c_id FROM orders o2 JOIN order_line ol2 ON ol2.ol_o_id = o2.o_id \
        WHERE ol2.ol_i_id = $1 AND o2.o_id > (SELECT MAX(o_id) - 10000 FROM orders)) \
        GROUP BY ol.ol_i_id ORDER BY SUM(ol.ol_qty) DESC, ol.ol_i_id LIMIT 5";
    set_related: "UPDATE item SET i_related1 = $2, i_related2 = $3, i_related3 = $4, i_related4 = $5, \
        i_related5 = $6 WHERE i_id = $1";
}

/// One connection that runs interactions.
#[derive(Debug)]
pub struct Shop {
    client: Client,
    st: Statements,
    in_transaction: bool,
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Shop {
    /// Sets the isolation level of the connection and prepares every statement.
    pub async fn prepare(client: Client, isolation: Isolation) -> Result<Shop, Error> {
        let level = isolation.sql();
        client
            .batch_execute(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"))
            .await?;
        let st = Statements::prepare(&client).await?;
        Ok(Shop { client, st, in_transaction: false })
    }

    /// Runs one request; after an error [`Shop::roll_back`] must be called before the next.
    pub async fn execute(&mut self, request: &Request) -> Result<Reply, Error> {
        match request {
            Request::Home { customer, item } => {
                self.rows(&self.st.customer_name, &[customer]).await?;
                self.related_items(*item).await
            }
            Request::NewProducts { subject } => self.page(&self.st.new_products, &[subject]).await,
            Request::BestSellers { subject } => self.page(&self.st.best_sellers, &[subject]).await,
            Request::ProductDetail { item } | Request::AdminRequest { item } => {
                self.page(&self.st.product, &[item]).await
            }
            Request::SearchRequest { item } => self.related_items(*item).await,
            Request::SearchResults(search) => self.search(search).await,
            Request::ShoppingCart(change) => self.shopping_cart(change).await,
            Request::CustomerRegistration { customer } => self.page(&self.st.user_name, &[customer]).await,
            Request::BuyRequest { cart, buyer } => self.buy_request(*cart, buyer).await,
            Request::BuyConfirm(purchase) => self.buy_confirm(purchase).await,
            Request::OrderInquiry { customer } => self.page(&self.st.user_name, &[customer]).await,
            Request::OrderDisplay { customer } => self.order_display(*customer).await,
            Request::AdminConfirm(change) => self.admin_confirm(change).await,
        }
    }

    /// Ends a transaction that an error left open.
    pub async fn roll_back(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.in_transaction) {
            self.client.batch_execute("ROLLBACK").await?;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), Error> {
        self.in_transaction = true;
        self.client.execute(&self.st.begin, &[]).await.map(drop)
    }

    async fn begin_read_only(&mut self) -> Result<(), Error> {
        self.in_transaction = true;
        self.client.execute(&self.st.begin_read_only, &[]).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.client.execute(&self.st.commit, &[]).await?;
        self.in_transaction = false;
        Ok(())
    }

    async fn rows(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.client.query(statement, parameters).await
    }

    async fn run(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<u64, Error> {
        self.client.execute(statement, parameters).await
    }

    async fn page(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<Reply, Error> {
        self.rows(statement, parameters).await.map(|_| Reply::Page)
    }

    async fn related_items(&self, item: i32) -> Result<Reply, Error> {
        let row = self.client.query_one(&self.st.related, &[&item]).await?;
        let related: [i32; 5] = std::array::from_fn(|column| row.get(column));
        let [a, b, c, d, e] = &related;
        self.page(&self.st.thumbnails, &[a, b, c, d, e]).await
    }

    async fn search(&self, search: &Search) -> Result<Reply, Error> {
        match search {
            Search::Author(prefix) => {
                self.page(&self.st.search_author, &[prefix, &after_prefix(prefix)]).await
            }
            Search::Title(prefix) => self.page(&self.st.search_title, &[prefix, &after_prefix(prefix)]).await,
            Search::Subject(subject) => self.page(&self.st.search_subject, &[subject]).await,
        }
    }

    async fn shopping_cart(&mut self, change: &CartChange) -> Result<Reply, Error> {
        self.begin().await?;
        let cart: i32 = match change.cart {
            Some(cart) => cart,
            None => self.client.query_one(&self.st.new_cart, &[]).await?.get(0),
        };
        if let Some(quantity) = change.change_first {
            self.change_first_line(cart, quantity).await?;
        }
        self.run(&self.st.add_to_cart, &[&cart, &change.add, &change.quantity]).await?;
        let lines = self.rows(&self.st.cart_lines, &[&cart]).await?;
        self.set_totals(cart, &lines).await?;
        self.commit().await?;
        Ok(Reply::Cart { id: cart, filled: !lines.is_empty() })
    }

    async fn change_first_line(&self, cart: i32, quantity: i32) -> Result<(), Error> {
        let Some(row) = self.client.query_opt(&self.st.first_line, &[&cart]).await? else { return Ok(()) };
        let item: i32 = row.get(0);
        match quantity {
            0 => self.run(&self.st.delete_line, &[&cart, &item]).await?,
            _ => self.run(&self.st.change_line, &[&cart, &item, &quantity]).await?,
        };
        Ok(())
    }

    /// Writes a cart's totals; a cart knows no customer yet, hence no discount.
    async fn set_totals(&self, cart: i32, lines: &[Row]) -> Result<(), Error> {
        let (gross, units) = add_up(lines);
        let totals = totals(gross, units, 0);
        let parameters: Parameters<'_> =
            &[&cart, &totals.sub_total, &totals.tax, &totals.shipping, &totals.total];
        self.run(&self.st.set_totals, parameters).await.map(drop)
    }

    async fn buy_request(&mut self, cart: i32, buyer: &Buyer) -> Result<Reply, Error> {
        self.begin().await?;
        let customer = match buyer {
            Buyer::Returning(customer) => {
                self.log_in(*customer).await?;
                *customer
            }
            Buyer::New(new) => self.register(new).await?,
        };
        self.rows(&self.st.cart_lines, &[&cart]).await?;
        self.rows(&self.st.cart_totals, &[&cart]).await?;
        self.commit().await?;
        Ok(Reply::Customer(customer))
    }

    async fn log_in(&self, customer: i32) -> Result<(), Error> {
        let row = self.client.query_one(&self.st.returning_customer, &[&user_name(customer)]).await?;
        let id: i32 = row.get(0);
        self.run(&self.st.log_in, &[&id]).await.map(drop)
    }

    async fn register(&self, new: &NewCustomer) -> Result<i32, Error> {
        let address = self.find_or_enter(&new.address).await?;
        let id: i64 = self.client.query_one(&self.st.next_customer, &[]).await?.get(0);
        let id = id as i32;
        let name = user_name(id);
        let (password, email) = (name.to_lowercase(), format!("{name}@{}.com", new.last_name));
        let parameters: Parameters<'_> = &[
            &id,
            &name,
            &password,
            &new.first_name,
            &new.last_name,
            &address,
            &new.phone,
            &email,
            &new.discount,
            &new.data,
        ];
        self.run(&self.st.new_customer, parameters).await?;
        Ok(id)
    }

    async fn find_or_enter(&self, address: &Address) -> Result<i32, Error> {
        let country: i32 =
            self.client.query_one(&self.st.find_country, &[&country_name(address.country)]).await?.get(0);
        let Address { street1, street2, city, state, zip, .. } = address;
        let known = self.rows(&self.st.find_address, &[zip, street1, street2, city, state, &country]).await?;
        if let Some(row) = known.first() {
            return Ok(row.get(0));
        }
        let parameters: Parameters<'_> = &[street1, street2, city, state, zip, &country];
        Ok(self.client.query_one(&self.st.new_address, parameters).await?.get(0))
    }

    async fn buy_confirm(&mut self, purchase: &Purchase) -> Result<Reply, Error> {
        self.begin().await?;
        let buyer = self.client.query_one(&self.st.buyer, &[&purchase.customer]).await?;
        let (discount, own_address, country): (Money, i32, i32) = (buyer.get(2), buyer.get(3), buyer.get(4));
        let ship_to = match &purchase.ship_to {
            Some(address) => self.find_or_enter(address).await?,
            None => own_address,
        };
        let lines = self.rows(&self.st.lines_to_buy, &[&purchase.cart]).await?;
        let (gross, units) = add_up(&lines);
        // A discount of 0.15 is fifteen hundredths: as many percent as it has cents.
        let totals = totals(gross, units, discount.0);
        let parameters: Parameters<'_> = &[
            &purchase.customer,
            &totals.sub_total,
            &totals.tax,
            &totals.total,
            &purchase.ship_type,
            &own_address,
            &ship_to,
        ];
        let order: i32 = self.client.query_one(&self.st.new_order, parameters).await?.get(0);
        for (index, line) in lines.iter().enumerate() {
            let (item, quantity, cost): (i32, i32, Money) = (line.get(0), line.get(1), line.get(2));
            let number = index as i32 + 1;
            let parameters: Parameters<'_> =
                &[&order, &number, &item, &quantity, &cost, &discount, &purchase.comment];
            self.run(&self.st.new_order_line, parameters).await?;
            self.run(&self.st.take_stock, &[&item, &quantity, &STOCK_LOW, &REFILL]).await?;
        }
        let Purchase { card_type, card_number, card_name, .. } = purchase;
        let parameters: Parameters<'_> =
            &[&order, card_type, card_number, card_name, &totals.total, &country];
        self.run(&self.st.new_payment, parameters).await?;
        self.run(&self.st.empty_cart, &[&purchase.cart]).await?;
        self.set_totals(purchase.cart, &[]).await?;
        self.commit().await?;
        Ok(Reply::Ordered)
    }

    async fn order_display(&mut self, customer: i32) -> Result<Reply, Error> {
        self.begin_read_only().await?;
        self.rows(&self.st.customer_by_id, &[&customer]).await?;
        if let Some(row) = self.client.query_opt(&self.st.last_order, &[&customer]).await? {
            let order: i32 = row.get(0);
            self.client.query_one(&self.st.order, &[&order]).await?;
            self.rows(&self.st.order_lines, &[&order]).await?;
        }
        self.commit().await?;
        Ok(Reply::Page)
    }

    async fn admin_confirm(&mut self, change: &ItemChange) -> Result<Reply, Error> {
        self.begin().await?;
        let ItemChange { item, cost, image, thumbnail, fallback } = change;
        self.run(&self.st.change_item, &[item, cost, image, thumbnail]).await?;
        let rows = self.rows(&self.st.bought_with, &[item]).await?;
        let mut related: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        for other in fallback {
            if related.len() < 5 && !related.contains(other) {
                related.push(*other);
            }
        }
        let parameters: Parameters<'_> =
            &[item, &related[0], &related[1], &related[2], &related[3], &related[4]];
        self.run(&self.st.set_related, parameters).await?;
        self.commit().await?;
        Ok(Reply::Page)
    }
}

/// What the lines of a cart cost together, and how many units they are.
fn add_up(lines: &[Row]) -> (Money, i64) {
    lines.iter().fold((Money(0), 0), |(gross, units), line| {
        let (quantity, cost): (i32, Money) = (line.get(1), line.get(2));
        (gross + cost * i64::from(quantity), units + i64::from(quantity))
    })
}

/// The smallest text that is greater than every text with this prefix; the prefixes are lower-case
/// letters and blanks.
pub fn after_prefix(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    if let Some(last) = text.pop() {
        text.push(char::from_u32(last as u32 + 1).unwrap_or(char::MAX));
    }
    text
}
