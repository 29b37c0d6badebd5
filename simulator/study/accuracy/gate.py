"""The gate of the published score: no deployment gets worse by more than a tenth and two points."""
import csv
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from simulator.errors import InputErrors
from simulator.study.accuracy.rows import Point
from simulator.study.accuracy.scoring import Scored

SHARE, POINTS_PCT = 0.10, 2.0       # by both of which a MAPE must have grown
NAMED = 3                           # points in a sentence
PER_CENT = 100.0


def read_points(file: str | os.PathLike) -> list[Point]:
    """Read points.csv.

    Raises
    ------
    InputErrors
        It cannot be read, lacks a column, or a line has no numbers.
    """
    try:
        with open(file, encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputErrors([f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from None
    faults, points = [], []
    for line, row in enumerate(rows, 2):
        try:
            points.append(msgspec.convert(
                {name: row[name] for name in Point.__struct_fields__}, Point, strict=False))
        except KeyError as missing:
            raise InputErrors([f"{file}:1: no column {missing.args[0]}"]) from None
        except msgspec.ValidationError as error:
            faults.append(f"{file}:{line}: {error}")
    if faults:
        raise InputErrors(faults)
    return points


def worsened(now: Scored, before: Iterable[Point]) -> list[str]:
    """Return a sentence for each deployment and metric that got worse.

    Data sets and backends that were not scored now are left out, and so are published predictions of others. The two
    mean errors are those of the points that both have; points that are gone have a sentence of their own.
    """
    sets = {each["name"] for each in now.score.data_sets}
    found = dict(_numbered(now.points))
    groups: dict[tuple[str, str, str], list[tuple]] = {}
    for key, point in _numbered(before):
        if point.data_set in sets and point.backend in now.score.backends:
            groups.setdefault((point.data_set, point.backend, point.metric), []).append((key, point))
    sentences = []
    for place, points in groups.items():
        pairs = [(point, found[key]) for key, point in points if key in found]
        if len(pairs) < len(points):
            sentences.append(f"{', '.join(place)}: {len(points) - len(pairs)} of {len(points)} points are gone")
        if pairs and (sentence := _sentence(place, pairs)):
            sentences.append(sentence)
    return sentences


def _sentence(place: tuple[str, str, str], pairs: list[tuple[Point, Point]]) -> str | None:
    old_pct, new_pct = (math.fsum(_ape_pct(pair[side]) for pair in pairs) / len(pairs) for side in (0, 1))
    if new_pct - old_pct <= POINTS_PCT or new_pct <= (1.0 + SHARE) * old_pct:
        return None
    grown = sorted(pairs, key=lambda pair: _ape_pct(pair[0]) - _ape_pct(pair[1]))[:NAMED]
    points = "; ".join(f"{old.label} {_ape_pct(old):.1f} to {_ape_pct(new):.1f} %" for old, new in grown)
    return (f"{', '.join(place)}: MAPE grew from {old_pct:.2f} to {new_pct:.2f} %, by more than "
            f"{PER_CENT * SHARE:.0f} % and {POINTS_PCT:g} points; most of all: {points}")


def _numbered(points: Iterable[Point]) -> Iterator[tuple[tuple, Point]]:
    """Yield each point with its key: runs with equal labels are counted."""
    seen: Counter[tuple] = Counter()
    for point in points:
        key = point.data_set, point.backend, point.label, point.metric
        yield (*key, seen[key]), point
        seen[key] += 1


def _ape_pct(point: Point) -> float:
    return PER_CENT * abs(point.predicted / point.measured - 1.0)
