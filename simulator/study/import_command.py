"""`python -m simulator import FILE... --as measured --out DIR`: measurements of other tools, converted for studies."""
import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from simulator.errors import InputErrors, collect_faults, did_you_mean
from simulator.study.measured.formats import Format, format_of, read
from simulator.study.measured.record import Measured, counted
from simulator.study.measured.source import ENDINGS, Source
from simulator.study.measured.write import ABOUT, check_free, write

DONE = 0


class _Found(NamedTuple):
    source: Source
    format: Format
    sets: list[Measured]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=(
        "vllm bench serve --save-detailed, GuideLLM, AIPerf profile_export.jsonl, inference-perf, TraceV2, "
        "LLMServingSim's bench, logs of iterations; plain or .gz, known by their content"))
    parser.add_argument("--as", dest="kind", required=True, choices=("measured",), help="kind of the output")
    parser.add_argument("--out", required=True, metavar="DIR", help=(
        "where observed.csv, steps.csv and dataset.toml go; of several data sets a folder each"))
    parser.add_argument("--about", action="append", default=[], metavar="KEY=TEXT", help=(
        f"provenance, for dataset.toml: {', '.join(ABOUT)}; repeatable"))
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier import")
    parser.add_argument("--quiet", action="store_true", help="no list of files; notes are printed")


def run(options: argparse.Namespace) -> int:
    """Write the data sets, print the notes of each; return the exit status.

    Raises
    ------
    InputErrors
        Faults of all files, by line; nothing is written.
    """
    about, found = collect_faults(lambda: _about(options.about), lambda: _read(options.files))
    sets = _joined(found)
    folders = _folders(sets, Path(options.out))
    for folder in folders:
        check_free(folder, options.overwrite)
    for (source, each), folder in zip(sets, folders):
        said = {"source": f"{Path(source.source.path).name}, {source.format.name}"} | about
        names = write(each, folder, said)
        if not options.quiet:
            counts = [counted(len(each.requests), "request")] * bool(each.requests)
            counts += [counted(len(each.steps), "iteration")] * bool(each.steps)
            print(f"{source.source.path}: {source.format.name}: {', '.join(counts)} in {folder}: {', '.join(names)}")
        for note in each.notes:
            print(f"note: {source.source.path}: {note}", file=sys.stderr)
    return DONE


def _about(texts: list[str]) -> dict[str, str]:
    given, faults = {}, []
    for text in texts:
        key, is_pair, value = text.partition("=")
        if key not in ABOUT or not is_pair or not value:
            faults.append(f"--about: expected KEY=TEXT, found {text!r}{did_you_mean(key, ABOUT)}")
        given[key] = value
    if faults:
        raise InputErrors(faults)
    return given


def _read(files: list[str]) -> list[_Found]:
    """Return the content of the files; a file that is read as part of another is skipped."""
    mains = {(Path(file).parent, _stem(file)) for file in files if _is_main(file)}
    needed = [file for file in dict.fromkeys(files)
              if _is_main(file) or _is_log(file) or (Path(file).parent, _stem(file)) not in mains]
    return collect_faults(*(lambda file=file: _read_one(file) for file in needed))


def _read_one(file: str) -> _Found:
    source = Source(file)
    chosen = format_of(source)
    return _Found(source, chosen, read(source))


def _joined(found: list[_Found]) -> list[tuple[_Found, Measured]]:
    """Return the data sets; iterations belong to the requests with the same file stem."""
    sets = [(each, one) for each in found for one in each.sets]
    with_requests = {(Path(each.source.path).parent, each.source.stem): i for i, (each, one) in enumerate(sets)
                     if one.requests}
    joined, taken = [], {}
    for each, one in sets:
        main = with_requests.get((Path(each.source.path).parent, each.source.stem))
        if one.requests or main is None:
            joined.append((each, one))
        else:
            taken[main] = one
    return [(each, _with_steps(one, taken.get(sets.index((each, one))))) for each, one in joined]


def _with_steps(found: Measured, log: Measured | None) -> Measured:
    if log is None:
        return found
    if found.steps:
        return found._replace(notes=(*found.notes, (
            f"a second log, of {counted(len(log.steps), 'iteration')}, is not used: steps.csv has those with times.")))
    return found._replace(steps=log.steps, notes=found.notes + log.notes)


def _folders(sets: list[tuple[_Found, Measured]], out: Path) -> list[Path]:
    if len(sets) == 1:
        return [out]
    names = [one.name for _, one in sets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputErrors([f"--out: {out / name} would hold several data sets; import them one by one"
                           for name in twice])
    return [out / name for name in names]


def _stem(file: str) -> str:
    name = Path(file).name.removesuffix(".gz")
    ending = next((each for each in ENDINGS if name.endswith(each)), "")
    return name.removesuffix(ending)


def _is_main(file: str) -> bool:
    return Path(file).name.removesuffix(".gz").endswith(ENDINGS[0])


def _is_log(file: str) -> bool:
    return Path(file).name.removesuffix(".gz").endswith(".iteration_log.txt")
