//! Clients that buy through whatever happens to the components, and what must be true afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Components, END, Failure, post};

/// Items and customers of whom purchases are made: their stock and money suffice for this many
/// thousand.
const EACH: usize = 40;
/// There are neither items nor customers beyond: who asks for them is refused by one component, and
/// undone at the other.
const NONE: i32 = 101;
/// A pause before a request is made again.
const PAUSE: Duration = Duration::from_millis(20);
/// A pause after each request while there are lulls: components free what nobody used meanwhile.
const LULL: Duration = Duration::from_millis(600);

/// A purchase, and what its client was answered.
pub(crate) struct Bought {
    key: String,
    order: Value,
    receipt: Value,
}

/// Clients that buy until they are told to stop.
pub(crate) struct Crowd {
    shop: SocketAddr,
    /// Makes keys unlike those of other crowds.
    name: String,
    deadline_ms: String,
    is_over: AtomicBool,
    has_lulls: AtomicBool,
    bought: AtomicUsize,
}

impl Crowd {
    /// Has clients buy at this address while the work goes on. Each ends with an answer to its last
    /// request.
    pub(crate) fn buys<T>(
        shop: SocketAddr,
        name: &str,
        clients: usize,
        deadline: Duration,
        work: impl FnOnce(&Crowd) -> Result<T, Failure>,
    ) -> Result<(T, Vec<Bought>), Failure> {
        let crowd = Crowd {
            shop,
            name: name.to_owned(),
            deadline_ms: deadline.as_millis().to_string(),
            is_over: AtomicBool::new(false),
            has_lulls: AtomicBool::new(false),
            bought: AtomicUsize::new(0),
        };
        let crowd = &crowd;
        thread::scope(|scope| {
            let buying: Vec<_> =
                (0..clients).map(|client| scope.spawn(move || crowd.buy(client, clients))).collect();
            let refused = scope.spawn(|| crowd.ask_for_nothing());
            let worked = work(crowd);
            crowd.is_over.store(true, Ordering::SeqCst);
            let mut bought = Vec::new();
            for client in buying {
                bought.extend(client.join().map_err(|_| "a client panicked")??);
            }
            refused.join().map_err(|_| "a client panicked")??;
            Ok((worked?, bought))
        })
    }

    /// Purchases until now.
    pub(crate) fn bought(&self) -> usize {
        self.bought.load(Ordering::SeqCst)
    }

    /// Waits for so many more purchases.
    pub(crate) fn goes_on(&self, purchases: usize) -> Result<(), Failure> {
        let (before, begun) = (self.bought(), Instant::now());
        while self.bought() < before + purchases {
            if begun.elapsed() > END {
                return Err("nothing is bought any more".into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// From now on, clients pause after each purchase, or no longer do.
    #[cfg(feature = "fault-points")]
    pub(crate) fn set_lulls(&self, has_lulls: bool) {
        self.has_lulls.store(has_lulls, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn pause(&self) {
        if self.has_lulls.load(Ordering::SeqCst) {
            thread::sleep(LULL);
        }
    }

    /// One client: a purchase after the other, each asked for until it is answered.
    fn buy(&self, client: usize, clients: usize) -> Result<Vec<Bought>, Failure> {
        let mut bought = Vec::new();
        for nth in 0usize.. {
            self.pause();
            if self.is_over() {
                break;
            }
            let (item, customer) = (1 + (nth * 7 + client) % EACH, 1 + (nth * clients + client) % EACH);
            let (key, order) =
                (format!("{}/{client}/{nth}", self.name), json!({ "item": item, "customer": customer }));
            let headers =
                [("Idempotency-Key", key.as_str()), ("Cognate-Deadline-Ms", self.deadline_ms.as_str())];
            let begun = Instant::now();
            let receipt = loop {
                match post(self.shop, "/services/buy", &headers, &order) {
                    Ok((200, receipt)) => break receipt,
                    // Somebody is down, or was: the same request again.
                    Ok((409 | 503 | 504, _)) | Err(_) if begun.elapsed() < END => thread::sleep(PAUSE),
                    Ok((status, answer)) => {
                        return Err(format!("{key} was answered {status} {answer}").into());
                    }
                    Err(error) => return Err(format!("{key} was not answered: {error}").into()),
                }
            };
            assert_eq!((&receipt["item"], &receipt["customer"]), (&order["item"], &order["customer"]));
            bought.push(Bought { key, order, receipt });
            self.bought.fetch_add(1, Ordering::SeqCst);
        }
        Ok(bought)
    }

    /// A client whose purchases one component refuses, so that the other one's part is undone.
    fn ask_for_nothing(&self) -> Result<(), Failure> {
        let orders = [json!({ "item": 1, "customer": NONE }), json!({ "item": NONE, "customer": 1 })];
        for nth in 0usize.. {
            self.pause();
            if self.is_over() {
                break;
            }
            let headers = [("Cognate-Deadline-Ms", self.deadline_ms.as_str())];
            match post(self.shop, "/services/buy", &headers, &orders[nth % orders.len()]) {
                Ok((400, problem)) if problem["reason"] == "failed" => {}
                Ok((409 | 503 | 504, _)) | Err(_) => thread::sleep(PAUSE),
                Ok((status, answer)) => {
                    return Err(format!("what must be refused was answered {status} {answer}").into());
                }
            }
        }
        Ok(())
    }
}

/// The answer of a service that reads, as soon as nothing is in its way.
fn read(to: SocketAddr, service: &str, arguments: &Value) -> Result<i64, Failure> {
    let begun = Instant::now();
    loop {
        match post(to, &format!("/services/{service}"), &[], arguments)? {
            (200, answer) => return answer.as_i64().ok_or_else(|| "no number".into()),
            (409, _) if begun.elapsed() < END => thread::sleep(PAUSE),
            (status, answer) => return Err(format!("{service} was answered {status} {answer}").into()),
        }
    }
}

/// What is there has to be what was told.
fn same<T: PartialEq + Debug>(what: &str, found: T, told: T) -> Result<(), Failure> {
    match found == told {
        true => Ok(()),
        false => Err(format!("{what}: {found:?} instead of {told:?}").into()),
    }
}

/// Everything that was bought of three components.
#[derive(Default)]
pub(crate) struct Ledger {
    sold: BTreeMap<i64, i64>,
    paid: BTreeMap<i64, i64>,
    ids: BTreeSet<i64>,
}

impl Ledger {
    /// Takes in more purchases, and asks for each once more: the stored answer comes, and nothing
    /// happens.
    pub(crate) fn add(&mut self, shop: SocketAddr, bought: Vec<Bought>) -> Result<(), Failure> {
        for Bought { key, order, receipt } in bought {
            let number = |field: &str| receipt[field].as_i64().ok_or(format!("{key}: no {field}: {receipt}"));
            *self.sold.entry(number("item")?).or_default() += 1;
            *self.paid.entry(number("customer")?).or_default() += number("price")?;
            same(&format!("{key} has a purchase of its own"), self.ids.insert(number("id")?), true)?;
            let again = post(shop, "/services/buy", &[("Idempotency-Key", key.as_str())], &order)?;
            same(&format!("{key} once more"), again, (200, receipt))?;
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Each purchase that was answered is at every component exactly once, and nothing else is.
    pub(crate) fn check(&self, components: &Components) -> Result<(), Failure> {
        let [shop, stock, payment] = ["shop", "stock", "payment"].map(|name| components.address(name));
        for place in 1..=EACH as i64 {
            let item = json!({ "item": place });
            let sold = self.sold.get(&place).copied().unwrap_or_default();
            let found = (read(shop, "sold", &item)?, 1000 - read(stock, "count", &item)?);
            same(&format!("item {place}: purchases, and what was taken of its stock"), found, (sold, sold))?;
            let paid = self.paid.get(&place).copied().unwrap_or_default();
            same(
                &format!("paid by customer {place}"),
                10_000 - read(payment, "balance", &json!(place))?,
                paid,
            )?;
        }
        Ok(())
    }
}
