"""Colours on a terminal: a verdict is seen before it is read.

Nothing is coloured elsewhere, where NO_COLOR is set to anything (no-color.org), or on a terminal with TERM=dumb.
"""
import os
import re
from typing import TextIO

GREEN, YELLOW, RED = "32", "33", "31"
WORDS = {               # coloured words, as they are printed
    r"(?<=: )stable$": GREEN,
    r"(?<=: )growing\b": YELLOW,
    r"(?<=: )overloaded\b": RED,
    r"\bINCOMPLETE\b": RED,
    r"^(warning|note)(?=: )": YELLOW,
    r"^(failed|timeout|killed)(?=: )": RED,
}
_PATTERN = re.compile("|".join(f"(?P<c{i}>{pattern})" for i, pattern in enumerate(WORDS)), re.MULTILINE)
_CODES = list(WORDS.values())


def coloured(text: str, stream: TextIO) -> str:
    """Return text with colours, if the stream takes them."""
    if not has_colours(stream):
        return text
    return _PATTERN.sub(lambda match: f"\x1b[{_code(match)}m{match[0]}\x1b[0m", text)


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which colours are wanted."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def _code(match: re.Match) -> str:
    return next(_CODES[i] for i in range(len(_CODES)) if match[f"c{i}"] is not None)
