"""A short text that a regular expression matches, found without running the expression.

Repetitions are as few as allowed, and of alternatives the shortest is taken. What lies outside a text, look-around
and anchors, is left out, so that an expression with it may not match the text.
"""
import re
from collections.abc import Iterable
from re import _constants as op
from re import _parser as parser
from typing import Any

MOST_CHARACTERS = 100_000       # of the text
MOST_OF_PATTERN = 10_000        # of the expression
OF_CATEGORY = {op.CATEGORY_DIGIT: "0", op.CATEGORY_SPACE: " ", op.CATEGORY_WORD: "a", op.CATEGORY_NOT_DIGIT: "a",
               op.CATEGORY_NOT_SPACE: "a", op.CATEGORY_NOT_WORD: " "}
COMMON = [chr(i) for i in (*range(97, 123), *range(48, 58), *range(32, 48), *range(58, 97), *range(123, 127))]


class NoText(ValueError):
    """There is no such text, or it is too long."""


def shortest_match(pattern: str) -> str:
    """Return the text. Raises NoText."""
    if len(pattern) > MOST_OF_PATTERN:
        raise NoText(f"an expression of more than {MOST_OF_PATTERN} characters")
    try:
        return _of(parser.parse(pattern), {})
    except (re.error, RecursionError, OverflowError) as error:
        raise NoText(str(error)) from None


def _of(parsed: Iterable, groups: dict[int, str]) -> str:
    text = ""
    for kind, value in parsed:
        text += _item(kind, value, groups)
        if len(text) > MOST_CHARACTERS:
            raise NoText(f"more than {MOST_CHARACTERS} characters")
    return text


def _item(kind: Any, value: Any, groups: dict[int, str]) -> str:
    if kind is op.LITERAL:
        return chr(value)
    if kind is op.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if kind is op.ANY:
        return "a"
    if kind is op.IN:
        return _character(value)
    if kind is op.BRANCH:
        return min((_of(each, groups) for each in value[1]), key=len)
    if kind is op.SUBPATTERN:
        text = _of(value[3], groups)
        if value[0] is not None:
            groups[value[0]] = text
        return text
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        text = _of(value[2], groups) if value[0] else ""
        if len(text) * value[0] > MOST_CHARACTERS:
            raise NoText(f"more than {MOST_CHARACTERS} characters")
        return text * value[0]
    if kind is op.ATOMIC_GROUP:
        return _of(value, groups)
    if kind is op.GROUPREF:
        return groups.get(value, "")
    if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
        return ""
    raise NoText(f"{str(kind).lower()} is not known here")


def _character(members: list) -> str:
    """Return a character of a set."""
    if members[0][0] is op.NEGATE:
        for character in COMMON:
            if not any(_has(member, character) for member in members[1:]):
                return character
        raise NoText("a set of characters has no common one")
    kind, value = members[0]
    if kind is op.LITERAL:
        return chr(value)
    return chr(value[0]) if kind is op.RANGE else OF_CATEGORY[value]


def _has(member: tuple, character: str) -> bool:
    kind, value = member
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    positive = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_SPACE: r"\s", op.CATEGORY_WORD: r"\w",
                op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_NOT_WORD: r"\W"}[value]
    return re.match(positive, character) is not None
