//! The journal of a component: its votes and marks, in a file of its own beside the database
//! (paper, §3.5).
//!
//! It is the engine's log, so many records share a flush, and a torn tail is cut. A record is a
//! line of JSON:
//!
//! ```text
//! {"id":"4f0…"}                                             which journal this is
//! {"vote":{"root":"r","nonce":7,"parents":["shop"],"children":[["payment",3]]}}
//! {"held":["r","cognate-composite:stock:3:17:9f…","{…}"]}     a branch of r, and what its slot says
//! {"mark":["r",{"UndoneOf":7}]}                             calls of r are refused, 7 is undone
//! {"end":["r",true]}                                        r has ended; true: committed
//! {"quiet":[4,["r"]]}      generation 4 has given no yes to any root that is not over, but to r
//! "voting"                 from here on it may have
//! ```
//!
//! A vote is there only if the slots do not say it (see `votes`). Votes, branches and marks are
//! waited for. An end has no flush of its own, and nobody waits for one: if it is lost, its root is
//! in doubt once more, and its parents still remember. What is older than everything alive is
//! removed, whole segments at a time.
//!
//! Who was promised without a record is said where it costs nothing: at the start, and once no yes
//! was given for a while. The next yes waits until "voting" is durable, and those after it for
//! nothing. So a start knows it unless the process has ended while votes were coming.
//!
//! Invariant: a yes without a record leaves after "voting", the last of these two words in the
//! file then, is durable. Mutex order: `window`, `alive`, `id` are leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cognate_engine::Csn;
use cognate_engine::storage::DurableWait;
use cognate_engine::storage::{Log, LogOptions};
use cognate_env::{Disk, Lock, OpenMode};
use serde::{Deserialize, Serialize};

use crate::name::RootId;
use crate::participant::{ANY_NONCE, Mark, VoteFacts};

/// Bytes of a segment: small, since little is alive at a time.
const SEGMENT_BYTES: u64 = 4 << 20;
/// A file beside the log that says that there is one. It has no bytes.
const BEGUN: &str = "begun";
/// After how many dead records more they are removed, if they fill a segment.
const SWEEP_RECORDS: u64 = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Record {
    Id(String),
    Vote(VoteFacts),
    Held(RootId, String, String),
    Mark(RootId, Mark),
    End(RootId, bool),
    Quiet(u64, Vec<RootId>),
    Voting,
}

/// What a journal said when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Which journal it is; none if it is new.
    pub(crate) id: Option<String>,
    /// Votes whose roots have not ended.
    pub(crate) votes: Vec<VoteFacts>,
    /// Roots whose calls are refused.
    pub(crate) marks: Vec<(RootId, Mark)>,
    /// Branches that may be prepared, by their names: their roots, and what their slots say.
    pub(crate) held: BTreeMap<String, (RootId, String)>,
    /// The roots that a generation had promised when it ended, beside the votes; none if it is not
    /// known.
    pub(crate) promised: Option<(u64, BTreeSet<RootId>)>,
}

/// What the journal says of yeses that have no record.
#[derive(Debug)]
enum Window {
    /// This process has not said anything yet.
    Unsaid,
    /// As the record says.
    Quiet(Record),
    /// They may be given once this record is durable.
    Voting(Csn),
}

/// What must not be removed: the first record of each root that is alive.
#[derive(Debug, Default)]
struct Alive {
    first: HashMap<RootId, Csn>,
    /// The same records by age: no two roots share one.
    by_age: BTreeSet<Csn>,
    /// Up to which record what is dead was to be removed.
    swept: Csn,
    /// What is to be removed once the record that says which journal this is is durable.
    sweep: Option<Sweep>,
}

/// A removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sweep {
    /// Everything up to here is dead.
    dead: Csn,
    /// This has to stay in what is kept.
    id: Csn,
}

impl Alive {
    /// A record of a root, which is its first one if there is none yet.
    fn note(&mut self, root: &RootId, csn: Csn) {
        if !self.first.contains_key(root) {
            self.first.insert(root.clone(), csn);
            self.by_age.insert(csn);
        }
    }

    /// The root is not alive any more. Answers the oldest record that is needed.
    fn forget(&mut self, root: &RootId) -> Option<Csn> {
        if let Some(first) = self.first.remove(root) {
            self.by_age.remove(&first);
        }
        self.by_age.first().copied()
    }

    /// Whether so much more is dead that it is worth removing. Which records are the oldest ones
    /// alive depends on the load: any number may be passed over.
    fn is_due(&mut self, dead: Csn) -> bool {
        let is_due = self.sweep.is_none() && dead >= self.swept + SWEEP_RECORDS;
        if is_due {
            self.swept = dead;
        }
        is_due
    }

    /// What may be removed now that everything up to a record is durable.
    fn due(&mut self, durable: Csn) -> Option<Csn> {
        self.sweep.take_if(|sweep| sweep.id <= durable).map(|sweep| sweep.dead)
    }
}

/// An open journal.
pub(crate) struct Journal {
    log: Log,
    /// The last record that somebody may wait for.
    waited_for: AtomicU64,
    alive: Mutex<Alive>,
    id: Mutex<Option<String>>,
    window: Mutex<Window>,
    _lock: Box<dyn Lock>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("durable", &self.log.durable()).finish_non_exhaustive()
    }
}

/// A journal that cannot be used, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal in {folder}: {why}")]
pub(crate) struct BadJournal {
    folder: String,
    why: String,
}

impl Journal {
    /// Opens the journal in a folder, making an empty one if there is none.
    ///
    /// # Errors
    /// Another process has it open; it is damaged; the folder cannot be read or written.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<(Journal, Found), BadJournal> {
        let bad = |why: String| BadJournal { folder: folder.display().to_string(), why };
        disk.create_dir_all(folder).map_err(|error| bad(error.to_string()))?;
        let lock = disk.lock(&folder.join("lock")).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => bad("another process has it open".to_owned()),
            _ => bad(error.to_string()),
        })?;
        let log_folder = folder.join("log");
        let begun = disk.exists(&folder.join(BEGUN)).map_err(|error| bad(error.to_string()))?;
        let after = first_record(disk.as_ref(), &log_folder).map_err(|error| bad(error.to_string()))?;
        let mut votes: BTreeMap<RootId, VoteFacts> = BTreeMap::new();
        let (mut marks, mut alive, mut found) = (BTreeMap::new(), Alive::default(), Found::default());
        let options =
            LogOptions { segment_bytes: SEGMENT_BYTES, prepare: false, begun, ..LogOptions::default() };
        let log = Log::open(Arc::clone(&disk), &log_folder, after, options, &mut |csn, payload| {
            let record = serde_json::from_slice(payload);
            let damaged = |_| cognate_engine::Error::Undecodable {
                what: "a record that is none of a journal".to_owned(),
                row: None,
            };
            match record.map_err(damaged)? {
                Record::Id(id) => found.id = Some(id),
                Record::Vote(vote) => {
                    alive.note(&vote.root, csn);
                    votes.insert(vote.root.clone(), vote);
                }
                Record::Held(root, name, facts) => {
                    alive.note(&root, csn);
                    found.held.insert(name, (root, facts));
                }
                Record::Mark(root, mark) => {
                    votes.remove(&root);
                    alive.note(&root, csn);
                    marks.insert(root, mark);
                }
                Record::End(root, is_committed) => {
                    votes.remove(&root);
                    found.held.retain(|_, (its, _)| *its != root);
                    let mark = ended(marks.get(&root), is_committed);
                    marks.insert(root, mark);
                }
                Record::Quiet(generation, roots) => {
                    found.promised = Some((generation, roots.into_iter().collect()));
                }
                Record::Voting => found.promised = None,
            }
            Ok(())
        });
        let log = log.map_err(|error| bad(error.to_string()))?;
        if !begun {
            note_log(disk.as_ref(), folder).map_err(|error| bad(error.to_string()))?;
        }
        found.votes = votes.into_values().collect();
        found.marks = marks.into_iter().collect();
        let id = Mutex::new(found.id.clone());
        let (waited_for, alive) = (AtomicU64::new(0), Mutex::new(alive));
        let window = Mutex::new(Window::Unsaid);
        Ok((Journal { log, waited_for, alive, id, window, _lock: lock }, found))
    }

    fn append(&self, record: &Record) -> Result<Csn, cognate_engine::Error> {
        let text = serde_json::to_vec(record).map_err(|_| cognate_engine::Error::Defect("a record"))?;
        let csn = self.log.append(&[&text])?;
        self.waited_for.fetch_max(csn, Ordering::AcqRel);
        Ok(csn)
    }

    fn append_for(&self, root: &RootId, record: &Record) -> Result<DurableWait, cognate_engine::Error> {
        // Together, or a removal in between would take the record for dead.
        let csn = self.with_alive(|alive| {
            let csn = self.append(record)?;
            alive.note(root, csn);
            Ok::<Csn, cognate_engine::Error>(csn)
        })?;
        Ok(self.log.wait_durable(csn))
    }

    fn with_alive<T>(&self, work: impl FnOnce(&mut Alive) -> T) -> T {
        work(&mut self.alive.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often it was flushed since it was opened.
    pub(crate) fn flushes(&self) -> u64 {
        self.log.statistics().batches
    }

    /// Says which journal this is.
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn name(&self, id: &str) -> Result<DurableWait, cognate_engine::Error> {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.to_owned());
        let csn = self.append(&Record::Id(id.to_owned()))?;
        Ok(self.log.wait_durable(csn))
    }

    /// Writes a vote. It may be sent once the answer is over.
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn vote(&self, vote: VoteFacts) -> Result<DurableWait, cognate_engine::Error> {
        let root = vote.root.clone();
        self.append_for(&root, &Record::Vote(vote))
    }

    /// A yes is about to be given that has no record: it may be sent once the answer is over, or at
    /// once if there is none.
    pub(crate) fn voting(&self) -> Option<Result<DurableWait, cognate_engine::Error>> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match *window {
            Window::Voting(since) => since,
            Window::Unsaid | Window::Quiet(_) => match self.append(&Record::Voting) {
                Ok(since) => {
                    *window = Window::Voting(since);
                    since
                }
                Err(error) => return Some(Err(error)),
            },
        };
        (self.log.durable() < since).then(|| Ok(self.log.wait_durable(since)))
    }

    /// Writes that of all roots that are not over only these were promised, by this generation.
    /// From here on a yes without a record waits for [`Journal::voting`].
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn quiet(
        &self,
        generation: u64,
        promised: Vec<RootId>,
    ) -> Result<DurableWait, cognate_engine::Error> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let record = Record::Quiet(generation, promised);
        let csn = self.append(&record)?;
        *window = Window::Quiet(record);
        Ok(self.log.wait_durable(csn))
    }

    /// Writes of a branch; it may be prepared once the answer is over.
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn held(
        &self,
        root: &RootId,
        name: &str,
        facts: &str,
    ) -> Result<DurableWait, cognate_engine::Error> {
        self.append_for(root, &Record::Held(root.clone(), name.to_owned(), facts.to_owned()))
    }

    /// Writes that calls of a root are refused; [`Journal::written`] says when that is durable.
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn mark(&self, root: &RootId, mark: Mark) -> Result<(), cognate_engine::Error> {
        self.append_for(root, &Record::Mark(root.clone(), mark)).map(drop)
    }

    /// Over once all that was written before is durable, but for ends: none of them is flushed by
    /// itself, so waiting for one would be waiting for somebody else's record. It fails once the
    /// log has: what was to be written then has no number that could be waited for.
    pub(crate) fn written(&self) -> DurableWait {
        let last = match self.log.poisoned() {
            Some(_) => Csn::MAX,
            None => self.waited_for.load(Ordering::Acquire),
        };
        self.log.wait_durable(last)
    }

    /// Writes that a root has ended. Nobody waits for that.
    pub(crate) fn end(&self, root: &RootId, is_committed: bool) {
        if !self.with_alive(|alive| alive.first.contains_key(root)) {
            return;
        }
        let text = serde_json::to_vec(&Record::End(root.clone(), is_committed)).unwrap_or_default();
        // It goes along with the next record that somebody waits for. A flush of its own would hold
        // up the vote that comes next.
        if let Err(error) = self.log.queue_along(&[&text]) {
            tracing::error!("the journal cannot be written: {error}");
        }
    }

    /// Nothing about this root is needed any more.
    pub(crate) fn forget(&self, root: &RootId) {
        // Looked at first: what becomes durable meanwhile may be of a root that is alive.
        let durable = self.log.durable();
        let oldest = self.with_alive(|alive| alive.forget(root));
        let dead = oldest.unwrap_or(durable + 1).saturating_sub(1);
        // Segments are large against records, so it is not worth looking each time.
        let (is_due, removable) = self.with_alive(|alive| (alive.is_due(dead), alive.due(durable)));
        let kept = if is_due { self.keep_id(dead) } else { Ok(()) };
        let removed = removable.map_or(Ok(()), |dead| self.log.remove_before(dead));
        if let Err(error) = kept.and(removed) {
            tracing::warn!("old parts of the journal stay: {error}");
        }
    }

    /// Says once more which journal this is, and who was promised: that must stay in what is kept,
    /// and be durable there before anything is removed.
    fn keep_id(&self, dead: Csn) -> Result<(), cognate_engine::Error> {
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(id) = id {
            let id = self.append(&Record::Id(id))?;
            let last = self.keep_window()?.unwrap_or(id);
            self.with_alive(|alive| alive.sweep = Some(Sweep { dead, id: last }));
        }
        Ok(())
    }

    fn keep_window(&self) -> Result<Option<Csn>, cognate_engine::Error> {
        // Under its mutex, or a record that says something else could be before this one.
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        match &*window {
            Window::Unsaid => Ok(None),
            Window::Quiet(record) => self.append(record).map(Some),
            Window::Voting(_) => self.append(&Record::Voting).map(Some),
        }
    }

    /// Forgets the roots of which nothing was found at a start: what the journal says of a branch,
    /// for example, that was never prepared. Nobody would do so later.
    pub(crate) fn forget_others(&self, is_known: impl Fn(&RootId) -> bool) {
        let others: Vec<RootId> =
            self.with_alive(|alive| alive.first.keys().filter(|root| !is_known(root)).cloned().collect());
        others.iter().for_each(|root| self.forget(root));
    }
}

/// What an end says of a root whose mark may say more.
fn ended(before: Option<&Mark>, is_committed: bool) -> Mark {
    match before {
        _ if is_committed => Mark::Committed,
        Some(undone @ Mark::Undone(_)) => *undone,
        Some(Mark::Empty | Mark::Committed) | None => Mark::Undone(Some(ANY_NONCE)),
    }
}

/// Notes durably that there is a log, whose first segment is durable: from here on it is missed if
/// it is gone.
fn note_log(disk: &dyn Disk, folder: &Path) -> std::io::Result<()> {
    disk.open(&folder.join(BEGUN), OpenMode::Truncate)?.sync_data()?;
    disk.sync_dir(folder)
}

/// The number before the first record of the first segment.
fn first_record(disk: &dyn Disk, folder: &Path) -> std::io::Result<Csn> {
    let segments = if disk.exists(folder)? { disk.list(folder)? } else { Vec::new() };
    let firsts =
        segments.iter().filter_map(|name| cognate_engine::storage::segment::parse_segment_name(name));
    Ok(firsts.min().unwrap_or(1).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_record_that_is_needed_is_known() {
        let root = |name: &str| RootId::new(name).unwrap();
        let mut alive = Alive::default();
        for (name, csn) in [("a", 5), ("b", 6), ("a", 7), ("c", 9)] {
            alive.note(&root(name), csn);
        }
        assert_eq!(alive.forget(&root("b")), Some(5));
        assert_eq!(alive.forget(&root("a")), Some(9), "a root's first record counts");
        assert_eq!(alive.forget(&root("nobody")), Some(9));
        assert_eq!(alive.forget(&root("c")), None);
    }

    /// With one root after the other, the oldest record alive has every second number only.
    #[test]
    fn what_is_dead_is_removed_whatever_numbers_the_oldest_records_have() {
        let mut alive = Alive::default();
        let due: Vec<Csn> = (1..=9001).step_by(2).filter(|dead| alive.is_due(*dead)).collect();
        assert_eq!(due, [4097, 8193]);
        // Nothing goes before the journal's name is durable behind it.
        alive.sweep = Some(Sweep { dead: 8193, id: 9002 });
        assert!(!alive.is_due(20_000), "one removal at a time");
        assert_eq!((alive.due(9001), alive.due(9002), alive.due(9002)), (None, Some(8193), None));
        assert!(alive.is_due(20_000));
    }

    #[tokio::test]
    async fn nobody_waits_for_an_end_and_it_is_there_after_a_close() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(Arc::new(cognate_env::RealDisk), folder.path()).unwrap();
        let root = |name: &str| RootId::new(name).unwrap();
        let facts = |name: &str| VoteFacts {
            root: root(name),
            nonce: Some(7),
            parents: Vec::new(),
            children: Vec::new(),
            origins: Vec::new(),
        };
        let (journal, _) = open();
        for name in ["a", "b"] {
            journal.vote(facts(name)).unwrap().await.unwrap();
        }
        journal.end(&root("a"), true);
        let written = std::pin::pin!(journal.written());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(written.poll(&mut context).is_ready(), "what was to be waited for is durable");
        drop(journal);
        let (_, found) = open();
        let votes: Vec<RootId> = found.votes.iter().map(|vote| vote.root.clone()).collect();
        assert_eq!((votes, found.marks), (vec![root("b")], vec![(root("a"), Mark::Committed)]));
    }

    /// What it said before is not to be taken for nothing. Without the whole folder it is new.
    #[test]
    fn a_journal_without_the_log_that_it_had_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(Arc::new(cognate_env::RealDisk), folder.path());
        drop(open().unwrap());
        drop(open().unwrap());
        let log = folder.path().join("log");
        std::fs::remove_dir_all(&log).unwrap();
        let missing = open().unwrap_err().to_string();
        assert!(missing.contains("the log is missing, and there was one"), "{missing}");
        assert!(!log.exists(), "the refusal makes none");
        std::fs::create_dir(&log).unwrap();
        let empty = open().unwrap_err().to_string();
        assert!(empty.contains("the log has no segment, and there was one"), "{empty}");
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(open().unwrap().1.id, None);
    }

    async fn begin_to_vote(journal: &Journal) {
        if let Some(written) = journal.voting() {
            written.unwrap().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_start_knows_who_was_promised_unless_votes_were_coming() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(Arc::new(cognate_env::RealDisk), folder.path()).unwrap();
        let root = |name: &str| RootId::new(name).unwrap();
        let (journal, found) = open();
        assert_eq!(found.promised, None, "an earlier build may have given any");
        journal.name("j").unwrap().await.unwrap();
        journal.quiet(3, Vec::new()).unwrap().await.unwrap();
        drop(journal);
        let (journal, found) = open();
        assert_eq!(found.promised, Some((3, BTreeSet::new())));
        journal.quiet(4, Vec::new()).unwrap().await.unwrap();
        // The first yes waits until that is durable, and no other one.
        begin_to_vote(&journal).await;
        assert!(journal.voting().is_none());
        drop(journal);
        let (journal, found) = open();
        assert_eq!(found.promised, None);
        begin_to_vote(&journal).await;
        journal.quiet(5, vec![root("r")]).unwrap().await.unwrap();
        // What is said once more where old parts are removed is what was said.
        journal.keep_id(1).unwrap();
        journal.written().await.unwrap();
        drop(journal);
        let (journal, found) = open();
        assert_eq!(found.promised, Some((5, BTreeSet::from([root("r")]))));
        begin_to_vote(&journal).await;
        journal.keep_id(1).unwrap();
        journal.written().await.unwrap();
        drop(journal);
        assert_eq!(open().1.promised, None);
    }

    /// What an end says is less than the mark before it. Earlier builds have not written what was
    /// undone.
    #[tokio::test]
    async fn a_mark_says_what_was_undone_also_after_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(Arc::new(cognate_env::RealDisk), folder.path()).unwrap();
        let root = |name: &str| RootId::new(name).unwrap();
        let [known, none, any] = [Some(7), None, Some(ANY_NONCE)].map(Mark::Undone);
        let (journal, _) = open();
        for (name, mark) in [("a", known), ("b", none), ("c", any), ("d", Mark::Empty)] {
            journal.mark(&root(name), mark).unwrap();
            journal.end(&root(name), false);
        }
        journal.written().await.unwrap();
        drop(journal);
        let marks = [("a", known), ("b", none), ("c", any), ("d", any)];
        assert_eq!(open().1.marks, marks.map(|(name, mark)| (root(name), mark)));
        let earlier: Record = serde_json::from_str(r#"{"mark":["r","Undone"]}"#).unwrap();
        assert!(matches!(earlier, Record::Mark(_, mark) if mark == any));
    }

    /// A branch is written of before it is prepared. If the process ends in between, nobody
    /// remembers its root, and its record must not keep all later ones.
    #[tokio::test]
    async fn a_branch_that_was_never_prepared_is_forgotten_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(Arc::new(cognate_env::RealDisk), folder.path()).unwrap();
        let root = |name: &str| RootId::new(name).unwrap();
        let (journal, _) = open();
        journal.held(&root("a"), "branch", "{}").unwrap().await.unwrap();
        journal.mark(&root("b"), Mark::Undone(None)).unwrap();
        journal.written().await.unwrap();
        drop(journal);
        let (journal, found) = open();
        assert_eq!(found.held.len(), 1);
        journal.forget_others(|its| *its == root("b"));
        let alive: Vec<RootId> = journal.with_alive(|alive| alive.first.keys().cloned().collect());
        assert_eq!(alive, [root("b")]);
    }
}
