//! The stub: hands requests that were left prepared back to an application server (MIP paper, §2:
//! "a request push mechanism ... which can simulate the client retransmission").
//!
//! A family that is prepared here and not decided holds its locks, whatever became of the server
//! that prepared it. After `cognate.in_doubt_push_after` the stub posts the request to one of
//! `cognate.application_servers`, as an instance of its own, as a client would that tries again:
//!
//! ```text
//! POST /etx
//! Idempotency-Key: c/7          the XID
//! Etx-Instance: 5122            above all numbers heard of, in this site's lane
//!
//! the request string
//! ```
//!
//! Where the numbers are used up, the number is the highest itself. Nothing is executed under it
//! here, as this site refuses to begin what it has heard of, and an application server executes
//! only what has begun at all sites; but a retry looks at the tables first, and so commits what is
//! prepared everywhere, and withdraws what never will be.
//!
//! What comes back is not looked at: the family is decided then, or what was prepared here is
//! withdrawn, or neither, and its turn comes again, later each time and at the next server. The
//! numbers of several sites' stubs and of clients never collide
//! (`cognate_engine::sibling`, *Numbers of instances*). [`Stub`] decides what is pushed when, and
//! knows no clock; [`run`] does it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use bytes::Bytes;
use cognate_engine::sibling::{InDoubt, Instance, Xid};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::{Semaphore, watch};

use crate::server::Server;

/// A family's turns are at most so far apart.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// How often the prepared families are looked at, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Pushes under way at a time, to each application server: one that does not answer keeps nobody
/// from the others.
const PUSHES_MAX: usize = 8;
/// Of an answer so much is read, and forgotten. A connection whose answer goes on is given up, also
/// if that is a long result: what the request has done does not depend on who hears of it.
const ANSWER_MAX: usize = 64 << 10;
/// An application server may take so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One request to hand over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Push {
    pub(crate) xid: Xid,
    pub(crate) instance: Instance,
    pub(crate) request: Arc<str>,
    /// Which server of the list.
    pub(crate) server: usize,
}

#[derive(Debug)]
struct Turn {
    attempts: u32,
    /// The age of the family at which its next turn comes.
    next_age: Duration,
    seen: u64,
}

/// What was pushed, and when it is pushed again.
#[derive(Debug)]
pub(crate) struct Stub {
    lane: u16,
    turns: HashMap<Xid, Turn>,
    looks: u64,
    /// There were more than the servers had room for.
    is_short: bool,
}

impl Stub {
    /// The stub of the site with this lane, from 1.
    pub(crate) fn new(lane: u16) -> Stub {
        Stub { lane, turns: HashMap::new(), looks: 0, is_short: false }
    }

    /// What is to be pushed now. `families` are all that are prepared and undecided, `room` says
    /// how many pushes each server still takes. A family goes to the next server that takes one;
    /// while there is none, its turn waits.
    pub(crate) fn due(
        &mut self,
        families: &[InDoubt],
        push_after: Duration,
        room: &mut [usize],
    ) -> Vec<Push> {
        self.looks += 1;
        self.is_short = false;
        let servers = room.len();
        let mut pushes = Vec::new();
        for family in families {
            let age = Duration::from_micros(u64::try_from(family.age_us).unwrap_or(0));
            let turn = self.turns.entry(family.xid.clone()).or_insert(Turn {
                attempts: 0,
                next_age: push_after,
                seen: 0,
            });
            turn.seen = self.looks;
            // A family looks younger once its oldest instance is withdrawn, and after the clock was
            // set back. Its turn must not be put off by that.
            turn.next_age = turn.next_age.min(age.saturating_add(PAUSE_MAX));
            if age < turn.next_age.max(push_after) || servers == 0 {
                continue;
            }
            let first = turn.attempts as usize;
            let Some(server) = (first..first + servers).map(|at| at % servers).find(|&at| room[at] > 0)
            else {
                self.is_short = true;
                continue;
            };
            // Where the numbers are used up nothing is executed any more.
            let last = || Instance::new(family.highest).ok();
            let Some(instance) = Instance::above(family.highest, self.lane).or_else(last) else { continue };
            room[server] -= 1;
            let pause = push_after.saturating_mul(1 << turn.attempts.min(20)).clamp(LOOK_MAX, PAUSE_MAX);
            pushes.push(Push { xid: family.xid.clone(), instance, request: family.request.clone(), server });
            // The next turn is the next server's, also if this one was not the first choice.
            turn.attempts += 1 + ((server + servers - first % servers) % servers) as u32;
            turn.next_age = age + pause;
        }
        let looks = self.looks;
        self.turns.retain(|_, turn| turn.seen == looks);
        pushes
    }
}

/// Tells whether it is this server's turn to push. All nodes of a cluster have the same families,
/// so the one that leads pushes them; two that take themselves for it do no harm.
pub(crate) type Leads = Box<dyn Fn() -> bool + Send + Sync>;

/// Looks and pushes until the server stops.
pub(crate) async fn run(server: Arc<Server>, lane: u16, leads: Leads, mut stopped: watch::Receiver<bool>) {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let (mut stub, mut rooms) = (Stub::new(lane), HashMap::<String, Arc<Semaphore>>::new());
    loop {
        let healing = server.database.healing();
        let push_after = healing.push_after();
        let pause = match stub.is_short {
            // Those that wait for room have theirs as soon as a push has ended.
            true => LOOK_MIN,
            false => push_after.map_or(LOOK_MAX, |after| (after / 4).clamp(LOOK_MIN, LOOK_MAX)),
        };
        tokio::select! {
            _ = stopped.changed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (Some(push_after), servers) = (push_after, healing.servers()) else {
            stub.is_short = false;
            continue;
        };
        if servers.is_empty() || !leads() {
            stub.is_short = false;
            continue;
        }
        rooms.retain(|url, _| servers.contains(url));
        let room_of = |url: &String| {
            let room = rooms.entry(url.clone()).or_insert_with(|| Arc::new(Semaphore::new(PUSHES_MAX)));
            Arc::clone(room)
        };
        let room: Vec<_> = servers.iter().map(room_of).collect();
        let mut free: Vec<_> = room.iter().map(|room| room.available_permits()).collect();
        // All are on their way, and to look through many families is work.
        if free.iter().all(|places| *places == 0) {
            continue;
        }
        for push in stub.due(&server.database.engine().in_doubt(), push_after, &mut free) {
            // There is one: only this loop takes them, and it has counted. A server named twice has
            // one room.
            let Ok(place) = Arc::clone(&room[push.server]).try_acquire_owned() else { continue };
            let (client, url) = (client.clone(), format!("{}/etx", servers[push.server]));
            server.metrics.push();
            tokio::spawn(async move {
                let outcome = post(&client, &url, &push).await;
                tracing::info!(xid = %push.xid, instance = %push.instance, url, outcome, "pushed a request that was left prepared");
                drop(place);
            });
        }
    }
}

/// The XID as a header, if that can carry it as it is. Blanks around a header's text do not arrive:
/// without them it would be another XID, under which the request would be executed once more.
fn key(xid: &Xid) -> Option<HeaderValue> {
    let text = xid.as_str();
    if text.trim() == text { HeaderValue::from_bytes(text.as_bytes()).ok() } else { None }
}

/// Posts a request; the answer is a word for the log.
async fn post(
    client: &Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
    url: &str,
    push: &Push,
) -> String {
    let Some(key) = key(&push.xid) else {
        return "HTTP cannot carry this XID".to_owned();
    };
    let request = axum::http::Request::post(url)
        .header("idempotency-key", key)
        .header("etx-instance", push.instance.to_string())
        .body(Full::new(Bytes::copy_from_slice(push.request.as_bytes())));
    let request = match request {
        Ok(request) => request,
        Err(error) => return error.to_string(),
    };
    let answered = async {
        let response = client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        // The connection is used again once the body was read.
        let _ = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        Ok::<_, String>(status.to_string())
    };
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => error,
        Err(_) => format!("no answer within {PATIENCE:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str, age_ms: i64) -> InDoubt {
        InDoubt {
            xid: Xid::new(name).expect("an XID"),
            instances: vec![Instance::new(1).expect("positive")],
            highest: 1024,
            request: "buy".into(),
            prepared_us: 0,
            age_us: age_ms * 1000,
            locks: 1,
        }
    }

    #[test]
    fn the_first_turn_comes_in_time_and_the_others_ever_later() {
        let (mut stub, after) = (Stub::new(3), Duration::from_secs(2));
        let mut turns = Vec::new();
        for age_ms in (0..60_000).step_by(500) {
            for push in stub.due(&[family("c/1", age_ms)], after, &mut [8, 8]) {
                assert_eq!(push.instance.get(), (2 << 10) | 3);
                turns.push((age_ms, push.server));
            }
        }
        assert_eq!(turns, [(2_000, 0), (4_000, 1), (8_000, 0), (16_000, 1), (32_000, 0)]);
        assert_eq!(stub.due(&[], after, &mut [8, 8]), []);
        assert!(stub.turns.is_empty(), "what is decided is forgotten");
    }

    /// Its oldest instance was withdrawn, or the clock was set back.
    #[test]
    fn a_family_that_looks_younger_does_not_lose_its_turns() {
        let (mut stub, after) = (Stub::new(1), Duration::from_secs(1));
        assert_eq!(stub.due(&[family("c/1", 36_000_000)], after, &mut [8]).len(), 1);
        assert_eq!(stub.due(&[family("c/1", 0)], after, &mut [8]), []);
        let longest_ms = PAUSE_MAX.as_millis() as i64;
        assert_eq!(stub.due(&[family("c/1", longest_ms)], after, &mut [8]).len(), 1);
    }

    #[test]
    fn a_family_whose_numbers_are_used_up_has_its_turns() {
        let (mut stub, after) = (Stub::new(1), Duration::from_secs(1));
        let families = [InDoubt { highest: i64::MAX, ..family("c/1", 5_000) }];
        let pushes = stub.due(&families, after, &mut [8]);
        assert_eq!(pushes.iter().map(|push| push.instance.get()).collect::<Vec<_>>(), [i64::MAX]);
    }

    #[test]
    fn an_xid_is_carried_as_it_is_or_not_at_all() {
        let carried = |text: &str| key(&Xid::new(text).expect("an XID")).map(|key| key.as_bytes().to_vec());
        assert_eq!(carried("ü/1").as_deref(), Some("ü/1".as_bytes()));
        for text in [" a", "a ", "\ta", "a\u{a0}", "a\nb"] {
            assert_eq!(carried(text), None, "{text:?}");
        }
    }

    #[test]
    fn without_servers_nothing_is_counted_as_pushed() {
        let (mut stub, after) = (Stub::new(1), Duration::from_secs(1));
        assert_eq!(stub.due(&[family("c/1", 9_000)], after, &mut []), []);
        assert_eq!(stub.due(&[family("c/1", 9_500)], after, &mut [8]).len(), 1);
    }

    #[test]
    fn who_has_to_wait_for_room_is_known_until_it_has_some() {
        let (mut stub, after) = (Stub::new(1), Duration::from_secs(1));
        let families: Vec<_> = (0..20).map(|n| family(&format!("c/{n}"), 5_000)).collect();
        for (room, pushed, is_short) in [(8, 8, true), (0, 0, true), (11, 11, true), (8, 1, false)] {
            assert_eq!(stub.due(&families, after, &mut [room]).len(), pushed);
            assert_eq!(stub.is_short, is_short, "{room}");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_keeps_nobody_from_the_others() {
        let (mut stub, after) = (Stub::new(1), Duration::from_secs(1));
        let families: Vec<_> = (0..100).map(|n| family(&format!("c/{n}"), 5_000)).collect();
        // The first server never gives a place back; the second does so at once.
        let mut dead = PUSHES_MAX;
        let mut served = std::collections::HashSet::new();
        for _ in 0..100 {
            let mut room = [dead, PUSHES_MAX];
            for push in stub.due(&families, after, &mut room) {
                if push.server == 1 {
                    served.insert(push.xid);
                }
            }
            dead = room[0];
        }
        assert!(served.len() >= 100 - PUSHES_MAX, "{}", served.len());
        // Those at the dead one go to the other at their next turn.
        let later: Vec<_> = (0..100).map(|n| family(&format!("c/{n}"), 500_000)).collect();
        for _ in 0..100 {
            for push in stub.due(&later, after, &mut [0, PUSHES_MAX]) {
                served.insert(push.xid);
            }
        }
        assert_eq!(served.len(), 100);
    }
}
