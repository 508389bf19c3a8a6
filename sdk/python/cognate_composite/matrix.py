"""The conflict matrix: which services of a component may not come between each other's effects.

What nothing is said about conflicts with everything on the component. Services that only read never conflict with
each other. A line is symmetric unless it says otherwise; the last line about two services counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NEVER, SAME_ITEM, ALWAYS = 0, 1, 2
_WORDS = {NEVER: "-", SAME_ITEM: "same item", ALWAYS: "always"}


@dataclass(frozen=True)
class Line:
    """How two services stand to each other."""

    held: str
    new: str
    conflict: int
    is_symmetric: bool = True

    def undo(self, conflict: int) -> Line:
        """The new call against the *undo* of the held one, where that is another matter: the stricter one counts."""
        return replace(self, conflict=max(self.conflict, conflict))

    def one_way(self) -> Line:
        """Only for a lock of the first service that is held when the second one is called."""
        return replace(self, is_symmetric=False)


def never(held: str, new: str) -> Line:
    """They may be exchanged, and so may either with the undo of the other."""
    return Line(held, new, NEVER)


def same_item(held: str, new: str) -> Line:
    """They conflict if their items are the same."""
    return Line(held, new, SAME_ITEM)


def always(held: str, new: str) -> Line:
    """They always conflict."""
    return Line(held, new, ALWAYS)


@dataclass(frozen=True)
class Declared:
    """What the matrix needs to know of a service."""

    name: str
    has_item: bool
    reads: bool
    has_undo: bool

    @property
    def kind(self) -> str:
        """How its local transactions end."""
        if self.reads:
            return "reads"
        return "open: commits early, has an undo" if self.has_undo else "no undo: only begins roots"


class Matrix:
    """Cells for each pair of services."""

    def __init__(self, services: list[Declared], lines: list[Line]) -> None:
        self.services = {service.name: service for service in services}
        if len(self.services) < len(services):
            raise ValueError("two services have one name")
        self._cells = {
            (held.name, new.name): NEVER if held.reads and new.reads else ALWAYS for held in services for new in services
        }
        for line in lines:
            for service in (line.held, line.new):
                if service not in self.services:
                    raise ValueError(f"the conflict matrix names {service!r}, which is not a service of this component")
                if line.conflict == SAME_ITEM and not self.services[service].has_item:
                    raise ValueError(f"the conflict matrix compares items of {service!r}, which declares none")
            self._cells[line.held, line.new] = line.conflict
            if line.is_symmetric:
                self._cells[line.new, line.held] = line.conflict

    def cell(self, held: str, new: str) -> int:
        """How a new call stands to a lock that is held."""
        return self._cells[held, new]

    def shown(self) -> list[dict[str, object]]:
        """As the status shows it."""
        return [
            {"held": held.name, "kind": held.kind, "new": {new: _WORDS[self.cell(held.name, new)] for new in self.services}}
            for held in self.services.values()
        ]

    def __str__(self) -> str:
        width = max([10, *map(len, self.services)])
        rows = [["held \\ new", *self.services, ""]]
        rows += [[row["held"], *row["new"].values(), row["kind"]] for row in self.shown()]
        return "\n".join("  ".join(f"{cell:{width}}" for cell in row).rstrip() for row in rows)
