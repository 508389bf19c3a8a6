"""Arguments as a service's annotation has them: dataclasses, numbers, texts, lists, or whatever JSON there is."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from typing import Any

# From the first of these to below the second one, integers are the same ones in every language.
_INTEGERS = (-(2**63), 2**64)


def read(shape: Any, value: Any, where: str = "the arguments") -> Any:
    """A JSON value as this shape; says in a ValueError what does not fit."""
    if shape is Any:
        return value
    if shape in (None, types.NoneType):
        return _is(value is None, value, where, "null")
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if origin in (typing.Union, types.UnionType):
        for one in inner:
            try:
                return read(one, value, where)
            except ValueError:
                continue
        return _is(False, value, where, str(shape))
    if dataclasses.is_dataclass(shape):
        return _fields(shape, _is(isinstance(value, dict), value, where, "an object"), where)
    if shape is list or origin is list:
        one = inner[0] if inner else Any
        return [read(one, item, f"{where}[{place}]") for place, item in enumerate(_is(isinstance(value, list), value, where, "a list"))]
    if shape is dict or origin is dict:
        one = inner[1] if inner else Any
        return {key: read(one, item, f"{where}.{key}") for key, item in _is(isinstance(value, dict), value, where, "an object").items()}
    if shape is bool or shape is str:
        return _is(isinstance(value, shape), value, where, shape.__name__)
    if shape is int:
        return _is(isinstance(value, int) and not isinstance(value, bool), value, where, "an integer")
    if shape is float:
        number = _is(isinstance(value, (int, float)) and not isinstance(value, bool), value, where, "a number")
        try:
            return float(number)
        except OverflowError as error:
            raise ValueError(f"{where}: not a number that can be kept") from error
    raise TypeError(f"{shape} cannot be an argument of a service")


def _is(fits: bool, value: Any, where: str, what: str) -> Any:
    if fits:
        return value
    raise ValueError(f"{where}: not {what}: {json.dumps(value)[:80]}")


def _fields(shape: Any, value: dict, where: str) -> Any:
    hints, given = typing.get_type_hints(shape), {}
    for field in dataclasses.fields(shape):
        if field.name in value:
            given[field.name] = read(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}: {field.name} is missing")
    return shape(**given)


def write(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, default=_plain, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def loads(text: bytes | str) -> Any:
    """JSON from outside, without what Python adds to it."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise ValueError(f"{digits[:80]} is out of range")
        return value

    try:
        return json.loads(text, parse_constant=refuse, parse_float=number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def canonical(value: Any) -> str:
    """JSON as it is compared: objects have no order, and equal numbers are the same, however they are written."""
    try:
        return json.dumps(_compared(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _compared(value: Any) -> Any:
    """Numbers as components in other languages compare them: integers that fit into 64 bits exactly, also those that were
    written with a point or an exponent, and all others as floats."""
    if isinstance(value, dict):
        return {key: _compared(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_compared(item) for item in value]
    if isinstance(value, float) and value.is_integer() and _INTEGERS[0] <= value < _INTEGERS[1]:
        return int(value)
    if isinstance(value, int) and not _INTEGERS[0] <= value < _INTEGERS[1]:
        try:
            return float(value)
        except OverflowError:
            return value
    return value


def schema(shape: Any) -> dict[str, Any]:
    """The shape as JSON Schema."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if dataclasses.is_dataclass(shape):
        hints = typing.get_type_hints(shape)
        needed = [
            field.name
            for field in dataclasses.fields(shape)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        properties = {field.name: schema(hints[field.name]) for field in dataclasses.fields(shape)}
        return {"type": "object", "properties": properties, "required": needed}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema(one) for one in inner]}
    if shape is list or origin is list:
        return {"type": "array", "items": schema(inner[0]) if inner else {}}
    if shape is dict or origin is dict:
        return {"type": "object"}
    names = {bool: "boolean", int: "integer", float: "number", str: "string", None: "null", types.NoneType: "null"}
    return {"type": names[shape]} if shape in names else {}


def check(shape: Any) -> None:
    """Says in a TypeError if a shape cannot be read."""
    inner = typing.get_args(shape)
    if dataclasses.is_dataclass(shape):
        inner = tuple(typing.get_type_hints(shape).values())
    elif not (shape in (Any, None, types.NoneType, bool, int, float, str, list, dict) or inner):
        raise TypeError(f"{shape} cannot be an argument of a service")
    for one in inner:
        check(one)
