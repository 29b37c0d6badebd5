"""`python -m simulator export DIR --as FORMAT`: results in the files of other tools."""
import argparse
import sys
from pathlib import Path

from simulator.results.directory import check_free, staged
from simulator.results.export.formats import FORMATS
from simulator.results.export.source import Source
from simulator.results.progress import RowProgress

DONE = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("directory", metavar="DIR", help="results of a run")
    parser.add_argument("--as", dest="format", required=True, choices=FORMATS, help=(
        "vidur, simai: request_metrics.csv, batch_metrics.csv, chrome_trace.json, config.json; "
        "blis: metrics.json, results.json; csv, parquet: each table"))
    parser.add_argument("--out", metavar="FOLDER", help="where the files go; default: DIR_FORMAT, beside DIR")
    parser.add_argument("--overwrite", action="store_true", help="replace what was exported before")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no word of where the files are")


def run(options: argparse.Namespace) -> int:
    """Write the files, say what is blank in them; return the exit status.

    Raises
    ------
    InputErrors
        No such results, a table that the format needs was not written, an extra is not installed, or the place is
        taken.
    """
    directory = Path(options.directory).absolute()
    chosen = FORMATS[options.format]
    out = options.out or directory.with_name(f"{directory.name}_{options.format}")
    check_free(out, options.overwrite, chosen.contents())       # before anything is read
    source = Source(directory)
    with staged(out, options.overwrite, chosen.contents()) as folder, RowProgress(options.quiet) as progress:
        notes = chosen.write(source, folder, progress.show)
    if not source.summary["complete"]:
        notes = ["the run was interrupted: what it did not reach is missing", *notes]
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    if not options.quiet:
        print(f"exported to {out}")
    return DONE
