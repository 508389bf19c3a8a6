//! The ten tables of the bookstore, their sequences, indexes and foreign keys.
//!
//! Tables come with their primary keys, so that a system which stores rows by key can load in key
//! order; indexes and foreign keys follow after the load.

use super::generator::Scale;

/// The tables in the order in which foreign keys let them be filled.
pub const TABLES: [&str; 10] = [
    "country",
    "address",
    "customer",
    "author",
    "item",
    "orders",
    "order_line",
    "cc_xacts",
    "shopping_cart",
    "shopping_cart_line",
];

/// Removes an earlier bookstore.
pub fn drop_all() -> Vec<String> {
    let tables = TABLES.iter().rev().map(|table| format!("DROP TABLE IF EXISTS {table}"));
    let sequences = SEQUENCES.iter().map(|sequence| format!("DROP SEQUENCE IF EXISTS {sequence}"));
    tables.chain(sequences).collect()
}

const SEQUENCES: [&str; 4] = ["address_id", "customer_id", "order_id", "cart_id"];

/// [`TABLES`], in the same order.
const DEFINITIONS: [&str; 10] = [
    "CREATE TABLE country (
        co_id integer PRIMARY KEY,
        co_name varchar(50) NOT NULL,
        co_exchange numeric(12,6) NOT NULL,
        co_currency varchar(18) NOT NULL)",
    "CREATE TABLE address (
        addr_id integer PRIMARY KEY,
        addr_street1 varchar(40) NOT NULL,
        addr_street2 varchar(40) NOT NULL,
        addr_city varchar(30) NOT NULL,
        addr_state varchar(20) NOT NULL,
        addr_zip varchar(10) NOT NULL,
        addr_co_id integer NOT NULL)",
    "CREATE TABLE customer (
        c_id integer PRIMARY KEY,
        c_uname varchar(20) NOT NULL,
        c_passwd varchar(20) NOT NULL,
        c_fname varchar(17) NOT NULL,
        c_lname varchar(17) NOT NULL,
        c_addr_id integer NOT NULL,
        c_phone varchar(18) NOT NULL,
        c_email varchar(50) NOT NULL,
        c_since date NOT NULL,
        c_last_login date NOT NULL,
        c_login timestamp NOT NULL,
        c_expiration timestamp NOT NULL,
        c_discount numeric(5,2) NOT NULL,
        c_balance numeric(15,2) NOT NULL,
        c_ytd_pmt numeric(15,2) NOT NULL,
        c_birthdate date NOT NULL,
        c_data varchar(500) NOT NULL)",
    "CREATE TABLE author (
        a_id integer PRIMARY KEY,
        a_fname varchar(20) NOT NULL,
        a_lname varchar(20) NOT NULL,
        a_mname varchar(20) NOT NULL,
        a_dob date NOT NULL,
        a_bio varchar(500) NOT NULL)",
    "CREATE TABLE item (
        i_id integer PRIMARY KEY,
        i_title varchar(60) NOT NULL,
        i_a_id integer NOT NULL,
        i_pub_date date NOT NULL,
        i_publisher varchar(60) NOT NULL,
        i_subject varchar(60) NOT NULL,
        i_desc varchar(500) NOT NULL,
        i_related1 integer NOT NULL,
        i_related2 integer NOT NULL,
        i_related3 integer NOT NULL,
        i_related4 integer NOT NULL,
        i_related5 integer NOT NULL,
        i_thumbnail varchar(40) NOT NULL,
        i_image varchar(40) NOT NULL,
        i_srp numeric(15,2) NOT NULL,
        i_cost numeric(15,2) NOT NULL,
        i_avail date NOT NULL,
        i_stock integer NOT NULL CHECK (i_stock >= 0),
        i_isbn char(13) NOT NULL,
        i_page integer NOT NULL,
        i_backing varchar(15) NOT NULL,
        i_dimensions varchar(25) NOT NULL)",
    "CREATE TABLE orders (
        o_id integer PRIMARY KEY,
        o_c_id integer NOT NULL,
        o_date timestamp NOT NULL,
        o_sub_total numeric(15,2) NOT NULL,
        o_tax numeric(15,2) NOT NULL,
        o_total numeric(15,2) NOT NULL,
        o_ship_type varchar(10) NOT NULL,
        o_ship_date timestamp NOT NULL,
        o_bill_addr_id integer NOT NULL,
        o_ship_addr_id integer NOT NULL,
        o_status varchar(15) NOT NULL)",
    "CREATE TABLE order_line (
        ol_o_id integer NOT NULL,
        ol_id integer NOT NULL,
        ol_i_id integer NOT NULL,
        ol_qty integer NOT NULL CHECK (ol_qty > 0),
        ol_cost numeric(15,2) NOT NULL,
        ol_discount numeric(5,2) NOT NULL,
        ol_comments varchar(110) NOT NULL,
        PRIMARY KEY (ol_o_id, ol_id))",
    "CREATE TABLE cc_xacts (
        cx_o_id integer PRIMARY KEY,
        cx_type varchar(10) NOT NULL,
        cx_num varchar(20) NOT NULL,
        cx_name varchar(35) NOT NULL,
        cx_expire date NOT NULL,
        cx_auth_id char(15),
        cx_xact_amt numeric(15,2) NOT NULL,
        cx_xact_date timestamp NOT NULL,
        cx_co_id integer NOT NULL)",
    "CREATE TABLE shopping_cart (
        sc_id integer PRIMARY KEY,
        sc_time timestamp NOT NULL,
        sc_sub_total numeric(15,2) NOT NULL,
        sc_tax numeric(15,2) NOT NULL,
        sc_ship_cost numeric(15,2) NOT NULL,
        sc_total numeric(15,2) NOT NULL)",
    "CREATE TABLE shopping_cart_line (
        scl_sc_id integer NOT NULL,
        scl_i_id integer NOT NULL,
        scl_qty integer NOT NULL CHECK (scl_qty > 0),
        scl_cost numeric(15,2) NOT NULL,
        PRIMARY KEY (scl_sc_id, scl_i_id))",
];

/// Sequences that go on after the loaded rows, and the tables.
pub fn create(scale: &Scale) -> Vec<String> {
    let next = [scale.addresses() + 1, scale.customers() + 1, scale.orders() + 1, 1];
    let sequences =
        SEQUENCES.iter().zip(next).map(|(name, start)| format!("CREATE SEQUENCE {name} START WITH {start}"));
    sequences.chain(DEFINITIONS.map(str::to_owned)).collect()
}

/// Indexes and foreign keys, made after the load, and the statistics that planners want.
pub fn finish() -> Vec<String> {
    let indexes = [
        "CREATE UNIQUE INDEX customer_uname ON customer (c_uname)",
        "CREATE INDEX customer_address ON customer (c_addr_id)",
        "CREATE INDEX address_place ON address (addr_zip, addr_street1)",
        "CREATE INDEX author_lname ON author (a_lname)",
        "CREATE INDEX item_author ON item (i_a_id)",
        "CREATE INDEX item_title ON item (i_title)",
        "CREATE INDEX item_subject_title ON item (i_subject, i_title)",
        "CREATE INDEX item_subject_date ON item (i_subject, i_pub_date DESC, i_title)",
        "CREATE INDEX orders_customer ON orders (o_c_id, o_id)",
        "CREATE INDEX order_line_item ON order_line (ol_i_id)",
        "CREATE UNIQUE INDEX country_name ON country (co_name)",
    ];
    let references = [
        ("address", "addr_co_id", "country (co_id)"),
        ("customer", "c_addr_id", "address (addr_id)"),
        ("item", "i_a_id", "author (a_id)"),
        ("orders", "o_c_id", "customer (c_id)"),
        ("orders", "o_bill_addr_id", "address (addr_id)"),
        ("orders", "o_ship_addr_id", "address (addr_id)"),
        ("order_line", "ol_o_id", "orders (o_id)"),
        ("order_line", "ol_i_id", "item (i_id)"),
        ("cc_xacts", "cx_o_id", "orders (o_id)"),
        ("cc_xacts", "cx_co_id", "country (co_id)"),
        ("shopping_cart_line", "scl_sc_id", "shopping_cart (sc_id)"),
        ("shopping_cart_line", "scl_i_id", "item (i_id)"),
    ];
    let references = references.map(|(table, column, target)| {
        format!("ALTER TABLE {table} ADD CONSTRAINT {table}_{column}_fkey FOREIGN KEY ({column}) REFERENCES {target}")
    });
    let mut statements: Vec<String> = indexes.map(str::to_owned).into();
    statements.extend(references);
    statements.push("VACUUM ANALYZE".to_owned());
    statements
}
