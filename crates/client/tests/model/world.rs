//! One state of the model, the steps that are possible in it, and what each does: all decisions are the real code's.

use std::collections::BTreeMap;

use cognate_client::backoff::Backoff;
use cognate_client::etransaction::{
    Client, ClientEffect, Effect, Event, Outcome, Refused, Reply, Run, SiteReply, Table, Text, plain_result,
};
use cognate_engine::sibling::{self, Answer, Collected, Effects, Family, Instance, Limits, Refusal, State};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) sites: usize,
    pub(crate) servers: usize,
    pub(crate) attempts: u32,
    pub(crate) pushes: u8,
    pub(crate) repeats: u8,
    pub(crate) losses: u8,
    pub(crate) server_crashes: u8,
    pub(crate) site_crashes: u8,
    pub(crate) has_tombstones: bool,
}

/// What a run has sent to a site and the site has not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Look,
    Begin,
    Prepare,
    Commit(i64),
}

/// A run, its server, and its messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Execution {
    pub(crate) server: usize,
    /// The client's attempt; 0 for a stub's push.
    attempt: u32,
    instance: i64,
    /// `None` once the server has crashed.
    run: Option<Run>,
    sent: Vec<Option<Message>>,
    /// What PREPARE carries.
    stored: Option<Text>,
    reply: Option<Reply>,
}

impl Execution {
    fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| !run.is_ended())
    }
}

/// A site: the family or, once it is forgotten, the client's record. `committed` is the model's own memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub(crate) family: Family,
    pub(crate) collected: Collected,
    pub(crate) committed: Option<(i64, Text)>,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) sites: Vec<Site>,
    /// By owner: eight times the instance, and which repetition.
    pub(crate) runs: BTreeMap<u64, Execution>,
    pushes: u8,
    repeats: u8,
    losses: u8,
    server_crashes: u8,
    site_crashes: u8,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    TimeOut,
    Repeat(u64),
    Push(usize, usize),
    /// The site processes what the run sent; the run has the reply.
    Process(u64, usize),
    /// The same, but the reply is lost, and the run notices.
    LoseReply(u64, usize),
    /// What the run sent is lost, and the run notices.
    LoseRequest(u64, usize),
    Answer(u64),
    CrashServer(usize),
    CrashSite(usize),
    Forget(usize),
}

/// The name of the broken property, and what happened.
pub(crate) type Violation = String;

/// Number of the request in its client's record.
const NUMBER: u64 = 1;

pub(crate) fn request() -> Text {
    "request".into()
}

/// What a run's execution computes: different each time, as the paper's non-deterministic results are.
fn computed(owner: u64) -> Text {
    owner.to_string().into()
}

fn instance(number: i64) -> Instance {
    Instance::new(number).expect("numbers of instances are positive")
}

impl World {
    pub(crate) fn new(bounds: &Bounds) -> World {
        let family = if bounds.has_tombstones { Family::default() } else { Family::without_tombstones() };
        let site = Site { family, collected: Collected::default(), committed: None };
        let mut world = World {
            client: Client::new(bounds.servers, u32::MAX, Backoff::default()),
            sites: vec![site; bounds.sites],
            runs: BTreeMap::new(),
            pushes: bounds.pushes,
            repeats: bounds.repeats,
            losses: bounds.losses,
            server_crashes: bounds.server_crashes,
            site_crashes: bounds.site_crashes,
        };
        let effect = world.client.start(0);
        world.send(effect);
        world
    }

    /// All steps that are possible here.
    pub(crate) fn steps(&self, bounds: &Bounds) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_waiting = self.client.finished().is_none();
        if is_waiting && self.client.attempt() < bounds.attempts {
            steps.push(Step::TimeOut);
        }
        for (&owner, execution) in &self.runs {
            if execution.reply.is_some() {
                steps.push(Step::Answer(owner));
            }
            if self.repeats > 0 && execution.attempt > 0 && owner.is_multiple_of(8) {
                steps.push(Step::Repeat(owner));
            }
            for (site, sent) in execution.sent.iter().enumerate() {
                let Some(sent) = sent else { continue };
                steps.push(Step::Process(owner, site));
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
        for (number, site) in self.sites.iter().enumerate() {
            if self.pushes > 0 && site.family.outcome().is_none() && site.family.prepared().next().is_some() {
                steps.extend((0..bounds.servers).map(|server| Step::Push(number, server)));
            }
            if self.site_crashes > 0 {
                steps.push(Step::CrashSite(number));
            }
            if matches!(self.client.finished(), Some(Ok(_))) && !site.collected.contains(NUMBER) {
                steps.push(Step::Forget(number));
            }
        }
        if self.server_crashes > 0 {
            let runs_on = |server| self.runs.values().any(|e| e.server == server && e.is_running());
            steps.extend((0..bounds.servers).filter(|s| runs_on(*s)).map(Step::CrashServer));
        }
        steps
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
            Step::TimeOut => {
                let effect = self.client.timed_out(self.client.attempt(), 0);
                self.send(effect);
            }
            Step::Repeat(owner) => {
                self.repeats -= 1;
                let (attempt, number, server) = {
                    let execution = &self.runs[&owner];
                    (execution.attempt, execution.instance, execution.server)
                };
                let copies = self.runs.keys().filter(|o| **o / 8 == owner / 8).count() as u64;
                self.begin(owner + copies, (server + 1) % bounds.servers, attempt, number);
            }
            Step::Push(site, server) => {
                self.pushes -= 1;
                let number = Instance::above(self.sites[site].family.highest(), 1 + site as u16);
                let number = number.expect("numbers are left").get();
                self.begin(number as u64 * 8, server, 0, number);
            }
            Step::Process(owner, site) => self.process(owner, site, false)?,
            Step::LoseReply(owner, site) => {
                self.losses -= 1;
                self.process(owner, site, true)?;
            }
            Step::LoseRequest(owner, site) => {
                self.losses -= 1;
                self.run_mut(owner).sent[site] = None;
                self.hand(owner, Event::Site(site, SiteReply::Unreachable))?;
            }
            Step::Answer(owner) => self.answer(owner, bounds)?,
            Step::CrashServer(server) => {
                self.server_crashes -= 1;
                for execution in self.runs.values_mut().filter(|e| e.server == server && e.is_running()) {
                    execution.run = None;
                }
            }
            Step::CrashSite(site) => {
                self.site_crashes -= 1;
                self.sites[site].family.crash();
            }
            Step::Forget(site) => {
                let Site { family, collected, .. } = &mut self.sites[site];
                let effects =
                    family.forget().map_err(|why| format!("A1: site {site} cannot forget: {why}"))?;
                assert_eq!(effects.answer, Answer::Forgotten);
                family.replay(&effects.log.expect("a forgotten family is logged"));
                collected.insert(NUMBER);
            }
        }
        Ok(())
    }

    fn run_mut(&mut self, owner: u64) -> &mut Execution {
        self.runs.get_mut(&owner).expect("the run exists")
    }

    /// Does what the client wants done.
    pub(crate) fn send(&mut self, effect: Option<ClientEffect>) -> Option<u64> {
        let Some(ClientEffect::Send { attempt, server, instance, .. }) = effect else { return None };
        let owner = instance as u64 * 8;
        self.begin(owner, server, attempt, instance);
        Some(owner)
    }

    pub(crate) fn begin(&mut self, owner: u64, server: usize, attempt: u32, instance: i64) {
        let (run, effects) = Run::begin(instance, owner, request(), self.sites.len());
        let (run, sent) = (Some(run), vec![None; self.sites.len()]);
        let execution = Execution { server, attempt, instance, run, sent, stored: None, reply: None };
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

    /// The first message of a run that a site has not processed.
    pub(crate) fn unprocessed(&self, owner: u64) -> Option<usize> {
        self.runs.get(&owner)?.sent.iter().position(Option::is_some)
    }

    /// Whether a run's client or stub has its reply, and which.
    pub(crate) fn reply(&self, owner: u64) -> Option<&Reply> {
        self.runs.get(&owner)?.reply.as_ref()
    }

    fn process(&mut self, owner: u64, site: usize, is_reply_lost: bool) -> Result<(), Violation> {
        let execution = self.run_mut(owner);
        let Some(message) = execution.sent[site].take() else { return Ok(()) };
        let (number, stored) = (execution.instance, execution.stored.clone());
        let reply = match message {
            Message::Look => self.sites[site].show(),
            Message::Begin => self.sites[site].begin(number, owner),
            Message::Prepare => {
                let stored = stored.expect("a PREPARE carries a result");
                self.sites[site].prepare(number, owner, &stored)
            }
            Message::Commit(winner) => self.commit(site, winner)?,
        };
        let reply = if is_reply_lost { SiteReply::Unreachable } else { reply };
        self.hand(owner, Event::Site(site, reply))
    }

    /// Hands an event to a run, and does what it wants done.
    fn hand(&mut self, owner: u64, event: Event) -> Result<(), Violation> {
        let execution = self.run_mut(owner);
        let mut events = vec![event];
        let number = execution.instance;
        while let Some(event) = events.pop() {
            let execution = self.run_mut(owner);
            let Some(run) = &mut execution.run else { return Ok(()) };
            for effect in run.on(event) {
                let execution = self.run_mut(owner);
                match effect {
                    Effect::Look(site) => execution.sent[site] = Some(Message::Look),
                    Effect::Begin(site) => execution.sent[site] = Some(Message::Begin),
                    Effect::Execute => events.push(Event::Executed(computed(owner))),
                    Effect::Prepare(site, stored) => {
                        execution.sent[site] = Some(Message::Prepare);
                        execution.stored = Some(stored);
                    }
                    Effect::Commit(site, winner) => execution.sent[site] = Some(Message::Commit(winner)),
                    Effect::Release(site) => {
                        // Over the same connection, so after a PREPARE that is under way.
                        match execution.sent[site] {
                            Some(Message::Prepare) => {}
                            _ => {
                                execution.sent[site] = None;
                                self.sites[site].family.abandon(instance(number), owner);
                            }
                        }
                    }
                    Effect::Reply(reply) => {
                        self.check_reply(&reply)?;
                        self.run_mut(owner).reply = Some(reply);
                    }
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, site: usize, winner: i64) -> Result<SiteReply, Violation> {
        if self.sites[site].collected.contains(NUMBER) {
            return Ok(SiteReply::Refused(Refused::Forgotten));
        }
        let results: Vec<Option<Text>> = self.sites.iter().map(|s| s.prepared_result(winner)).collect();
        match self.sites[site].family.commit(instance(winner)) {
            Ok(Effects { commit: None, .. }) => Ok(SiteReply::Committed),
            Ok(Effects { answer: Answer::Decided(outcome), .. }) => {
                let result = outcome.result;
                if let Some((other, _)) = &self.sites[site].committed {
                    return Err(format!("A2: site {site} commits {winner} after {other}"));
                }
                for (number, other) in self.sites.iter().enumerate() {
                    if other.committed.as_ref().is_some_and(|c| *c != (winner, result.clone())) {
                        let theirs = &other.committed;
                        return Err(format!(
                            "A3: two decisions: site {site} commits {winner}, site {number} {theirs:?}"
                        ));
                    }
                }
                if results.iter().any(|r| r.as_ref() != Some(&result)) {
                    return Err(format!("V2: site {site} commits {winner}, prepared are {results:?}"));
                }
                self.sites[site].committed = Some((winner, result));
                Ok(SiteReply::Committed)
            }
            Ok(other) => Err(format!("A2: COMMIT was answered by {other:?}")),
            Err(why) => Err(format!("A3: site {site} refuses to commit {winner}: {why}")),
        }
    }

    /// What a server tells a client (or a stub) must be so.
    fn check_reply(&self, reply: &Reply) -> Result<(), Violation> {
        match reply {
            Reply::Done { winner, result } => {
                let is_so = |site: &Site| {
                    site.committed
                        .as_ref()
                        .is_some_and(|(w, stored)| w == winner && plain_result(stored) == &**result)
                };
                if let Some(site) = self.sites.iter().find(|site| !is_so(site)) {
                    return Err(format!("A1: {result} of {winner} is answered, a site is {site:?}"));
                }
                let owner: u64 = result.parse().map_err(|_| format!("V1: nobody computed {result}"))?;
                if owner / 8 != *winner as u64 {
                    return Err(format!("V1: instance {winner} did not compute {result}"));
                }
                Ok(())
            }
            Reply::Forgotten if self.client.finished().is_none() => {
                Err("T1: forgotten unanswered".to_owned())
            }
            Reply::RequestDiffers | Reply::Broken(_) => Err(format!("A3: a server replies {reply:?}")),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, owner: u64, bounds: &Bounds) -> Result<(), Violation> {
        let execution = self.run_mut(owner);
        let (attempt, reply) = (execution.attempt, execution.reply.take());
        let Some(reply) = reply else { return Ok(()) };
        // The model's bound of attempts is not the client's.
        let is_last = attempt == self.client.attempt() && attempt >= bounds.attempts;
        if attempt == 0 || (is_last && matches!(reply, Reply::Retry { .. })) {
            return Ok(());
        }
        let effect = self.client.replied(attempt, reply, 0);
        if let Some(ClientEffect::Finish(finished)) = &effect {
            finished.as_ref().map_err(|error| format!("T1: the client gives up: {error}"))?;
        }
        self.send(effect);
        Ok(())
    }

    /// Forgets what has no consequence any more, so that equal states are equal.
    fn tidy(&mut self) {
        let is_finished = self.client.finished().is_some();
        for execution in self.runs.values_mut() {
            if is_finished || execution.attempt == 0 {
                execution.reply = None;
            }
            if !execution.is_running() {
                let idle = [Some(Message::Look), Some(Message::Begin)];
                execution.sent.iter_mut().filter(|s| idle.contains(*s)).for_each(|s| *s = None);
                execution.run = None;
                execution.server = 0;
            }
            if execution.run.is_none() && !execution.sent.contains(&Some(Message::Prepare)) {
                execution.stored = None;
            }
        }
        self.runs.retain(|_, e| e.run.is_some() || e.reply.is_some() || e.sent.iter().any(Option::is_some));
    }

    /// Nothing is under way any more: all servers have crashed, all messages are lost.
    pub(crate) fn silence(&mut self) {
        self.runs.clear();
    }
}

fn decided(outcome: sibling::Outcome) -> SiteReply {
    let (winner, result, request) = (outcome.winner.get(), outcome.result, outcome.request);
    SiteReply::Decided(Outcome { winner, result, request })
}

impl Site {
    fn begin(&mut self, number: i64, owner: u64) -> SiteReply {
        if self.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let effects = self.family.begin(instance(number), owner);
        self.reply(effects, SiteReply::Begun)
    }

    fn prepare(&mut self, number: i64, owner: u64, stored: &Text) -> SiteReply {
        if self.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let effects = self.family.prepare(instance(number), owner, &request(), stored, Limits::default());
        self.reply(effects, self.table())
    }

    fn table(&self) -> SiteReply {
        let prepared = self.family.prepared().map(|(i, result)| (i.get(), result.clone())).collect();
        let table = Table { prepared, request: self.family.mipt().request, highest: self.family.highest() };
        SiteReply::Table(table)
    }

    fn show(&self) -> SiteReply {
        if self.collected.contains(NUMBER) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        match self.family.outcome() {
            Some(outcome) => decided(outcome),
            None => self.table(),
        }
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
        let run = |owner: u64| {
            let copy = if owner.is_multiple_of(8) { String::new() } else { format!(", copy {}", owner % 8) };
            match self.runs.get(&owner) {
                Some(e) if e.run.is_some() => format!("server {} (instance {}{copy})", e.server, e.instance),
                _ => format!("a dead run (instance {}{copy})", owner / 8),
            }
        };
        let sent = |owner: u64, site: usize| match self.runs.get(&owner).and_then(|e| e.sent[site]) {
            Some(Message::Look) => "SHOW".to_owned(),
            Some(Message::Begin) => "BEGIN".to_owned(),
            Some(Message::Prepare) => "PREPARE".to_owned(),
            Some(Message::Commit(winner)) => format!("COMMIT {winner}"),
            None => "nothing".to_owned(),
        };
        match step {
            Step::TimeOut => "the client times out and tries again".to_owned(),
            Step::Repeat(owner) => format!("the message to {} arrives again", run(owner)),
            Step::Push(site, server) => format!("the stub of site {site} pushes to server {server}"),
            Step::Process(owner, site) => format!("site {site}: {} of {}", sent(owner, site), run(owner)),
            Step::LoseReply(owner, site) => {
                format!("site {site}: {} of {}, reply lost", sent(owner, site), run(owner))
            }
            Step::LoseRequest(owner, site) => {
                format!("{} of {} to site {site} is lost", sent(owner, site), run(owner))
            }
            Step::Answer(owner) => format!("the client hears from {}", run(owner)),
            Step::CrashServer(server) => format!("server {server} crashes"),
            Step::CrashSite(site) => format!("site {site} crashes"),
            Step::Forget(site) => format!("site {site} forgets"),
        }
    }

    /// The sites in a few words.
    pub(crate) fn summary(&self) -> String {
        let site = |site: &Site| {
            let entries = site.family.mipt().entries;
            let entries = entries.iter().map(|e| format!("{} {:?}", e.instance, e.state).to_lowercase());
            entries.collect::<Vec<_>>().join(", ")
        };
        self.sites.iter().map(|s| format!("[{}]", site(s))).collect::<Vec<_>>().join(" ")
    }
}
