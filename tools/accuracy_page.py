"""Writer of docs/scoreboard, docs/accuracy.md and the scores of backends, from the data sets of bench/accuracy.

The scores go into docs/guide/iteration_times.md, and into hardware/efficiency/checked.toml for studies.

`python tools/accuracy_page.py [--root FOLDER]` simulates all data sets, and those with one pool again without each
price of `operators`, one at a time, and with the prices that the other data sets choose. `--rows` keeps the scores
without a price of data sets that have the score of last time with all prices; with `--page` only the pages are written
again.
"""
import argparse
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from simulator.study.accuracy.ablation import BACKEND, METRICS, NOTHING, Ablated, ablate, all_prices
from simulator.study.accuracy.chosen import choose
from simulator.study.accuracy.data_set import Opened, open_all
from simulator.study.accuracy.files import csv_of, json_of, write_text
from simulator.study.accuracy.page import in_short, page
from simulator.study.accuracy.predict import OK
from simulator.study.accuracy.rows import Point
from simulator.study.accuracy.scoring import Score, overall_of, read_score, score

HOME = Path(__file__).parents[1]
SCORE, POINTS = HOME / "docs/scoreboard/score.json", HOME / "docs/scoreboard/points.csv"
PAGE, GUIDE = HOME / "docs/accuracy.md", HOME / "docs/guide/iteration_times.md"
CHECKED = HOME / "hardware/efficiency/checked.toml"
COMPARED = CHECKED.with_name("compared.toml")
COMPARED_HEAD = (
    "# Errors of predictions against real servers, by model and accelerator, in per cent: written by\n"
    "# tools/accuracy_page.py from docs/scoreboard/score.json, which has the sources. in_sample: prices were fitted on "
    "these very runs.\n")
BACKENDS = ("operators", "roofline")
QUOTED = re.compile(r"<!-- score (?P<backend>\w+) -->.*?<!-- -->")
SCORED = re.compile(r'^\[(?P<backend>\w+)\]\nchecked = (?P<checked>".*")\nscore = ".*"$', re.MULTILINE)
DIGITS = 4
MANY = 200          # pairs of a replay, at least


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.environ.get("SIM_DATA") or HOME / "../shared/data")
    parser.add_argument("--rows", action="store_true", help="keep scores without prices where scores are as before")
    parser.add_argument("--page", action="store_true", help="simulate nothing")
    options = parser.parse_args()
    if not options.page:
        data_sets = open_all([HOME / "bench/accuracy"], options.root)
        if absent := [path for each in data_sets for path in each.absent]:
            parser.error(f"files not found: {', '.join(absent)}")
        found, points = score(data_sets, BACKENDS, tell=print)
        of_one_pool = [each for each in data_sets if not any("pools" in case.tables for case in each.cases())]
        kept = kept_of(read_score(SCORE), committed(found)) if options.rows else ()
        ablations = ablated(of_one_pool, kept)
        chosen = choose(of_one_pool, ablations, print)
        write_text(SCORE, json_of(committed(msgspec.structs.replace(found, ablations=ablations, chosen=chosen))))
        write_text(POINTS, csv_of(Point, sampled(points)))
    found = read_score(SCORE)
    write_text(PAGE, page(found))
    write_text(GUIDE, quoting(GUIDE.read_text(encoding="utf-8"), found))
    write_text(CHECKED, scoring(CHECKED.read_text(encoding="utf-8"), found))
    write_text(COMPARED, comparing(found))


def kept_of(last: Score, found: Score) -> list[Ablated]:
    """Return scores without a price, of the prices of today and of data sets with the score of last time."""
    prices = {(price.name, price.overrides) for price in all_prices()}
    now, then = defaultdict(set), defaultdict(set)
    for scores, rows in ((now, [row for row in found.rows if row.backend == BACKEND and row.metric in METRICS]),
                         (then, [each for each in last.ablations if each.without == NOTHING and each.metric])):
        for each in rows:
            scores[each.data_set].add((each.model, each.gpu, each.metric, each.mape_pct, each.bias_pct))
    return [each for each in last.ablations
            if (each.without, each.overrides) in prices and now[each.data_set] == then[each.data_set]]


def ablated(data_sets: list[Opened], kept: Iterable[Ablated]) -> list[Ablated]:
    """Return scores without each price, one at a time; those that `kept` lacks are simulated."""
    has = {(each.without, each.data_set) for each in kept}
    found = list(kept)
    for price in all_prices():
        found += ablate([each for each in data_sets if (price.name, each.says.name) not in has], [price], tell=print)
    prices, names = [price.name for price in all_prices()], [each.says.name for each in data_sets]
    return sorted(found, key=lambda each: (prices.index(each.without), names.index(each.data_set)))


def committed(found: Score) -> Score:
    """Return a reproducible score: four decimals, no wall times."""
    rows = tuple(rounded(msgspec.structs.replace(row, wall_s=None)) for row in found.rows)
    return msgspec.structs.replace(found, rows=rows, overall=tuple(overall_of(rows)),
                                   rankings=tuple(map(rounded, found.rankings)),
                                   ablations=tuple(map(rounded, found.ablations)),
                                   chosen=tuple(map(rounded, found.chosen)))


def sampled(points: list[Point]) -> list[Point]:
    """Return our points with six digits; of replays, which have a point a request, one request in ten."""
    sizes = Counter((each.data_set, each.backend, each.metric) for each in points)
    kept, seen = [], Counter()
    for each in points:
        place = each.data_set, each.backend, each.metric
        seen[place] += 1
        if each.backend in BACKENDS and (sizes[place] < MANY or seen[place] % 10 == 1):
            kept.append(msgspec.structs.replace(each, measured=float(f"{each.measured:.6g}"),
                                                predicted=float(f"{each.predicted:.6g}")))
    return kept


def rounded(row: msgspec.Struct) -> msgspec.Struct:
    """Return a row with four decimals."""
    def short(value):
        if isinstance(value, dict):
            return {name: short(each) for name, each in value.items()}
        return round(value, DIGITS) if isinstance(value, float) else value

    return msgspec.structs.replace(row, **{name: short(getattr(row, name)) for name in row.__struct_fields__})


def quoting(guide: str, found: Score) -> str:
    """Return the guide with the score's text on backends between its marks."""
    return QUOTED.sub(
        lambda mark: f"<!-- score {mark['backend']} -->{in_short(found, mark['backend'])}<!-- -->", guide)


def comparing(found: Score) -> str:
    """Return compared.toml: the errors of our own backends, a line each."""
    engines = {each["name"]: (each["engine"], each["version"]) for each in found.data_sets}
    rows = [{"model": row.model, "hardware": row.gpu, "engine": engines[row.data_set][0],
             "version": engines[row.data_set][1], "backend": row.backend, "metric": row.metric, "runs": row.n,
             "mape_pct": round(row.mape_pct, 1), "bias_pct": round(row.bias_pct, 1), "in_sample": row.in_sample}
            for row in found.rows if row.status == OK and not row.published and row.mape_pct is not None]
    lines = [", ".join(f"{key} = {json.dumps(value)}" for key, value in row.items()) for row in rows]
    return "\n".join([COMPARED_HEAD, "rows = [", *(f"    {{{line}}}," for line in lines), "]", ""])


def scoring(facts: str, found: Score) -> str:
    """Return checked.toml with the score's text on backends."""
    return SCORED.sub(lambda own: f"[{own['backend']}]\nchecked = {own['checked']}\n"
                                  f'score = "{in_short(found, own["backend"])}"', facts)


if __name__ == "__main__":
    main()
