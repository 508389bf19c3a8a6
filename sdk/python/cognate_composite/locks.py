"""Call-level locks: taken before a call runs, kept until its root ends here, committed or undone call by call.

Calls of one root may conflict, and then follow each other, but never overlap. A call whose ancestor holds a
conflicting lock would wait for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from .matrix import ALWAYS, NEVER, Matrix


@dataclass(frozen=True)
class Arrival:
    """A call that has come."""

    root: str
    call: str
    parent: str | None
    ancestors: tuple[str, ...]
    service: str
    item: str
    # A hash of the arguments: a call that is sent again has the same ones.
    arguments: int


@dataclass(frozen=True)
class Obstacle:
    """What is in the way of a call. Of several things the worst is named: `ancestor` before `conflict` before `sibling`."""

    kind: str
    root: str
    call: str
    service: str
    item: str


_RANK = {"sibling": 1, "conflict": 2, "ancestor": 3}


class Locks:
    """All locks of a component."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        # Of each call that holds one: the call, and whether it still runs.
        self._held: dict[tuple[str, str], tuple[Arrival, bool]] = {}

    def look(self, new: Arrival) -> Obstacle | None:
        """What is in the way."""
        worst = None
        for held, runs in self._held.values():
            cell = self._matrix.cell(held.service, new.service)
            if cell == NEVER or (cell != ALWAYS and held.item != new.item) or (held.root, held.call) == (new.root, new.call):
                continue
            if held.root != new.root:
                kind = "conflict"
            elif held.call in new.ancestors:
                kind = "ancestor"
            elif runs:
                kind = "sibling"
            else:
                continue
            if worst is None or _RANK[kind] > _RANK[worst.kind]:
                worst = Obstacle(kind, held.root, held.call, held.service, held.item)
        return worst

    def hold(self, call: Arrival, runs: bool) -> None:
        """Takes a lock, or notes that its call does not run any more."""
        self._held[call.root, call.call] = (call, runs)

    def release(self, call: Arrival) -> None:
        """Gives it back."""
        del self._held[call.root, call.call]

    def __len__(self) -> int:
        return len(self._held)
