"""One root at one component: the calls made here for it, the components that made them (its parents), the components
that they called (its children), and how far it has come.

```text
         the handler has answered, or a parent asks        the decision, or a parent says so
active ─────────────────────────────────────▶ preparing ─────────────────────────▶ committed
   │                                               │  └──▶ deciding ─────────────────▲
   │ deadline, failure, a parent says so           │      (only where it began)
   └──────────────▶ aborting ◀─────────────────────┘
```

A root is in doubt once a yes was sent to any parent; from then on only a parent can end it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .locks import Arrival

# Phases of a root. Only where it began it is `deciding`.
ACTIVE, PREPARING, DECIDING, COMMITTED, ABORTING = "active", "preparing", "deciding", "committed", "aborting"
# Stages of a call.
WAITING, RUNNING, ANSWERED, UNDOING = "waiting", "running", "answered", "undoing"
# The nonce of a yes that was given again after a journal was lost: it stands for whatever was given before.
ANY_NONCE = 0

@dataclass(frozen=True)
class Vote:
    """A yes, known by its nonce, or a no with its reason."""

    nonce: int | None = None
    no: str | None = None


@dataclass
class Call:
    arrival: Arrival
    stage: str = RUNNING
    # The order of the locks, which is the order of conflicting calls; undone in reverse.
    sequence: int = 0
    # Whom it has called, and how many of these calls were answered.
    children: dict[str, int] = field(default_factory=dict)
    slot: int | None = None
    answer: str = ""

    @property
    def is_under_way(self) -> bool:
        return self.stage in (WAITING, RUNNING)


@dataclass
class Child:
    answered: int = 0
    # Calls that were sent to it, or may have been, or are about to be.
    sent: int = 0
    # The oldest generation in its answers.
    generation: int | None = None
    vote: Vote | None = None
    is_done: bool = False

    @property
    def nonce(self) -> int | None:
        return self.vote.nonce if self.vote else None


@dataclass
class Parent:
    # `first`: its answer waits for the children. `further`: it is answered from what is known here, which lets a
    # cycle of components end.
    asked: str | None = None
    vote: Vote | None = None
    commits: int = 0


@dataclass
class Root:
    # The call that began it, where that is here.
    began: str | None = None
    phase: str = ACTIVE
    # It can only be aborted.
    is_doomed: bool = False
    calls: dict[str, Call] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    parents: dict[str, Parent] = field(default_factory=dict)
    # The component's own yes: none, "writing", "written".
    ballot: str | None = None
    nonce: int | None = None
    # A yes was sent, or may have been before a restart.
    is_promised: bool = False
    is_asking: bool = False
    # The parent that told the outcome first.
    told_by: str | None = None
    # The database says that it is committed.
    is_noted: bool = False
    is_freeing: bool = False

    @property
    def is_in_doubt(self) -> bool:
        return self.is_promised and self.phase == PREPARING

    @property
    def is_settled(self) -> bool:
        """Whether it is committed because a person has said so, which nothing says as yet but this process."""
        is_told = self.told_by is not None or self.began is not None or self.is_noted
        return self.phase == COMMITTED and not is_told

    def is_called_by(self, parent: str) -> bool:
        """Whether a call of a component is here. Such a one knows how a promise ends: it has the root until that has
        ended here, or the call that has called has come to nothing. One that has only asked may have executed a late
        call of a root that it had forgotten, and give that up."""
        return any(call.arrival.parent == parent for call in self.calls.values())

    @property
    def are_children_ready(self) -> bool:
        return all(child.nonce is not None for child in self.children.values())

    @property
    def slots(self) -> list[int]:
        return [call.slot for call in self.calls.values() if call.stage == ANSWERED and call.slot is not None]

    def check(self, parent: str, calls: int, generation: int | None, own: int) -> str | None:
        """Why this component, by itself, cannot say yes to a parent that has counted so many answers."""
        if self.is_doomed:
            return "doomed"
        return self.check_calls(parent, calls, generation, own)

    def check_calls(self, parent: str, calls: int, generation: int | None, own: int) -> str | None:
        """The same as far as the calls say."""
        # Where it began, the call that began it waits for its own commit.
        others = [call for name, call in self.calls.items() if name != self.began]
        if any(call.is_under_way for call in others):
            return "running"
        of_parent = [call for call in others if call.arrival.parent == parent]
        for call in of_parent:
            if call.stage != ANSWERED:
                return "ended"
            # It only read, and its lock was lost by a restart.
            if call.slot is None and generation is not None and generation != own:
                return "generation"
        return None if len(of_parent) == calls else "count"


@dataclass(frozen=True)
class SlotFacts:
    """What a slot says: enough to end its call without any other memory."""

    slot: int
    arrival: Arrival
    sequence: int
    answer: str
    children: list[tuple[str, int]]
    began_here: bool
    # Where the root began: the votes that it was decided by.
    decision: list[tuple[str, int]] | None
    is_noted: bool


@dataclass(frozen=True)
class Origin:
    """Which database a component decides in, and since when: one that was replaced or restored from an earlier copy does
    not know what it has decided before, so its ignorance means nothing."""

    database: str
    generation: int

    def speaks_for(self, asked: Origin) -> bool:
        """Whether what this one does not know cannot have been decided by the other one, which asked before."""
        return self.database == asked.database and self.generation >= asked.generation


@dataclass(frozen=True)
class VoteFacts:
    """A yes in the journal; its nonce is not known any more if an earlier journal was lost."""

    root: str
    nonce: int | None
    parents: list[str]
    children: list[tuple[str, int]]
    # Where the parents decide that have said so when they asked.
    origins: list[tuple[str, Origin]] = field(default_factory=list)
