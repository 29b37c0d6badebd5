"""`python -m simulator score [DATA...]`: predictions beside measurements of real machines."""
import argparse
import math
import os
import sys
from pathlib import Path

from simulator import registry
from simulator.errors import InputErrors
from simulator.study.accuracy import files, own
from simulator.study.accuracy.baseline import losses
from simulator.study.accuracy.case import NAMES
from simulator.study.accuracy.data_set import Opened, open_all
from simulator.study.accuracy.gate import read_points, worsened
from simulator.study.accuracy.predict import OK
from simulator.study.accuracy.scoring import Score, read_score, score

DONE, WORSE = 0, 1
DATA = os.path.join("bench", "accuracy")        # of a checkout
ROOT = os.path.join("..", "shared", "data")
PUBLISHED = os.path.join("docs", "scoreboard", files.POINTS)        # of a checkout
BACKENDS = ("operators", "roofline")            # backends for any model, fitted on none of the data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("data", nargs="*", metavar="DATA", default=[DATA], help=(
        f"a folder with dataset.toml, or of such folders; default: {DATA}"))
    parser.add_argument("--backend", dest="backends", action="append", metavar="NAME", help=(
        f"latency backend to be scored; repeatable; default: {', '.join(BACKENDS)}"))
    parser.add_argument("--root", metavar="FOLDER", help=(
        f"where the files of the data sets lie; default: $SIM_DATA, else {ROOT}"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of all experiments; VALUE is TOML; repeatable; recorded in the score")
    parser.add_argument("--out", metavar="DIR", help=(
        f"write DIR/{files.JSON}, {files.CSV}, {files.POINTS} (each pair), {files.PAGE}"))
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier score in DIR")
    parser.add_argument("--baseline", metavar="SCORE.json", help=(
        "an earlier score; the exit status is 1 if a MAPE has grown, or a row is gone"))
    parser.add_argument("--tolerance", type=_points, metavar="POINTS", default=1.0, help=(
        "percentage points by which a MAPE may grow; default: 1.0"))
    parser.add_argument("--gate", nargs="?", const=PUBLISHED, metavar="POINTS.csv", help=(
        "points of an earlier score; the exit status is 1 if the MAPE of a deployment has grown by more than a tenth "
        f"and 2 points, or a point is gone; data sets that are not scored are left out; default: {PUBLISHED}"))
    parser.add_argument("--add", action="append", default=[], metavar="FOLDER", help=(
        "data set of your own, as `import` writes it: copied into DIR of --out, and scored with each later score "
        "there; repeatable"))
    parser.add_argument("--quiet", action="store_true", help="no table, no progress")


def run(options: argparse.Namespace) -> int:
    """Print the rows, failed ones to stderr; return the exit status.

    0: done; 1: a MAPE is worse than in the baseline; the files are written.

    Raises
    ------
    InputErrors
        A data set lacks its provenance, differs from its description or cannot be read; nothing was simulated
        then.
    """
    backends = list(dict.fromkeys(options.backends or BACKENDS))
    for name in backends:
        try:
            registry.load("latency", name, ("",))
        except InputErrors as errors:
            raise InputErrors([f"--backend: {fault}" for fault in errors.faults]) from None
    before = read_score(options.baseline) if options.baseline else None
    points = read_points(options.gate) if options.gate else None
    scored = score(_opened(options), backends, options.overrides, _silent if options.quiet else _tell)
    for row in scored.score.rows:
        if row.status != OK:
            place = ", ".join(filter(None, row.key))
            print(f"{row.status}: {place}: {row.reason}", file=sys.stderr)
    if options.out:
        files.write(scored, Path(options.out))
    if not options.quiet:
        print(_table(scored.score))
        if options.out:
            print(f"\nscore in {options.out}")
    lines = losses(scored.score, before, options.tolerance) if before else []
    lines += worsened(scored, points) if points is not None else []
    return _failed(lines)


def _opened(options: argparse.Namespace) -> list[Opened]:
    """Return the data sets, with those that the board keeps; copy those that are added into it."""
    if options.add and not options.out:
        raise InputErrors(["--add: --out must name the board"])
    folders, added = options.data, own.checked(options.add)
    if options.out:
        files.check_free(Path(options.out), options.overwrite)
        kept = [folder for folder in own.kept_in(options.out) if Path(folder).name not in added]
        kept += map(str, added.values())
        is_elsewhere = folders == [DATA] and not os.path.isdir(DATA)
        folders = kept if kept and is_elsewhere else [*folders, *kept]
    data_sets = open_all(folders, options.root or os.environ.get("SIM_DATA") or ROOT)
    own.copy(added, options.out)
    return data_sets


def _failed(lines: list[str]) -> int:
    for line in lines:
        print(f"worse: {line}", file=sys.stderr)
    return WORSE if lines else DONE


def _table(found: Score) -> str:
    """Return the rows as text, and the medians over data sets."""
    lines = [["data set", "predictor", "model", "GPU", "metric", "n", "MAPE", "median", "bias", "mean", "covered",
              "wall s"]]
    lines += [[row.data_set, row.backend, row.model, row.gpu, NAMES[row.metric], str(row.n), _text(row.mape_pct),
               _text(row.median_ape_pct), _text(row.bias_pct, "+"), _text(row.mean_error_pct, "+"),
               _text(row.coverage_pct), _text(row.wall_s)]
              for row in found.rows if row.status == OK]
    lines += [[f"median of {each.data_sets}, {each.load}, {each.purpose}{', in sample' if each.in_sample else ''}",
               each.backend, "", "", NAMES[each.metric], "", _text(each.mape_pct), "", _text(each.bias_pct, "+"),
               *[""] * 3]
              for each in found.overall]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(
        cell.ljust(width) if i < 5 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip() for line in lines)


def _text(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1f}"


def _points(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected percentage points from 0 on, found {text!r}")
    return value


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _silent(line: str) -> None:
    pass
