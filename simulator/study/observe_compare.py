"""`observe --compare`: a server's metrics beside runs of its experiment."""
import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from simulator.core.argument_types import duration_s
from simulator.errors import InputErrors, OutputError, number_of
from simulator.results import coloured
from simulator.results.directory import check_free
from simulator.results.interrupts import Interrupts
from simulator.study.observe import files
from simulator.study.observe.client import check_installed
from simulator.study.server_check.check import PRICE_ERROR, check
from simulator.study.server_check.keeping import Keeper, Pages, keep
from simulator.study.server_check.reading import checked, read_series
from simulator.study.server_check.series import ServerSeries
from simulator.study.server_check.simulated import Subject
from simulator.study.server_check.text import content_of, text_of
from simulator.study.server_metrics.files import KEPT

DONE, DIFFERS, SIGNAL = 0, 1, 128
COMPARED = "compare.json"
EVERY_S = 5.0                   # between two pages of metrics
RUNNING = "vllm:num_requests_running"
ROUND_S = 60.0                  # a server that is watched: an answer so often
ONLY = {"metrics": "--metrics", "watch": "--watch", "every": "--every", "price_error": "--price-error"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the comparison to the parser of `observe`."""
    parser.add_argument("--compare", action="store_true", help=(
        "compare the server's metrics with runs of the experiment, and rank causes where they differ"))
    parser.add_argument("--metrics", nargs="+", metavar="FILE", help=(
        "with --compare: files in place of a server: pages of Prometheus' text format, answers of range queries, a "
        "folder of `observe`, vLLM's log; nothing is sent"))
    parser.add_argument("--watch", type=duration_s, metavar="60s", help=(
        "with --compare: read the server's metrics for this time and send nothing; an answer every minute"))
    parser.add_argument("--every", type=duration_s, metavar="5s", help="with --compare: time between two readings of "
                        "the metrics; default: 5s")
    parser.add_argument("--price-error", type=_share, metavar="SHARE", help=(
        "with --compare: error of the backend's iteration times, one standard deviation; default: "
        f"{PRICE_ERROR:g}; smaller for a calibrated experiment"))


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Raises
    ------
    InputErrors
        All faults of the options.
    """
    faults = []
    if not options.compare:
        faults += [f"{text}: needs --compare" for name, text in ONLY.items() if getattr(options, name) is not None]
    sends = options.metrics is None and options.watch is None
    if options.metrics is not None:
        faults += [f"{text}: expected none with --metrics, which are read instead of a server"
                   for name, text in (("url", "--url"), ("watch", "--watch"), ("every", "--every"))
                   if getattr(options, name) is not None]
    elif options.url is None:
        faults.append("--url: expected the address of a server, http://HOST:PORT")
    if sends and options.model is None:
        faults.append("--model: expected the name of the model on the server")
    if options.watch is not None and options.watch <= 2 * (options.every or EVERY_S):
        faults.append(f"--watch: expected more than two times of --every, {options.every or EVERY_S:g} s, found "
                      f"{options.watch:g} s")
    if faults:
        raise InputErrors(faults)


def run(options: argparse.Namespace, key: str | None) -> int:
    """Compare a watched server, or files of metrics; return the exit status.

    key : of the server.

    Raises
    ------
    InputErrors
        The experiment or the metrics cannot be read.
    OutputError
        The answer cannot be written.
    """
    subject = subject_of(options)
    out = check_free(options.out, options.overwrite, files.CONTENTS) if options.out else None
    if options.metrics is not None:
        return tell(options, subject, read_series(options.metrics), out)
    check_installed()
    if out is not None:
        make_room(out)
    with Interrupts() as interrupts:
        pages = Pages(out and out / KEPT)
        status = _watch(options, subject, pages, key, lambda: interrupts.signal_number is not None)
        return SIGNAL + interrupts.signal_number if interrupts.signal_number is not None else status


def _watch(options: argparse.Namespace, subject: Subject, pages: Pages, key: str | None,
           stops: Callable[[], bool]) -> int:
    """Read pages, and compare every minute and at the end."""
    end_s, status = time.monotonic() + options.watch, DONE
    while time.monotonic() < end_s and not stops():
        round_s = min(time.monotonic() + ROUND_S, end_s)
        asyncio.run(keep(pages, options.url, options.metrics_url, key, options.every or EVERY_S,
                         lambda until=round_s: stops() or time.monotonic() >= until))
        status = tell(options, subject, series_of_pages(pages, options.url), pages.path and pages.path.parent)
    return status


def keeper(options: argparse.Namespace, out: Path, key: str | None) -> tuple[Pages, Keeper]:
    """Return the pages of a server under load, and the thread that reads them."""
    pages = Pages(out / KEPT)
    return pages, Keeper(pages, options.url, options.metrics_url, key, options.every or EVERY_S)


def check_page(page: dict[str, float] | str, url: str) -> None:
    """Refuse a server without vLLM's metrics, before anything is sent.

    Raises
    ------
    InputErrors
        Its page of metrics is missing, or has no vllm:num_requests_running.
    """
    found = page if isinstance(page, str) else {key.partition("{")[0] for key in page}
    if isinstance(found, str) or RUNNING not in found:
        reason = found if isinstance(found, str) else f"no {RUNNING}"
        raise InputErrors([f"--compare: expected vLLM's metrics at {url}: {reason}; --metrics-url names another page"])


def series_of_pages(pages: Pages, url: str) -> ServerSeries:
    """Return the series of pages.

    Raises
    ------
    InputErrors
        There are too few pages; with the reason of the last missing page.
    """
    try:
        return checked(pages.series(), f"{url}/metrics")
    except InputErrors as error:
        last = list(pages.failures.values())[-1:]
        raise InputErrors([*error.faults, *(f"{url}/metrics: {reason}" for reason in last)]) from None


def tell_of_pages(options: argparse.Namespace, pages: Pages, warn: Callable[[str], None]) -> None:
    """Compare by the pages of a load that was sent; too few are a warning."""
    try:
        tell(options, subject_of(options), series_of_pages(pages, options.url), pages.path.parent)
    except InputErrors as errors:
        for fault in errors.faults:
            warn(f"--compare: {fault}")


def subject_of(options: argparse.Namespace) -> Subject:
    """Return the experiment of the options.

    Raises
    ------
    InputErrors
        It cannot be read, or has several pools.
    """
    subject = Subject(options.experiment, options.overrides)
    subject.check()
    return subject


def tell(options: argparse.Namespace, subject: Subject, series: ServerSeries, out: Path | None) -> int:
    """Compare, print the answer and write it; return the exit status."""
    answer = check(subject, series, PRICE_ERROR if options.price_error is None else options.price_error)
    source = options.url or (Path(options.metrics[0]).name if len(options.metrics) == 1 else
                             number_of(len(options.metrics), "file"))
    if not options.quiet:
        print(coloured(text_of(f"{subject.name} at {source}", answer), sys.stdout))
    if out is not None:
        make_room(out, is_new=False)
        staged = out / f".{COMPARED}.{os.getpid()}.partial"
        try:
            staged.write_text(json.dumps(content_of(subject.name, answer), indent=2, allow_nan=False) + "\n",
                              encoding="utf-8", newline="\n")
            os.replace(staged, out / COMPARED)
        except OSError as error:
            raise OutputError(out, error) from error
    return DONE if answer.is_right else DIFFERS


def make_room(out: Path, is_new: bool = True) -> None:
    """Make a directory; without files of an earlier measurement, where it is new."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path in out.iterdir() if is_new else ():
            path.unlink()
    except OSError as error:
        raise OutputError(out, error) from error


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and at most 1, found {text!r}")
    return value
