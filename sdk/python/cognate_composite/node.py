"""A running component: what its participant wants done is done here.

The participant is told under one lock, and what it wants done is begun under the same one, in its order: votes and
marks are written to the journal at once, everything else that takes time becomes a thread and tells the participant
when it is done.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

import psycopg

from .database import NotCommitted, Pool, Transaction
from .hold import Hold
from .journal import BadJournal, Journal
from .locks import Obstacle
from .participant import Effects, Participant
from .peers import Peers
from .problem import Problem, is_of_cast, of
from .root import Origin, Vote, VoteFacts
from .service import Service, Undo
from .sessions import FENCED
from .slots import UNDONE, Facts, Fenced, Slots

log = logging.getLogger("cognate_composite")

# The longest time that a root has, and how long marks outlast it, in seconds.
DEADLINE_MAX = 60.0
_LATE = 10.0
# How much longer a call waits for another one of its own root, in seconds. To begin the root again would not help it:
# they would meet again.
_SIBLING = 5.0
# How often slots are freed, and answers whose time is over removed.
_SWEEP = 0.05
_SWEEP_ANSWERS = 60.0
# How often a process that nobody asks looks whether a later one has taken the component over, in seconds.
_LOOK = 5.0
# Seconds between two looks whether a later process waits for the folder.
_WATCH = 0.1
# How long one attempt to undo a call may take, in seconds: nothing else ends it.
_UNDO_WITHIN = 60.0
# An undo that has failed so often is parked.
_UNDO_ATTEMPTS = 8


def pause(attempt: int, first: float, longest: float) -> None:
    """Sleeps before an attempt, longer each time, so that those who met do not meet again; not before the first."""
    if attempt > 1:
        time.sleep(min(longest, first * 2 ** min(attempt - 2, 16)) * random.uniform(0.5, 1))


def again(attempt: int) -> None:
    """Between repetitions of what must get through."""
    pause(attempt, 0.05, 2)


def retry(attempt: int) -> None:
    """Between attempts of local transactions and roots."""
    pause(attempt, 0.004, 0.25)


@dataclass
class UnderWay:
    """A call under way: what its thread listens to."""

    # None once it has its lock, or why it is refused.
    start: Future = field(default_factory=Future)
    # Whether the root is decided, or given up.
    verdict: SimpleQueue = field(default_factory=SimpleQueue)
    work: Transaction | None = None
    is_cancelled: bool = False


@dataclass(frozen=True)
class Parked:
    """An undo that does not succeed."""

    root: str
    call: str
    slot: int
    why: str
    resume: threading.Event = field(default_factory=threading.Event)
    # A person has undone it: nothing is left but to free its slot.
    by_hand: threading.Event = field(default_factory=threading.Event)


class Node:
    """A component that runs."""

    def __init__(
        self,
        name: str,
        services: dict[str, Service],
        pool: Pool,
        slots: Slots,
        journal: Journal,
        hold: Hold,
        peers: Peers,
        participant: Participant,
        lock_wait: float,
    ) -> None:
        self.name, self.services, self.peers = name, services, peers
        self.generation = slots.generation
        self.is_fenced = threading.Event()
        self.parked: list[Parked] = []
        self.pool, self.slots, self._journal, self._hold = pool, slots, journal, hold
        self.participant, self._lock_wait = participant, lock_wait
        self.lock = threading.RLock()
        self._defect: str | None = None
        self.under_way: dict[tuple[str, str], UnderWay] = {}
        self._votes: dict[tuple[str, str], list[Future]] = {}
        # What the slots of answered calls say.
        self.facts: dict[str, dict[str, tuple[int, Facts]]] = {}
        # Abort messages under way, of the roots that begin here: their clients are answered after them.
        self.aborts: dict[str, list[threading.Thread]] = {}
        # Why roots can only be aborted: the first call that has failed.
        self._noes: dict[str, Problem] = {}
        # Where the parents decide that have asked for votes, by root and parent; and who was not believed since.
        self.origins: dict[str, dict[str, Origin]] = {}
        self._forsaken: dict[str, str] = {}
        # Calls that a person has undone by hand, of roots whose slots are being freed.
        self._by_hand: dict[str, list[str]] = {}
        # When roots began here, and when their time is over.
        self._times: dict[str, tuple[float, float]] = {}
        self._timers: list[tuple[float, int, str, tuple]] = []
        self._count = itertools.count()

    # What happens, and what is to be done.

    def tell(self, event: str, *details: Any) -> Effects:
        """Tells the participant what has happened; what it wants done is begun. Answers what that is."""
        with self.lock:
            self.check()
            try:
                effects = getattr(self.participant, event)(*details)
                self.perform(effects)
                return effects
            except BadJournal as error:
                # Nothing may be said any more: what was promised cannot be written.
                self._defect = str(error)
                log.error("component %s: %s", self.name, error)
                raise Problem(503, "journal", str(error)) from error
            except Exception as error:
                self._defect = f"the component has failed before, and says nothing more: {error!r}"
                log.exception("component %s has failed", self.name)
                raise

    def stop(self) -> None:
        """Says nothing more, and lets another process have journal and database."""
        with self.lock:
            self._defect = self._defect or "the component has stopped"
            self._journal.close()
            self._hold.close()
        self.pool.close()

    def check(self) -> None:
        """After a defect nothing is said any more."""
        if self._defect:
            raise Problem(503, "defect", self._defect)

    def perform(self, effects: Effects) -> None:
        """Begins what is to be done, in its order."""
        for what, root, *rest in effects:
            getattr(self, f"_do_{what}")(root, *rest)

    def begin(self, rows: list, effects: Effects) -> None:
        """Begins what a recovered participant wants done, and looks at timers from now on."""
        with self.lock:
            now = time.monotonic()
            for row in rows:
                self.time(row.root, now + row.facts.deadline_ms / 1000)
                self.facts.setdefault(row.root, {})[row.facts.call] = (row.slot, row.facts)
            for root in self.participant.marks:
                self._later(now + DEADLINE_MAX + _LATE, "mark_over", root)
            self.perform(effects)
        self._spawn(self._keep_time)
        self._spawn(self._sweep)
        self._spawn(self._watch)

    def _spawn(self, work: Callable, *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except Problem as problem:
                log.warning("component %s: %s", self.name, problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _later(self, at: float, event: str, *details: str) -> None:
        heapq.heappush(self._timers, (at, next(self._count), event, details))

    def time(self, root: str, deadline: float) -> None:
        """The root's time at this component."""
        begun, known = self._times.get(root, (time.monotonic(), deadline))
        self._times[root] = (begun, max(known, deadline))
        self._later(deadline, "deadline", root)

    def _keep_time(self) -> None:
        while not self._defect:
            with self.lock:
                while self._timers and self._timers[0][0] <= time.monotonic():
                    _, _, event, details = heapq.heappop(self._timers)
                    if event == "waited":
                        event = "waited_enough"
                        if self.participant.waits_for_sibling(*details):
                            self._later(time.monotonic() + _SIBLING, event, *details)
                            continue
                    self.tell(event, *details)
                    if event == "mark_over" and details[0] in self.participant.roots:
                        # It is still being undone, and a start has to know that.
                        self._later(time.monotonic() + _LATE, event, *details)
                    elif event == "mark_over":
                        self._journal.forget(*details)
                    elif event == "deadline" and details[0] not in self.participant.roots:
                        # All its calls were refused, so it has never been forgotten.
                        self._times.pop(*details, None)
            time.sleep(0.01)

    def _watch(self) -> None:
        while not self._defect and not self.is_fenced.is_set():
            time.sleep(_WATCH)
            if self._hold.is_claimed():
                self.fence()

    def _sweep(self) -> None:
        swept = looked = time.monotonic()
        while not self._defect and not self.is_fenced.is_set():
            time.sleep(_SWEEP)
            try:
                for root in self.slots.free_now(self.pool):
                    self.tell("freed", root)
                if time.monotonic() - swept > _SWEEP_ANSWERS:
                    swept = time.monotonic()
                    self.slots.sweep_answers(self.pool)
                if time.monotonic() - looked > _LOOK:
                    looked = time.monotonic()
                    self._is_current()
            except Fenced:
                self.fence()
            except (psycopg.Error, Problem) as error:
                log.warning("slots cannot be freed yet: %s", error)
                time.sleep(1)

    def _is_current(self) -> bool:
        """Whether no later process has taken the component over. Without an answer of the database that is not known,
        and so it is not."""
        try:
            # Others wait for whoever asks.
            self.pool.run(self.slots.fence(), is_within=True)
            return True
        except (psycopg.Error, Problem) as error:
            self.of_ours(error)
            return False

    def fence(self) -> None:
        """Another process has the component: this one takes no calls any more."""
        if not self.is_fenced.is_set():
            log.error("another process has taken component %s over; this one ends", self.name)
            self.is_fenced.set()

    # Effects. Each is done by the method of its name.

    def _do_run(self, root: str, call: str) -> None:
        self._start(root, call, None)

    def _do_refuse(self, root: str, call: str, why: str | Obstacle) -> None:
        self._start(root, call, why)

    def _start(self, root: str, call: str, why: str | Obstacle | None) -> None:
        under_way = self.under_way.get((root, call))
        if under_way and not under_way.start.done():
            under_way.start.set_result(why)

    def _do_wait(self, root: str, call: str) -> None:
        self._later(time.monotonic() + self._lock_wait, "waited", root, call)

    def _do_repeat(self, root: str, call: str, answer: str) -> None:
        """Whoever has told the event takes it from the answer; the same holds for `answer` and `send_settled`."""

    _do_answer = _do_repeat
    _do_send_settled = _do_repeat

    def _do_cancel(self, root: str, call: str) -> None:
        under_way = self.under_way.get((root, call))
        if under_way:
            under_way.is_cancelled = True
            under_way.verdict.put(False)
            if under_way.work:
                self._spawn(under_way.work.cancel)

    def _do_decide(self, root: str, call: str) -> None:
        self.under_way[root, call].verdict.put(True)

    def _do_ask_vote(self, root: str, child: str, calls: int, generation: int | None) -> None:
        def ask() -> None:
            vote, why = self.peers.prepare(child, root, calls, generation)
            if why is not None:
                self.note_no(root, why)
            self.tell("voted", root, child, vote)

        self._spawn(ask)

    def _do_write_vote(self, root: str, nonce: int | None) -> None:
        known = self.participant.roots[root]
        children = [(name, child.nonce) for name, child in known.children.items() if child.nonce is not None]
        origins = list(self.origins.get(root, {}).items())
        self._journal.vote(VoteFacts(root, nonce, list(known.parents), children, origins))
        # What has slots is fenced by them. Locks that are in this process only may have been given to others by a
        # later process since.
        if not self.participant.has_slotless(root):
            self.tell("vote_written", root)
            return

        def check() -> None:
            self.tell("vote_written" if self._is_current() else "vote_failed", root)

        self._spawn(check)

    def _do_send_vote(self, root: str, parent: str, vote: Vote) -> None:
        for waiting in self._votes.pop((root, parent), []):
            waiting.set_result(vote)

    def _do_mark(self, root: str, mark: str) -> None:
        _, deadline = self._times.get(root, (0, time.monotonic() + DEADLINE_MAX))
        self._mark_until(deadline, root)
        self._journal.mark(root, mark)

    def _mark_until(self, deadline: float, root: str) -> None:
        """Has a mark end. A root that was in doubt may have ended long after its time: its parent, who is back, is not to
        hear at once that all is done."""
        self._later(max(deadline, time.monotonic()) + _LATE, "mark_over", root)

    def _do_forget(self, root: str, is_committed: bool) -> None:
        _, deadline = self._times.pop(root, (0, time.monotonic()))
        self.facts.pop(root, None)
        self.origins.pop(root, None)
        self._noes.pop(root, None)
        self._forsaken.pop(root, None)
        self._by_hand.pop(root, None)
        self._mark_until(deadline, root)
        self._journal.end(root, is_committed)

    def _do_free(self, root: str, slots: list[int]) -> None:
        self.slots.free_later(root, slots)

    def _do_note(self, root: str, slots: list[int]) -> None:
        def note() -> None:
            for attempt in itertools.count(1):
                again(attempt)
                try:
                    if self.slots.note(self.pool, root, slots):
                        self.tell("noted", root)
                    # Otherwise it is over, which is more than was to be said.
                    return
                except (psycopg.Error, Problem) as error:
                    log.warning("slots of root %s cannot be written yet: %s", root, error)

        self._spawn(note)

    def _do_tell_commit(self, root: str, child: str, nonce: int | None) -> None:
        def tell() -> None:
            for attempt in itertools.count(1):
                again(attempt)
                settled = self.peers.commit(child, root, nonce)
                if settled in ("done", "refused"):
                    if settled == "refused":
                        log.error("root %s is committed, and %s says that it has undone it", root, child)
                    return self.tell("told", root, child, settled)

        self._spawn(tell)

    def _do_tell_abort(self, root: str, child: str) -> None:
        def tell() -> None:
            # If it does not get through, the component finds out by its deadline, or asks.
            for attempt in range(1, 6):
                again(attempt)
                # A later process may have found its decision.
                if self.is_fenced.is_set() or self.peers.abort(child, root) in ("done", "refused"):
                    return

        thread = self._spawn(tell)
        if root in self.aborts:
            self.aborts[root].append(thread)

    def _do_ask_outcome(self, root: str, parent: str, nonce: int | None) -> None:
        def ask() -> None:
            for attempt in itertools.count(1):
                again(attempt)
                with self.lock:
                    if not self.participant.is_in_doubt(root):
                        return
                    callers = self.participant.callers(root, parent)
                outcome, origin = self.peers.outcome(parent, root, nonce, callers)
                if outcome == "aborted" and not self._may_believe(root, parent, origin):
                    continue
                if outcome:
                    self.tell("learned", root, parent, outcome)

        self._spawn(ask)

    def only_parent(self, root: str) -> str:
        """Whoever tells an outcome without saying who it is: the root's only parent, if it has one."""
        with self.lock:
            known = self.participant.roots.get(root)
            parents = list(known.parents) if known else []
            return parents[0] if len(parents) == 1 else self.name

    def may_say(self, root: str, parent: str, origin: Origin | None) -> bool:
        """Whether who says something of a root there, under the name of a parent, is whoever has asked for a vote under
        it, or came later. A process that was taken over may not know so yet."""
        with self.lock:
            asked = self.origins.get(root, {}).get(parent)
            return asked is None or origin is None or origin.speaks_for(asked)

    def _may_believe(self, root: str, parent: str, origin: Origin | None) -> bool:
        """Whether a parent that knows nothing of a root has never decided about it. One that was replaced, or restored
        from an earlier copy, may have: the root stays in doubt, and a person settles it."""
        with self.lock:
            if self.may_say(root, parent, origin):
                return True
            if self.participant.is_in_doubt(root) and self._forsaken.get(root) != parent:
                self._forsaken[root] = parent
                log.error(
                    "root %s is in doubt, and %s has another database, or an earlier copy of it: settle it by hand",
                    root,
                    parent,
                )
            return False

    def _do_undo(self, root: str, call: str) -> None:
        slot, facts = self.facts[root][call]
        self._spawn(self._undo, root, call, slot, facts)

    def _undo(self, root: str, call: str, slot: int, facts: Facts) -> None:
        """Undoes a call until it is done; too many failures park it until a person says more."""
        failures, met = 0, 0
        while (problem := self._undo_once(root, slot, facts)) is not None:
            if problem.is_transient:
                # It met another local transaction, which is nobody's fault.
                met += 1
                retry(met + 1)
                continue
            if problem.reason == "database":
                # Its database is away: that passes, and a person could do nothing else.
                met += 1
                again(met + 1)
                continue
            failures += 1
            again(failures + 1)
            log.warning("call %s of root %s cannot be undone yet: %s", call, root, problem)
            if failures % _UNDO_ATTEMPTS == 0:
                log.error('parked: resume it by POST /composite/resume {"slot":%d}', slot)
                parked = Parked(root, call, slot, str(problem))
                with self.lock:
                    self.parked.append(parked)
                parked.resume.wait()
                if parked.by_hand.is_set():
                    facts = replace(facts, undo=[])
        self.slots.released(slot)
        with self.lock:
            self.facts.get(root, {}).pop(call, None)
            self.tell("undone", root, call)

    def _undo_once(self, root: str, slot: int, facts: Facts) -> Problem | None:
        """Why it is not undone."""
        service = self.services.get(facts.service)
        if service is None:
            return Problem(400, "failed", f"the component has no service {facts.service}")
        work = Transaction(self.pool, "serializable" if service.reads else service.isolation)
        bound = threading.Timer(_UNDO_WITHIN, work.cancel)
        bound.daemon = True
        bound.start()
        try:
            for pushed in reversed(facts.undo):
                service.undo_one(Undo(work), pushed)
            work.commit([self.slots.release(slot, root)])
            return None
        except NotCommitted as error:
            # Otherwise an earlier attempt, whose answer was lost, has come through after all.
            return None if is_of_cast(error.cause, UNDONE) else self.after_slot(error, slot, None)
        except Exception as error:
            return of(error)
        finally:
            bound.cancel()
            work.roll_back()

    def after_slot(self, error: NotCommitted, slot: int, root: str | None) -> Problem | None:
        """What a failed commit that wrote a slot means: nothing if it holds this root (or none, as it should)."""
        if error.cause is None:
            for attempt in itertools.count(1):
                again(attempt)
                try:
                    if self.slots.holder(self.pool, slot) == root:
                        return None
                    return Problem(503, "database", "the connection was lost before COMMIT")
                except Fenced as problem:
                    self.fence()
                    return problem
                except (psycopg.Error, Problem) as problem:
                    log.warning("whether slot %d was written is not known yet: %s", slot, problem)
        return self.of_ours(error.cause)

    def of_ours(self, cause: Exception | None) -> Problem:
        """A statement of ours says so if the component has another generation."""
        if is_of_cast(cause, FENCED):
            self.fence()
            return Fenced()
        return of(cause or Problem(503, "database", "the connection was lost before COMMIT"))

    def may_call(self, root: str, call: str, child: str) -> bool:
        """Whether a call that runs may call this child now."""
        with self.lock:
            return self.participant.may_call(root, call, child)

    def note_no(self, root: str, why: Problem) -> None:
        """Keeps why a root can only be aborted, as it was said first."""
        with self.lock:
            if root in self.participant.roots:
                self._noes.setdefault(root, why)

    def why_lost(self, root: str) -> Problem | None:
        """Why a root can only be aborted, if a call has failed whose failure its service may have kept to itself."""
        with self.lock:
            why = self._noes.get(root)
        # Each is raised, and changed, by itself.
        return why and Problem(why.status, why.reason, why.detail, holder=why.holder, item=why.item, began=why.began)

    def has_called(self, root: str, call: str) -> bool:
        """Whether a call that runs may have left anything elsewhere."""
        with self.lock:
            return self.participant.has_called(root, call)

    # What others ask, and tell.

    def vote(
        self, root: str, parent: str, calls: int, generation: int | None, origin: Origin | None = None
    ) -> Future:
        """Who asks for a vote waits for it here."""
        waiting: Future = Future()
        with self.lock:
            # A question of an earlier process may come late.
            known = self.origins.get(root, {}).get(parent)
            is_late = known is not None and origin is not None and known.speaks_for(origin)
            if origin is not None and root in self.participant.roots and not is_late:
                self.origins.setdefault(root, {})[parent] = origin
            self._votes.setdefault((root, parent), []).append(waiting)
            # JSON's numbers are exact up to here everywhere; 0 stands for any.
            self.tell("prepare", root, parent, calls, generation, secrets.randbelow(2**53 - 1) + 1)
        return waiting

    def settled(self, event: str, root: str, *details: Any) -> str:
        """Tells an outcome; answers what is said to that."""
        with self.lock:
            effects = self.tell(event, root, *details)
            has_committed = self.participant.has_committed(root)
        said = [rest[-1] for what, its_root, *rest in effects if what == "send_settled" and its_root == root]
        settled = said[0] if said else "pending"
        if event != "commit_told" or settled == "pending" or (settled == "done" and has_committed):
            return settled
        # What is committed is none of what was promised here, also if nothing is known of it: a later process may have
        # promised it. Its parent forgets it after this answer, and that one would hear that it is aborted.
        return settled if self._is_current() else "pending"

    def outcome(self, root: str, child: str, nonce: int | None, callers: list[str]) -> str:
        """What is known here of a root's outcome."""
        with self.lock:
            self.check()
            return self.participant.outcome(root, child, nonce, callers)

    def settle(self, root: str, outcome: str, until: float) -> str | None:
        """A person decides what no parent has said, or has undone by hand what is parked; nothing if there is no such thing.
        Nobody says it again: it is `done` when the next start finds it, and `pending` if the database has not taken it until
        then. It goes on, and the person may ask again."""
        with self.lock:
            parked = [one for one in self.parked if one.root == root] if outcome == "aborted" else []
            for one in parked:
                self.parked.remove(one)
                one.by_hand.set()
                one.resume.set()
                self._by_hand.setdefault(root, []).append(one.call)
            calls = list(self._by_hand.get(root, [])) if outcome == "aborted" else []
            if not calls and not (outcome == "committed" and self.participant.is_settled(root)):
                if not self.participant.is_in_doubt(root):
                    return None
                self.tell("learned", root, None, outcome)
        known = self.participant
        return self._lasting(until, lambda: not (known.is_settled(root) or known.has_any(root, calls)))

    def _lasting(self, until: float, is_it: Callable[[], bool]) -> str:
        """Waits until something is so, or until then."""
        while True:
            with self.lock:
                if is_it():
                    return "done"
            if time.monotonic() >= until:
                return "pending"
            time.sleep(0.01)

    def resume(self, slot: int) -> bool:
        """Tries a parked undo again."""
        with self.lock:
            found = [parked for parked in self.parked if parked.slot == slot]
            self.parked = [parked for parked in self.parked if parked.slot != slot]
        for parked in found:
            parked.resume.set()
        return bool(found)

    def status(self) -> dict[str, Any]:
        """The open roots, for people."""
        with self.lock:
            now, roots = time.monotonic(), self.participant.shown()
            for shown in roots:
                begun, _ = self._times.get(shown["root"], (now, now))
                shown["age_ms"] = int((now - begun) * 1000)
                if shown["root"] in self._forsaken:
                    shown["forsaken_by"] = self._forsaken[shown["root"]]
            parked = [
                {
                    "root": one.root,
                    "call": one.call,
                    "slot": one.slot,
                    "why": one.why,
                    "resume": f'POST /composite/resume {{"slot":{one.slot}}}',
                    "settle": f"POST /composite/settle {json.dumps({'root': one.root, 'outcome': 'aborted'})}",
                }
                for one in self.parked
            ]
        return {
            "component": self.name,
            "generation": self.generation,
            "fenced": self.is_fenced.is_set(),
            "roots": roots,
            "in_doubt": sum(shown["state"] == "in-doubt" for shown in roots),
            "undo_backlog": sum(shown["state"] == "aborting" for shown in roots),
            "parked": parked,
        }
