"""Published figures of serving systems, reproduced: each experiment run, and its distance to the published number.

`python tools/reproduce.py [NAME...]` runs the figures of configs/reproduce/published.toml whole, prints a report, and
writes configs/reproduce/results.json and docs/howto/reproductions.md. `--small` runs the scaled-down experiments that
tests/docs/test_reproductions.py runs, and writes their results alone.

Keys of published.toml: `title`, `source` (paper, section, table or figure), `url`, `ours` (differences of the
experiment), `small` (overrides of each run in the tests), `seeds` (a number is the mean over them; the tests run the
first), `[NAME.runs.RUN]` and `[[NAME.numbers]]`. A run has `file`,
an experiment or a study of this folder, or `command`, words of a command line that prints JSON or writes it to
`JSON_FILE`; `set`, overrides; `prefill`, lists of number, tokens and cached tokens, and `decode`, lists of number and
context: the run is one iteration of that batch; `quality`, the pace of readers, `expected_ttft_s` and `tokens_per_s`:
the result is their mean quality of experience, or, with `least`, `from` and `to`, the largest rate of arrival with as
much. Paths of both begin in the repository, or with `SHARED`, the folder of
recorded runs and traces. A number has `what`, `published`, `unit`, `tolerance` (relative), `formula`, arithmetic over
slots {RUN path}, and `reason`, if the figure does not come out. `unknown` names a fact that the source lacks, and
`bounds`, formulas, what ours is at its ends; without `bounds` the fact is the draw, and the seeds are its range.
"""
import argparse
import ast
import contextlib
import io
import json
import operator
import os
import re
import shlex
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import simulator
from simulator import cli

HOME = Path(__file__).parents[1]
FOLDER = HOME / "configs/reproduce"
RESULTS = FOLDER / "results.json"
PAGE = HOME / "docs/howto/reproductions.md"
SLOT = re.compile(r"\{(\w+) ([^{}]+)\}")
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
SHARED = Path(os.environ.get("SIM_GOLDENS", HOME.parent / "shared/goldens")).parent     # recorded runs and traces
RATE = "workload.arrival.rate_per_s"
JSON_FILE = "JSON_FILE"         # in the words of a command: a temporary file
WIDTH = 140                     # of the page
FOREWORD = """\
Headline figures of serving systems beside the same quantity in this simulator. Each has an experiment in
`configs/reproduce`, which `python -m simulator` runs, or the command in its first lines;
`configs/reproduce/published.toml` has the published numbers, their sources and the tolerances. One command runs all
whole and writes this page:
"""
FOREWORD_2 = """\
A figure comes out if it is within the tolerance of its row. Where the source lacks a fact of the experiment, the range
of ours over what that fact can be is in brackets, and a published number inside it is "in range". The fact, or the
reason of a distance, is below the table. Prices of operators were fitted to kernels and engines of 2025, so that ratios
of systems come out more often than times of 2022 to 2024.
"""
ABSENT = (
    "Vidur's own fidelity: its authors measured an engine of theirs, with host times that its repository lacks. Its "
    "search for capacity is repeated probe by probe in `tests/study/capacity/test_search.py`.",
    "DistServe's later figures: no document beside this project has their numbers.",
    "Autoscalers on the traces of Azure and BurstGPT: no published number fixes the policies, and BurstGPT's trace is "
    "not stored beside this project. [Choosing an autoscaler](autoscalers.md) compares them on a day of our own.",
)


def figures(file: Path = FOLDER / "published.toml") -> dict[str, dict]:
    """Return the figures by name."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def overrides_of(figure: Mapping, run: Mapping, is_small: bool) -> dict[str, Any]:
    """Return the overrides of a run; those of the tests are above the others."""
    small = {**figure.get("small", {}), **run.get("small", {})} if is_small else {}
    return json.loads(json.dumps({**run.get("set", {}), **small}).replace("SHARED", str(SHARED)))


def settings_of(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as words of the command line."""
    return [f"--set={path}={_toml(value)}" for path, value in overrides.items()]


def _toml(value: Any) -> str:
    """Return a value as one line of TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def result_of(run: Mapping, overrides: Mapping[str, Any]) -> Any:
    """Return the results of a run: summary.json, capacity.json, times of a batch, or JSON of a command."""
    if "command" in run:
        return command_result(shlex.split(run["command"]) + settings_of(overrides))
    file = FOLDER / run["file"]
    if "prefill" in run or "decode" in run:
        return batch_result(file, run, overrides)
    if "quality" in run:
        return {"quality": quality_result(file, overrides, run["quality"])}
    if kind := study_kind(file):
        with tempfile.TemporaryDirectory() as out:
            options = ["--json", "--quiet", "--out", out]
            return command_result([kind, str(file), *options, *settings_of(overrides)])
    return simulator.run(file, overrides).summary


def study_kind(file: Path) -> str | None:
    """Return the kind of a study, which may be that of the file that it extends; None: an experiment."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    if kind := tables.get("study", {}).get("kind"):
        return kind
    return study_kind(file.parent / tables["extends"]) if "extends" in tables else None


def batch_result(file: Path, run: Mapping, overrides: Mapping[str, Any]) -> dict:
    """Return the predicted seconds of one iteration, and of each of its operators."""
    prompts = [(tokens, cached) for count, tokens, cached in run.get("prefill", ()) for _ in range(count)]
    decodes = [context for count, context in run.get("decode", ()) for _ in range(count)]
    found = simulator.predict(file, prompts, decodes, overrides=overrides)
    return {"seconds": found.seconds, "iteration_seconds": found.iteration_seconds, "breakdown": found.breakdown}


def quality_result(file: Path, overrides: Mapping[str, Any], readers: Mapping[str, float]) -> float:
    """Return the mean quality of experience, or the largest rate of arrival, requests/s, with at least `least`."""
    def mean(**more) -> float:
        found = simulator.run(file, {**overrides, "output.token_times": True, **more})
        offsets, times_ns = found.token_times
        waits = np.split(times_ns, offsets[1:-1])
        arrivals_ns = found.requests["arrival_ns"]
        return float(np.mean([quality((each - begin_ns) / 1e9, readers["expected_ttft_s"], readers["tokens_per_s"])
                              for each, begin_ns in zip(waits, arrivals_ns, strict=True)]))

    if "least" not in readers:
        return mean()
    low, high = readers["from"], readers["to"]
    while high > 1.02 * low:
        rate = (low * high) ** 0.5
        low, high = (rate, high) if mean(**{RATE: rate}) >= readers["least"] else (low, rate)
    return low


def quality(times_s: np.ndarray, expected_ttft_s: float, tokens_per_s: float) -> float:
    """Return the quality of experience of an answer: 1 if no token is late, towards 0 as all are.

    A reader wants token j at `expected_ttft_s` + j / `tokens_per_s` after the request, and reads it when it has come
    and `1 / tokens_per_s` have passed since the one before. The quality is 1 less the area between the tokens wanted
    and read over the area below the tokens wanted, until the last is read: areas as in Liu et al., arXiv 2404.16283.
    """
    paces_s = np.arange(len(times_s)) / tokens_per_s
    lates_s = np.maximum.accumulate(np.maximum(times_s - paces_s, expected_ttft_s)) - expected_ttft_s
    wanted = (lates_s[-1] + paces_s[-1] - paces_s).sum() if len(times_s) else 0.0
    return 1.0 - float(lates_s.sum() / wanted) if wanted else 1.0


def command_result(words: list[str]) -> Any:
    """Return the JSON that a command prints, or writes to JSON_FILE."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        quiet = contextlib.redirect_stderr(io.StringIO())
        with contextlib.redirect_stdout(printed), quiet:
            cli.main([word.replace("SHARED", str(SHARED)).replace(JSON_FILE, str(file)) for word in words])
        return json.loads(file.read_text(encoding="utf-8") if file.exists() else printed.getvalue())


def at(results: Any, path: str) -> float:
    """Return the number at a path of dotted keys and of places in lists; keys may have dots.

    Raises KeyError: the path leads nowhere, or to null.
    """
    if not path:
        return float(results)
    if isinstance(results, list):
        place, _, rest = path.partition(".")
        return at(results[int(place)], rest)
    keys = [key for key in results if f"{path}.".startswith(f"{key}.")] if isinstance(results, dict) else []
    key = max(keys, key=len, default=None)
    if key is None or results[key] is None:
        raise KeyError(path)
    return at(results[key], path[len(key) + 1:])


def value_of(formula: str, results: Mapping[str, Any]) -> float:
    """Return the value of a formula over the results of runs."""
    text = SLOT.sub(lambda slot: repr(at(results[slot[1]], slot[2])), formula)
    return _value(ast.parse(text, mode="eval").body)


def _value(node: ast.expr) -> float:
    """Return the value of a parsed formula: numbers, four operations and brackets."""
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Constant):
        return float(node.value)
    raise ValueError(ast.unparse(node))


def measured(figure: Mapping, is_small: bool) -> dict[str, float]:
    """Run a figure; return its numbers by their words, to six digits, and the ends of ranges by `end_of`."""
    seeds = figure.get("seeds", [None])[:1 if is_small else None]
    with contextlib.chdir(HOME):
        found = [{name: result_of(run, overrides_of(figure, run, is_small) | ({} if seed is None else {"seed": seed}))
                  for name, run in figure["runs"].items()} for seed in seeds]
    ours = {}
    for number in figure["numbers"]:
        what, values = number["what"], [value_of(number["formula"], results) for results in found]
        ours[what] = sum(values) / len(values)
        if "unknown" in number:
            values += [value_of(bound, results) for bound in number.get("bounds", ()) for results in found]
            ours |= {end_of(what, "least"): min(values), end_of(what, "most"): max(values)}
    return {what: float(f"{value:.6g}") for what, value in ours.items()}


def end_of(what: str, end: str) -> str:
    """Return the name of an end, "least" or "most", of the range of a number."""
    return f"{what}, {end}"


def needs_shared(figure: Mapping) -> bool:
    """Return whether a run reads recorded runs or traces."""
    return "SHARED" in json.dumps(figure["runs"])


def comes_out(number: Mapping, ours: float) -> bool:
    """Return whether ours is within the tolerance."""
    return abs(ours / number["published"] - 1) <= number["tolerance"]


def verdict(number: Mapping, ours: Mapping[str, float]) -> str:
    """Return whether a number comes out: "yes", "in range" or "no"."""
    what = number["what"]
    if comes_out(number, ours[what]):
        return "yes"
    is_inside = "unknown" in number and (
        ours[end_of(what, "least")] <= number["published"] <= ours[end_of(what, "most")])
    return "in range" if is_inside else "no"


def shown(value: float, published: float) -> str:
    """Return a number as precise as the published one is written."""
    return f"{value:,.{len(str(published).partition('.')[2])}f}"


def rows_of(figure: Mapping, ours: Mapping[str, float]) -> Iterator[str]:
    """Yield the rows of a figure in the table of the page."""
    for number in figure["numbers"]:
        value, unit = ours[number["what"]], number.get("unit", "")
        unit = unit and f" {unit}"
        published, tolerance = number["published"], 100 * number["tolerance"]
        ends = [shown(ours[end_of(number["what"], end)], published) for end in ("least", "most") if "unknown" in number]
        span = f" ({' to '.join(ends)})" if ends else ""
        yield (f"| {number['what']} | {shown(published, published)}{unit} | {shown(value, published)}{unit}{span} | "
               f"{100 * (value / published - 1):+.0f} % | {tolerance:g} % | {verdict(number, ours)} |")


def section_of(name: str, figure: Mapping, ours: Mapping[str, float]) -> str:
    """Return the part of the page on one figure."""
    files = dict.fromkeys(f"`configs/reproduce/{run['file']}`" for run in figure["runs"].values() if "file" in run)
    where = f"Experiment: {', '.join(files)}. " if files else ""
    about = f"Source: {figure['source']}, <{figure['url']}>. {where}{figure['ours']}"
    text = [f"## {figure['title']}", "", wrapped(about), "",
            "| quantity | published | ours | distance | tolerance | comes out |", "|---|---|---|---|---|---|",
            *rows_of(figure, ours)]
    reasons = [wrapped(f"- {number['what']}: {why(number)}", "  ") for number in figure["numbers"]
               if "unknown" in number or not comes_out(number, ours[number["what"]])]
    return "\n".join([*text, "", *reasons] if reasons else text)


def why(number: Mapping) -> str:
    """Return the fact that the source lacks, and the reason."""
    return " ".join([*([f"not given: {number['unknown']}."] if "unknown" in number else []),
                     *([number["reason"]] if "reason" in number else [])])


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph of the page in lines, with `indent` before all but the first."""
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False,
                                   break_on_hyphens=False))


def page(found: Mapping[str, Mapping], results: Mapping[str, Mapping]) -> str:
    """Return docs/howto/reproductions.md."""
    verdicts = [verdict(number, results[name]["whole"]) for name, figure in found.items()
                for number in figure["numbers"]]
    sections = [section_of(name, figure, results[name]["whole"]) for name, figure in found.items()]
    absent = "\n".join(wrapped(f"- {text}", "  ") for text in ABSENT)
    return "\n\n".join(["# Published figures, reproduced", wrapped(FOREWORD),
                        "```console\npython tools/reproduce.py\n```", wrapped(FOREWORD_2),
                        f"{verdicts.count('yes')} of {len(verdicts)} numbers of {len(found)} figures come out; "
                        f"{verdicts.count('in range')} more are in range.", *sections,
                        "## Not reproduced", absent]) + "\n"


def main() -> int:
    """Run figures, print a report, write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="figures of published.toml; default: all")
    parser.add_argument("--small", action="store_true", help="run the experiments of the tests alone")
    options = parser.parse_args()
    found = figures()
    if unknown := [name for name in options.names if name not in found]:
        parser.error(f"published.toml has no figure {', '.join(unknown)}; it has {', '.join(found)}")
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in options.names or found:
        for size in ("small",) if options.small else ("small", "whole"):
            if needs_shared(found[name]) and not SHARED.is_dir():
                print(f"\n{found[name]['title']}: left out, there is no {SHARED}")
                continue
            results.setdefault(name, {})[size] = ours = measured(found[name], size == "small")
            if size == "whole":
                print(f"\n{found[name]['title']}", *rows_of(found[name], ours), sep="\n", flush=True)
        kept = {key: results[key] for key in found if key in results}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if all("whole" in results.get(name, {}) for name in found):
        PAGE.write_text(page(found, results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
