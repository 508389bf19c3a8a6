//! The client's side: attempts over a list of application servers until one answers.
//!
//! Each attempt has a number of its own, goes to the next server of the list, and is waited for
//! with more patience than the one before. An answer to an earlier attempt is as good as one to the
//! last: the servers agree. Refusals of earlier attempts mean nothing.
//!
//! ```text
//! start                        send attempt 1 to server 0
//! timed out (1)                send attempt 2 to server 1, after a pause
//! refused (1): take > 2048     nothing: attempt 2 is under way
//! refused (2): take > 5120     send attempt 3 to server 2, its number above 5120
//! answered (2): "order 7"      finished; acknowledge
//! ```
//!
//! A request that the logic refuses (sold out) has that as its result, like any other: only so is
//! the refusal given once, and stays. Giving up after `attempts_max` is no answer: the request may
//! have been executed, or may be executed yet, once. The same XID can be taken up later
//! ([`Client::resume`]).

use std::time::Duration;

use super::{Reply, Text, instance_above};
use crate::backoff::Backoff;

/// What the driver does for the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientEffect {
    /// Sends (request, XID, `instance`) to a server after `pause`, and reports `timed_out(attempt)`
    /// if nothing has come `patience` later.
    Send {
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Which application server of the list.
        server: usize,
        /// The instance number.
        instance: i64,
        /// Wait so long before sending.
        pause: Duration,
        /// Wait so long for an answer.
        patience: Duration,
    },
    /// The end. If there is a result: hand it over, and then, once it is safe with whoever asked,
    /// let any server tell the sites to forget the XID.
    Finish(Finished),
}

/// How a request ended.
pub type Finished = Result<Text, ClientError>;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ClientError {
    /// Nobody answered. The request was executed once or not at all, and may be executed yet; take
    /// it up again with the same XID.
    #[error(
        "no answer after {attempts} attempts; the request may or may not have been executed, at most once"
    )]
    Unanswered {
        /// How many attempts were made.
        attempts: u32,
    },
    /// As `Unanswered`, and when last heard of an instance was in doubt at a site without siblings.
    /// Nothing goes on there until that is decided.
    #[error("after {attempts} attempts the request is still in doubt: {reason}")]
    InDoubt {
        /// How many attempts were made.
        attempts: u32,
        /// Where and what, in words.
        reason: Text,
    },
    /// The XID was used for another request.
    #[error("the XID was used for another request")]
    RequestDiffers,
    /// The request string is over the sites' limit. It was not executed and never will be.
    #[error("the request is too large: {0}")]
    RequestTooLarge(Text),
    /// The result was acknowledged before, and is gone.
    #[error("the request was executed, and its result was acknowledged and forgotten")]
    Forgotten,
    /// The sites do not agree: somebody intervened by hand.
    #[error("the outcome needs an operator: {0}")]
    Broken(Text),
}

/// The client of one request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    servers: usize,
    attempts_max: u32,
    backoff: Backoff,
    attempt: u32,
    /// The highest instance number heard of.
    highest: i64,
    /// What the last reply to the last attempt said was in the way.
    in_doubt: Option<Text>,
    finished: Option<Finished>,
}

impl Client {
    /// The client of a new request, with at least one server and one attempt.
    pub fn new(servers: usize, attempts_max: u32, backoff: Backoff) -> Client {
        Client::resume(servers, attempts_max, backoff, 0)
    }

    /// The client of a request of which instances up to `highest` were sent before.
    pub fn resume(servers: usize, attempts_max: u32, backoff: Backoff, highest: i64) -> Client {
        let (servers, attempts_max) = (servers.max(1), attempts_max.max(1));
        Client { servers, attempts_max, backoff, attempt: 0, highest, in_doubt: None, finished: None }
    }

    /// The highest instance number sent or heard of: who takes the request up later goes on above
    /// it.
    pub fn highest(&self) -> i64 {
        self.highest
    }

    /// How it ended, if it has.
    pub fn finished(&self) -> Option<&Finished> {
        self.finished.as_ref()
    }

    /// The last attempt's number; 0 before the first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Begins the first attempt.
    pub fn start(&mut self, chance: u64) -> Option<ClientEffect> {
        (self.attempt == 0).then(|| self.next(chance))
    }

    /// No answer to an attempt in time, or its server cannot be reached.
    pub fn timed_out(&mut self, attempt: u32, chance: u64) -> Option<ClientEffect> {
        (self.finished.is_none() && attempt == self.attempt).then(|| self.next(chance))
    }

    /// A server's reply to an attempt. May come more than once.
    pub fn replied(&mut self, attempt: u32, reply: Reply, chance: u64) -> Option<ClientEffect> {
        if self.finished.is_some() {
            return None;
        }
        match reply {
            Reply::Done { result, .. } => Some(self.finish(Ok(result))),
            Reply::RequestDiffers => Some(self.finish(Err(ClientError::RequestDiffers))),
            Reply::Forgotten => Some(self.finish(Err(ClientError::Forgotten))),
            Reply::Broken(why) => Some(self.finish(Err(ClientError::Broken(why)))),
            Reply::RequestTooLarge(why) => Some(self.finish(Err(ClientError::RequestTooLarge(why)))),
            Reply::Retry { highest, .. } => self.refused(attempt, highest, None, chance),
            Reply::InDoubt { highest, reason } => self.refused(attempt, highest, Some(reason), chance),
        }
    }

    fn refused(
        &mut self,
        attempt: u32,
        highest: i64,
        in_doubt: Option<Text>,
        chance: u64,
    ) -> Option<ClientEffect> {
        self.highest = self.highest.max(highest);
        (attempt == self.attempt).then(|| {
            self.in_doubt = in_doubt;
            self.next(chance)
        })
    }

    fn finish(&mut self, finished: Finished) -> ClientEffect {
        self.finished = Some(finished.clone());
        ClientEffect::Finish(finished)
    }

    fn next(&mut self, chance: u64) -> ClientEffect {
        let Some(instance) = instance_above(self.highest).filter(|_| self.attempt < self.attempts_max) else {
            let attempts = self.attempt;
            let error = match self.in_doubt.take() {
                Some(reason) => ClientError::InDoubt { attempts, reason },
                None => ClientError::Unanswered { attempts },
            };
            return self.finish(Err(error));
        };
        let server = self.attempt as usize % self.servers;
        self.attempt += 1;
        self.highest = instance;
        let attempt = self.attempt;
        let (pause, patience) = (self.backoff.pause(attempt, chance), self.backoff.patience(attempt));
        ClientEffect::Send { attempt, server, instance, pause, patience }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(effect: Option<ClientEffect>) -> (u32, usize, i64) {
        match effect {
            Some(ClientEffect::Send { attempt, server, instance, .. }) => (attempt, server, instance),
            other => panic!("{other:?}"),
        }
    }

    /// The history at the head.
    #[test]
    fn the_worked_history() {
        let mut client = Client::new(3, 10, Backoff::default());
        assert_eq!(sent(client.start(0)), (1, 0, 1024));
        assert_eq!(client.start(0), None);
        assert_eq!(sent(client.timed_out(1, 0)), (2, 1, 2048));
        assert_eq!(client.timed_out(1, 0), None);
        let retry = |highest| Reply::Retry { highest, reason: "overtaken".into() };
        assert_eq!(client.replied(1, retry(2048), 0), None);
        assert_eq!(sent(client.replied(2, retry(5120), 0)), (3, 2, 6144));
        let done = Reply::Done { winner: 2048, result: "order 7".into() };
        let finish = ClientEffect::Finish(Ok("order 7".into()));
        assert_eq!(client.replied(2, done.clone(), 0), Some(finish));
        assert_eq!(client.replied(3, done, 0), None);
        assert_eq!(client.timed_out(3, 0), None);
    }

    #[test]
    fn a_client_that_gives_up_says_so_and_can_be_resumed_above_its_numbers() {
        let mut client = Client::new(2, 2, Backoff::default());
        client.start(0);
        let (attempt, _, highest) = sent(client.timed_out(1, 0));
        let given_up = ClientEffect::Finish(Err(ClientError::Unanswered { attempts: 2 }));
        assert_eq!(client.timed_out(attempt, 0), Some(given_up));
        let mut client = Client::resume(2, 2, Backoff::default(), highest);
        assert!(sent(client.start(0)).2 > highest);
    }

    #[test]
    fn a_client_that_gives_up_while_something_is_in_doubt_says_so() {
        let in_doubt = || Reply::InDoubt { highest: 1024, reason: "1024 at site 1".into() };
        let mut client = Client::new(2, 2, Backoff::default());
        client.start(0);
        assert_eq!(sent(client.replied(1, in_doubt(), 0)), (2, 1, 2048));
        let error = ClientError::InDoubt { attempts: 2, reason: "1024 at site 1".into() };
        assert_eq!(client.replied(2, in_doubt(), 0), Some(ClientEffect::Finish(Err(error))));
        assert_eq!(client.highest(), 2048);
    }

    #[test]
    fn final_refusals_end_the_request() {
        for (reply, error) in [
            (Reply::RequestDiffers, ClientError::RequestDiffers),
            (Reply::Forgotten, ClientError::Forgotten),
            (Reply::RequestTooLarge("2 MB".into()), ClientError::RequestTooLarge("2 MB".into())),
            (Reply::Broken("by hand".into()), ClientError::Broken("by hand".into())),
        ] {
            let mut client = Client::new(1, 5, Backoff::default());
            client.start(0);
            assert_eq!(client.replied(1, reply, 0), Some(ClientEffect::Finish(Err(error.clone()))));
            assert_eq!(client.finished(), Some(&Err(error)));
        }
    }
}
