//! The application server's side: one [`Run`] for each instance that it executes. It keeps nothing
//! beyond that, logs nothing, and suspects nobody: what a run does not finish, another instance
//! will.
//!
//! # Phases
//!
//! ```text
//! Looking ──W prepared everywhere, or decided──▶ Committing            a retry begins here, and the others below
//!     ├── an instance without a future ──▶ Withdrawing it ──▶ Beginning
//!     └── else ──▶ Beginning
//!
//! Beginning ──all begun──▶ Executing ──result──▶ Preparing ──W prepared everywhere──▶ Committing ──all committed──▶ Ended
//!     │ │                   │     │                │  │                                   ▲
//!     │ └───── decided ─────┼─────┼────────────────┼──┴────────── decided ────────────────┤
//!     │                     │     └ in doubt ─▶ Refusing ──W prepared everywhere──────────┘
//!     │                     │                      ▼
//!     └─ refused, lost ─────┴──────────────▶ Withdrawing, if there is anything ──▶ Ended: "retry with a higher number"
//! ```
//!
//! # Why all choose the same
//!
//! W is the smallest instance that all tables show as prepared; the tables are of different
//! moments, so an instance may be prepared everywhere by now without all tables showing it. A retry
//! looks at the tables before it begins anything, and chooses by the same rule: if its client's
//! former attempt has prepared everywhere and its server stopped, nothing is executed again. Take
//! servers that chose z1 < z2. Who chose z2 saw z1 not prepared at some site, and z2 prepared
//! there: so z1 was under z2's tombstone there when it looked, and cannot have been prepared there
//! later; so nobody can have chosen z1.
//!
//! # Who is in the way
//!
//! An instance that is prepared at one site and never will be at another keeps its locks until
//! somebody decides. Other requests wait for them, or are refused; and if those are in the same
//! state at the other site, both wait for ever, whatever their clients do:
//!
//! ```text
//! R's server has prepared 1 at store, and stops; its transaction at payment is rolled back
//! C's server has prepared 1 at payment; store refuses (40001: R is prepared there)
//! R's retries wait at payment for C; C's retries are refused at store because of R
//! ```
//!
//! So what has no future is *withdrawn* where it is prepared ([`Effect::Withdraw`]). That is safe
//! for an instance which cannot have been chosen by anybody, now or later: a site shows it aborted,
//! which it shows only if that is for ever, and only of what it never had prepared; or two sites
//! have it from different executions. No error and no silence proves that: only tables do.
//!
//! - A retry withdraws what the tables of its look prove, before it begins.
//! - A run whose PREPARE was refused asks that site to refuse the instance for good
//!   ([`Effect::Refuse`]): the table that comes back is the proof for itself, and stays as the
//!   proof for others.
//! - A retry that does not get through its logic, although it saw an instance in doubt, asks all
//!   sites to refuse that, unless it is prepared there by now. Then it is prepared everywhere, and
//!   committed; or it is withdrawn. A slow forerunner has had the time of a whole execution until
//!   then.
//!
//! So once a request's run ends without the answer and without losses, nothing that was in doubt
//! before is so any more, and nobody waits for it.
//!
//! # One execution
//!
//! A repeated message makes two runs with one instance number. Mostly one of them is refused at
//! some site; but with two crashes each can come to prepare at another site, and together they
//! would look like one instance that is prepared everywhere, half of which one run did and half the
//! other:
//!
//! ```text
//! run a: BEGIN at store        run b: BEGIN at payment
//! store crashes                run b: BEGIN at store; all have begun: PREPARE at store
//! payment crashes              run a: BEGIN at payment; all have begun: PREPARE at payment
//! ```
//!
//! So a run has a *token* that is no other's, and stores it with its result ([`stored_result`]); an
//! instance counts as prepared everywhere only if all tables have the same stored result. What is
//! prepared does not change, so all servers agree on that, too. A result is taken from table or
//! outcome, never from this run's own execution.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Text, instance_above};

/// The result as it is stored, with the token of the execution.
pub fn stored_result(token: u64, result: &str) -> Text {
    format!("{token:016x} {result}").into()
}

/// The result without the token.
pub fn plain_result(stored: &str) -> &str {
    stored.split_once(' ').map_or(stored, |(_, result)| result)
}

/// What a site shows of the family, after PREPARE or REFUSE, or when it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Table {
    /// Prepared instances with their stored results.
    pub prepared: BTreeMap<i64, Text>,
    /// Instances that are aborted for ever.
    pub aborted: BTreeSet<i64>,
    /// A stored result that is not prepared here and never will be: what a site without siblings
    /// can say of an execution.
    pub never: Option<Text>,
    /// Below this, whatever is not prepared is aborted for ever; 0 if nothing is known to be.
    pub floor: i64,
    /// The request they were prepared with; `None` if nothing has been prepared.
    pub request: Option<Text>,
    /// The highest instance number that the site has heard of.
    pub highest: i64,
}

impl Table {
    /// Whether the instance, as it is prepared elsewhere with this result, is not prepared at the
    /// site, and never will be.
    fn has_refused(&self, instance: i64, result: &Text) -> bool {
        match self.prepared.get(&instance) {
            Some(other) => other != result,
            None => {
                instance < self.floor
                    || self.aborted.contains(&instance)
                    || self.never.as_ref() == Some(result)
            }
        }
    }
}

/// Instances with their stored results.
pub type Instances = Arc<[(i64, Text)]>;

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
    /// The instance number is in use, or aborted; `highest` is the highest number that the site has
    /// heard of, or 0.
    Taken {
        /// See above.
        highest: i64,
    },
    /// The family was prepared with another request.
    RequestDiffers,
    /// The family was decided, answered and forgotten.
    Forgotten,
    /// A site without siblings: another instance is prepared or active there, and nothing can be
    /// begun beside it. In words.
    InDoubt(Text),
    /// The request string is over the site's limit, so that no instance of it can ever be prepared
    /// there. In words.
    RequestTooLarge(Text),
    /// Anything else, in words: a failed validation, a full disk.
    Failed(Text),
}

/// A site's reply to what it was sent last: once COMMIT is to be sent, a reply to BEGIN or PREPARE
/// is not handed over any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SiteReply {
    /// To BEGIN: the instance is active.
    Begun,
    /// To PREPARE: the table; our instance is prepared, or was aborted. To REFUSE, the table. To
    /// SHOW MIPT, the same; empty if the site has not heard of the family, or has no such tables.
    Table(Table),
    /// To SHOW MIPT, BEGIN, PREPARE or REFUSE: the family is decided.
    Decided(Outcome),
    /// To COMMIT.
    Committed,
    /// To ROLLBACK of instances that are prepared there.
    Withdrawn,
    /// No.
    Refused(Refused),
    /// The connection is lost, or the site did not reply in time; what was sent may have been done
    /// or may yet be done.
    Unreachable,
}

/// What happens to a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A site's reply.
    Site(usize, SiteReply),
    /// The logic has run at all sites, with this result.
    Executed(Text),
    /// The logic could not be run to its end here, in words (a serialization failure, a lost
    /// connection).
    Failed(Text),
    /// The driver's patience is at its end, in words: the run stops where it is, as if its server
    /// had crashed, but says so.
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
    /// Sends PREPARE MIP to a site, with the request and this result to store, over the connection
    /// of BEGIN.
    Prepare(usize, Text),
    /// Ends what is active at a site, and sends REFUSE MIP up to an instance, over any connection:
    /// what is not prepared there up to it is aborted for ever. The reply is the table.
    Refuse(usize, i64),
    /// Sends ROLLBACK MIP of prepared instances that cannot have been chosen, over any connection.
    Withdraw(usize, Instances),
    /// Sends COMMIT MIP of an instance to a site, over any connection; after a pause, if it is not
    /// the first time. Its effect does not depend on how often it arrives.
    Commit(usize, i64),
    /// Ends what may still be active at a site: rolls back, or closes the connection. Not what is
    /// prepared.
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
    /// As `Retry`; another instance is in the way at a site without siblings, and nothing goes on
    /// before it is decided there.
    InDoubt {
        /// The highest number heard of.
        highest: i64,
        /// Where and what, in words.
        reason: Text,
    },
    /// The XID was used for another request.
    RequestDiffers,
    /// No site can hold a request string so long. Nothing was executed, nor ever will be under this
    /// XID.
    RequestTooLarge(Text),
    /// The result was acknowledged before, and is gone.
    Forgotten,
    /// A site refuses what was decided: somebody intervened by hand.
    Broken(Text),
}

/// The tables of the sites that have replied; empty for those that could not.
type Tables = Vec<Option<Table>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Looking(Tables),
    /// Which sites have not replied.
    Beginning(Vec<bool>),
    Executing,
    /// Also which sites have been asked to refuse what they would not prepare, and the reply if it
    /// came to that.
    Preparing(Tables, Vec<bool>, Option<Reply>),
    Refusing(Tables, Reply),
    /// Which sites have not withdrawn, and the reply; without one, the run begins afterwards.
    Withdrawing(Vec<bool>, Option<Reply>),
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
    /// The highest instance that was in doubt when the run looked, or 0.
    doubtful: i64,
    phase: Phase,
}

impl Run {
    /// A run over sites `0..sites`, and what to do first: a number above the client's first one is
    /// a retry's, and that looks before it begins. `token` is random.
    pub fn begin(instance: i64, token: u64, request: Text, sites: usize) -> (Run, Vec<Effect>) {
        let sites = sites.max(1);
        let phase = Phase::Looking(vec![None; sites]);
        let mut run = Run { instance, token, request, sites, doubtful: 0, phase };
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
                self.phase = Phase::Preparing(vec![None; self.sites], vec![false; self.sites], None);
                let result = stored_result(self.token, &result);
                (0..self.sites).map(|site| Effect::Prepare(site, result.clone())).collect()
            }
            Event::Failed(reason) if self.phase == Phase::Executing => self.clear(reason),
            Event::Expired(reason) if !self.is_ended() => self.stop(0, reason),
            Event::Executed(_) | Event::Failed(_) | Event::Expired(_) => Vec::new(),
        }
    }

    fn on_site(&mut self, site: usize, reply: SiteReply) -> Vec<Effect> {
        match &mut self.phase {
            Phase::Executing | Phase::Ended => Vec::new(),
            Phase::Looking(tables) | Phase::Refusing(tables, _) => {
                // A site that cannot be asked shows nothing, and proves nothing.
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
            Phase::Preparing(..) => self.on_prepare(site, reply),
            Phase::Withdrawing(waiting, reply) => {
                waiting[site] = false;
                match (waiting.contains(&true), reply.take()) {
                    (false, None) => self.begin_everywhere(),
                    (false, Some(reply)) => self.end(reply),
                    (true, kept) => {
                        *reply = kept;
                        Vec::new()
                    }
                }
            }
            Phase::Committing(..) => self.on_commit(site, reply),
        }
    }

    /// Waits for all sites, whatever some of them say: what one refuses may be prepared at another.
    fn on_prepare(&mut self, site: usize, reply: SiteReply) -> Vec<Effect> {
        if matches!(reply, SiteReply::Decided(_) | SiteReply::Refused(Refused::Forgotten)) {
            return self.on_trouble(site, reply);
        }
        let refused = match &reply {
            SiteReply::Table(_) => None,
            SiteReply::Refused(refused) => Some(self.reply_to(site, refused.clone())),
            _ => Some(self.retry(0, format!("no reply from site {site}").into())),
        };
        let instance = self.instance;
        let Phase::Preparing(tables, asked, why) = &mut self.phase else { return Vec::new() };
        if let (None, Some(refused)) = (&why, refused) {
            *why = Some(refused);
        }
        match reply {
            SiteReply::Refused(_) if !std::mem::replace(&mut asked[site], true) => {
                return vec![Effect::Refuse(site, instance)];
            }
            SiteReply::Table(table) => tables[site] = Some(table),
            _ => tables[site] = Some(Table::default()),
        }
        self.choose()
    }

    /// A reply that ends the plan of the run: the decision of another, or a reason to stop.
    fn on_trouble(&mut self, site: usize, reply: SiteReply) -> Vec<Effect> {
        match reply {
            SiteReply::Decided(outcome) if outcome.request != self.request => self.end(Reply::RequestDiffers),
            SiteReply::Decided(outcome) => self.commit(outcome),
            SiteReply::Refused(refused) => {
                let reply = self.reply_to(site, refused);
                self.end(reply)
            }
            SiteReply::Unreachable => self.stop(0, format!("no reply from site {site}").into()),
            // Replies to something else, which came late.
            SiteReply::Begun | SiteReply::Table(_) | SiteReply::Committed | SiteReply::Withdrawn => {
                Vec::new()
            }
        }
    }

    /// What the client is told if a site refuses.
    fn reply_to(&self, site: usize, refused: Refused) -> Reply {
        match refused {
            Refused::Taken { highest } => {
                self.retry(highest, format!("instance {} is taken at site {site}", self.instance).into())
            }
            Refused::RequestDiffers => Reply::RequestDiffers,
            Refused::Forgotten => Reply::Forgotten,
            Refused::InDoubt(reason) => Reply::InDoubt { highest: self.instance, reason },
            Refused::RequestTooLarge(why) => Reply::RequestTooLarge(why),
            Refused::Failed(why) => self.retry(0, why),
        }
    }

    /// The logic has failed. What was in doubt before it began may be the cause, and has had its
    /// time.
    fn clear(&mut self, reason: Text) -> Vec<Effect> {
        if self.doubtful == 0 {
            return self.stop(0, reason);
        }
        self.phase = Phase::Refusing(vec![None; self.sites], self.retry(0, reason));
        (0..self.sites).map(|site| Effect::Refuse(site, self.doubtful)).collect()
    }

    /// Chooses, once all tables are there.
    fn choose(&mut self) -> Vec<Effect> {
        let (Phase::Looking(tables) | Phase::Preparing(tables, ..) | Phase::Refusing(tables, _)) =
            &mut self.phase
        else {
            return Vec::new();
        };
        if tables.contains(&None) {
            return Vec::new();
        }
        let tables: Vec<Table> = std::mem::take(tables).into_iter().flatten().collect();
        let requests = tables.iter().filter_map(|table| table.request.as_ref());
        let is_another = requests.into_iter().any(|request| *request != self.request);
        if let Some((winner, result)) = prepared_everywhere(&tables).filter(|_| !is_another) {
            let outcome = Outcome { winner, result, request: self.request.clone() };
            return self.commit(outcome);
        }
        let reply = match std::mem::replace(&mut self.phase, Phase::Ended) {
            _ if is_another => Some(Reply::RequestDiffers),
            Phase::Looking(_) => None,
            Phase::Preparing(_, _, Some(reply)) | Phase::Refusing(_, reply) => Some(reply),
            _ => {
                let highest = tables.iter().map(|table| table.highest).max().unwrap_or(0);
                Some(self.retry(highest, format!("instance {} was overtaken", self.instance).into()))
            }
        };
        let (doubtful, withdrawn) = without_future(&tables);
        self.doubtful = doubtful;
        self.withdraw(withdrawn, reply)
    }

    /// Withdraws, and then replies, or begins.
    fn withdraw(&mut self, withdrawn: Vec<Vec<(i64, Text)>>, reply: Option<Reply>) -> Vec<Effect> {
        let waiting: Vec<bool> = withdrawn.iter().map(|of_site| !of_site.is_empty()).collect();
        if waiting.contains(&true) {
            self.phase = Phase::Withdrawing(waiting, reply);
            let effects = withdrawn.into_iter().enumerate().filter(|(_, of_site)| !of_site.is_empty());
            return effects.map(|(site, of_site)| Effect::Withdraw(site, of_site.into())).collect();
        }
        match reply {
            None => self.begin_everywhere(),
            Some(reply) => self.end(reply),
        }
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

    fn retry(&self, highest: i64, reason: Text) -> Reply {
        Reply::Retry { highest: highest.max(self.instance), reason }
    }

    fn stop(&mut self, highest: i64, reason: Text) -> Vec<Effect> {
        let reply = self.retry(highest, reason);
        self.end(reply)
    }

    /// Replies, and lets go of whatever of this run may still be active.
    fn end(&mut self, reply: Reply) -> Vec<Effect> {
        self.phase = Phase::Ended;
        (0..self.sites).map(Effect::Release).chain([Effect::Reply(reply)]).collect()
    }
}

/// The smallest instance that one execution has prepared at every site.
fn prepared_everywhere(tables: &[Table]) -> Option<(i64, Text)> {
    let (first, others) = tables.split_first()?;
    let everywhere = |(instance, result): &(&i64, &Text)| {
        others.iter().all(|table| table.prepared.get(instance) == Some(result))
    };
    first.prepared.iter().find(everywhere).map(|(instance, result)| (*instance, result.clone()))
}

/// For each site, what is prepared there and cannot have been chosen by anybody; and the highest
/// prepared instance of which that is not proven, or 0.
fn without_future(tables: &[Table]) -> (i64, Vec<Vec<(i64, Text)>>) {
    let mut doubtful = 0;
    let mut of_site = |table: &Table| {
        let mut withdrawn = Vec::new();
        for (instance, result) in &table.prepared {
            match tables.iter().any(|other| other.has_refused(*instance, result)) {
                true => withdrawn.push((*instance, result.clone())),
                false => doubtful = doubtful.max(*instance),
            }
        }
        withdrawn
    };
    let withdrawn = tables.iter().map(&mut of_site).collect();
    (doubtful, withdrawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(prepared: &[i64]) -> SiteReply {
        let prepared: BTreeMap<i64, Text> =
            prepared.iter().map(|i| (*i, stored_result(7, &format!("result {i}")))).collect();
        let request = (!prepared.is_empty()).then(|| "buy".into());
        let highest = *prepared.keys().last().unwrap_or(&0);
        SiteReply::Table(Table { highest, request, prepared, floor: highest, ..Table::default() })
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
        for shown in [table(&[]), SiteReply::Unreachable] {
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
            SiteReply::Table(Table { prepared, highest: 5, ..Table::default() })
        };
        run.on(Event::Site(0, shown(1)));
        assert_eq!(run.on(Event::Site(1, shown(2))), [Effect::Commit(0, 5), Effect::Commit(1, 5)]);
    }

    /// Both of which a site showed that they have no future, the later one by its tombstone; the
    /// one that is in doubt is not touched.
    #[test]
    fn a_retry_withdraws_what_a_site_shows_as_aborted_before_it_begins() {
        let (mut run, _) = Run::begin(9216, 15, "buy".into(), 2);
        run.on(Event::Site(0, table(&[1024, 2048, 3072, 4096])));
        let SiteReply::Table(mut other) = table(&[2048]) else { unreachable!() };
        other.aborted.insert(3072);
        other.prepared.clear();
        let effects = run.on(Event::Site(1, SiteReply::Table(other)));
        let gone = [1024, 3072].map(|i| (i, stored_result(7, &format!("result {i}"))));
        assert_eq!(effects, [Effect::Withdraw(0, gone.into())]);
        let begun = run.on(Event::Site(0, SiteReply::Withdrawn));
        assert_eq!(begun, [Effect::Begin(0), Effect::Begin(1)]);
        // The logic fails, perhaps because of what is still in doubt.
        begun.iter().enumerate().for_each(|(site, _)| drop(run.on(Event::Site(site, SiteReply::Begun))));
        let effects = run.on(Event::Failed("it waited too long".into()));
        assert_eq!(effects, [Effect::Refuse(0, 4096), Effect::Refuse(1, 4096)]);
        let refused = Table { floor: 4097, ..Table::default() };
        run.on(Event::Site(1, SiteReply::Table(refused)));
        let effects = run.on(Event::Site(0, table(&[2048, 4096])));
        let gone = [2048, 4096].map(|i| (i, stored_result(7, &format!("result {i}"))));
        assert_eq!(effects, [Effect::Withdraw(0, gone.into())]);
        let effects = run.on(Event::Site(0, SiteReply::Unreachable));
        let retry = Reply::Retry { highest: 9216, reason: "it waited too long".into() };
        assert_eq!(effects.last(), Some(&Effect::Reply(retry)));
    }

    #[test]
    fn what_is_found_prepared_everywhere_while_it_is_refused_is_committed() {
        let (mut run, _) = Run::begin(2048, 15, "buy".into(), 2);
        run.on(Event::Site(0, table(&[1024])));
        for effect in run.on(Event::Site(1, table(&[]))) {
            let Effect::Begin(site) = effect else { panic!("{effect:?}") };
            run.on(Event::Site(site, SiteReply::Begun));
        }
        assert_eq!(run.on(Event::Failed("no".into())), [Effect::Refuse(0, 1024), Effect::Refuse(1, 1024)]);
        run.on(Event::Site(0, table(&[1024])));
        let effects = run.on(Event::Site(1, table(&[1024])));
        assert_eq!(effects, [Effect::Commit(0, 1024), Effect::Commit(1, 1024)]);
    }

    /// The error itself proves nothing: it may have been that of the reply only.
    #[test]
    fn what_a_site_refuses_to_prepare_is_withdrawn_once_its_table_says_so() {
        for (shown, is_withdrawn) in [(vec![4], true), (vec![], false)] {
            let mut run = preparing(3);
            let failed = Refused::Failed("could not serialize".into());
            let refuse = run.on(Event::Site(1, SiteReply::Refused(failed)));
            assert_eq!(refuse, [Effect::Refuse(1, 3)]);
            run.on(Event::Site(1, table(&shown)));
            let effects = run.on(Event::Site(0, table(&[3])));
            let gone: Instances = [(3, stored_result(7, "result 3"))].into();
            assert_eq!(effects[0] == Effect::Withdraw(0, gone), is_withdrawn, "{effects:?}");
        }
        // The other way round, and a site that says it of this execution alone.
        let mut run = preparing(3);
        run.on(Event::Site(0, table(&[3])));
        run.on(Event::Site(1, SiteReply::Refused(Refused::Failed("no".into()))));
        let never = |token| Table { never: Some(stored_result(token, "result 3")), ..Table::default() };
        let effects = run.clone().on(Event::Site(1, SiteReply::Table(never(8))));
        assert!(!matches!(effects[0], Effect::Withdraw(..)), "{effects:?}");
        let effects = run.on(Event::Site(1, SiteReply::Table(never(7))));
        assert!(matches!(effects[0], Effect::Withdraw(0, _)), "{effects:?}");
    }

    #[test]
    fn stops_where_nothing_is_prepared_everywhere_or_a_site_is_lost() {
        let mut run = preparing(3);
        run.on(Event::Site(0, table(&[3])));
        let gone: Instances = [(3, stored_result(7, "result 3"))].into();
        assert_eq!(run.on(Event::Site(1, table(&[4]))), [Effect::Withdraw(0, gone)]);
        let effects = run.on(Event::Site(0, SiteReply::Withdrawn));
        assert!(
            matches!(effects.last(), Some(Effect::Reply(Reply::Retry { highest: 4, .. }))),
            "{effects:?}"
        );
        let mut run = preparing(3);
        assert_eq!(run.on(Event::Site(1, SiteReply::Unreachable)), []);
        let effects = run.on(Event::Site(0, table(&[3])));
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
