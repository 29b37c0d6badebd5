"""`python -m simulator sweep STUDY.toml`: run every point of a study, store each result, resume after a stop."""
import argparse
import os
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path

from simulator.assembly.budget import least_bytes
from simulator.core.argument_types import duration_s
from simulator.core.paths import shell_word
from simulator.errors import InputErrors, number_of
from simulator.results.colours import coloured
from simulator.study.distributed.option import add_dask, elsewhere
from simulator.study.report_command import check_installed, write_page
from simulator.study.sweep.bench import Bench
from simulator.study.sweep.campaign import Campaign, How, failures
from simulator.study.sweep.machine import fitting, free_bytes, usable_cores
from simulator.study.sweep.manifest import text_of as text_of_study
from simulator.study.sweep.needs import check_metrics
from simulator.study.sweep.points_text import text_of
from simulator.study.sweep.preview import commented, not_run
from simulator.study.sweep.progress import SweepProgress
from simulator.study.sweep.shards import restarts, shard_of
from simulator.study.sweep.study_file import ALL_CHECKED, Study, check_points, read_study
from simulator.study.sweep.trial import REFUSED, STATUSES, Finished, Trial
from simulator.study.telling.screen import show
from simulator.study.watch import Watch

DONE, SOME_FAILED, NOTHING_RAN, RUN_AGAIN, SIGNAL = 0, 1, 2, 75, 128
SHOWN = 3                       # sentences of failed runs
RETRIED = tuple(status for status in STATUSES if status != "done")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("study", metavar="STUDY.toml", help="an experiment with a table [study]")
    parser.add_argument("--out", metavar="DIR", help="directory of the study; default: results/<name>")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; repeatable")
    parser.add_argument("--jobs", default="cores", metavar="N", help="processes side by side; default: the cores")
    parser.add_argument("--shard", metavar="I/N", help="run this share alone; or slurm: of its job array")
    add_dask(parser)
    parser.add_argument("--dry-run", action="store_true", help="print points, runs and an estimate; run nothing")
    parser.add_argument("--keep", choices=("none", "all"), default="none", help=(
        "all: the results of each run, in runs/ID"))
    parser.add_argument("--limit", type=int, metavar="N", help="more points than a million")
    parser.add_argument("--stop-after", type=duration_s, metavar="55m", help=(
        "start no run after this time, and exit with 75: run again"))
    parser.add_argument("--retry", type=_statuses, default=frozenset(), metavar="STATUS,...",
                        help=f"repeat runs with this status: {', '.join(RETRIED)}")
    parser.add_argument("--extend", action="store_true", help="take a study file that asks for more than it did")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first run that fails")
    parser.add_argument("--allow-failures", action="store_true", help="exit with 0 even if runs failed")
    parser.add_argument("--report", action="store_true", help="write report.html into DIR, too (extra `report`)")
    parser.add_argument("--quiet", action="store_true", help=(
        "the points alone, and warnings on stderr"))


def run(options: argparse.Namespace) -> int:
    """Run the missing runs; return the exit status, 2 where no point can run.

    Raises
    ------
    InputErrors
        Faults of the study, or another study lies in the directory; nothing is written.
    """
    _check_report(options)
    study = read_study(options.study, options.overrides, label="--set")
    check_metrics(study)
    shard = shard_of(options.shard, os.environ) if options.shard is not None else None
    if options.dask is not None and shard is not None:
        raise InputErrors(["--dask: expected none beside --shard: the workers of Dask share the runs themselves"])
    if options.dry_run:
        return _dry_run(study, options)
    directory = Path(options.out or study.base.output.directory or Path("results", study.name)).absolute()
    watch = Watch(options.stop_after)
    writer = None if shard is None else f"shard-{shard.index}-of-{shard.count}-{restarts(os.environ)}"
    with ExitStack() as opened:
        how = How(_jobs(options, study), watch.is_over, options.keep == "all",
                  elsewhere(options.dask, opened, watch.is_over), shard,
                  options.retry, options.limit, options.extend, writer)
        campaign = Campaign(study, directory, how)
        opened.enter_context(watch.interrupts)
        ends = _run_all(campaign, options, watch)
    return _conclude(campaign, directory, ends, options, watch, whole=shard is None)


def validated(file: str, overrides: list[str]) -> str:
    """Return the plan of a study as comments, and the study with all defaults.

    Nothing is run.

    Raises
    ------
    InputErrors
        All faults of the study.
    """
    study = read_study(file, overrides, label="--set")
    check_metrics(study)
    points = check_points(study)
    runs = f"{number_of(len(points), 'point')} x {number_of(len(study.seeds), 'seed')}"
    more = "; more where study.statistics.precision asks for them" if study.settings.statistics.precision else ""
    head = f"{runs}: {number_of(len(points) * len(study.seeds), 'run')}{more}"
    return commented([head, *not_run(study, points)]) + text_of_study(study)


def _check_report(options: argparse.Namespace) -> None:
    """Refuse a report where there will be none, before any run."""
    if options.report and (options.dry_run or options.shard is not None):
        other = "--dry-run, which runs nothing" if options.dry_run else (
            "--shard, which makes no tables; `simulator study merge DIR --report` does when all shards have ended")
        raise InputErrors([f"--report: does not go with {other}"])
    if options.report:
        check_installed()


def _run_all(campaign: Campaign, options: argparse.Namespace, watch: Watch) -> list[Finished]:
    ends = []
    if campaign.num_torn:
        print(f"note: {campaign.num_torn} run{'s' * (campaign.num_torn > 1)} had not been written to the end and "
              f"{'are' if campaign.num_torn > 1 else 'is'} done again", file=sys.stderr)
    mine = campaign.mine
    with SweepProgress(len({trial.id for trial in mine}), options.quiet,
                       partial(print, file=sys.stderr, flush=True)) as progress:
        for finished in campaign.run():
            ends.append(finished)
            progress.show(finished, len({trial.id for trial in campaign.planned}) if options.shard is None else None)
            if options.fail_fast and failures([finished]):
                watch.stop()
    return ends


def _conclude(campaign: Campaign, directory: Path, ends: list[Finished], options: argparse.Namespace,
              watch: Watch, whole: bool) -> int:
    summary = campaign.merge() if whole else None
    failed = failures(list({end.id: end for end in ends}.values()))
    if not options.quiet:
        print(_summary_text(campaign, ends, directory, summary))
    elif summary is not None:
        if table := _table(campaign):
            print(table)
        for line in _cautions(summary):
            print(coloured(f"warning: {line}", sys.stderr), file=sys.stderr)
    show(print, campaign.said(), campaign.study.base, options.quiet)
    if options.report:
        place = write_page(directory)
        if not options.quiet:
            print(f"report in {place}")
    for end in failed[:SHOWN]:
        print(coloured(f"{end.status}: id {end.id}, seed {end.seed}: {end.error}", sys.stderr), file=sys.stderr)
    if len(failed) > SHOWN:
        print(f"and {len(failed) - SHOWN} more", file=sys.stderr)
    refused = Counter(end.error for end in campaign.known.values() if end.status == REFUSED)
    for error, count in refused.most_common(SHOWN):
        print(coloured(f"refused: {number_of(count, 'run')}: {error}", sys.stderr), file=sys.stderr)
    if watch.interrupts.signal_number is not None:
        return SIGNAL + watch.interrupts.signal_number
    if campaign.missing() and not (options.fail_fast and failed):
        return RUN_AGAIN
    if failed and not options.allow_failures:
        return SOME_FAILED
    return NOTHING_RAN if campaign.known and refused.total() == len(campaign.known) else DONE


def _summary_text(campaign: Campaign, ends: list[Finished], directory: Path, summary: dict | None) -> str:
    counts = {status: len({end.id for end in ends if end.status == status}) for status in STATUSES}
    counted = ", ".join(f"{count:,} {status}" for status, count in counts.items() if count) or "none ended"
    missing = len({trial.id for trial in campaign.missing()})
    lines = [f"{counted}{f', {missing:,} missing' if missing else ''}"]
    if summary is not None:
        table = _table(campaign)
        lines = [table, ""] * bool(table) + lines
        lines += _cautions(summary)
        lines.append(f"tables in {directory}: table.csv, table.h5")
    else:
        lines.append(f"segments in {directory}; `simulator study merge {shell_word(directory)}` makes its tables")
    return "\n".join(lines)


def _cautions(summary: dict) -> list[str]:
    """Return warnings of points without a steady state, and of thin percentiles."""
    lines = [f"{summary[key]} of {summary['points']} points {words}" for key, words in (
        ("growing_points", "have no steady state: their queue grows"),
        ("thin_points", "have percentiles of too few requests (thin)")) if summary[key]]
    return lines + [f"{metric}: there is nothing to measure at {count} of {summary['points']} points"
                    for metric, count in summary["unmeasured_points"].items()]


def _table(campaign: Campaign) -> str:
    return text_of(campaign.points(), campaign.study.settings.statistics.metrics)


def _dry_run(study: Study, options: argparse.Namespace) -> int:
    """Print the plan of the study, and the duration of the first points."""
    points = check_points(study, options.limit)
    runs = len(points) * len(study.seeds)
    print(f"{len(points):,} points, {runs:,} runs")
    bench, took_s = Bench(study), []
    for number, point in enumerate(points[:study.settings.run.probe]):
        finished = bench.run(Trial(number, "", number, 0, study.seeds[0], point))
        took_s.append(finished.wall_s)
        print(f"point {number}: {finished.status}"
              + (f", {finished.summary['requests.injected']:,.0f} requests in {finished.wall_s:.3f} s"
                 if finished.status == "done" else f": {finished.error}"))
    if took_s:
        print(f"about {runs * sum(took_s) / len(took_s):,.1f} s of CPU")
    return DONE


def _jobs(options: argparse.Namespace, study: Study) -> int:
    """Return how many processes run side by side: as requested, fewer where memory does not hold them."""
    if options.jobs != "cores" and (not options.jobs.isdecimal() or int(options.jobs) < 1):
        raise InputErrors([f'--jobs: expected a whole number of at least 1, or "cores"; found "{options.jobs}"'])
    asked = usable_cores() if options.jobs == "cores" else int(options.jobs)
    chosen = fitting(asked, _peak_bytes(study), free_bytes())
    if chosen.notice and not options.quiet:
        print(f"note: {chosen.notice}", file=sys.stderr)
    return chosen.num_processes


def _peak_bytes(study: Study) -> float:
    """Return a lower bound of the largest run's memory; of many points the first are examined."""
    largest = 0.0
    for point in islice(study.points(), ALL_CHECKED):
        with suppress(InputErrors):             # reported when all points are checked
            largest = max(largest, least_bytes(study.experiment_of(point)))
    return largest


def _statuses(text: str) -> frozenset[str]:
    found = frozenset(filter(None, text.split(",")))
    if wrong := sorted(found - set(RETRIED)):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(RETRIED)}; found {', '.join(wrong)}")
    return found
