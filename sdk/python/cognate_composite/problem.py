"""What goes wrong, as services and clients see it: problem+json with a reason that programs can tell apart."""

from __future__ import annotations

import json

import psycopg


class Problem(Exception):
    """A problem. It leaves nothing behind at the component that reports it, but for `unknown`."""

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        holder: str | None = None,
        item: str | None = None,
        began: bool = False,
    ) -> None:
        super().__init__(f"{status} {reason}: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail
        self.holder = holder
        self.item = item
        # Something of the call may be left elsewhere, so that its root can only be aborted.
        self.began = began
        # The call was not even sent.
        self.is_unsent = False

    @property
    def is_transient(self) -> bool:
        """Whether the root may succeed if it is begun again."""
        return self.reason == "conflict"

    def body(self) -> bytes:
        """As it is sent."""
        fields = {"status": self.status, "reason": self.reason, "detail": self.detail, "began": self.began}
        fields |= {"holder": self.holder} if self.holder is not None else {}
        fields |= {"item": self.item} if self.item is not None else {}
        return json.dumps(fields).encode()


class Refused(Problem):
    """A rule of the application: raised by a service, it undoes the whole root, which answers 400 `failed`."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, "failed", detail)


# What a component answers, of all statuses; another one comes from something in between, or from a defect.
_STATUSES = {400, 401, 404, 409, 413, 422, 503, 504, 508}
# Answers of these kinds say by themselves that nothing was begun.
_LEFT_NOTHING = {401, 404, 409, 413, 422, 508}


def received(child: str, status: int, body: bytes) -> Problem:
    """A problem as another component has written it. What it does not say is taken for the worse."""
    if status not in _STATUSES:
        return Problem(503, "away", f"{child} was answered for with {status}", began=True)
    problem = _read(status, body)
    if status == 401:
        # Whoever has called here would take it for his own token.
        why = f"{child} does not take the token of this component"
        return Problem(503, "away", why, began=problem.began)
    return problem


def _read(status: int, body: bytes) -> Problem:
    try:
        fields = json.loads(body)
        texts = {name: fields.get(name) for name in ("holder", "item")}
        if not all(text is None or isinstance(text, str) for text in texts.values()):
            raise ValueError("not a problem")
        return Problem(status, str(fields["reason"]), str(fields["detail"]), **texts, began=bool(fields.get("began")))
    except (ValueError, KeyError, AttributeError, TypeError):
        text = body[:200].decode("utf-8", "replace")
        return Problem(status, "failed", text, began=status not in _LEFT_NOTHING)


def is_serialization(error: BaseException) -> bool:
    """Whether running the same local transaction again may help."""
    return isinstance(error, psycopg.Error) and (error.sqlstate in ("40001", "40P01") or is_out_of_date(error))


def is_out_of_date(error: psycopg.Error) -> bool:
    """Whether a statement has to be prepared anew, since its rows have other columns now. The message may be in another
    language; what PostgreSQL's own function is called is not."""
    if error.sqlstate != "0A000":
        return False
    return "cached plan must not change result type" in str(error) or error.diag.source_function == "RevalidateCachedQuery"


def is_of_cast(error: BaseException | None, text: str) -> bool:
    """Whether a statement of ours has failed because of what it found, which it says by a cast of this text: a service's
    own SQL, and its triggers, fail with any SQLSTATE, but not so."""
    return isinstance(error, psycopg.errors.InvalidTextRepresentation) and text in str(error)


def of_database(error: psycopg.Error) -> Problem:
    """A database's error, by what the caller can do about it."""
    code = error.sqlstate
    if code is None and isinstance(error, psycopg.DataError):
        # A text with a zero byte, for example, does not even come to the database.
        return Problem(400, "failed", str(error))
    if code is None and isinstance(error, (psycopg.ProgrammingError, psycopg.NotSupportedError)):
        # The driver refuses what the service wants, and trying again changes nothing.
        return Problem(503, "defect", str(error))
    if code is None:
        return Problem(503, "database", f"the component's database is away: {error}".strip())
    detail = f"{error.diag.message_primary or error} (SQLSTATE {code})"
    if code in ("40001", "40P01", "55P03") or is_out_of_date(error):
        return Problem(409, "conflict", detail)
    if code == "57014":
        # The database has a bound of its own for a statement.
        return Problem(504, "deadline", detail)
    if code in ("25006", "25P03", "25P04") or code.startswith(("08", "53", "57P", "58")):
        # It is away; only reads at present; or has ended a transaction that took longer than it lets one.
        return Problem(503, "database", detail)
    if code.startswith("XX"):
        return Problem(503, "defect", detail)
    return Problem(400, "failed", detail)


def _of_contract(problem: Problem) -> Problem:
    """The same with a status of the contract. One that a service has made may have any: a refusal stays one, and
    everything else would be taken for an answer, or for somebody else's failure."""
    if problem.status not in _STATUSES:
        is_refusal = 402 <= problem.status <= 499
        problem.status, problem.reason = (400, problem.reason) if is_refusal else (503, "defect")
    return problem


def of(error: Exception) -> Problem:
    """Any failure of a service. A defect in its code is the component's, and says so."""
    if isinstance(error, Problem):
        return _of_contract(error)
    if isinstance(error, psycopg.Error):
        return of_database(error)
    return Problem(503, "defect", f"the service has failed: {type(error).__name__}: {error}")
