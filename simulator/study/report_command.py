"""`python -m simulator report`: results as one page, as pictures, or as plots in the terminal."""
import argparse
import os
import shutil
from importlib import import_module
from pathlib import Path

from simulator.core.paths import remove
from simulator.errors import InputErrors, OutputError
from simulator.results.directory import PICTURES, REPORT
from simulator.results.figures.chart import Chart
from simulator.results.figures.draw import FORMATS, check_installed, picture
from simulator.results.figures.terminal import text_of
from simulator.results.progress import RowProgress
from simulator.results.report import COLUMNS_OF_A_SCREEN
from simulator.results.reports.charts import charts_of
from simulator.results.reports.material import Material
from simulator.results.reports.page import page
from simulator.results.reports.shell import FIRST_LINE
from simulator.results.reports.verdict import bottleneck, verdict
from simulator.results.wild_values import refusing_wild_values
from simulator.study.reports.kinds import RUN, WORDS, check_pair, kind_of
from simulator.study.telling.screen import lines_of

__all__ = ["add_arguments", "check_installed", "run", "write_page"]

DONE = 0
LEAST_WIDTH, MOST_WIDTH = 40, 120       # columns of a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("directory", metavar="DIR", help=(
        "results of a run; or a sweep, a capacity search, a tuning study, a calibration"))
    parser.add_argument("--out", metavar="FILE", help=(
        f"where the page goes; default: DIR/{REPORT}; of pictures: their folder, default: DIR/{PICTURES}"))
    parser.add_argument("--format", choices=("html", *FORMATS), default="html",
                        help="html: one page that needs nothing else; png, svg, pdf: a file for each chart")
    parser.add_argument("--plot", action="store_true", help="show charts in the terminal, write nothing")
    parser.add_argument("--against", metavar="DIR2", help=(
        "results, or a study of the same kind, to compare with: distributions and differences"))
    parser.add_argument("--request", metavar="ID", help="of a run: show where the time of this request went")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no word of where the files are")


def run(options: argparse.Namespace) -> int:
    """Write the report; return the exit status.

    Raises
    ------
    InputErrors
        No such results or request, the extra is not installed, the place is taken, or options do not go together.
    """
    if options.plot and (options.out is not None or options.format != "html"):
        raise InputErrors(["--plot: shows charts in the terminal and writes nothing; --out and --format do not go with "
                           "it"])
    directory, against = Path(options.directory), None if options.against is None else Path(options.against)
    if against is not None:
        check_pair(directory, against)
    kind = kind_of(directory)
    if kind != RUN and options.request is not None:
        raise InputErrors([f"--request: {directory} holds {WORDS[kind]}, which keeps no requests; it shows the time of "
                           "a request of one run"])
    with refusing_wild_values(directory / "results.h5"), RowProgress(options.quiet) as progress:
        found = (_OfRun(directory, against, options.request, progress) if kind == RUN
                 else _OfStudy(directory, against))
        if options.plot:
            text = _plotted(found)
        elif options.format == "html":
            place = _write_page(found, directory, options.out)
        else:
            place = _write_pictures(found, directory, options)
    if options.plot:
        print(text)
    elif not options.quiet:
        print(f"report in {place}")
    return DONE


def write_page(directory: str | os.PathLike, quiet: bool = True) -> Path:
    """Write the report of a run or study into its directory; return its place.

    quiet : show no progress bar.
    """
    directory = Path(directory)
    with RowProgress(quiet) as progress:
        found = _OfRun(directory, None, None, progress) if kind_of(directory) == RUN else _OfStudy(directory, None)
        return _write_page(found, directory, None)


class _OfRun:
    """The report of a run.

    says : lines above the charts in a terminal.
    """

    def __init__(self, directory: Path, against: Path | None, request: str | None, progress: RowProgress):
        self._material = Material(directory, progress)
        self._against = None if against is None else Material(against, progress)
        self._request = request

    def page(self) -> str:
        """Return the report as HTML."""
        return page(self._material, self._against, self._request)

    def charts(self) -> list[Chart]:
        """Return its charts."""
        return charts_of(self._material, self._against, self._request)

    def says(self) -> list[str]:
        """Return the lines above the charts."""
        return [verdict(self._material), bottleneck(self._material)]

    def absent(self) -> list[str]:
        """Return the reasons for missing charts."""
        return list(self._material.absent.values())


class _OfStudy:
    """The report of a study; methods as those of `_OfRun`."""

    def __init__(self, directory: Path, against: Path | None):
        reports = import_module("simulator.study.reports.of_directory")     # 0.1 s, which reports of runs do without
        self._page = reports.page_of(directory, against)

    def page(self) -> str:
        """Return the report as HTML."""
        return import_module("simulator.study.reports.page").html_of(self._page)

    def charts(self) -> list[Chart]:
        """Return its charts."""
        return list(self._page.charts)

    def says(self) -> list[str]:
        """Return the lines above the charts."""
        return [self._page.says, self._page.more]

    def absent(self) -> list[str]:
        """Return the reasons for missing charts."""
        return list(self._page.absent)


def _write_page(found: _OfRun | _OfStudy, directory: Path, out: str | None) -> Path:
    place = directory / REPORT if out is None else Path(out)
    _check_page(place)
    _put(place, found.page().encode())
    return place


def _check_page(place: Path) -> None:
    """Refuse a place with another file than a report, or without a folder."""
    if place.is_dir():
        raise InputErrors([f"--out: {place}: is a folder; give the name of a file"])
    if not place.absolute().parent.is_dir():
        raise InputErrors([f"--out: {place}: there is no folder {place.parent}"])
    if place.exists():
        with open(place, "rb") as file:
            if file.read(len(FIRST_LINE)) != FIRST_LINE.encode():
                raise InputErrors([f"--out: {place}: exists and is no report; choose another name"])


def _write_pictures(found: _OfRun | _OfStudy, directory: Path, options: argparse.Namespace) -> Path:
    folder = directory / PICTURES if options.out is None else Path(options.out)
    if folder.exists() and not folder.is_dir():
        raise InputErrors([f"--out: {folder}: is a file; pictures go into a folder"])
    check_installed()
    drawn = {f"{chart.name}.{options.format}": picture(chart, options.format)
             for chart in found.charts()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputErrors([f"--out: {folder}: cannot be written: {error.strerror}"]) from error
    for name, content in drawn.items():
        _put(folder / name, content)
    return folder


def _put(place: Path, content: bytes) -> None:
    """Write a file whole, or leave the old one."""
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, place)
    except OSError as error:
        if error.errno in OutputError.ERRNOS:
            raise OutputError(place, error) from error
        raise InputErrors([f"{place}: cannot be written: {error.strerror}"]) from error
    finally:                    # after Ctrl-C, too
        remove(partial)


def _plotted(found: _OfRun | _OfStudy) -> str:
    width = min(max(shutil.get_terminal_size((COLUMNS_OF_A_SCREEN, 24)).columns, LEAST_WIDTH), MOST_WIDTH)
    shown = [text_of(chart, width) for chart in found.charts()]
    says, absent = ([lines_of(text, width) for text in texts] for texts in (found.says(), found.absent()))
    return "\n".join([*says, *(f"\n{text}" for text in (*shown, *absent))])
