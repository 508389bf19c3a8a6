//! One state of the model, the steps that are possible in it, and what each does: all decisions are
//! the real code's.
//!
//! There are one or two requests, each with a client of its own. Two of them share one row at each
//! site, which both write. How a site keeps them apart, and no more of concurrency control than
//! that, is the model's ([`Rows`]): who waits for whom, and who is refused because of whom.

use std::collections::{BTreeMap, HashSet};

use cognate_client_protocol::backoff::Backoff;
use cognate_client_protocol::etransaction::{
    Client, ClientEffect, Effect, Event, Outcome, Refused, Reply, Run, SiteReply, Table, Text, plain_result,
};
use cognate_engine::sibling::{self, Answer, Collected, Effects, Family, Instance, Limits, Refusal, State};

/// What a site does about a row that both requests write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rows {
    /// They do not share it.
    Apart,
    /// By locks: an instance waits for active and prepared ones of the other request, and is
    /// refused if that has committed after it began.
    Waits,
    /// By certification: PREPARE is refused while an instance of the other request is prepared, or
    /// if that has committed after this one began.
    Refuses,
}

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// What each site does about the shared row; also how many sites there are.
    pub(crate) sites: &'static [Rows],
    pub(crate) servers: usize,
    /// Attempts of each request's client; also how many requests there are.
    pub(crate) attempts: &'static [u32],
    pub(crate) pushes: u8,
    pub(crate) repeats: u8,
    pub(crate) losses: u8,
    /// So often a request's logic fails, or a site refuses a PREPARE, for no reason that the model
    /// knows.
    pub(crate) failures: u8,
    pub(crate) server_crashes: u8,
    pub(crate) site_crashes: u8,
    pub(crate) has_tombstones: bool,
    /// Without it, REFUSE and ROLLBACK never arrive.
    pub(crate) withdraws: bool,
}

impl Bounds {
    /// Whether two requests share rows: then the logic takes a step at each site.
    fn is_shared(&self) -> bool {
        self.attempts.len() > 1
    }
}

/// What a run has sent to a site and the site has not processed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Look,
    Begin,
    /// What the logic does at the site: it writes the row.
    Work,
    Prepare,
    Refuse(i64),
    Withdraw(Vec<i64>),
    Commit(i64),
}

/// What makes a run: request, instance, and which repetition.
type Owner = u64;

fn owner_of(request: usize, number: i64, copy: u64) -> Owner {
    (request as u64) << 48 | (number as u64 * 8 + copy)
}

pub(crate) fn request_of(owner: Owner) -> usize {
    (owner >> 48) as usize
}

fn number_of(owner: Owner) -> i64 {
    (owner << 16 >> 19) as i64
}

fn copy_of(owner: Owner) -> u64 {
    owner % 8
}

/// A run, its server, and its messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Execution {
    pub(crate) server: usize,
    /// The client's attempt; 0 for a stub's push.
    attempt: u32,
    /// `None` once the server has crashed.
    run: Option<Run>,
    sent: Vec<Option<Message>>,
    /// Its logic will fail.
    fails: bool,
    /// What PREPARE carries.
    stored: Option<Text>,
    reply: Option<Reply>,
}

impl Execution {
    fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| !run.is_ended())
    }

    /// Whether it has the answer to a request.
    pub(crate) fn has_answered(&self, of: usize) -> bool {
        matches!(&self.reply, Some(Reply::Done { result, .. }) if result.parse().is_ok_and(|o| request_of(o) == of))
    }
}

/// A request at a site: the family or, once it is forgotten, the client's record. The rest is the
/// model's own memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Branch {
    pub(crate) family: Family,
    pub(crate) collected: Collected,
    pub(crate) committed: Option<(i64, Text)>,
    /// Of the active instances: whether the other request had committed when it began, and whether
    /// it has written the row.
    transactions: BTreeMap<Owner, (bool, bool)>,
}

/// A site: a branch of each request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    rows: Rows,
    pub(crate) branches: Vec<Branch>,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// One for each request.
    pub(crate) clients: Vec<Client>,
    pub(crate) sites: Vec<Site>,
    /// By request, instance, and repetition.
    pub(crate) runs: BTreeMap<Owner, Execution>,
    pushes: u8,
    repeats: u8,
    losses: u8,
    failures: u8,
    server_crashes: u8,
    site_crashes: u8,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    TimeOut(usize),
    Repeat(Owner),
    /// The stub of a site, for a request, to a server.
    Push(usize, usize, usize),
    /// The site processes what the run sent; the run has the reply.
    Process(Owner, usize),
    /// The same, but the reply is lost, and the run notices.
    LoseReply(Owner, usize),
    /// What the run sent is lost, and the run notices.
    LoseRequest(Owner, usize),
    /// A PREPARE whose server has stopped does not arrive; the site notices that the connection is
    /// lost.
    HangUp(Owner, usize),
    /// The site refuses to prepare.
    Refuse(Owner, usize),
    /// The last BEGIN is processed, and then the logic fails.
    Fail(Owner, usize),
    /// The logic does not wait any longer for a row.
    GiveUp(Owner),
    Answer(Owner),
    CrashServer(usize),
    CrashSite(usize),
    Forget(usize, usize),
}

/// The name of the broken property, and what happened.
pub(crate) type Violation = String;

/// Number of the request in its client's record.
const NUMBER: u64 = 1;

pub(crate) fn request(of: usize) -> Text {
    ["request", "another"][of].into()
}

/// What a run's execution computes: different each time, as the paper's non-deterministic results
/// are.
fn computed(owner: Owner) -> Text {
    owner.to_string().into()
}

fn instance(number: i64) -> Instance {
    Instance::new(number).expect("numbers of instances are positive")
}

impl World {
    pub(crate) fn new(bounds: &Bounds) -> World {
        let family = if bounds.has_tombstones { Family::default() } else { Family::without_tombstones() };
        let requests = bounds.attempts.len();
        let branch = Branch {
            family,
            collected: Collected::default(),
            committed: None,
            transactions: BTreeMap::new(),
        };
        let site = |rows: &Rows| Site { rows: *rows, branches: vec![branch.clone(); requests] };
        let mut world = World {
            clients: vec![Client::new(bounds.servers, u32::MAX, Backoff::default()); requests],
            sites: bounds.sites.iter().map(site).collect(),
            runs: BTreeMap::new(),
            pushes: bounds.pushes,
            repeats: bounds.repeats,
            losses: bounds.losses,
            failures: bounds.failures,
            server_crashes: bounds.server_crashes,
            site_crashes: bounds.site_crashes,
        };
        for request in 0..requests {
            let effect = world.clients[request].start(0);
            world.send(request, effect);
        }
        world
    }

    /// All steps that are possible here.
    pub(crate) fn steps(&self, bounds: &Bounds) -> Vec<Step> {
        let mut steps = Vec::new();
        // Servers are told apart by nothing but a crash: while one may come.
        let servers = if self.server_crashes > 0 { bounds.servers } else { 1 };
        for (request, client) in self.clients.iter().enumerate() {
            if client.finished().is_none() && client.attempt() < bounds.attempts[request] {
                steps.push(Step::TimeOut(request));
            }
        }
        for &owner in self.runs.keys() {
            self.steps_of(owner, &mut steps);
        }
        for (number, site) in self.sites.iter().enumerate() {
            for (request, branch) in site.branches.iter().enumerate() {
                let family = &branch.family;
                if self.pushes > 0 && family.outcome().is_none() && family.prepared().next().is_some() {
                    steps.extend((0..servers).map(|server| Step::Push(number, request, server)));
                }
                let is_answered = matches!(self.clients[request].finished(), Some(Ok(_)));
                if is_answered && !branch.collected.contains(NUMBER) {
                    steps.push(Step::Forget(number, request));
                }
            }
            if self.site_crashes > 0 {
                steps.push(Step::CrashSite(number));
            }
        }
        if self.server_crashes > 0 {
            let runs_on = |server| self.runs.values().any(|e| e.server == server && e.is_running());
            steps.extend((0..bounds.servers).filter(|s| runs_on(*s)).map(Step::CrashServer));
        }
        steps
    }

    /// The steps of a run.
    fn steps_of(&self, owner: Owner, steps: &mut Vec<Step>) {
        let execution = &self.runs[&owner];
        if execution.reply.is_some() {
            steps.push(Step::Answer(owner));
        }
        if self.repeats > 0 && execution.attempt > 0 && copy_of(owner) == 0 {
            steps.push(Step::Repeat(owner));
        }
        let last_begin = execution.sent.iter().flatten().count() == 1;
        for (site, sent) in execution.sent.iter().enumerate() {
            let Some(sent) = sent else { continue };
            if self.is_blocked(owner, site) {
                steps.push(Step::GiveUp(owner));
                continue;
            }
            steps.push(Step::Process(owner, site));
            match sent {
                Message::Prepare if !execution.is_running() => steps.push(Step::HangUp(owner, site)),
                Message::Prepare if self.failures > 0 => steps.push(Step::Refuse(owner, site)),
                Message::Begin if self.failures > 0 && last_begin => steps.push(Step::Fail(owner, site)),
                _ => {}
            }
            // A lost COMMIT is sent again: the same as one that is slow.
            if self.losses > 0 && execution.is_running() && !matches!(sent, Message::Commit(_)) {
                steps.push(Step::LoseRequest(owner, site));
                // A look leaves nothing behind.
                if *sent != Message::Look {
                    steps.push(Step::LoseReply(owner, site));
                }
            }
        }
    }

    /// Whether what a run has sent to a site waits there for the other request.
    pub(crate) fn is_blocked(&self, owner: Owner, site: usize) -> bool {
        let waits = self.runs[&owner].sent[site] == Some(Message::Work);
        waits && self.sites[site].rows == Rows::Waits && self.sites[site].is_held_by_another(owner)
    }

    /// Takes a step.
    pub(crate) fn take(&mut self, step: Step, bounds: &Bounds) -> Result<(), Violation> {
        self.take_kept(step, bounds)?;
        self.tidy();
        Ok(())
    }

    /// Takes a step and keeps what has no consequence.
    pub(crate) fn take_kept(&mut self, step: Step, bounds: &Bounds) -> Result<(), Violation> {
        match step {
            Step::TimeOut(request) => {
                let client = &mut self.clients[request];
                let effect = client.timed_out(client.attempt(), 0);
                self.send(request, effect);
            }
            Step::Repeat(owner) => {
                self.repeats -= 1;
                let (attempt, server) = {
                    let execution = &self.runs[&owner];
                    (execution.attempt, execution.server)
                };
                let copies = self.runs.keys().filter(|o| **o / 8 == owner / 8).count() as u64;
                self.begin(owner + copies, (server + 1) % bounds.servers, attempt);
            }
            Step::Push(site, request, server) => {
                self.pushes -= 1;
                let highest = self.sites[site].branches[request].family.highest();
                self.push(site, request, server, highest);
            }
            Step::Process(owner, site) => self.process(owner, site, false, bounds)?,
            Step::LoseReply(owner, site) => {
                self.losses -= 1;
                self.process(owner, site, true, bounds)?;
            }
            Step::LoseRequest(owner, site) => {
                self.losses -= 1;
                let was = self.run_mut(owner).sent[site].take();
                // The connection is lost with it.
                self.sites[site].hang_up(owner);
                self.replied(owner, site, was, SiteReply::Unreachable, bounds)?;
            }
            Step::HangUp(owner, site) => {
                self.run_mut(owner).sent[site] = None;
                self.sites[site].hang_up(owner);
            }
            Step::Refuse(owner, site) => {
                self.failures -= 1;
                let was = self.run_mut(owner).sent[site].take();
                let reply = self.sites[site].fail_to_prepare(owner);
                self.replied(owner, site, was, reply, bounds)?;
            }
            Step::Fail(owner, site) => {
                self.failures -= 1;
                self.run_mut(owner).fails = true;
                self.process(owner, site, false, bounds)?;
            }
            Step::GiveUp(owner) => self.give_up(owner, "a lock was not granted in time", bounds)?,
            Step::Answer(owner) => self.answer(owner, bounds)?,
            Step::CrashServer(server) => {
                self.server_crashes -= 1;
                self.crash_server(server);
            }
            Step::CrashSite(site) => {
                self.site_crashes -= 1;
                self.sites[site].branches.iter_mut().for_each(|branch| branch.family.crash());
                self.sites[site].tidy();
            }
            Step::Forget(site, request) => {
                let Branch { family, collected, .. } = &mut self.sites[site].branches[request];
                let effects =
                    family.forget().map_err(|why| format!("A1: site {site} cannot forget: {why}"))?;
                assert_eq!(effects.answer, Answer::Forgotten);
                family.replay(&effects.log.expect("a forgotten family is logged"));
                collected.insert(NUMBER);
            }
        }
        Ok(())
    }

    /// Its runs stop; their connections are lost, but a PREPARE that has been sent may still
    /// arrive.
    fn crash_server(&mut self, server: usize) {
        for (owner, execution) in self.runs.iter_mut().filter(|(_, e)| e.server == server && e.is_running()) {
            execution.run = None;
            for (site, sent) in self.sites.iter_mut().zip(&execution.sent) {
                if *sent != Some(Message::Prepare) {
                    site.hang_up(*owner);
                }
            }
        }
    }

    fn run_mut(&mut self, owner: Owner) -> &mut Execution {
        self.runs.get_mut(&owner).expect("the run exists")
    }

    /// Does what a request's client wants done.
    pub(crate) fn send(&mut self, request: usize, effect: Option<ClientEffect>) -> Option<Owner> {
        let Some(ClientEffect::Send { attempt, server, instance, .. }) = effect else { return None };
        let owner = owner_of(request, instance, 0);
        self.begin(owner, server, attempt);
        Some(owner)
    }

    /// A push by the stub of a site that has heard of numbers up to `highest`.
    pub(crate) fn push(&mut self, site: usize, request: usize, server: usize, highest: i64) -> Owner {
        let number = Instance::above(highest, 1 + site as u16).expect("numbers are left").get();
        let owner = owner_of(request, number, 0);
        self.begin(owner, server, 0);
        owner
    }

    fn begin(&mut self, owner: Owner, server: usize, attempt: u32) {
        let of = request(request_of(owner));
        let (run, effects) = Run::begin(number_of(owner), owner, of, self.sites.len());
        let (run, sent) = (Some(run), vec![None; self.sites.len()]);
        let execution = Execution { server, attempt, run, sent, fails: false, stored: None, reply: None };
        self.runs.insert(owner, execution);
        for effect in effects {
            let execution = self.run_mut(owner);
            match effect {
                Effect::Look(site) => execution.sent[site] = Some(Message::Look),
                Effect::Begin(site) => execution.sent[site] = Some(Message::Begin),
                other => unreachable!("a run does not start with {other:?}"),
            }
        }
    }

    /// The first message of a run that a site has not processed and that does not wait; or else one
    /// that waits.
    pub(crate) fn unprocessed(&self, owner: Owner) -> Option<Step> {
        let sent = &self.runs.get(&owner)?.sent;
        let mut sites = (0..sent.len()).filter(|site| sent[*site].is_some());
        let is_free = |site: &usize| !self.is_blocked(owner, *site);
        match sites.clone().find(is_free) {
            Some(site) => Some(Step::Process(owner, site)),
            None => sites.next().map(|_| Step::GiveUp(owner)),
        }
    }

    /// All steps of runs without faults.
    pub(crate) fn undisturbed(&self) -> HashSet<Step> {
        let sent = |(owner, execution): (&Owner, &Execution)| {
            let owner = *owner;
            let sites = (0..execution.sent.len()).filter(|site| execution.sent[*site].is_some());
            let step = |site| match self.is_blocked(owner, site) {
                true => Step::GiveUp(owner),
                false => Step::Process(owner, site),
            };
            sites.map(step).collect::<Vec<_>>()
        };
        self.runs.iter().flat_map(sent).collect()
    }

    /// Whether a run's client or stub has its reply, and which.
    pub(crate) fn reply(&self, owner: Owner) -> Option<&Reply> {
        self.runs.get(&owner)?.reply.as_ref()
    }

    fn process(
        &mut self,
        owner: Owner,
        site: usize,
        is_reply_lost: bool,
        bounds: &Bounds,
    ) -> Result<(), Violation> {
        let execution = self.run_mut(owner);
        let Some(message) = execution.sent[site].take() else { return Ok(()) };
        let stored = execution.stored.clone();
        let at = &mut self.sites[site];
        let reply = match &message {
            Message::Look => at.show(request_of(owner)),
            Message::Begin => at.begin(owner),
            Message::Work => at.work(owner),
            Message::Prepare => at.prepare(owner, &stored.expect("a PREPARE carries a result")),
            Message::Refuse(_) | Message::Withdraw(_) if !bounds.withdraws => SiteReply::Unreachable,
            Message::Refuse(upto) => at.refuse(owner, *upto),
            Message::Withdraw(instances) => {
                instances.iter().for_each(|number| at.withdraw(owner, *number));
                SiteReply::Withdrawn
            }
            Message::Commit(winner) => self.commit(site, owner, *winner)?,
        };
        if is_reply_lost {
            self.sites[site].hang_up(owner);
        }
        let reply = if is_reply_lost { SiteReply::Unreachable } else { reply };
        self.replied(owner, site, Some(message), reply, bounds)
    }

    /// A reply to the run, or to its logic.
    fn replied(
        &mut self,
        owner: Owner,
        site: usize,
        to: Option<Message>,
        reply: SiteReply,
        bounds: &Bounds,
    ) -> Result<(), Violation> {
        match (to, reply) {
            (Some(Message::Work), SiteReply::Begun) => {
                let is_done = self.run_mut(owner).sent.iter().all(Option::is_none);
                if is_done { self.hand(owner, Event::Executed(computed(owner)), bounds) } else { Ok(()) }
            }
            (Some(Message::Work), _) => self.give_up(owner, "refused", bounds),
            (_, reply) => self.hand(owner, Event::Site(site, reply), bounds),
        }
    }

    /// The logic fails.
    fn give_up(&mut self, owner: Owner, why: &str, bounds: &Bounds) -> Result<(), Violation> {
        self.run_mut(owner).sent.iter_mut().for_each(|sent| *sent = None);
        self.hand(owner, Event::Failed(why.into()), bounds)
    }

    /// Hands an event to a run, and does what it wants done.
    fn hand(&mut self, owner: Owner, event: Event, bounds: &Bounds) -> Result<(), Violation> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let execution = self.run_mut(owner);
            let Some(run) = &mut execution.run else { return Ok(()) };
            for effect in run.on(event) {
                let execution = self.run_mut(owner);
                match effect {
                    Effect::Look(site) => execution.sent[site] = Some(Message::Look),
                    Effect::Begin(site) => execution.sent[site] = Some(Message::Begin),
                    Effect::Execute if execution.fails => events.push(Event::Failed("the logic".into())),
                    Effect::Execute if bounds.is_shared() => {
                        execution.sent.iter_mut().for_each(|sent| *sent = Some(Message::Work));
                    }
                    Effect::Execute => events.push(Event::Executed(computed(owner))),
                    Effect::Prepare(site, stored) => {
                        execution.sent[site] = Some(Message::Prepare);
                        execution.stored = Some(stored);
                    }
                    Effect::Refuse(site, upto) => {
                        execution.sent[site] = Some(Message::Refuse(upto));
                        self.sites[site].hang_up(owner);
                    }
                    Effect::Withdraw(site, instances) => {
                        let numbers = instances.iter().map(|(number, _)| *number).collect();
                        execution.sent[site] = Some(Message::Withdraw(numbers));
                        self.sites[site].hang_up(owner);
                    }
                    Effect::Commit(site, winner) => execution.sent[site] = Some(Message::Commit(winner)),
                    Effect::Release(site) => {
                        // Over the same connection, so after a PREPARE that is under way.
                        match execution.sent[site] {
                            Some(Message::Prepare) => {}
                            _ => {
                                execution.sent[site] = None;
                                self.sites[site].hang_up(owner);
                            }
                        }
                    }
                    Effect::Reply(reply) => {
                        self.check_reply(request_of(owner), &reply)?;
                        self.run_mut(owner).reply = Some(reply);
                    }
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, site: usize, owner: Owner, winner: i64) -> Result<SiteReply, Violation> {
        let of = request_of(owner);
        if self.sites[site].branches[of].collected.contains(NUMBER) {
            return Ok(SiteReply::Refused(Refused::Forgotten));
        }
        let results: Vec<Option<Text>> =
            self.sites.iter().map(|s| s.branches[of].prepared_result(winner)).collect();
        let committing = self.sites[site].branches[of].family.commit(instance(winner));
        self.sites[site].tidy();
        match committing {
            Ok(Effects { commit: None, .. }) => Ok(SiteReply::Committed),
            Ok(Effects { answer: Answer::Decided(outcome), .. }) => {
                let result = outcome.result;
                if let Some((other, _)) = &self.sites[site].branches[of].committed {
                    return Err(format!("A2: site {site} commits {winner} after {other}"));
                }
                for (number, other) in self.sites.iter().enumerate() {
                    let theirs = &other.branches[of].committed;
                    if theirs.as_ref().is_some_and(|c| *c != (winner, result.clone())) {
                        return Err(format!(
                            "A3: two decisions: site {site} commits {winner}, site {number} {theirs:?}"
                        ));
                    }
                }
                if results.iter().any(|r| r.as_ref() != Some(&result)) {
                    return Err(format!("V2: site {site} commits {winner}, prepared are {results:?}"));
                }
                self.sites[site].branches[of].committed = Some((winner, result));
                Ok(SiteReply::Committed)
            }
            Ok(other) => Err(format!("A2: COMMIT was answered by {other:?}")),
            Err(why) => Err(format!("A3: site {site} refuses to commit {winner}: {why}")),
        }
    }

    /// What a server tells a client (or a stub) must be so.
    fn check_reply(&self, of: usize, reply: &Reply) -> Result<(), Violation> {
        match reply {
            Reply::Done { winner, result } => {
                let is_so = |site: &Site| {
                    site.branches[of]
                        .committed
                        .as_ref()
                        .is_some_and(|(w, stored)| w == winner && plain_result(stored) == &**result)
                };
                if let Some(site) = self.sites.iter().find(|site| !is_so(site)) {
                    return Err(format!("A1: {result} of {winner} is answered, a site is {site:?}"));
                }
                let owner: Owner = result.parse().map_err(|_| format!("V1: nobody computed {result}"))?;
                if number_of(owner) != *winner || request_of(owner) != of {
                    return Err(format!("V1: instance {winner} did not compute {result}"));
                }
                Ok(())
            }
            Reply::Forgotten if self.clients[of].finished().is_none() => {
                Err("T1: forgotten unanswered".to_owned())
            }
            Reply::RequestDiffers | Reply::Broken(_) => Err(format!("A3: a server replies {reply:?}")),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, owner: Owner, bounds: &Bounds) -> Result<(), Violation> {
        let execution = self.run_mut(owner);
        let (attempt, reply) = (execution.attempt, execution.reply.take());
        let Some(reply) = reply else { return Ok(()) };
        let of = request_of(owner);
        // The model's bound of attempts is not the client's.
        let is_last = attempt == self.clients[of].attempt() && attempt >= bounds.attempts[of];
        if attempt == 0 || (is_last && matches!(reply, Reply::Retry { .. })) {
            return Ok(());
        }
        let effect = self.clients[of].replied(attempt, reply, 0);
        if let Some(ClientEffect::Finish(finished)) = &effect {
            finished.as_ref().map_err(|error| format!("T1: the client gives up: {error}"))?;
        }
        self.send(of, effect);
        Ok(())
    }

    /// Forgets what has no consequence any more, so that equal states are equal.
    fn tidy(&mut self) {
        for (owner, execution) in &mut self.runs {
            if self.clients[request_of(*owner)].finished().is_some() || execution.attempt == 0 {
                execution.reply = None;
            }
            if !execution.is_running() {
                let arrives = |sent: &Option<Message>| {
                    matches!(sent, None | Some(Message::Prepare | Message::Commit(_)))
                        || matches!(sent, Some(Message::Refuse(_) | Message::Withdraw(_)))
                };
                execution.sent.iter_mut().filter(|s| !arrives(s)).for_each(|s| *s = None);
                execution.run = None;
                execution.server = 0;
            }
            if execution.run.is_none() && !execution.sent.contains(&Some(Message::Prepare)) {
                execution.stored = None;
            }
        }
        self.runs.retain(|_, e| e.run.is_some() || e.reply.is_some() || e.sent.iter().any(Option::is_some));
    }

    /// Nothing is under way any more: all servers have crashed, all messages and connections are
    /// lost.
    pub(crate) fn silence(&mut self) {
        for owner in std::mem::take(&mut self.runs).into_keys() {
            self.sites.iter_mut().for_each(|site| site.hang_up(owner));
        }
    }
}

fn decided(outcome: sibling::Outcome) -> SiteReply {
    let (winner, result, request) = (outcome.winner.get(), outcome.result, outcome.request);
    SiteReply::Decided(Outcome { winner, result, request })
}

impl Site {
    fn begin(&mut self, owner: Owner) -> SiteReply {
        let of = request_of(owner);
        let is_later = self.others(of).any(|other| other.committed.is_some());
        let is_shared = self.rows != Rows::Apart;
        let branch = &mut self.branches[of];
        if branch.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let effects = branch.family.begin(instance(number_of(owner)), owner);
        if is_shared && effects.as_ref().is_ok_and(|effects| effects.answer == Answer::Begun) {
            branch.transactions.insert(owner, (is_later, false));
        }
        branch.reply(effects, SiteReply::Begun)
    }

    /// The branches of other requests.
    fn others(&self, of: usize) -> impl Iterator<Item = &Branch> {
        self.branches.iter().enumerate().filter(move |(number, _)| *number != of).map(|(_, branch)| branch)
    }

    /// Whether another request has committed since the run began here.
    fn is_behind(&self, owner: Owner) -> bool {
        let of = request_of(owner);
        let was = self.branches[of].transactions.get(&owner).is_none_or(|transaction| transaction.0);
        !was && self.others(of).any(|other| other.committed.is_some())
    }

    fn is_held_by_another(&self, owner: Owner) -> bool {
        self.others(request_of(owner)).any(|other| {
            let is_prepared = other.family.outcome().is_none() && other.family.prepared().next().is_some();
            is_prepared || other.transactions.values().any(|transaction| transaction.1)
        })
    }

    fn work(&mut self, owner: Owner) -> SiteReply {
        if self.rows == Rows::Waits && self.is_behind(owner) {
            return SiteReply::Refused(Refused::Failed("40001".into()));
        }
        match self.branches[request_of(owner)].transactions.get_mut(&owner) {
            Some(transaction) => {
                transaction.1 = true;
                SiteReply::Begun
            }
            None => SiteReply::Refused(Refused::Failed("MI011".into())),
        }
    }

    fn prepare(&mut self, owner: Owner, stored: &Text) -> SiteReply {
        let of = request_of(owner);
        let is_prepared =
            |other: &Branch| other.family.outcome().is_none() && other.family.prepared().next().is_some();
        let refuses = self.rows == Rows::Refuses
            && self.branches[of].transactions.contains_key(&owner)
            && (self.is_behind(owner) || self.others(of).any(is_prepared));
        if refuses {
            return self.fail_to_prepare(owner);
        }
        let branch = &mut self.branches[of];
        if branch.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let number = instance(number_of(owner));
        let effects = branch.family.prepare(number, owner, &request(of), stored, Limits::default());
        let table = branch.table();
        let reply = branch.reply(effects, table);
        self.tidy();
        reply
    }

    /// The transaction ends, and the site says so once that is durable.
    fn fail_to_prepare(&mut self, owner: Owner) -> SiteReply {
        self.hang_up(owner);
        self.branches[request_of(owner)].family.settle();
        SiteReply::Refused(Refused::Failed("40001".into()))
    }

    fn refuse(&mut self, owner: Owner, upto: i64) -> SiteReply {
        let branch = &mut self.branches[request_of(owner)];
        if branch.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let effects = branch.family.refuse(instance(upto));
        let mut table = branch.table();
        if let SiteReply::Table(table) = &mut table {
            table.floor = table.floor.max(upto + 1);
        }
        let reply = branch.reply(Ok(effects), table);
        self.tidy();
        reply
    }

    fn withdraw(&mut self, owner: Owner, number: i64) {
        let _ = self.branches[request_of(owner)].family.rollback(instance(number));
    }

    fn show(&mut self, of: usize) -> SiteReply {
        let branch = &mut self.branches[of];
        if branch.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        match branch.family.outcome() {
            Some(outcome) => decided(outcome),
            None => branch.table(),
        }
    }

    /// The connection of a run is lost or given up: what it has active here ends.
    fn hang_up(&mut self, owner: Owner) {
        let branch = &mut self.branches[request_of(owner)];
        branch.family.abandon(instance(number_of(owner)), owner);
        branch.transactions.remove(&owner);
    }

    /// Transactions end with their instances.
    fn tidy(&mut self) {
        for Branch { family, transactions, .. } in &mut self.branches {
            transactions.retain(|owner, _| family.state(instance(number_of(*owner))) == State::Active);
        }
    }
}

impl Branch {
    /// What is told as aborted is durable first.
    fn table(&mut self) -> SiteReply {
        self.family.settle();
        let family = &self.family;
        let prepared: BTreeMap<i64, Text> =
            family.prepared().map(|(i, result)| (i.get(), result.clone())).collect();
        let entries = family.mipt().entries;
        let aborted =
            entries.iter().filter(|e| e.state == State::Aborted).map(|e| e.instance.get()).collect();
        let floor = prepared.keys().last().copied().unwrap_or(0);
        let request = family.mipt().request;
        SiteReply::Table(Table { prepared, aborted, floor, request, highest: family.highest(), never: None })
    }

    /// As it would come over the wire.
    fn reply(&self, effects: Result<Effects, Refusal>, plain: SiteReply) -> SiteReply {
        match effects {
            Ok(Effects { answer: Answer::Decided(outcome), .. }) => decided(outcome),
            Ok(_) => plain,
            Err(Refusal::InstanceAborted { highest, .. }) => {
                SiteReply::Refused(Refused::Taken { highest: highest.get() })
            }
            Err(Refusal::InstanceInUse { .. }) => SiteReply::Refused(Refused::Taken { highest: 0 }),
            Err(Refusal::RequestDiffers) => SiteReply::Refused(Refused::RequestDiffers),
            Err(other) => SiteReply::Refused(Refused::Failed(other.to_string().into())),
        }
    }

    /// The result with which an instance is prepared or was committed here.
    fn prepared_result(&self, number: i64) -> Option<Text> {
        match (&self.committed, self.family.state(instance(number))) {
            (Some((winner, result)), _) => (*winner == number).then(|| result.clone()),
            (None, State::Prepared) => {
                self.family.prepared().find(|(i, _)| i.get() == number).map(|(_, result)| result.clone())
            }
            _ => None,
        }
    }
}

/// For histories in words.
impl World {
    /// A step in words, before it is taken.
    pub(crate) fn describe(&self, step: Step) -> String {
        let run = |owner: Owner| {
            let copy = if copy_of(owner) == 0 { String::new() } else { format!(", copy {}", copy_of(owner)) };
            let what = format!("{} {}{copy}", self.name(request_of(owner)), number_of(owner));
            match self.runs.get(&owner) {
                Some(e) if e.run.is_some() => format!("server {} ({what})", e.server),
                _ => format!("a dead run ({what})"),
            }
        };
        let sent = |owner: Owner, site: usize| match self.runs.get(&owner).and_then(|e| e.sent[site].as_ref())
        {
            Some(Message::Look) => "SHOW".to_owned(),
            Some(Message::Begin) => "BEGIN".to_owned(),
            Some(Message::Work) => "UPDATE".to_owned(),
            Some(Message::Prepare) => "PREPARE".to_owned(),
            Some(Message::Refuse(upto)) => format!("REFUSE {upto}"),
            Some(Message::Withdraw(instances)) => format!("ROLLBACK {instances:?}"),
            Some(Message::Commit(winner)) => format!("COMMIT {winner}"),
            None => "nothing".to_owned(),
        };
        match step {
            Step::TimeOut(request) => {
                format!("the client of {} times out and tries again", self.name(request))
            }
            Step::Repeat(owner) => format!("the message to {} arrives again", run(owner)),
            Step::Push(site, request, server) => {
                format!("the stub of site {site} pushes {} to server {server}", self.name(request))
            }
            Step::Process(owner, site) => format!("site {site}: {} of {}", sent(owner, site), run(owner)),
            Step::LoseReply(owner, site) => {
                format!("site {site}: {} of {}, reply lost", sent(owner, site), run(owner))
            }
            Step::LoseRequest(owner, site) => {
                format!("{} of {} to site {site} is lost", sent(owner, site), run(owner))
            }
            Step::HangUp(owner, site) => format!("site {site} loses the connection of {}", run(owner)),
            Step::Refuse(owner, site) => format!("site {site} refuses PREPARE of {}", run(owner)),
            Step::Fail(owner, site) => format!("site {site}: BEGIN of {}, whose logic fails", run(owner)),
            Step::GiveUp(owner) => format!("{} does not wait any longer", run(owner)),
            Step::Answer(owner) => format!("the client hears from {}", run(owner)),
            Step::CrashServer(server) => format!("server {server} crashes"),
            Step::CrashSite(site) => format!("site {site} crashes"),
            Step::Forget(site, request) => format!("site {site} forgets {}", self.name(request)),
        }
    }

    fn name(&self, request: usize) -> &'static str {
        if self.clients.len() == 1 { "instance" } else { ["R", "C"][request] }
    }

    /// The sites in a few words.
    pub(crate) fn summary(&self) -> String {
        let branch = |(request, branch): (usize, &Branch)| {
            let name = if self.clients.len() == 1 { "" } else { ["R ", "C "][request] };
            let entries = branch.family.mipt().entries;
            let entries = entries.iter().map(|e| format!("{name}{} {:?}", e.instance, e.state));
            entries.collect::<Vec<_>>()
        };
        let site = |site: &Site| {
            site.branches.iter().enumerate().flat_map(branch).collect::<Vec<_>>().join(", ").to_lowercase()
        };
        self.sites.iter().map(|s| format!("[{}]", site(s))).collect::<Vec<_>>().join(" ")
    }
}
