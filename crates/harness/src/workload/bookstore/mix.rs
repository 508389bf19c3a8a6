//! The fourteen interactions and how often each comes, in hundredths of a percent, in TPC-W's three
//! mixes.

use crate::random::Random;

/// One kind of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "TPC-W's own names")]
pub enum Interaction {
    Home,
    NewProducts,
    BestSellers,
    ProductDetail,
    SearchRequest,
    SearchResults,
    ShoppingCart,
    CustomerRegistration,
    BuyRequest,
    BuyConfirm,
    OrderInquiry,
    OrderDisplay,
    AdminRequest,
    AdminConfirm,
}

use Interaction::*;

/// All interactions, in the order of their numbers.
pub const INTERACTIONS: [Interaction; 14] = [
    Home,
    NewProducts,
    BestSellers,
    ProductDetail,
    SearchRequest,
    SearchResults,
    ShoppingCart,
    CustomerRegistration,
    BuyRequest,
    BuyConfirm,
    OrderInquiry,
    OrderDisplay,
    AdminRequest,
    AdminConfirm,
];

impl Interaction {
    /// The name that TPC-W gives the page.
    pub fn name(self) -> &'static str {
        match self {
            Home => "Home",
            NewProducts => "New Products",
            BestSellers => "Best Sellers",
            ProductDetail => "Product Detail",
            SearchRequest => "Search Request",
            SearchResults => "Search Results",
            ShoppingCart => "Shopping Cart",
            CustomerRegistration => "Customer Registration",
            BuyRequest => "Buy Request",
            BuyConfirm => "Buy Confirm",
            OrderInquiry => "Order Inquiry",
            OrderDisplay => "Order Display",
            AdminRequest => "Admin Request",
            AdminConfirm => "Admin Confirm",
        }
    }
}

/// Which share of the visitors buys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// 95 % browsing, 5 % ordering.
    Browsing,
    /// 80 % browsing, 20 % ordering.
    Shopping,
    /// 50 % browsing, 50 % ordering.
    Ordering,
}

impl Mix {
    /// As the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Browsing => "browsing",
            Mix::Shopping => "shopping",
            Mix::Ordering => "ordering",
        }
    }

    /// The share of each interaction in hundredths of a percent, by the interaction's number; they
    /// sum to 10,000.
    pub fn shares(self) -> [u32; 14] {
        match self {
            Mix::Browsing => [2900, 1100, 1100, 2100, 1200, 1100, 200, 82, 75, 69, 30, 25, 10, 9],
            Mix::Shopping => [1600, 500, 500, 1700, 2000, 1700, 1160, 300, 260, 120, 75, 66, 10, 9],
            Mix::Ordering => [912, 46, 46, 1235, 1453, 1308, 1353, 1286, 1273, 1018, 25, 22, 12, 11],
        }
    }

    /// Draws an interaction.
    pub fn draw(self, random: &mut Random) -> Interaction {
        let mut at = random.between(0, 9_999) as u32;
        for (interaction, share) in INTERACTIONS.into_iter().zip(self.shares()) {
            if at < share {
                return interaction;
            }
            at -= share;
        }
        Home // not reached: the shares sum to 10,000
    }
}
