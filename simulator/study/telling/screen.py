"""Tables and sentences of studies on a screen of 80 columns, for any keys and values."""
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from textwrap import wrap
from typing import Any

from simulator.config.experiment import Experiment
from simulator.errors import on_a_line
from simulator.results.colours import coloured
from simulator.results.report import COLUMNS_OF_A_SCREEN
from simulator.study.telling.said import Said, aged_prices

GAP = "  "
MOST_HEAD_LINES = 4             # of a head that is broken so that a table fits; a wider one is cut into parts
HEAD_LINES = 2                  # of a head in these parts
MOST_KEYS = 4                   # columns that each part repeats
WORD = 16                       # letters of a piece of a head that is not broken
PIECE = re.compile(r".[^ ._,=+-]*[ ._,=+-]*")         # where a text may be broken: behind these

Rows = Sequence[Sequence[str]]


def show(tell: Callable[..., None], said: Said, base: Experiment, is_quiet: bool, **how: Any) -> None:
    """Print the remarks of runs below the answer of a study.

    With --quiet only the warnings are printed, on stderr, as `run` does. Old prices are always reported there: they
    depend on the day.

    Parameters
    ----------
    tell : `print`. base : experiment, for the age of its prices.
    how : `things` and `names`, as in `Remark.line`; `on_stderr`: all goes to stderr, stdout having the layout of
        another tool's.
    """
    on_stderr = how.pop("on_stderr", False)
    lines = said.warnings(**how) if is_quiet else said.lines(**how)
    stream = sys.stderr if is_quiet or on_stderr else sys.stdout
    if lines:
        tell(coloured("\n".join(["", *lines][stream is sys.stderr:]), stream), file=stream)
    for line in aged_prices(base, date.today()):
        tell(coloured(line, sys.stderr), file=sys.stderr)


def table_of(rows: Rows, keys: int = 1, left: Sequence[int] = (), beside: Sequence[int] = ()) -> str:
    """Return rows as a table that fits a screen.

    The natural layout, where it fits; else heads and cells of several lines; else parts below each other, each with
    the columns that identify the rows.

    Parameters
    ----------
    rows : the first is the head. keys : number of first columns; each part repeats the first four.
    left : columns with cells aligned to the left, the others to the right.
    beside : columns that stay with the one before them, where a part has room.
    """
    most = COLUMNS_OF_A_SCREEN
    rows = [[on_a_line(cell) for cell in row] for row in rows]
    if not any(row[-1] for row in rows) and len(rows[0]) > 1:       # a column of remarks, all empty
        rows = [row[:-1] for row in rows]
    head, *body = rows
    natural = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    if _total(natural) <= most:
        return _drawn(rows, natural, range(len(head)), left)
    bodies = [max([1, *map(width_of, column)]) for column in zip(*body, strict=True)] if body else [1] * len(head)
    for lines in range(1, MOST_HEAD_LINES + 1):
        widths = [_least(text, least, lines, most) for text, least in zip(head, bodies, strict=True)]
        if _total(widths) <= most:
            return _drawn(rows, widths, range(len(head)), left)
    keys = min(keys, len(head) - 1, MOST_KEYS)
    widths = [_least(text, least, HEAD_LINES, most) for text, least in zip(head, bodies, strict=True)]
    widths = [*widths[:keys], *(min(width, most // 2 - len(GAP) if keys else most) for width in widths[keys:])]
    room = most - max(widths[keys:]) - len(GAP)                 # for the keys of each part
    if keys and _total(widths[:keys]) > room:
        share = room // keys - len(GAP)
        widths = [*(min(width, share) for width in widths[:keys]), *widths[keys:]]
    parts = _parts(widths, keys, beside)
    return "\n\n".join(_drawn(rows, widths, part, left) for part in parts)


def numbered(name: str, cells: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a column of a table, and lines to go below it.

    A column with a long list or table, as JSON, gets numbers, which the lines explain.
    """
    if all(len(cell) <= WORD or cell[0] not in "[{" for cell in cells):
        return list(cells), []
    numbers = {cell: str(number) for number, cell in enumerate(dict.fromkeys(cells), 1)}
    return [numbers[cell] for cell in cells], [f"{name} {number}: {cell}" for cell, number in numbers.items()]


def figure(value: float) -> str:
    """Return a number in six digits, without an exponent."""
    text = f"{value:.6g}"
    return f"{Decimal(text):f}" if "e" in text else text


def lines_of(text: str, most: int = COLUMNS_OF_A_SCREEN) -> str:
    """Return sentences, one a line, broken where a line does not fit a screen."""
    return "\n".join("\n".join(_broken_sentence(line, most)) for line in text.split("\n"))


def width_of(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _broken_sentence(line: str, most: int) -> list[str]:
    if width_of(line) <= most:
        return [line]
    found = wrap(line, most, subsequent_indent=GAP, break_long_words=False, break_on_hyphens=False)
    return [part for each in found for part in (
        [each] if width_of(each) <= most else _broken(each, most))]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _least(text: str, least: int, lines: int, most: int) -> int:
    """Return the least width, from `least` on, at which a head takes at most `lines` lines."""
    words = [min(width_of(piece.rstrip()), WORD) for piece in PIECE.findall(text)]
    width = max(min(least, most), -(-width_of(text) // lines), *words, 1)
    while len(_broken(text, width)) > lines:
        width += 1
    return width


def _parts(widths: list[int], keys: int, beside: Sequence[int]) -> list[list[int]]:
    """Return the columns of each part: the keys, and as many others as fit beside them."""
    def fits(columns: Sequence[int]) -> bool:
        return _total([widths[each] for each in columns]) <= COLUMNS_OF_A_SCREEN

    first, groups = list(range(keys)), []
    for column in range(keys, len(widths)):
        if column in beside and groups and fits([*first, *groups[-1], column]):
            groups[-1].append(column)
        else:
            groups.append([column])
    parts: list[list[int]] = []
    for group in groups:
        if not parts or not fits([*parts[-1], *group]):
            parts.append(first.copy())
        parts[-1] += group
    return parts


def _drawn(rows: Rows, widths: Sequence[int], columns: Sequence[int], left: Sequence[int]) -> str:
    lines = []
    for row in rows:
        cells = [_broken(row[i], widths[i]) for i in columns]
        for number in range(max(map(len, cells))):
            parts = [_padded(cell[number] if number < len(cell) else "", widths[i], i in left)
                     for i, cell in zip(columns, cells, strict=True)]
            lines.append(GAP.join(parts).rstrip())
    return "\n".join(lines)


def _padded(text: str, width: int, is_left: bool) -> str:
    blanks = " " * (width - width_of(text))
    return text + blanks if is_left else blanks + text


def _broken(text: str, width: int) -> list[str]:
    """Return a text in lines of a width: broken behind a dot and the like where possible, else anywhere."""
    lines = [""]
    for piece in PIECE.findall(text):
        if width_of(lines[-1]) + width_of(piece.rstrip()) <= width:
            lines[-1] += piece
            continue
        lines.append("")
        for letter in piece:
            if width_of(lines[-1]) + width_of(letter) > width:
                lines.append("")
            lines[-1] += letter
    return [line.strip() for line in lines if line.strip()] or [""]
