"""The smallest JSON value that a schema allows: the text of a simulated model where a schema is demanded.

Keywords: JSON Schema 2020-12, type, const, enum, properties, required, items, prefixItems, minItems, minLength,
pattern, minimum, exclusiveMinimum, maximum, exclusiveMaximum, multipleOf, anyOf, oneOf, allOf, $ref within the
schema. Others are not looked at, so that a value may not meet them.
"""
import json
import math
from typing import Any

from simulator.live.patterns import MOST_CHARACTERS, NoText, shortest_match

MOST_DEPTH, MOST_VALUES = 64, 2_000
KINDS = ("null", "integer", "number", "boolean", "string", "array", "object")  # smallest first


def smallest(schema: Any) -> str:
    """Return the value as JSON without blanks. Raises NoText."""
    text = _json(_Search(schema).value(schema, 0))
    if len(text) > MOST_CHARACTERS:
        raise NoText(f"more than {MOST_CHARACTERS} characters")
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Search:
    """One schema, to which references point."""

    def __init__(self, root: Any):
        self._root, self._left = root, MOST_VALUES

    def value(self, schema: Any, depth: int) -> Any:
        """Return the smallest value of a schema."""
        self._left -= 1
        if depth > MOST_DEPTH or self._left < 0:
            raise NoText("every value is too large")
        if isinstance(schema, bool):
            if schema:
                return None
            raise NoText("false allows no value")
        if not isinstance(schema, dict):
            raise NoText("expected an object as schema")
        schema = self._merged(schema, depth)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list):
            if not schema["enum"]:
                raise NoText("enum: expected a value")
            return min(schema["enum"], key=lambda value: len(_json(value)))
        for name in ("anyOf", "oneOf"):
            if isinstance(schema.get(name), list):
                return self._least_of(schema, name, depth)
        return getattr(self, f"_{_kind(schema)}")(schema, depth)

    def _least_of(self, schema: dict, name: str, depth: int) -> Any:
        rest = {key: value for key, value in schema.items() if key != name}
        found = []
        for each in schema[name]:
            try:
                found.append(self.value(_both(rest, each) if isinstance(each, dict) else each, depth + 1))
            except NoText:
                continue
        if not found:
            raise NoText(f"{name}: no value")
        return min(found, key=lambda value: len(_json(value)))

    def _merged(self, schema: dict, depth: int) -> dict:
        """Return a schema with its reference and all of allOf merged."""
        for _ in range(MOST_DEPTH):
            reference = schema.get("$ref")
            parts = schema.get("allOf") if isinstance(schema.get("allOf"), list) else []
            if reference is None and not parts:
                return schema
            schema = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            for part in ([] if reference is None else [self._target(reference)]) + parts:
                if isinstance(part, dict):
                    schema = _both(schema, part)
        raise NoText("references without an end")

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise NoText(f"$ref {reference!r}: expected a place within the schema")
        found = self._root
        for name in reference[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise NoText(f"$ref {reference!r}: there is no such place")
        return found

    # ---- kinds of values

    def _null(self, schema: dict, depth: int) -> None:
        return None

    def _boolean(self, schema: dict, depth: int) -> bool:
        return True                 # shorter than false

    def _string(self, schema: dict, depth: int) -> str:
        if isinstance(schema.get("pattern"), str):
            return shortest_match(schema["pattern"])
        return "a" * _count(schema, "minLength")

    def _array(self, schema: dict, depth: int) -> list:
        firsts = schema.get("prefixItems") if isinstance(schema.get("prefixItems"), list) else []
        rest = schema.get("items", True)
        return [self.value(firsts[i] if i < len(firsts) else rest, depth + 1)
                for i in range(_count(schema, "minItems"))]

    def _object(self, schema: dict, depth: int) -> dict:
        known = schema.get("properties") if isinstance(schema.get("properties"), dict) else {}
        names = schema.get("required") if isinstance(schema.get("required"), list) else []
        rest = schema.get("additionalProperties", True)
        return {name: self.value(known.get(name, rest), depth + 1) for name in names if isinstance(name, str)}

    def _integer(self, schema: dict, depth: int) -> int:
        return int(_multiple(schema, max(math.ceil(_given(schema, "multipleOf", 1)), 1)))

    def _number(self, schema: dict, depth: int) -> float:
        if (step := _given(schema, "multipleOf", 0)) > 0:
            return _multiple(schema, step)
        low, high = _bounds(schema)
        if low > high:
            raise NoText("no number lies between the bounds")
        whole = 0 if low <= 0 <= high else math.ceil(low) if low > 0 else math.floor(high)
        return whole if low <= whole <= high else low if low > 0 else high


def _multiple(schema: dict, step: float) -> float:
    """Return the multiple of a step that is nearest to 0."""
    low, high = _bounds(schema)
    place = 0 if low <= 0 <= high else math.ceil(low / step) if low > 0 else math.floor(high / step)
    if not low <= place * step <= high:
        raise NoText("no number lies between the bounds")
    return place * step


def _kind(schema: dict) -> str:
    """Return the type of the smallest value."""
    named = schema.get("type")
    if isinstance(named, list):
        named = next((kind for kind in KINDS if kind in named), None)
    if named is None:
        named = ("object" if "properties" in schema or "required" in schema else
                 "array" if "items" in schema or "minItems" in schema else
                 "string" if "pattern" in schema or "minLength" in schema else
                 "number" if "minimum" in schema or "maximum" in schema else "null")
    if named not in KINDS:
        raise NoText(f"type: expected one of {', '.join(KINDS)}, found {named!r}")
    return named


def _both(first: dict, second: dict) -> dict:
    """Return a schema with the keywords of two; of properties and required names all."""
    made = first | second
    for name, empty in (("properties", {}), ("required", [])):
        one, other = first.get(name, empty), second.get(name, empty)
        if isinstance(one, type(empty)) and isinstance(other, type(empty)) and (one or other):
            made[name] = one | other if name == "properties" else list(dict.fromkeys(map(str, [*one, *other])))
    return made


def _given(schema: dict, name: str, default: float) -> float:
    value = schema.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise NoText(f"{name}: expected a number")
    return value


def _count(schema: dict, name: str) -> int:
    value = _given(schema, name, 0)
    if value > MOST_CHARACTERS:
        raise NoText(f"{name}: more than {MOST_CHARACTERS}")
    return int(value)


def _bounds(schema: dict) -> tuple[float, float]:
    """Return the least and the greatest value; excluded bounds move by a step."""
    whole = _kind(schema) == "integer"
    low, high = _given(schema, "minimum", -math.inf), _given(schema, "maximum", math.inf)
    if "exclusiveMinimum" in schema:
        bound = _given(schema, "exclusiveMinimum", 0)
        low = max(low, math.floor(bound) + 1 if whole else math.nextafter(bound, math.inf))
    if "exclusiveMaximum" in schema:
        bound = _given(schema, "exclusiveMaximum", 0)
        high = min(high, math.ceil(bound) - 1 if whole else math.nextafter(bound, -math.inf))
    return low, high
