//! The application server's side: one [`Run`] for each instance that it executes. It keeps nothing beyond that, logs nothing, and suspects nobody: what a
//! run does not finish, another instance will.
//!
//! # Phases
//!
//! ```text
//! Looking ──W prepared everywhere, or decided──▶ Committing            a retry begins here, and the others below
//!     └──── nothing is prepared everywhere ──▶ Beginning
//!
//! Beginning ──all begun──▶ Executing ──result──▶ Preparing ──W prepared everywhere──▶ Committing ──all committed──▶ Ended
//!     │ │                      │                   │  │                                   ▲
//!     │ └───── decided ────────┼───────────────────┼──┴────────── decided ────────────────┤
//!     └─ refused, unreachable ─┴───────────────────┴─▶ Ended: "retry with a higher number"
//! ```
//!
//! # Why all choose the same
//!
//! W is the smallest instance that all tables show as prepared; the tables are of different moments, so an instance may be prepared everywhere by now without all tables
//! showing it. A retry looks at the tables before it begins anything, and chooses by the same rule: if its client's former attempt has prepared everywhere and its server stopped, nothing is
//! executed again. Take servers that chose z1 < z2. Who chose z2 saw z1 not prepared at some site, and z2 prepared there: so z1 was under z2's
//! tombstone there when it looked, and cannot have been prepared there later; so nobody can have chosen z1.
//!
//! # One execution
//!
//! A repeated message makes two runs with one instance number. Mostly one of them is refused at some site; but with two crashes each can come to prepare at another
//! site, and together they would look like one instance that is prepared everywhere, half of which one run did and half the other:
//!
//! ```text
//! run a: BEGIN at store        run b: BEGIN at payment
//! store crashes                run b: BEGIN at store; all have begun: PREPARE at store
//! payment crashes              run a: BEGIN at payment; all have begun: PREPARE at payment
//! ```
//!
//! So a run has a *token* that is no other's, and stores it with its result ([`stored_result`]); an instance counts as prepared everywhere only if all tables have the
//! same stored result. What is prepared does not change, so all servers agree on that, too. A result is taken from table or outcome, never from
//! this run's own execution.

use std::collections::BTreeMap;

use super::{Text, instance_above};

/// The result as it is stored, with the token of the execution.
pub fn stored_result(token: u64, result: &str) -> Text {
    format!("{token:016x} {result}").into()
}

/// The result without the token.
pub fn plain_result(stored: &str) -> &str {
    stored.split_once(' ').map_or(stored, |(_, result)| result)
}

/// What a site shows of the family, after PREPARE or when it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Table {
    /// Prepared instances with their stored results.
    pub prepared: BTreeMap<i64, Text>,
    /// The request they were prepared with; `None` if nothing has been prepared.
    pub request: Option<Text>,
    /// The highest instance number that the site has heard of.
    pub highest: i64,
}

/// A decision as a site keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The committed instance.
    pub winner: i64,
    /// Its stored result.
    pub result: Text,
    /// The request it was prepared with.
    pub request: Text,
}

/// Why a site refuses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The instance number is in use, or aborted; `highest` is the highest number that the site has heard of, or 0.
    Taken {
        /// See above.
        highest: i64,
    },
    /// The family was prepared with another request.
    RequestDiffers,
    /// The family was decided, answered and forgotten.
    Forgotten,
    /// A site without siblings: another instance is prepared or active there, and nothing can be begun beside it. In words.
    InDoubt(Text),
    /// The request string is over the site's limit, so that no instance of it can ever be prepared there. In words.
    RequestTooLarge(Text),
    /// Anything else, in words: a failed validation, a full disk.
    Failed(Text),
}

/// A site's reply to what it was sent last: once COMMIT is to be sent, a reply to BEGIN or PREPARE is not handed over any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SiteReply {
    /// To BEGIN: the instance is active.
    Begun,
    /// To PREPARE: the table; our instance is prepared, or was aborted. To SHOW MIPT, the same; empty if the site has not heard of the family, or has no such tables.
    Table(Table),
    /// To SHOW MIPT, BEGIN or PREPARE: the family is decided.
    Decided(Outcome),
    /// To COMMIT.
    Committed,
    /// No.
    Refused(Refused),
    /// The connection is lost, or the site did not reply in time; what was sent may have been done or may yet be done.
    Unreachable,
}

/// What happens to a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A site's reply.
    Site(usize, SiteReply),
    /// The logic has run at all sites, with this result.
    Executed(Text),
    /// The logic could not be run to its end here, in words (a serialization failure, a lost connection).
    Failed(Text),
    /// The driver's patience is at its end, in words: the run stops where it is, as if its server had crashed, but says so.
    Expired(Text),
}

/// What the driver does for a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Sends SHOW MIPT to a site.
    Look(usize),
    /// Sends BEGIN MIP to a site, over the connection that this run will keep to it.
    Begin(usize),
    /// Runs the request's logic.
    Execute,
    /// Sends PREPARE MIP to a site, with the request and this result to store, over the connection of BEGIN.
    Prepare(usize, Text),
    /// Sends COMMIT MIP of an instance to a site, over any connection; after a pause, if it is not the first time. Its effect does not depend on how often it arrives.
    Commit(usize, i64),
    /// Ends what may still be active at a site: rolls back, or closes the connection. Never what is prepared.
    Release(usize),
    /// Answers the client. The run has ended.
    Reply(Reply),
}

/// Answer to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Committed at every site.
    Done {
        /// The committed instance.
        winner: i64,
        /// Its result.
        result: Text,
    },
    /// Nothing is decided by this run. Try again with a number above `highest` and one's own.
    Retry {
        /// The highest number heard of.
        highest: i64,
        /// Why, in words.
        reason: Text,
    },
    /// As `Retry`; another instance is in the way at a site without siblings, and nothing goes on before it is decided there.
    InDoubt {
        /// The highest number heard of.
        highest: i64,
        /// Where and what, in words.
        reason: Text,
    },
    /// The XID was used for another request.
    RequestDiffers,
    /// No site can hold a request string so long. Nothing was executed, nor ever will be under this XID.
    RequestTooLarge(Text),
    /// The result was acknowledged before, and is gone.
    Forgotten,
    /// A site refuses what was decided: somebody intervened by hand.
    Broken(Text),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// The tables of the sites that have replied; empty for those that could not.
    Looking(Vec<Option<Table>>),
    /// Which sites have not replied.
    Beginning(Vec<bool>),
    Executing,
    /// The tables of those that have.
    Preparing(Vec<Option<Table>>),
    /// Which sites have not committed.
    Committing(Vec<bool>, Outcome),
    Ended,
}

/// The execution of one instance of a request by one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    instance: i64,
    token: u64,
    request: Text,
    sites: usize,
    phase: Phase,
}

impl Run {
    /// A run over sites `0..sites`, and what to do first: a number above the client's first one is a retry's, and that looks before it begins. `token` is random.
    pub fn begin(instance: i64, token: u64, request: Text, sites: usize) -> (Run, Vec<Effect>) {
        let sites = sites.max(1);
        let mut run = Run { instance, token, request, sites, phase: Phase::Looking(vec![None; sites]) };
        let is_retry = instance_above(0).is_some_and(|first| instance > first);
        let effects = if is_retry { (0..sites).map(Effect::Look).collect() } else { run.begin_everywhere() };
        (run, effects)
    }

    fn begin_everywhere(&mut self) -> Vec<Effect> {
        self.phase = Phase::Beginning(vec![true; self.sites]);
        (0..self.sites).map(Effect::Begin).collect()
    }

    /// The instance's number.
    pub fn instance(&self) -> i64 {
        self.instance
    }

    /// Whether it has replied to the client.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// The instance that it commits, if it is committing.
    pub fn committing(&self) -> Option<i64> {
        match &self.phase {
            Phase::Committing(_, outcome) => Some(outcome.winner),
            _ => None,
        }
    }

    /// Takes an event. Events that do not belong to the phase (a late reply) have no effect.
    pub fn on(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Site(site, _) if site >= self.sites => Vec::new(),
            Event::Site(site, reply) => self.on_site(site, reply),
            Event::Executed(result) if self.phase == Phase::Executing => {
                self.phase = Phase::Preparing(vec![None; self.sites]);
                let result = stored_result(self.token, &result);
                (0..self.sites).map(|site| Effect::Prepare(site, result.clone())).collect()
            }
            Event::Failed(reason) if self.phase == Phase::Executing => self.stop(0, reason),
            Event::Expired(reason) if !self.is_ended() => self.stop(0, reason),
            Event::Executed(_) | Event::Failed(_) | Event::Expired(_) => Vec::new(),
        }
    }

    fn on_site(&mut self, site: usize, reply: SiteReply) -> Vec<Effect> {
        match &mut self.phase {
            Phase::Executing | Phase::Ended => Vec::new(),
            Phase::Looking(tables) => {
                // A site that cannot be asked shows nothing; what is to be done about it, BEGIN will tell.
                tables[site] = Some(match reply {
                    SiteReply::Table(table) => table,
                    SiteReply::Decided(_) | SiteReply::Refused(Refused::Forgotten) => {
                        return self.on_trouble(site, reply);
                    }
                    _ => Table::default(),
                });
                self.choose()
            }
            Phase::Beginning(waiting) => match reply {
                SiteReply::Begun => {
                    waiting[site] = false;
                    if waiting.contains(&true) {
                        return Vec::new();
                    }
                    self.phase = Phase::Executing;
                    vec![Effect::Execute]
                }
                other => self.on_trouble(site, other),
            },
            Phase::Preparing(tables) => match reply {
                SiteReply::Table(table) => {
                    tables[site] = Some(table);
                    self.choose()
                }
                other => self.on_trouble(site, other),
            },
            Phase::Committing(..) => self.on_commit(site, reply),
        }
    }

    /// A reply that ends the plan of the run: the decision of another, or a reason to stop.
    fn on_trouble(&mut self, site: usize, reply: SiteReply) -> Vec<Effect> {
        match reply {
            SiteReply::Decided(outcome) if outcome.request != self.request => self.end(Reply::RequestDiffers),
            SiteReply::Decided(outcome) => self.commit(outcome),
            SiteReply::Refused(Refused::Taken { highest }) => {
                self.stop(highest, format!("instance {} is taken at site {site}", self.instance).into())
            }
            SiteReply::Refused(Refused::RequestDiffers) => self.end(Reply::RequestDiffers),
            SiteReply::Refused(Refused::Forgotten) => self.end(Reply::Forgotten),
            SiteReply::Refused(Refused::InDoubt(reason)) => {
                self.end(Reply::InDoubt { highest: self.instance, reason })
            }
            SiteReply::Refused(Refused::RequestTooLarge(why)) => self.end(Reply::RequestTooLarge(why)),
            SiteReply::Refused(Refused::Failed(why)) => self.stop(0, why),
            SiteReply::Unreachable => self.stop(0, format!("no reply from site {site}").into()),
            // Replies to something else, which came late.
            SiteReply::Begun | SiteReply::Table(_) | SiteReply::Committed => Vec::new(),
        }
    }

    /// Chooses, once all tables are there.
    fn choose(&mut self) -> Vec<Effect> {
        let (Phase::Looking(tables) | Phase::Preparing(tables)) = &self.phase else { return Vec::new() };
        let tables: Vec<&Table> = tables.iter().flatten().collect();
        if tables.len() < self.sites {
            return Vec::new();
        }
        if tables.iter().filter_map(|table| table.request.as_ref()).any(|request| *request != self.request) {
            return self.end(Reply::RequestDiffers);
        }
        let everywhere = |(instance, result): &(&i64, &Text)| {
            tables.iter().all(|table| table.prepared.get(instance) == Some(result))
        };
        if let Some((&winner, result)) = tables[0].prepared.iter().find(everywhere) {
            let outcome = Outcome { winner, result: result.clone(), request: self.request.clone() };
            return self.commit(outcome);
        }
        if matches!(self.phase, Phase::Looking(_)) {
            return self.begin_everywhere();
        }
        let highest = tables.iter().map(|table| table.highest).max().unwrap_or(0);
        self.stop(highest, format!("instance {} was overtaken", self.instance).into())
    }

    fn commit(&mut self, outcome: Outcome) -> Vec<Effect> {
        let winner = outcome.winner;
        self.phase = Phase::Committing(vec![true; self.sites], outcome);
        (0..self.sites).map(|site| Effect::Commit(site, winner)).collect()
    }

    fn on_commit(&mut self, site: usize, reply: SiteReply) -> Vec<Effect> {
        let Phase::Committing(waiting, outcome) = &mut self.phase else { return Vec::new() };
        match reply {
            // What is forgotten was committed at every site.
            SiteReply::Committed | SiteReply::Refused(Refused::Forgotten) => {
                waiting[site] = false;
                if waiting.contains(&true) {
                    return Vec::new();
                }
                let result = plain_result(&outcome.result).into();
                let reply = Reply::Done { winner: outcome.winner, result };
                self.end(reply)
            }
            SiteReply::Unreachable | SiteReply::Refused(Refused::Failed(_) | Refused::InDoubt(_))
                if waiting[site] =>
            {
                vec![Effect::Commit(site, outcome.winner)]
            }
            SiteReply::Refused(
                Refused::Taken { .. } | Refused::RequestDiffers | Refused::RequestTooLarge(_),
            ) => {
                let why = format!("site {site} does not commit instance {}", outcome.winner);
                self.end(Reply::Broken(why.into()))
            }
            // Late replies to BEGIN and PREPARE.
            _ => Vec::new(),
        }
    }

    fn stop(&mut self, highest: i64, reason: Text) -> Vec<Effect> {
        let highest = highest.max(self.instance);
        self.end(Reply::Retry { highest, reason })
    }

    /// Replies, and lets go of whatever of this run may still be active.
    fn end(&mut self, reply: Reply) -> Vec<Effect> {
        self.phase = Phase::Ended;
        (0..self.sites).map(Effect::Release).chain([Effect::Reply(reply)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(prepared: &[i64]) -> SiteReply {
        let prepared: BTreeMap<i64, Text> =
            prepared.iter().map(|i| (*i, stored_result(7, &format!("result {i}")))).collect();
        let request = (!prepared.is_empty()).then(|| "buy".into());
        SiteReply::Table(Table { highest: *prepared.keys().last().unwrap_or(&0), request, prepared })
    }

    fn preparing(instance: i64) -> Run {
        let (mut run, effects) = Run::begin(instance, 15, "buy".into(), 2);
        assert_eq!(effects, [Effect::Begin(0), Effect::Begin(1)]);
        assert_eq!(run.on(Event::Site(1, SiteReply::Begun)), []);
        assert_eq!(run.on(Event::Site(0, SiteReply::Begun)), [Effect::Execute]);
        let effects = run.on(Event::Executed("mine".into()));
        let mine: Text = "000000000000000f mine".into();
        assert_eq!(effects, [Effect::Prepare(0, mine.clone()), Effect::Prepare(1, mine)]);
        run
    }

    #[test]
    fn commits_the_smallest_instance_prepared_everywhere_and_answers_with_its_stored_result() {
        let mut run = preparing(5);
        assert_eq!(run.on(Event::Site(0, table(&[2, 3, 4, 5]))), []);
        assert_eq!(run.on(Event::Site(1, table(&[3, 5]))), [Effect::Commit(0, 3), Effect::Commit(1, 3)]);
        assert_eq!(run.on(Event::Site(0, SiteReply::Unreachable)), [Effect::Commit(0, 3)]);
        assert_eq!(run.on(Event::Site(1, SiteReply::Committed)), []);
        let done = Effect::Reply(Reply::Done { winner: 3, result: "result 3".into() });
        assert_eq!(run.on(Event::Site(0, SiteReply::Committed)).last(), Some(&done));
        assert!(run.is_ended() && run.on(Event::Site(0, SiteReply::Committed)).is_empty());
    }

    #[test]
    fn a_retry_commits_what_it_finds_prepared_everywhere_and_executes_nothing() {
        let (mut run, effects) = Run::begin(2048, 15, "buy".into(), 2);
        assert_eq!(effects, [Effect::Look(0), Effect::Look(1)]);
        assert_eq!(run.on(Event::Site(1, table(&[1024, 1025]))), []);
        let effects = run.on(Event::Site(0, table(&[1025])));
        assert_eq!(effects, [Effect::Commit(0, 1025), Effect::Commit(1, 1025)]);
        let (mut run, _) = Run::begin(2048, 15, "sell".into(), 1);
        let differs = run.on(Event::Site(0, table(&[1024])));
        assert_eq!(differs.last(), Some(&Effect::Reply(Reply::RequestDiffers)));
    }

    #[test]
    fn a_retry_begins_where_nothing_is_prepared_everywhere_or_a_site_does_not_show_it() {
        let both = [Effect::Begin(0), Effect::Begin(1)];
        for shown in [table(&[]), table(&[1025]), SiteReply::Unreachable] {
            let (mut run, _) = Run::begin(2048, 15, "buy".into(), 2);
            run.on(Event::Site(0, table(&[1024])));
            assert_eq!(run.on(Event::Site(1, shown)), both);
        }
    }

    #[test]
    fn what_two_executions_prepared_counts_for_nothing() {
        let mut run = preparing(5);
        let shown = |token| {
            let prepared =
                BTreeMap::from([(3, stored_result(token, "same words")), (5, stored_result(15, "mine"))]);
            SiteReply::Table(Table { prepared, request: None, highest: 5 })
        };
        run.on(Event::Site(0, shown(1)));
        assert_eq!(run.on(Event::Site(1, shown(2))), [Effect::Commit(0, 5), Effect::Commit(1, 5)]);
    }

    #[test]
    fn stops_where_nothing_is_prepared_everywhere_or_a_site_is_lost() {
        let mut run = preparing(3);
        run.on(Event::Site(0, table(&[3])));
        let effects = run.on(Event::Site(1, table(&[4])));
        assert!(
            matches!(effects.last(), Some(Effect::Reply(Reply::Retry { highest: 4, .. }))),
            "{effects:?}"
        );
        let mut run = preparing(3);
        let effects = run.on(Event::Site(1, SiteReply::Unreachable));
        assert!(effects.starts_with(&[Effect::Release(0), Effect::Release(1)]), "{effects:?}");
        assert!(run.is_ended());
    }

    #[test]
    fn a_run_that_is_out_of_time_stops_in_any_phase_and_leaves_a_decision_to_others() {
        let late = || Event::Expired("late".into());
        let (mut run, _) = Run::begin(9, 15, "buy".into(), 2);
        let retry = Effect::Reply(Reply::Retry { highest: 9, reason: "late".into() });
        assert_eq!(run.on(late()).last(), Some(&retry));
        assert_eq!(run.on(late()), []);
        let mut run = preparing(5);
        let outcome = Outcome { winner: 4, result: "sold".into(), request: "buy".into() };
        run.on(Event::Site(1, SiteReply::Decided(outcome)));
        run.on(Event::Site(0, SiteReply::Committed));
        assert_eq!(run.committing(), Some(4));
        let retry = Effect::Reply(Reply::Retry { highest: 5, reason: "late".into() });
        assert_eq!(run.on(late()).last(), Some(&retry));
    }

    #[test]
    fn what_is_in_doubt_at_a_site_without_siblings_is_told_as_such() {
        let (mut run, _) = Run::begin(9, 15, "buy".into(), 2);
        let effects = run.on(Event::Site(0, SiteReply::Refused(Refused::InDoubt("4 is prepared".into()))));
        let reply = Reply::InDoubt { highest: 9, reason: "4 is prepared".into() };
        assert_eq!(effects, [Effect::Release(0), Effect::Release(1), Effect::Reply(reply)]);
    }

    #[test]
    fn finishes_the_decision_that_a_site_tells_of() {
        let (mut run, _) = Run::begin(9, 15, "buy".into(), 2);
        let outcome = Outcome { winner: 4, result: "sold".into(), request: "buy".into() };
        let effects = run.on(Event::Site(1, SiteReply::Decided(outcome.clone())));
        assert_eq!(effects, [Effect::Commit(0, 4), Effect::Commit(1, 4)]);
        let (mut run, _) = Run::begin(9, 15, "sell".into(), 2);
        let effects = run.on(Event::Site(1, SiteReply::Decided(outcome)));
        assert_eq!(effects.last(), Some(&Effect::Reply(Reply::RequestDiffers)));
    }
}
