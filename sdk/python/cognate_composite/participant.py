"""A component's part in composite transactions: calls, locks, votes and outcomes as events in, effects out.

Pure: it knows no clock, no network, no disk and no database. Each public method is something that has happened, and
answers what is to be done, in this order, as tuples whose first word says what:

```text
run, refuse (why), repeat (answer), answer, cancel, wait             to one call of this component
ask_vote, tell_commit, tell_abort                                    to a child         answered by voted, told
send_vote, send_settled, ask_outcome                                 to a parent        the last answered by learned
write_vote, mark, undo, free, note, decide, forget                   to journal and database
```

Invariants: a call that runs or was answered holds its lock until its root ends here. A yes is durable before it is
sent, and after it only a parent's word ends the root. Whoever was sent a call is asked and told at the end, also if
he answered none. A committed root is forgotten when all children are done and its own slots are free, in this order;
so an unknown root was aborted. Whoever says that a root has ended leaves a mark first, so that nothing late of it runs.

One history: `shop` begins root r and calls `stock`.

```text
shop   arrive(1) ─▶ run   finish ─▶ ask_vote(stock, 1)             voted ─▶ decide   committed ─▶ answer, tell_commit
stock  arrive(1.1) ─▶ run   committed ─▶ answer   prepare(1) ─▶ write_vote   vote_written ─▶ send_vote(yes)
stock  commit_told ─▶ free, send_settled(pending)   freed ─▶ forget   commit_told ─▶ send_settled(done)
shop   told(done) ─▶ free   freed ─▶ forget
```
"""

from __future__ import annotations

from collections.abc import Sequence

from .locks import Arrival, Locks, Obstacle
from .matrix import Matrix
from .root import (
    ABORTING,
    ACTIVE,
    ANSWERED,
    ANY_NONCE,
    COMMITTED,
    DECIDING,
    PREPARING,
    RUNNING,
    UNDOING,
    WAITING,
    Call,
    Child,
    Parent,
    Root,
    SlotFacts,
    Vote,
    VoteFacts,
)

# A parent that says so again is in no cycle with what it waits for, more often than not.
_COMMITS_BEFORE_NOTE = 2

Effects = list[tuple]


class Participant:
    """One component."""

    def __init__(self, matrix: Matrix, generation: int) -> None:
        self.generation = generation
        self.roots: dict[str, Root] = {}
        # Roots of which no call is taken any more: `empty` (nothing was executed), `undone`, `committed`.
        self.marks: dict[str, str] = {}
        self._locks = Locks(matrix)
        # Calls that wait for locks, the longest waiting first.
        self._waiting: list[tuple[str, str]] = []
        self._sequence = 0

    # Calls.

    def arrive(self, arrival: Arrival) -> Effects:
        """A call has come, or begins a root here."""
        root, call = arrival.root, arrival.call

        def refuse(why: str | Obstacle) -> Effects:
            return [("refuse", root, call, why)]

        if root in self.marks:
            return refuse("ended")
        known = self.roots.get(root)
        if known:
            before = known.calls.get(call)
            if before:
                its = before.arrival
                if (its.service, its.arguments) != (arrival.service, arrival.arguments):
                    return refuse("arguments")
                if before.stage == ANSWERED:
                    return [("repeat", root, call, before.answer)]
                return refuse("ended" if before.stage == UNDOING else "running")
            if known.phase != ACTIVE or known.is_doomed:
                return refuse("ended")
        entered, obstacle = Call(arrival), self._locks.look(arrival)
        if obstacle is None:
            self._take(entered)
            out: Effects = [("run", root, call)]
        elif obstacle.kind == "ancestor":
            # It does not end before this call does.
            return refuse(obstacle)
        else:
            entered.stage = WAITING
            self._waiting.append((root, call))
            out = [("wait", root, call)]
        if known is None:
            known = self.roots[root] = Root(began=call if arrival.parent is None else None)
        if arrival.parent is not None:
            known.parents.setdefault(arrival.parent, Parent())
        known.calls[call] = entered
        return out

    def _take(self, call: Call) -> None:
        self._sequence += 1
        call.stage, call.sequence = RUNNING, self._sequence
        self._locks.hold(call.arrival, runs=True)

    def waits_for_sibling(self, root: str, call: str) -> bool:
        """Whether a call waits for another one of its own root, and for nobody else."""
        known = self.roots.get(root)
        waiting = known.calls.get(call) if known else None
        if waiting is None or waiting.stage != WAITING:
            return False
        obstacle = self._locks.look(waiting.arrival)
        return obstacle is not None and obstacle.kind == "sibling"

    def waited_enough(self, root: str, call: str) -> Effects:
        """A call that waits for its lock has waited long enough."""
        known = self.roots.get(root)
        waiting = known.calls.get(call) if known else None
        if waiting is None or waiting.stage != WAITING:
            return []
        obstacle = self._locks.look(waiting.arrival)
        del known.calls[call]
        self._waiting.remove((root, call))
        self._drop_if_empty(root)
        return [("refuse", root, call, obstacle or "late")]

    def _wake(self, out: Effects) -> None:
        """Lets those run whose locks have become free, the longest waiting first."""
        for root, call in list(self._waiting):
            waiting = self.roots[root].calls[call]
            if self._locks.look(waiting.arrival) is None:
                self._take(waiting)
                self._waiting.remove((root, call))
                out.append(("run", root, call))

    def may_call(self, root: str, call: str, child: str) -> bool:
        """Whether a call that runs may call this child now. From then on the child belongs to the root."""
        known = self.roots.get(root)
        if known is None or known.phase != ACTIVE or known.is_doomed:
            return False
        running = known.calls.get(call)
        if running is None or running.stage != RUNNING:
            return False
        running.children.setdefault(child, 0)
        known.children.setdefault(child, Child()).sent += 1
        return True

    def has_called(self, root: str, call: str) -> bool:
        """Whether a call has called anybody. Whom no call could be sent to is nobody."""
        known = self.roots.get(root)
        return known is not None and call in known.calls and bool(known.calls[call].children)

    def called(self, root: str, call: str, child: str, sent: str, generation: int = 0) -> Effects:
        """What became of a call: `answered` by this generation, `left nothing`, `not sent`, or `failed`."""
        # The root may have been aborted while the answer was on its way.
        known = self.roots.get(root)
        if known is None:
            return []
        if sent == "answered":
            if call in known.calls:
                children = known.calls[call].children
                children[child] = children.get(child, 0) + 1
            entry = known.children[child]
            entry.answered += 1
            entry.generation = generation if entry.generation is None else min(entry.generation, generation)
            # A call that its caller had given up has been executed after all.
            known.is_doomed |= known.phase != ACTIVE
        elif sent == "failed":
            known.is_doomed = True
        elif sent == "not sent":
            self._not_sent(known, child)
        return []

    @staticmethod
    def _not_sent(known: Root, name: str) -> None:
        """A call could not be sent to a child. If none was, that one is neither asked nor told: it has nothing of the
        root, and may be away for long, while whoever has called it does without."""
        known.children[name].sent -= 1
        # Once votes are asked for, its own is waited for.
        if known.children[name].sent == 0 and known.phase == ACTIVE:
            del known.children[name]
            for call in known.calls.values():
                call.children.pop(name, None)

    def committed(self, root: str, call: str, slot: int | None, answer: str) -> Effects:
        """A local transaction is committed, with this slot; a call that only read and called nobody has none."""
        out: Effects = []
        known = self.roots[root]
        entry = known.calls[call]
        assert entry.stage == RUNNING, "a local transaction that has ended was under way"
        entry.stage, entry.slot, entry.answer = ANSWERED, slot, answer
        self._locks.hold(entry.arrival, runs=False)
        if known.began == call:
            assert known.phase == DECIDING, "only the decision commits where a root began"
            out.append(("answer", root, call, answer))
            self._commit(root, None, out)
        elif known.phase == ABORTING:
            out.append(("refuse", root, call, "ended"))
            self._undo_next(root, out)
        else:
            out.append(("answer", root, call, answer))
            # A sibling may have waited for this commit.
            self._wake(out)
        return out

    def rolled_back(self, root: str, call: str) -> Effects:
        """A local transaction is rolled back."""
        out: Effects = []
        known = self.roots[root]
        entry = known.calls.pop(call)
        self._locks.release(entry.arrival)
        # What it called elsewhere is still there.
        known.is_doomed |= bool(entry.children)
        if known.phase == ABORTING:
            self._undo_next(root, out)
        elif known.began == call:
            self._abort(root, "ended", out)
        else:
            self._drop_if_empty(root)
        self._wake(out)
        return out

    def _drop_if_empty(self, root: str) -> None:
        """A call that left nothing has not been here."""
        known = self.roots[root]
        if known.phase == ACTIVE and not known.calls and not known.children and known.ballot is None:
            del self.roots[root]

    # Votes.

    def finish(self, root: str) -> Effects:
        """The handler of the call that began the root has answered: the root is to be committed."""
        out: Effects = []
        known = self.roots[root]
        # Otherwise it was aborted while the handler ended; its call is being rolled back.
        if known.phase == ACTIVE:
            if known.is_doomed or any(call.is_under_way for name, call in known.calls.items() if name != known.began):
                self._abort(root, "ended", out)
            else:
                known.phase = PREPARING
                self._ask_children(root, known, out)
                self._proceed(root, out)
        return out

    def prepare(self, root: str, parent: str, calls: int, generation: int | None, nonce: int) -> Effects:
        """A parent asks for a vote. The nonce is a number that no earlier vote had; used if this leads to a yes."""
        out: Effects = []
        known = self.roots.get(root)
        if known is None:
            mark = self.marks.get(root)
            if calls == 0 and mark in (None, "empty"):
                # Nothing was executed for it here, and nothing will be. A further parent whose calls were all
                # refused hears the same as the first one.
                vote = Vote(nonce=nonce)
            else:
                vote = Vote(no="ended" if mark else "unknown")
            self._mark(root, "empty", out)
            out.append(("send_vote", root, parent, vote))
            return out
        no = known.check(parent, calls, generation, self.generation)
        before = known.parents[parent].vote if parent in known.parents else None
        # Who has a yes has it: the same question again changes nothing, whatever came in between.
        if before and before.no is None and not known.check_calls(parent, calls, generation, self.generation):
            no = None
        if known.phase == ABORTING:
            out.append(("send_vote", root, parent, Vote(no="ended")))
        elif known.phase == COMMITTED:
            out.append(("send_vote", root, parent, before or Vote(nonce=nonce)))
        elif known.began is not None:
            # Where the root began it is never in doubt, so nothing has to be written.
            no = "running" if known.phase == ACTIVE else no
            out.append(("send_vote", root, parent, Vote(no=no) if no else Vote(nonce=nonce)))
            if no and known.phase == PREPARING:
                self._fail(root, no, out)
        elif no:
            out.append(("send_vote", root, parent, Vote(no=no)))
            self._fail(root, no, out)
        elif before:
            out.append(("send_vote", root, parent, before))
        else:
            self._ask_for_yes(root, known, parent, nonce, out)
        return out

    def _ask_for_yes(self, root: str, known: Root, parent: str, nonce: int, out: Effects) -> None:
        is_first = all(other.asked is None for other in known.parents.values())
        # Where the journal was lost, the yes may have been given under any nonce.
        if not known.is_promised and known.nonce is None:
            known.nonce = nonce
        if known.is_asking and parent not in known.parents:
            out.append(("ask_outcome", root, parent, known.nonce))
        entry = known.parents.setdefault(parent, Parent())
        # The same question again waits for the same answer.
        entry.asked = entry.asked or ("first" if is_first else "further")
        if is_first:
            known.phase = PREPARING
            self._ask_children(root, known, out)
        if known.ballot is None and (not is_first or known.are_children_ready):
            self._write(root, known, out)
        else:
            self._answer_parents(root, out)

    def voted(self, root: str, child: str, vote: Vote) -> Effects:
        """A child has voted."""
        out: Effects = []
        known = self.roots.get(root)
        if known and known.phase == PREPARING:
            known.children[child].vote = vote
            if vote.no:
                self._fail(root, "child", out)
            else:
                self._proceed(root, out)
        return out

    def _proceed(self, root: str, out: Effects) -> None:
        """Goes on once all children have voted yes."""
        known = self.roots[root]
        if not known.are_children_ready:
            return
        if known.began is not None:
            known.phase = DECIDING
            out.append(("decide", root, known.began))
        elif any(parent.asked == "first" and parent.vote is None for parent in known.parents.values()):
            # The children's votes are part of the record, so what was written early for a further parent is
            # written again. Without such a parent the question was asked before a restart, which keeps the doubt.
            self._write(root, known, out)

    def vote_written(self, root: str) -> Effects:
        """The yes is durable."""
        out: Effects = []
        known = self.roots.get(root)
        # It may have been aborted meanwhile, since nobody had the yes yet.
        if known and known.phase == PREPARING:
            if known.ballot == "writing":
                known.ballot = "written"
            self._answer_parents(root, out)
        return out

    def vote_failed(self, root: str) -> Effects:
        """The yes could not be written, or what it promises not be kept."""
        out: Effects = []
        self._fail(root, "failed", out)
        return out

    def has_slotless(self, root: str) -> bool:
        """Whether answered calls of a root have left nothing in the database: what they read is protected by their
        locks here, and by nothing else."""
        known = self.roots.get(root)
        calls = known.calls.values() if known else ()
        return any(call.stage == ANSWERED and call.slot is None for call in calls)

    def _answer_parents(self, root: str, out: Effects) -> None:
        known = self.roots[root]
        if known.ballot != "written":
            return
        # Where the journal was lost any decision is believed, so the yes need not be told from others.
        nonce = ANY_NONCE if known.nonce is None else known.nonce
        for name, parent in known.parents.items():
            is_due = parent.asked == "further" or (parent.asked == "first" and known.are_children_ready)
            if is_due and parent.vote is None:
                parent.vote = Vote(nonce=nonce)
                known.is_promised = True
                out.append(("send_vote", root, name, parent.vote))

    def _fail(self, root: str, no: str, out: Effects) -> None:
        """It cannot be committed: undoes it, or, if a yes is out, says no to all others and waits to be told."""
        known = self.roots.get(root)
        if known is None or known.phase not in (ACTIVE, PREPARING):
            return
        if known.is_in_doubt:
            known.is_doomed = True
            self._refuse_parents(root, known, no, out)
        else:
            self._mark(root, "undone", out)
            self._abort(root, no, out)

    @staticmethod
    def _ask_children(root: str, known: Root, out: Effects) -> None:
        """Asks everybody who was called and whose yes is not known."""
        for name, child in known.children.items():
            if child.nonce is None:
                out.append(("ask_vote", root, name, child.answered, child.generation))

    @staticmethod
    def _write(root: str, known: Root, out: Effects) -> None:
        known.ballot = "writing"
        out.append(("write_vote", root, known.nonce))

    @staticmethod
    def _refuse_parents(root: str, known: Root, no: str, out: Effects) -> None:
        for name, parent in known.parents.items():
            if parent.asked and parent.vote is None:
                parent.vote = Vote(no=no)
                out.append(("send_vote", root, name, parent.vote))

    # Outcomes.

    def _mark(self, root: str, mark: str, out: Effects) -> None:
        """Calls of this root are refused from now on."""
        if root not in self.marks:
            self.marks[root] = mark
            out.append(("mark", root, mark))

    def commit_told(self, root: str, parent: str, nonce: int | None) -> Effects:
        """A parent says that the root is committed."""
        out: Effects = []
        known = self.roots.get(root)
        if known is None:
            # Unless it was undone it is done already, or there was nothing to do.
            settled = "refused" if self.marks.get(root) == "undone" else "done"
        elif known.phase == PREPARING and known.is_in_doubt and _is_of_vote(nonce, known.nonce):
            self._commit(root, parent, out)
            settled = "pending" if root in self.roots else "done"
        elif known.phase == DECIDING:
            settled = "pending"
        elif known.phase == COMMITTED:
            settled = self._committed_again(root, known, parent, out)
        else:
            # Nobody was promised this.
            settled = "refused"
        out.append(("send_settled", root, parent, settled))
        return out

    @staticmethod
    def _committed_again(root: str, known: Root, parent: str, out: Effects) -> str:
        """The first parent waits until nothing is left to do. If all did, two components that called each other would
        wait for each other; so a further one is let go once the database knows the outcome."""
        if known.began is not None or known.is_noted:
            return "done"
        if known.told_by != parent:
            entry = known.parents.setdefault(parent, Parent())
            if entry.commits < _COMMITS_BEFORE_NOTE:
                entry.commits += 1
                if entry.commits == _COMMITS_BEFORE_NOTE and not known.is_freeing:
                    out.append(("note", root, known.slots))
        return "pending"

    def _commit(self, root: str, told_by: str | None, out: Effects) -> None:
        """The root is committed: locks go, children are told."""
        known = self.roots[root]
        known.phase, known.told_by = COMMITTED, told_by
        for call in known.calls.values():
            assert call.stage == ANSWERED, "a root is committed with all its calls"
            self._locks.release(call.arrival)
        for name, child in known.children.items():
            out.append(("tell_commit", root, name, child.nonce))
        self._wake(out)
        self._free(root, known, out)

    def _free(self, root: str, known: Root, out: Effects) -> None:
        """Has the slots freed once all children are done."""
        if known.is_freeing or not all(child.is_done for child in known.children.values()):
            return
        known.is_freeing = True
        if known.slots:
            out.append(("free", root, known.slots))
        else:
            out.extend(self.freed(root))

    def freed(self, root: str) -> Effects:
        """The root's slots are durably free."""
        known = self.roots.pop(root)
        assert known.phase == COMMITTED, "only a committed root's slots are freed at once"
        # Its vote is in the journal for as long, so this mark needs no record.
        self.marks[root] = "committed"
        return [("forget", root, True)]

    def noted(self, root: str) -> Effects:
        """It is durable in the database that the root is committed."""
        if root in self.roots:
            self.roots[root].is_noted = True
        return []

    def told(self, root: str, child: str, settled: str) -> Effects:
        """A child was told that the root is committed, and has answered."""
        out: Effects = []
        known = self.roots.get(root)
        # A refusal is somebody's defect. It is reported where it is heard, and asking again would change nothing.
        if known and known.phase == COMMITTED and settled != "pending":
            known.children[child].is_done = True
            self._free(root, known, out)
        return out

    def abort_told(self, root: str, parent: str) -> Effects:
        """A parent says that the root is aborted."""
        out: Effects = []
        known = self.roots.get(root)
        if known and known.is_in_doubt and not known.is_called_by(parent):
            # The root may be committed all the same.
            settled = "pending"
        elif known is None and self.marks.get(root) == "committed":
            settled = "refused"
        elif known is None:
            self._mark(root, "empty", out)
            settled = "done"
        elif known.phase in (ACTIVE, PREPARING):
            self._mark(root, "undone", out)
            self._abort(root, "ended", out)
            settled = "pending" if root in self.roots else "done"
        else:
            settled = "refused" if known.phase == COMMITTED else "pending"
        out.append(("send_settled", root, parent, settled))
        return out

    def _abort(self, root: str, no: str, out: Effects) -> None:
        """Undoes a root, and has its children do so."""
        known = self.roots[root]
        known.phase = ABORTING
        self._refuse_parents(root, known, no, out)
        for name in known.children:
            out.append(("tell_abort", root, name))
        for call, entry in list(known.calls.items()):
            if entry.stage == WAITING:
                del known.calls[call]
                self._waiting.remove((root, call))
                out.append(("refuse", root, call, "ended"))
            elif entry.stage == RUNNING:
                out.append(("cancel", root, call))
        self._undo_next(root, out)

    def _undo_next(self, root: str, out: Effects) -> None:
        """Undoes the last call that is left, once none is under way; forgets the root after the first one."""
        known = self.roots[root]
        while not any(call.stage in (RUNNING, UNDOING) for call in known.calls.values()):
            if not known.calls:
                del self.roots[root]
                out.append(("forget", root, False))
                return
            call, entry = max(known.calls.items(), key=lambda item: item[1].sequence)
            if entry.slot is not None:
                entry.stage = UNDOING
                out.append(("undo", root, call))
            else:
                self._drop_call(known, call, out)

    def _drop_call(self, known: Root, call: str, out: Effects) -> None:
        self._locks.release(known.calls.pop(call).arrival)
        self._wake(out)

    def undone(self, root: str, call: str) -> Effects:
        """An undo is durable."""
        out: Effects = []
        self._drop_call(self.roots[root], call, out)
        self._undo_next(root, out)
        return out

    def deadline(self, root: str) -> Effects:
        """The root's time is over: whoever may, gives up; who is in doubt begins to ask."""
        out: Effects = []
        # Who waits for a lock until then hears what is in his way.
        for its, call in [one for one in self._waiting if one[0] == root]:
            out.extend(self.waited_enough(its, call))
        known = self.roots.get(root)
        if known and known.is_in_doubt:
            self._ask_parents(root, known, out)
        elif known and known.phase in (ACTIVE, PREPARING):
            self._mark(root, "undone", out)
            self._abort(root, "ended", out)
        return out

    @staticmethod
    def _ask_parents(root: str, known: Root, out: Effects) -> None:
        """Asks all parents, also those that have no yes yet: any of them that knows ends the doubt. Two components
        that called each other would otherwise ask only each other."""
        if not known.is_asking:
            known.is_asking = True
            out.extend(("ask_outcome", root, name, known.nonce) for name in known.parents)

    def learned(self, root: str, parent: str | None, outcome: str) -> Effects:
        """A parent was asked for the outcome and has answered; none: a person has decided."""
        out: Effects = []
        known = self.roots.get(root)
        if known and known.is_in_doubt:
            if outcome == "committed":
                self._commit(root, parent, out)
                if self.is_settled(root) and known.slots and not known.is_freeing:
                    # A parent remembers what it has said until all is done, and a person says it once. Slots that are
                    # freed say it as well.
                    out.append(("note", root, known.slots))
            elif outcome == "aborted" and (parent is None or known.is_called_by(parent)):
                self._mark(root, "undone", out)
                self._abort(root, "ended", out)
        return out

    def mark_over(self, root: str) -> Effects:
        """A mark is as old as any late message can be. What is still being undone needs it."""
        if root not in self.roots:
            self.marks.pop(root, None)
        return []

    # What others ask.

    def outcome(self, root: str, child: str, nonce: int | None, callers: Sequence[str] = ()) -> str:
        """What is known here of a root's outcome, for a child that holds this vote and was called by these calls. If one of
        them is not here any more, it has come to nothing, and what it has called can only be aborted."""
        known = self.roots.get(root)
        if known is None or known.phase == ABORTING or any(caller not in known.calls for caller in callers):
            return "aborted"
        if known.phase != COMMITTED:
            return "pending"
        decided = known.children[child].nonce if child in known.children else None
        is_other = nonce is not None and decided is not None and nonce != decided and decided != ANY_NONCE
        return "aborted" if is_other else "committed"

    def callers(self, root: str, parent: str) -> list[str]:
        """The calls of a parent that have called here for a root, as far as they said so."""
        known = self.roots.get(root)
        arrivals = [call.arrival for call in known.calls.values()] if known else []
        return sorted({one.ancestors[-1] for one in arrivals if one.parent == parent and one.ancestors})

    def has_committed(self, root: str) -> bool:
        """Whether a root's commit is carried out here, or was: that all of it is done is known then, and not a guess of
        one who knows nothing of it."""
        known = self.roots.get(root)
        return known.phase == COMMITTED if known else self.marks.get(root) == "committed"

    def is_lost(self, root: str) -> bool:
        """Whether a root can only be aborted, or is being so."""
        known = self.roots.get(root)
        return known is None or known.is_doomed or known.phase == ABORTING

    def is_in_doubt(self, root: str) -> bool:
        """Whether only a parent can end this root here."""
        return root in self.roots and self.roots[root].is_in_doubt

    def is_settled(self, root: str) -> bool:
        """Whether a person has committed this root here, and nothing says so as yet but this process."""
        return root in self.roots and self.roots[root].is_settled

    def has_any(self, root: str, calls: list[str]) -> bool:
        """Whether one of these calls is here."""
        known = self.roots.get(root)
        return known is not None and any(call in known.calls for call in calls)

    def shown(self) -> list[dict[str, object]]:
        """The open roots, for a person."""
        return [
            {
                "root": root,
                "state": "in-doubt" if known.is_in_doubt else known.phase,
                "locks": 0 if known.phase == COMMITTED else sum(call.stage != WAITING for call in known.calls.values()),
            }
            for root, known in self.roots.items()
        ]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of any root, nothing is locked and nobody waits."""
        return not self.roots and not len(self._locks) and not self._waiting

    # A component that is started again.

    def recover(
        self, slots: list[SlotFacts], votes: list[VoteFacts], marks: dict[str, str], is_journal_whole: bool
    ) -> Effects:
        """Puts together what slots and journal say.

        A decision, or a note, means committed. Other calls where the root began: aborted, its decision is missing. A
        yes in the journal, or no journal that belongs to this database: in doubt. Marked as undone: aborted, and the rest
        of it is undone. No yes: active, nobody was promised anything. A yes without slots: it only read, and its part is
        over.
        """
        self.marks = dict(marks)
        of_root = {vote.root: vote for vote in votes}
        for facts in slots:
            self._remember(facts)
        for root in of_root:
            if root not in self.roots:
                self.marks.setdefault(root, "empty")
        out: Effects = []
        for root in list(self.roots):
            self._resume(root, of_root.get(root), is_journal_whole, out)
        return out

    def _remember(self, facts: SlotFacts) -> None:
        arrival = facts.arrival
        self._sequence = max(self._sequence, facts.sequence)
        known = self.roots.setdefault(arrival.root, Root())
        if arrival.parent is not None:
            known.parents.setdefault(arrival.parent, Parent())
        known.is_doomed |= facts.began_here and known.phase != COMMITTED
        for name, answered in facts.children:
            child = known.children.setdefault(name, Child())
            child.answered, child.sent = child.answered + answered, child.sent + 1
        if facts.decision is not None:
            known.is_doomed, known.began, known.phase = False, arrival.call, COMMITTED
            for name, nonce in facts.decision:
                known.children.setdefault(name, Child()).vote = Vote(nonce=nonce)
        if facts.is_noted:
            known.is_noted, known.phase = True, COMMITTED
        known.calls[arrival.call] = Call(
            arrival, ANSWERED, facts.sequence, dict(facts.children), facts.slot, facts.answer
        )
        self._locks.hold(arrival, runs=False)

    def _resume(self, root: str, vote: VoteFacts | None, is_journal_whole: bool, out: Effects) -> None:
        known = self.roots[root]
        for name, nonce in vote.children if vote else []:
            known.children.setdefault(name, Child()).vote = Vote(nonce=nonce)
        if known.phase == COMMITTED:
            return self._commit(root, None, out)
        # The mark was written before the first undo: how it ends was known.
        is_undone = is_journal_whole and self.marks.get(root) == "undone"
        if known.is_doomed or is_undone:
            return self._abort(root, "ended", out)
        if vote is None and is_journal_whole:
            return None
        known.phase, known.ballot, known.is_promised = PREPARING, "written", True
        known.nonce = vote.nonce if vote else None
        if vote is None:
            # The new journal has to say so before it counts as this database's: who is in doubt stays so.
            out.append(("write_vote", root, None))
        for parent in vote.parents if vote else []:
            known.parents.setdefault(parent, Parent())
        return self._ask_parents(root, known, out)


def _is_of_vote(named: int | None, own: int | None) -> bool:
    return named is None or own is None or named == own or named == ANY_NONCE
