"""Names that travel between components. They are checked where they enter, once."""

import hashlib
import re

# Most bytes of an identifier, and how many of one that would be too long are kept.
_ID_BYTES = 128
_KEPT_BYTES = 64
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_ID = re.compile(r"[!-+\--~]{1,128}\Z")


def name(text: object) -> str:
    """The name of a component: letters, digits, `-`, `_`, `.`; at most 64 of them."""
    if isinstance(text, str) and _NAME.match(text):
        return text
    raise ValueError(f"not a component's name (letters, digits, - _ . and at most 64 of them): {str(text)[:80]!r}")


def identifier(text: object) -> str:
    """The identifier of a root or a call: 1 to 128 visible ASCII characters without commas."""
    if isinstance(text, str) and _ID.match(text):
        return text
    raise ValueError(f"not an identifier (1 to 128 visible ASCII characters without commas): {str(text)[:80]!r}")


def child(call: str, number: int) -> str:
    """The identifier of the call of this number that a call makes. One that would be too long is cut, and has a hash of the
    whole behind it, by which it is still the only one of its root."""
    whole = f"{call}.{number}"
    if len(whole) <= _ID_BYTES:
        return whole
    return f"{whole[:_KEPT_BYTES]}~{hashlib.sha256(whole.encode()).hexdigest()[:32]}"
