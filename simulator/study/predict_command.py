"""`python -m simulator predict EXPERIMENT.toml --prefill 512,2048 --decode 64x1024`: the time of one iteration."""
import argparse
import re
import sys

from simulator.assembly.operator_bounds import LEAST_S
from simulator.config.load import load_experiment
from simulator.errors import InputErrors, collect_faults, faults_of
from simulator.results.colours import coloured
from simulator.study.predict import Prediction, one_pool, predict_batch
from simulator.study.telling.screen import lines_of, table_of

DONE = 0
BOUND_HEADS = ["bound us", "of time", "binds"]      # least time, its part of the time, FLOPs or bytes
ERROR = "error"                 # root mean square over the points left out; "-": not known
MAX_SEQUENCES = 1 << 20         # in a batch; [engine] max_num_seqs allows no more
MAX_TOKENS = (1 << 31) - 1      # of a sequence; [engine] max_model_len allows no more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--prefill", default="", metavar="TOKENS,...", help=(
        "prompt chunks, in tokens; 4x512: four chunks; 512+1024: with 1024 tokens of its prompt in the KV cache"))
    parser.add_argument("--decode", default="", metavar="CONTEXT,...", help=(
        "decoding sequences, in tokens in the KV cache; 64x1024: 64 sequences"))
    parser.add_argument("--pool", metavar="NAME", help="name of the pool; needed where there are several")


def run(options: argparse.Namespace) -> int:
    """Print the duration of the iteration; return the exit status."""
    chunks, contexts = collect_faults(lambda: read_chunks(options.prefill), lambda: read_contexts(options.decode))
    if not chunks and not contexts:
        raise InputErrors(["predict: give --prefill, --decode or both; for instance --prefill 512 --decode 64x1024"])
    experiment = load_experiment(options.experiment, options.overrides, "--set")
    with faults_of(options.experiment):
        pool = one_pool(experiment, options.pool)
        prediction = predict_batch(pool, chunks, contexts)
    title = f"{experiment.name}, pool {pool.name}" if experiment.pools else experiment.name
    print(table(prediction, f"{title}, {pool.latency.backend}", chunks, contexts))
    for note in prediction.warnings:
        print(coloured(f"warning: {note}", sys.stderr), file=sys.stderr)
    return DONE


def read_chunks(text: str) -> list[tuple[int, int]]:
    """Return (tokens, tokens before) of each chunk of `512,4x256,512+1024`."""
    return [(tokens, before or 0) for tokens, before in _read(text, "--prefill", r"(?:\+(\d+))?")]


def read_contexts(text: str) -> list[int]:
    """Return the context of each sequence of `1024,64x2048`."""
    return [tokens for tokens, _ in _read(text, "--decode", "()")]


def table(prediction: Prediction, title: str, chunks: list, contexts: list) -> str:
    """Return the prediction as lines of text, times in microseconds."""
    whole = prediction.seconds
    lines = [title, f"{_count(len(chunks), 'prompt chunk')}, {sum(tokens for tokens, _ in chunks):,} tokens; "
                    f"{_count(len(contexts), 'decoding sequence')}, {sum(contexts):,} tokens of context", ""]
    parts = [(name, seconds) for name, seconds in prediction.breakdown.items() if seconds]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(
        prediction.sources[name] for name, _ in parts if name in prediction.sources), 1)}
    rows = [["", "us", "share", *[ERROR] * bool(prediction.errors), *BOUND_HEADS * bool(prediction.bounds),
             *["source"] * bool(numbers)]]
    rows += [[name, f"{seconds * 1e6:,.3f}", f"{seconds / whole:.1%}", *_error(prediction, name),
              *_bound(prediction, name, seconds), *_source(prediction, name, numbers)] for name, seconds in parts]
    least_s = sum(each.seconds for each in prediction.bounds.values())
    rows.append(["accelerator", f"{whole * 1e6:,.3f}", "100.0%", *[f"{prediction.error_frac:.1%}"] * bool(
        prediction.errors), *[f"{least_s * 1e6:,.1f}", f"{least_s / whole:.1%}" if whole else "-", ""] * bool(
            prediction.bounds)])
    rows.append(["iteration", f"{prediction.iteration_seconds * 1e6:,.3f}"])
    width = len(rows[0])
    lines.append(table_of([row + [""] * (width - len(row)) for row in rows], 1, (0,)))
    lines += ["", *(lines_of(f"({number}) {text}") for text, number in numbers.items())] if numbers else []
    return "\n".join(lines)


def _bound(prediction: Prediction, name: str, seconds: float) -> list[str]:
    """Return the cells with the least time of an operator, its part of the time, and the limit that binds."""
    bound = prediction.bounds.get(name)
    if bound is None or bound.seconds < LEAST_S:
        return ["-"] * len(BOUND_HEADS) * bool(prediction.bounds)
    return [f"{bound.seconds * 1e6:,.1f}", f"{bound.seconds / seconds:.1%}", bound.by]


def _source(prediction: Prediction, name: str, numbers: dict[str, int]) -> list[str]:
    """Return the cell with the number of a source; empty where no source is known."""
    return [f"({numbers[prediction.sources[name]]})" if name in prediction.sources else "-"] * bool(numbers)


def _error(prediction: Prediction, name: str) -> list[str]:
    """Return the cell with the error of a part; none without uncertainty."""
    error = prediction.errors.get(name)
    return ["-" if error is None else f"{error:.1%}"] * bool(prediction.errors)


def _read(text: str, option: str, ending: str) -> list[tuple[int, int | None]]:
    """Return tokens, and the number that `ending` captures, of each sequence; 4x512 is expanded to four."""
    items, faults = [], []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = re.fullmatch(rf"(?:(\d+)x)?(\d+){ending}", part, re.ASCII)
        count, tokens, extra = (int(each) if each else None for each in found.groups()) if found else (1, 0, None)
        count = 1 if count is None else count
        if not 1 <= count <= MAX_SEQUENCES - len(items) or not 1 <= tokens + (extra or 0) <= MAX_TOKENS or not tokens:
            faults.append(f'{option}: expected tokens >= 1 or COUNTxTOKENS, found "{part[:60]}"')
        else:
            items += [(tokens, extra)] * count
    if faults:
        raise InputErrors(faults)
    return items


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
