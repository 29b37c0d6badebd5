"""`python -m simulator report`: results as one page, as pictures, or as plots in the terminal."""
import argparse
import os
import shutil
from pathlib import Path

from simulator.errors import InputErrors, OutputError
from simulator.results.directory import PICTURES, REPORT
from simulator.results.figures.draw import FORMATS, check_installed, picture
from simulator.results.figures.terminal import text_of
from simulator.results.reports.charts import charts_of
from simulator.results.reports.material import Material
from simulator.results.reports.page import page
from simulator.results.reports.shell import FIRST_LINE
from simulator.results.reports.verdict import bottleneck, verdict

__all__ = ["add_arguments", "check_installed", "run", "write_page"]

DONE = 0
LEAST_WIDTH, MOST_WIDTH = 40, 120       # columns of a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("directory", metavar="DIR", help="results of a run")
    parser.add_argument("--out", metavar="FILE", help=(
        f"where the page goes; default: DIR/{REPORT}; of pictures: their folder, default: DIR/{PICTURES}"))
    parser.add_argument("--format", choices=("html", *FORMATS), default="html",
                        help="html: one page that needs nothing else; png, svg, pdf: a file for each chart")
    parser.add_argument("--plot", action="store_true", help="show charts in the terminal, write nothing")
    parser.add_argument("--against", metavar="DIR2", help="results to compare with: distributions and differences")
    parser.add_argument("--request", metavar="ID", help="show where the time of this request went")
    parser.add_argument("--quiet", action="store_true", help="no word of where the files are")


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
    material = Material(options.directory)
    against = None if options.against is None else Material(options.against)
    if options.plot:
        _plot(material, against, options.request)
        return DONE
    if options.format == "html":
        told = _write_page(material, against, options.request, options.out)
    else:
        told = _write_pictures(material, against, options)
    if not options.quiet:
        print(f"report in {told}")
    return DONE


def write_page(directory: str | os.PathLike) -> Path:
    """Write the report of results into their directory; return its place."""
    return _write_page(Material(directory), None, None, None)


def _write_page(material: Material, against: Material | None, request: str | None, out: str | None) -> Path:
    place = material.directory / REPORT if out is None else Path(out)
    _check_page(place)
    _put(place, page(material, against, request).encode())
    return place


def _check_page(place: Path) -> None:
    """Refuse a place where something else than a report lies, or that has no folder."""
    if place.is_dir():
        raise InputErrors([f"--out: {place}: is a folder; give the name of a file"])
    if not place.absolute().parent.is_dir():
        raise InputErrors([f"--out: {place}: there is no folder {place.parent}"])
    if place.exists():
        with open(place, "rb") as file:
            if file.read(len(FIRST_LINE)) != FIRST_LINE.encode():
                raise InputErrors([f"--out: {place}: exists and is no report; choose another name"])


def _write_pictures(material: Material, against: Material | None, options: argparse.Namespace) -> Path:
    folder = material.directory / PICTURES if options.out is None else Path(options.out)
    if folder.exists() and not folder.is_dir():
        raise InputErrors([f"--out: {folder}: is a file; pictures go into a folder"])
    check_installed()
    drawn = {f"{chart.name}.{options.format}": picture(chart, options.format)
             for chart in charts_of(material, against, options.request)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputErrors([f"--out: {folder}: cannot be written: {error.strerror}"]) from error
    for name, content in drawn.items():
        _put(folder / name, content)
    return folder


def _put(place: Path, content: bytes) -> None:
    """Write a file whole, or leave what was there."""
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, place)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno in OutputError.ERRNOS:
            raise OutputError(place, error) from error
        raise InputErrors([f"{place}: cannot be written: {error.strerror}"]) from error


def _plot(material: Material, against: Material | None, request: str | None) -> None:
    width = min(max(shutil.get_terminal_size((100, 24)).columns, LEAST_WIDTH), MOST_WIDTH)
    shown = [text_of(chart, width) for chart in charts_of(material, against, request)]
    print(verdict(material))
    print(bottleneck(material))
    for text in (*shown, *material.absent.values()):
        print(f"\n{text}")
