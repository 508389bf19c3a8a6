//! An emulated browser: whom it shops for, what its cart holds, and which request it sends next.
//!
//! Interactions are drawn from the mix independently. Two of them need a cart with something in it:
//! when Buy Request or Buy Confirm is drawn without one, the browser fills a cart first and leaves
//! out a Shopping Cart later, so that the shares of the mix hold over time. After Buy Confirm the
//! browser goes on as another customer.
//!
//! A request is data: it holds every value it needs, so a retry repeats exactly the same request.

use super::generator::{
    Address, CARD_TYPES, SHIP_TYPES, SUBJECTS, Scale, author_last_name, item_title, other_items,
};
use super::mix::{Interaction, Mix};
use crate::money::Money;
use crate::random::Random;

/// What Search Results looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// Books by authors whose last name begins so.
    Author(String),
    /// Books whose title begins so.
    Title(String),
    /// Books on a subject.
    Subject(&'static str),
}

/// Who sends a Buy Request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buyer {
    /// A customer who is known already.
    Returning(i32),
    /// Somebody who registers now.
    New(Box<NewCustomer>),
}

/// What a new customer enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCustomer {
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Postal address.
    pub address: Address,
    /// Telephone number.
    pub phone: String,
    /// Discount as a fraction, 0.00 to 0.50.
    pub discount: Money,
    /// Anything else about the customer.
    pub data: String,
}

/// What a buyer enters at Buy Confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The cart that is bought.
    pub cart: i32,
    /// The customer who buys.
    pub customer: i32,
    /// Kind of credit card.
    pub card_type: &'static str,
    /// Number of the card.
    pub card_number: String,
    /// Name on the card.
    pub card_name: String,
    /// Way of shipping.
    pub ship_type: &'static str,
    /// An address other than the customer's own.
    pub ship_to: Option<Box<Address>>,
    /// A remark, kept with each line.
    pub comment: String,
}

/// What Shopping Cart does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartChange {
    /// The browser's cart; none yet for a new one.
    pub cart: Option<i32>,
    /// The item that is put in.
    pub add: i32,
    /// How many of it.
    pub quantity: i32,
    /// A new quantity for the cart's first line; 0 takes it out.
    pub change_first: Option<i32>,
}

/// What Admin Confirm changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemChange {
    /// The item.
    pub item: i32,
    /// Its new price.
    pub cost: Money,
    /// Its new picture.
    pub image: String,
    /// Its new small picture.
    pub thumbnail: String,
    /// Related items where too few others were bought with it.
    pub fallback: [i32; 5],
}

/// One request of an emulated browser, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the interactions; fields say what they hold")]
pub enum Request {
    Home { customer: i32, item: i32 },
    NewProducts { subject: &'static str },
    BestSellers { subject: &'static str },
    ProductDetail { item: i32 },
    SearchRequest { item: i32 },
    SearchResults(Search),
    ShoppingCart(CartChange),
    CustomerRegistration { customer: i32 },
    BuyRequest { cart: i32, buyer: Buyer },
    BuyConfirm(Box<Purchase>),
    OrderInquiry { customer: i32 },
    OrderDisplay { customer: i32 },
    AdminRequest { item: i32 },
    AdminConfirm(Box<ItemChange>),
}

impl Request {
    /// The interaction that the request belongs to.
    pub fn interaction(&self) -> Interaction {
        match self {
            Request::Home { .. } => Interaction::Home,
            Request::NewProducts { .. } => Interaction::NewProducts,
            Request::BestSellers { .. } => Interaction::BestSellers,
            Request::ProductDetail { .. } => Interaction::ProductDetail,
            Request::SearchRequest { .. } => Interaction::SearchRequest,
            Request::SearchResults(_) => Interaction::SearchResults,
            Request::ShoppingCart(_) => Interaction::ShoppingCart,
            Request::CustomerRegistration { .. } => Interaction::CustomerRegistration,
            Request::BuyRequest { .. } => Interaction::BuyRequest,
            Request::BuyConfirm(_) => Interaction::BuyConfirm,
            Request::OrderInquiry { .. } => Interaction::OrderInquiry,
            Request::OrderDisplay { .. } => Interaction::OrderDisplay,
            Request::AdminRequest { .. } => Interaction::AdminRequest,
            Request::AdminConfirm(_) => Interaction::AdminConfirm,
        }
    }
}

/// What the browser learns from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A page to look at.
    Page,
    /// The cart with this number, and whether anything is in it.
    Cart {
        /// The cart's number.
        id: i32,
        /// True if it has at least one line.
        filled: bool,
    },
    /// The customer who now shops.
    Customer(i32),
    /// The order is placed.
    Ordered,
}

/// The cart that a browser holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cart {
    id: i32,
    filled: bool,
}

/// An emulated browser's state.
#[derive(Clone, Debug)]
pub struct Browser {
    scale: Scale,
    mix: Mix,
    random: Random,
    customer: i32,
    cart: Option<Cart>,
    /// Carts filled ahead of their turn; as many Shopping Carts are left out later.
    borrowed: u32,
    /// An interaction that waits for a cart.
    postponed: Option<Interaction>,
}

/// The stream of random numbers that requests are drawn from; tables use the small numbers.
const REQUEST_STREAM: u64 = 1 << 32;

impl Browser {
    /// A browser with its own sequence of requests, determined by the scale's seed and `number`.
    pub fn new(scale: Scale, mix: Mix, number: u64) -> Browser {
        let mut random = Random::stream(scale.seed, REQUEST_STREAM, number);
        let customer = random.skewed(scale.customers());
        Browser { scale, mix, random, customer, cart: None, borrowed: 0, postponed: None }
    }

    /// Draws the next request.
    pub fn next_request(&mut self) -> Request {
        let interaction = self.next_interaction();
        self.request(interaction)
    }

    fn next_interaction(&mut self) -> Interaction {
        let filled = self.cart.is_some_and(|cart| cart.filled);
        if filled && let Some(postponed) = self.postponed.take() {
            return postponed;
        }
        loop {
            let drawn = self.mix.draw(&mut self.random);
            match drawn {
                Interaction::ShoppingCart if self.borrowed > 0 => self.borrowed -= 1,
                Interaction::BuyRequest | Interaction::BuyConfirm if !filled => {
                    self.postponed = Some(drawn);
                    self.borrowed += 1;
                    return Interaction::ShoppingCart;
                }
                _ => return drawn,
            }
        }
    }

    fn request(&mut self, interaction: Interaction) -> Request {
        let item = self.random.skewed(self.scale.items);
        let customer = self.customer;
        let cart = self.cart.map_or(0, |cart| cart.id);
        match interaction {
            Interaction::Home => Request::Home { customer, item },
            Interaction::NewProducts => Request::NewProducts { subject: self.random.pick(&SUBJECTS) },
            Interaction::BestSellers => Request::BestSellers { subject: self.random.pick(&SUBJECTS) },
            Interaction::ProductDetail => Request::ProductDetail { item },
            Interaction::SearchRequest => Request::SearchRequest { item },
            Interaction::SearchResults => Request::SearchResults(self.search(item)),
            Interaction::ShoppingCart => Request::ShoppingCart(self.cart_change(item)),
            Interaction::CustomerRegistration => Request::CustomerRegistration { customer },
            Interaction::BuyRequest => Request::BuyRequest { cart, buyer: self.buyer() },
            Interaction::BuyConfirm => Request::BuyConfirm(Box::new(self.purchase(cart))),
            Interaction::OrderInquiry => Request::OrderInquiry { customer },
            Interaction::OrderDisplay => Request::OrderDisplay { customer },
            Interaction::AdminRequest => Request::AdminRequest { item },
            Interaction::AdminConfirm => Request::AdminConfirm(Box::new(self.item_change(item))),
        }
    }

    fn search(&mut self, item: i32) -> Search {
        match self.random.int(1, 3) {
            1 => {
                let author = self.random.int(1, self.scale.authors());
                Search::Author(author_last_name(&self.scale, author).chars().take(4).collect())
            }
            2 => Search::Title(item_title(&self.scale, item).chars().take(4).collect()),
            _ => Search::Subject(self.random.pick(&SUBJECTS)),
        }
    }

    fn cart_change(&mut self, add: i32) -> CartChange {
        let known = self.cart;
        let change = known.is_some_and(|cart| cart.filled) && self.random.chance(50);
        CartChange {
            cart: known.map(|cart| cart.id),
            add,
            quantity: self.random.int(1, 3),
            change_first: change.then(|| self.random.int(0, 10)),
        }
    }

    fn buyer(&mut self) -> Buyer {
        if !self.random.chance(20) {
            return Buyer::Returning(self.customer);
        }
        let random = &mut self.random;
        let mut first_name = String::new();
        random.letters(8, 15, &mut first_name);
        let mut last_name = String::new();
        random.letters(8, 15, &mut last_name);
        let mut phone = String::new();
        random.digits(12, &mut phone);
        let mut data = String::new();
        random.letters(100, 400, &mut data);
        Buyer::New(Box::new(NewCustomer {
            first_name,
            last_name,
            address: Address::generate(random),
            phone,
            discount: Money(random.between(0, 50)),
            data,
        }))
    }

    fn purchase(&mut self, cart: i32) -> Purchase {
        let random = &mut self.random;
        let mut card_number = String::new();
        random.digits(16, &mut card_number);
        let mut card_name = String::new();
        random.letters(14, 30, &mut card_name);
        let mut comment = String::new();
        random.letters(20, 100, &mut comment);
        // One in twenty has it sent elsewhere: half of these to an address that is known already.
        let ship_to = random.chance(5).then(|| {
            Box::new(match random.chance(50) {
                true => Address::loaded(&self.scale, random.int(1, self.scale.addresses())),
                false => Address::generate(random),
            })
        });
        Purchase {
            cart,
            customer: self.customer,
            card_type: random.pick(&CARD_TYPES),
            card_number,
            card_name,
            ship_type: random.pick(&SHIP_TYPES),
            ship_to,
            comment,
        }
    }

    fn item_change(&mut self, item: i32) -> ItemChange {
        let n = self.random.int(1, 99_999);
        ItemChange {
            item,
            cost: Money(self.random.between(100, 99_999)),
            image: format!("img{}/image_{n}.gif", n % 100),
            thumbnail: format!("img{}/thumb_{n}.gif", n % 100),
            fallback: other_items(&mut self.random, self.scale.items, item),
        }
    }

    /// Learns from the answer to a request that has committed.
    pub fn answered(&mut self, request: &Request, reply: &Reply) {
        match *reply {
            Reply::Page => {}
            Reply::Cart { id, filled } => self.cart = Some(Cart { id, filled }),
            Reply::Customer(id) => self.customer = id,
            Reply::Ordered => self.next_customer(),
        }
        debug_assert!(!matches!(request, Request::BuyConfirm(_)) || *reply == Reply::Ordered);
    }

    /// A request was given up: nothing of it has happened, or nobody knows. A buyer starts afresh.
    pub fn gave_up(&mut self, request: &Request) {
        if matches!(request, Request::BuyConfirm(_) | Request::BuyRequest { .. } | Request::ShoppingCart(_)) {
            self.next_customer();
            self.postponed = None;
        }
    }

    fn next_customer(&mut self) {
        self.customer = self.random.skewed(self.scale.customers());
        self.cart = None;
    }
}
