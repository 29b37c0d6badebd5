"""`python -m simulator predict EXPERIMENT.toml --prefill 512,2048 --decode 64x1024`: the time of one iteration."""
import argparse
import re
import sys

from simulator.config.load import load_experiment
from simulator.errors import InputErrors, collect_faults, faults_of
from simulator.results.colours import coloured
from simulator.study.predict import Prediction, one_pool, predict_batch

DONE = 0
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
    rows = [(name, seconds) for name, seconds in prediction.breakdown.items() if seconds]
    width = max(map(len, ("accelerator", *(name for name, _ in rows)))) + 2
    lines += [f"{'':{width}}{'us':>16} {'share':>8}{f' {ERROR:>8}' if prediction.errors else ''}"]
    lines += [f"{name:{width}}{seconds * 1e6:16,.3f} {seconds / whole:8.1%}{_error(prediction, name)}"
              for name, seconds in rows]
    total = f" {prediction.error_frac:8.1%}" if prediction.errors else ""
    lines += [f"{'accelerator':{width}}{whole * 1e6:16,.3f} {1:8.1%}{total}",
              f"{'iteration':{width}}{prediction.iteration_seconds * 1e6:16,.3f}"]
    return "\n".join(lines)


def _error(prediction: Prediction, name: str) -> str:
    """Return the cell with the error of a part; empty without uncertainty."""
    if not prediction.errors:
        return ""
    error = prediction.errors.get(name)
    return f" {'-' if error is None else f'{error:.1%}':>8}"


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
