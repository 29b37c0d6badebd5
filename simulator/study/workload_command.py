"""`python -m simulator workload EXPERIMENT.toml`: the requests of an experiment, in numbers and as a native trace."""
import argparse
import os
from pathlib import Path

from simulator.assembly.context import block_tokens
from simulator.assembly.requests import requests_of
from simulator.config.load import load_experiment
from simulator.core.paths import remove, special
from simulator.errors import InputErrors, OutputError, faults_of
from simulator.results.report import wrapped_fact
from simulator.results.summary import json_text
from simulator.study.telling.said import wrapped
from simulator.study.telling.screen import table_of
from simulator.study.workload_facts import UNKNOWN_TIMES, facts_of, times_ns
from simulator.workload.base import Workload
from simulator.workload.formats.native_csv_writer import write_trace

DONE = 0
BARS = "▁▂▃▄▅▆▇█"
SHOWN_LABELS = 8
LEAD = '; time_origin = "trace" keeps the time before its first request'
COLUMNS = ("mean", "min", "p50", "p90", "p99", "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--out", metavar="TRACE.csv", help="write the requests as a native trace")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the facts of the workload, write it with --out; return the exit status.

    Raises
    ------
    InputErrors
        The experiment or its trace cannot be read; the workload cannot be written, or the file exists.
    OutputError
        The disk is full, or fails.
    """
    experiment = load_experiment(options.experiment, options.overrides, "--set")
    out = options.out and _check_free(options.out, options.overwrite)
    with faults_of(options.experiment):
        workload = requests_of(experiment)
        if out and workload.is_open_ended:
            raise InputErrors(["workload: a closed loop that only a duration bounds sends as many requests as are "
                               "served in time; give num_requests to write them down"])
        if out and experiment.workload.warmup.primers != "none":
            raise InputErrors(["workload.warmup.primers: a trace cannot say that they are over before others come; "
                               "leave them out to write it down"])
    if out:
        _write(out, workload)
    facts = facts_of(workload, block_tokens(experiment))
    if options.json:
        print(json_text({"name": experiment.name, "seed": experiment.seed, **facts}), end="")
        return DONE
    print(text_of(f"{experiment.name}, seed {experiment.seed}", facts))
    if out:
        count = len(workload) - workload.num_warmups
        how = _how_to_serve(workload, experiment.workload) + _lead_of(workload)
        print("\n".join(["", *wrapped(f"{count:,} requests in {options.out}{how}")]))
    return DONE


def _lead_of(workload: Workload) -> str:
    """Return the key that keeps the time before the first arrival, if there is any."""
    return LEAD if min(times_ns(workload), default=0) > 0 else ""


def _how_to_serve(workload: Workload, section) -> str:
    """Return the keys of [workload] that the trace lacks, to serve it in the same way."""
    if workload.script is None:
        return ""
    if section.load.mode == "user_rate":
        return '; the pace of the users is in it: serve it with mode = "timestamps"'
    is_known = len(times_ns(workload)) == len(workload.script.start_ns) - workload.num_warmups
    if is_known and section.load.mode == "stages" and not workload.num_warmups:
        return '; the times of the stages are in it: serve it with mode = "timestamps"'
    unknown = "" if is_known else f"; {UNKNOWN_TIMES}, it has 0 for them"
    if any(group.client_delay_ns is not None for group in workload.script.groups):     # of clients alone
        return f"{unknown}; the loads of clients are not in it"
    bound = " and duration_s" if getattr(section.parameters, "duration_s", None) is not None else ""
    but = " but private_prefix_tokens, which its prompts have" if section.load.private_prefix_tokens else ""
    if workload.num_warmups:
        bound += f" and [workload.warmup], whose {workload.num_warmups:,} requests are not in it"
    by = f"; `validate` prints what {section.filled_by} has there" if _is_filled(section) else ""
    return f"{unknown}; serve it with the same [workload.load]{but}{bound}{by}"


def _is_filled(section) -> bool:
    return getattr(section.parameters, "preset", "none") != "none"


def text_of(title: str, facts: dict) -> str:
    """Return the facts as lines of text."""
    guess = " drawn; how many are sent depends on how fast they are served" if facts["requests_are_a_guess"] else ""
    lines = [title, "", _line("requests", f"{facts['requests']:,}{guess}"), *_arrival_lines(facts["arrivals"])]
    if facts["warmups"]:
        lines.append(_line("warm-ups", f"{facts['warmups']:,} of them, which come before the others"))
    for key in ("plays", "sessions"):
        if facts[key]:
            rounds = facts[key]["requests"]
            lines.append(_line(key, f"{facts[key]['count']:,} of {rounds['min']:,.0f} to {rounds['max']:,.0f} "
                                    f"requests, {rounds['mean']:,.2f} on average"))
    lines += [_line(column, _counted(counts)) for column, counts in facts["labels"].items()]
    if facts["deadlines"]:
        lines.append(_line("deadlines", f"of {facts['deadlines']:,} requests"))
    shared = facts["shared_prefix"]
    lines.append(_line("prefixes", (
        f"{shared['shared_frac']:.1%} of {shared['prompt_tokens']:,} prompt tokens stand in earlier requests too, "
        f"{shared['shared_frac_in_blocks']:.1%} in whole blocks of {shared['block_size']}")))
    return "\n".join([*lines, "", *_table(facts)])


def _line(label: str, text: str) -> str:
    """Return a fact as lines that fit the screen."""
    return "\n".join(wrapped_fact(label, text))


def _arrival_lines(arrivals: dict | None) -> list[str]:
    if arrivals is None:
        return [_line("arrivals", f"not known: {UNKNOWN_TIMES}")]
    counts, of = arrivals["in_windows"], arrivals["of"]
    rate = "at once" if arrivals["rate_per_s"] is None else f"{arrivals['rate_per_s']:,.4g} {of}/s"
    lines = [_line("arrivals", f"{arrivals['count']:,} {of} from {arrivals['first_s']:,.3f} s on, in "
                               f"{arrivals['span_s']:,.3f} s: {rate}")]
    if of == "plays":
        lines.append(_line("", f"that is when plays begin; within them {UNKNOWN_TIMES}"))
    if arrivals["others"]:
        lines.append(_line("", f"{arrivals['others']:,} others come as slots let them: {UNKNOWN_TIMES}"))
    if arrivals["span_s"]:
        most = max(counts)
        bars = "".join(BARS[round(count / most * (len(BARS) - 1))] for count in counts)
        rates = "  ".join(f"{count / arrivals['window_s']:.4g}" for count in counts)
        lines.append(_line("over time", f"{bars}  {of}/s in tenths of it: {rates}"))
    return lines


def _counted(counts: dict[str, int]) -> str:
    shown = sorted(counts.items(), key=lambda item: -item[1])
    rest = len(shown) - SHOWN_LABELS
    return ", ".join([f"{name} {count:,}" for name, count in shown[:SHOWN_LABELS]] + [f"{rest} more"] * (rest > 0))


def _table(facts: dict) -> list[str]:
    rows = [("prompt tokens", facts["prompt_tokens"]), ("output tokens", facts["output_tokens"]),
            ("expected tokens", facts["expected_tokens"])]
    rows += [(name.replace("_", " "), values) for name, values in facts["facts"].items()]
    if facts["plays"]:
        rows.append(("wait s", facts["plays"]["wait_after_end_s"]))
    return table_of([["", *COLUMNS], *(
        [label, *(f"{values[column]:,.10g}" if column != "mean" else f"{values[column]:,.2f}" for column in COLUMNS)]
        for label, values in rows if values["mean"] is not None)], left=(0,)).split("\n")


def _check_free(name: str, overwrite: bool) -> Path:
    """Return the place of the trace, or refuse it."""
    path = Path(os.path.expanduser(name))
    if kind := special(path):
        raise InputErrors([f"{name}: {kind}, expected a file"])
    if path.is_dir():
        raise InputErrors([f"{name}: a folder, expected a file"])
    if path.exists() and not overwrite:
        raise InputErrors([f"{name}: exists; --overwrite replaces it, --out chooses another file"])
    return path


def _write(path: Path, workload: Workload) -> None:
    """Write the trace under a temporary name, then rename it: it is complete or absent."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "w", encoding="utf-8", newline="") as file:
            write_trace(workload, file, len(times_ns(workload)) > 0)
        os.replace(partial, path)
    except OSError as error:
        if error.errno in OutputError.ERRNOS:
            raise OutputError(path, error) from error
        raise InputErrors([f"{path}: cannot be written: {error.strerror}"]) from error
    finally:
        remove(partial)
