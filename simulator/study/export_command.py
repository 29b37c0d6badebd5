"""`python -m simulator export`: results, or a simulated deployment, in the files of other tools."""
import argparse
import os
import sys
from pathlib import Path

from simulator.config.load import load_experiment
from simulator.errors import InputErrors, faults_of
from simulator.results.directory import check_free, staged
from simulator.results.export.formats import FORMATS
from simulator.results.export.source import Source
from simulator.results.progress import RowProgress
from simulator.results.wild_values import refusing_wild_values
from simulator.study.deployment.formats import FORMATS as DEPLOYMENTS
from simulator.study.deployment.formats import left_out_of, lowered_for, text_of

DONE = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("source", metavar="DIR", help="results of a run; or an experiment file, for its servers")
    parser.add_argument("--as", dest="format", required=True, choices=(*FORMATS, *DEPLOYMENTS), help=(
        "of results: vidur, simai: request_metrics.csv, batch_metrics.csv, chrome_trace.json, event_trace.json, "
        "config.json; blis: metrics.json, results.json; csv, parquet: each table. Of an experiment: vllm: commands; "
        "compose: Docker Compose; llm-d: values of its chart; llm-d-router: its router's EndpointPickerConfig, from "
        "policy = \"weighted\"; dynamo: a DynamoGraphDeployment with the settings of its router; hpa, keda: a "
        "HorizontalPodAutoscaler or ScaledObject of each pool, from the autoscaler \"hpa\""))
    parser.add_argument("--out", metavar="FOLDER", help=(
        "where the files go; default: DIR_FORMAT, beside DIR. Of an experiment: a file; default: the terminal"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the experiment; repeatable")
    parser.add_argument("--strict", action="store_true", help=(
        "refuse an experiment with keys that no server has, instead of writing them as comments"))
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no word of where the files are")


def run(options: argparse.Namespace) -> int:
    """Write the files, print a note for blank columns; return the exit status.

    Raises
    ------
    InputErrors
        No such results, a missing table that the format needs, an extra is not installed, the place is taken, or
        the format has no servers of the experiment's system.
    """
    return _export_servers(options) if options.format in DEPLOYMENTS else _export_results(options)


def _export_servers(options: argparse.Namespace) -> int:
    if os.path.isdir(options.source):
        raise InputErrors([f"{options.source}: a folder; --as {options.format} writes the servers of an experiment, a "
                           f"file; results of a run, a folder: --as {', '.join(FORMATS)}"])
    if options.out is not None:
        out = check_free_file(Path(options.out), options.overwrite)
    experiment = load_experiment(options.source, options.overrides, "--set")
    with faults_of(options.source):
        lowered = lowered_for(experiment, options.format)
        left_out, text = left_out_of(lowered, options.format), text_of(lowered, options.format)
    if options.strict and left_out:
        raise InputErrors([f"{options.source}: --strict: no server can be told {line}" for line in left_out])
    if options.out is None:
        print(text, end="")
        return DONE
    partial = out.with_name(f"{out.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    os.replace(partial, out)
    if not options.quiet:
        print(f"exported to {out}")
    return DONE


def check_free_file(path: Path, overwrite: bool) -> Path:
    """Return the path, absolute.

    Raises
    ------
    InputErrors
        The path exists, or its folder does not.
    """
    if path.is_dir() or (path.exists() and not overwrite):
        raise InputErrors([f"{path}: exists; --overwrite replaces a file, --out chooses another"])
    if not path.absolute().parent.is_dir():
        raise InputErrors([f"{path}: there is no folder {path.parent}"])
    return path.absolute()


def _export_results(options: argparse.Namespace) -> int:
    if options.overrides or options.strict:
        raise InputErrors([f"--set and --strict are of experiments: --as {options.format} exports results"])
    directory = Path(options.source).absolute()
    if directory.is_file():
        raise InputErrors([f"{options.source}: a file; --as {options.format} exports the results of a run, a folder; "
                           f"servers of an experiment: --as {', '.join(DEPLOYMENTS)}"])
    chosen = FORMATS[options.format]
    out = options.out or directory.with_name(f"{directory.name}_{options.format}")
    check_free(out, options.overwrite, chosen.contents())       # before any table is read
    with (refusing_wild_values(directory / "results.h5"), RowProgress(options.quiet) as progress,
          staged(out, options.overwrite, chosen.contents()) as folder):
        source = Source(directory)
        for name in source.table_names() if chosen.tables is None else chosen.tables:
            progress.expect(source.num_rows(name))
        notes = chosen.write(source, folder, progress.show)
    if not source.summary["complete"]:
        notes = ["the run was interrupted: what it did not reach is missing", *notes]
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    if not options.quiet:
        print(f"exported to {out}")
    return DONE
