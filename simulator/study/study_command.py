"""`python -m simulator study status | merge | table | check DIR`: commands for an existing study, running or not."""
import argparse
import csv
import io
import json
import sys
from pathlib import Path

from simulator.errors import InputErrors, MissingExtra
from simulator.study.report_command import check_installed, write_page
from simulator.study.sweep import plan
from simulator.study.sweep.campaign import Campaign, How, study_in
from simulator.study.sweep.merge import csv_of, own_requests, runs_table
from simulator.study.sweep.segments import FOLDER, NOT_DETERMINISTIC, read_all
from simulator.study.sweep.trial import STATUSES
from simulator.study.telling.screen import show

DONE, FAULTS = 0, 1
ASIDE = ".damaged"              # ending of a segment that was set aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("action", choices=("status", "merge", "table", "check"), help=(
        "status: how far it is; merge: make its tables; table: print the runs; check: look for damage"))
    parser.add_argument("directory", metavar="DIR", help="directory of a study")
    parser.add_argument("--format", choices=("csv", "json", "parquet"), default="csv", help="of table; default: csv")
    parser.add_argument("--report", action="store_true", help="merge: write report.html, too")
    parser.add_argument("--repair", action="store_true", help="check: set damaged segments aside")


def run(options: argparse.Namespace) -> int:
    """Do the action; return the exit status.

    Raises
    ------
    InputErrors
        There is no study, or its segments are damaged.
    """
    directory = Path(options.directory).absolute()
    if not (directory / plan.NAME).is_file():
        raise InputErrors([f"{options.directory}: no study: there is no {plan.NAME}"])
    if options.report and options.action != "merge":
        raise InputErrors([f"--report: goes with merge, not with {options.action}; `simulator report DIR` writes a "
                           "report of what is there"])
    return {"status": _status, "merge": _merge, "table": _table, "check": _check}[options.action](directory, options)


def _planned(directory: Path) -> list:
    return [*plan.read(directory / plan.NAME), *plan.added(directory)]


def _status(directory: Path, options: argparse.Namespace) -> int:
    ids, stored = {trial.id for trial in _planned(directory)}, read_all(directory)
    counts = {status: sum(end.status == status for id, end in stored.finished.items() if id in ids)
              for status in STATUSES}
    ended = sum(counts.values())
    counted = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    print(f"{ended:,} of {len(ids):,} runs{f': {counted}' if counted else ''}")
    return DONE


def _merge(directory: Path, options: argparse.Namespace) -> int:
    if options.report:
        check_installed()
    campaign = Campaign(study_in(directory), directory, How())
    summary = campaign.merge()
    missing = f"; {summary['missing']:,} runs are missing" if summary["missing"] else ""
    print(f"{summary['runs']:,} runs of {summary['points']:,} points in {directory / 'table.h5'}{missing}")
    show(print, campaign.said(), campaign.study.base, False)
    if options.report:
        print(f"report in {write_page(directory)}")
    return DONE


def _table(directory: Path, options: argparse.Namespace) -> int:
    planned, stored = _planned(directory), read_all(directory)
    own = own_requests(study_in(directory))
    table = runs_table(planned, [stored.finished.get(trial.id) for trial in planned], own)
    if options.format == "csv":
        print(csv_of(table), end="")
    elif options.format == "json":
        print(json.dumps(list(csv.DictReader(io.StringIO(csv_of(table)))), indent=1))
    else:
        _parquet(table, directory)
    return DONE


def _parquet(table, directory: Path) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra(["--format parquet needs pyarrow: install it with pip install 'simulator[parquet]'"
                            ]) from None
    columns = {name: [value.decode() for value in column.tolist()] if column.dtype.kind == "S" else column
               for name, column in ((name, table[name]) for name in table.dtype.names)}
    path = directory / "table.parquet"
    parquet.write_table(pa.table(columns), path)
    print(path)


def _check(directory: Path, options: argparse.Namespace) -> int:
    stored = read_all(directory)
    damaged = sorted({fault.split(":")[0] for fault in stored.faults if not fault.startswith(NOT_DETERMINISTIC)})
    for fault in stored.faults:
        print(fault, file=sys.stderr)
    if options.repair:
        for name in damaged:
            Path(name).rename(name + ASIDE)
            print(f"{name} is set aside; its runs are done again")
    ids = {trial.id for trial in _planned(directory)}
    print(f"{len(stored.finished.keys() & ids):,} of {len(ids):,} runs in "
          f"{len(list((directory / FOLDER).glob('*.jsonl')))} segments; {stored.num_torn} torn, {len(stored.faults)} "
          "faults")
    return FAULTS if stored.faults and not (options.repair and not stored.differing) else DONE
