"""A folder that one process of a component has to itself, and how a later one comes by it.

The lock is the operating system's: it ends with its process, and nobody can take it away. So a later process of the same
component asks for the folder, by a file beside the lock; the earlier one looks for that file, is fenced by it, and ends.
Who has the lock removes the file before he begins, and who still waits writes it again. A component in Rust has the same
two files.
"""

from __future__ import annotations

import fcntl
import logging
import time
from pathlib import Path

log = logging.getLogger(__package__)

# How long a process is waited for that has been asked to end: it says `fenced` for a while.
_PATIENCE = 20.0
# How often the lock is tried.
_LOOK = 0.1


class Hold:
    """The lock of a folder, of one component."""

    def __init__(self, component: str, folder: Path) -> None:
        """Takes a folder from an earlier process of the component, if there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        self._component, self._claim = component, folder / "composite-claim"
        # What the owner has written into it stays.
        self._lock = open(folder / "composite-lock", "a+")
        try:
            self._wait(folder)
            self._lock.truncate(0)
            self._lock.write(component)
            self._lock.flush()
            self._claim.unlink(missing_ok=True)
        except BaseException:
            self._lock.close()
            raise

    def _wait(self, folder: Path) -> None:
        until, has_asked = time.monotonic() + _PATIENCE, False
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            self._lock.seek(0)
            owner = self._lock.read()
            if owner not in ("", self._component):
                raise ValueError(f"{folder}: component {owner} has this folder")
            if time.monotonic() > until:
                self._claim.unlink(missing_ok=True)
                raise ValueError(
                    f"{folder}: another process of the component has this folder, and has not ended within {_PATIENCE:.0f} s"
                )
            if not has_asked:
                log.warning("%s: another process of %s has this folder; it is to end", folder, self._component)
                has_asked = True
            self._claim.write_text(self._component)
            time.sleep(_LOOK)

    def is_claimed(self) -> bool:
        """Whether a later process of the component waits for the folder."""
        try:
            return self._claim.read_text() == self._component
        except OSError:
            return False

    def close(self) -> None:
        """Lets go of the folder."""
        self._lock.close()
