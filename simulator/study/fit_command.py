"""`python -m simulator fit EXPERIMENT.toml`: layouts that fit into memory, and the KV cache that each leaves."""
import argparse
import json

from simulator.config.layers import read_layers
from simulator.config.load import resolve
from simulator.errors import InputErrors, did_you_mean, faults_of
from simulator.study.capacity.fit import Asked, content_of, fits, table_of, ways_of
from simulator.study.telling.screen import lines_of

DONE, NOTHING = 0, 3
MOST_GPUS = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml")
    parser.add_argument("--gpus", type=_counts, default=(1, 2, 4, 8), metavar="N,...",
                        help="GPUs of a replica; default: 1,2,4,8")
    parser.add_argument("--pool", metavar="NAME", help="name of the pool; needed where there are several")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; repeatable")
    parser.add_argument("--explain", action="store_true", help="print the arithmetic of each layout that fits, too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Print the layouts; return the exit status.

    Raises
    ------
    InputErrors
        Faults of the experiment, apart from its layout.
    """
    layers = read_layers(options.experiment, options.overrides, "--set")
    layers.data.pop("study", None)
    layers.name_after(options.experiment)
    base = resolve(layers.copy())
    asked = Asked(options.experiment, layers, base, _pool(base, options.pool, options.experiment))
    with faults_of(options.experiment):
        found = list(fits(asked, options.gpus))
    pool = asked.of(base)
    if options.json:
        print(json.dumps(content_of(found, base.name), indent=2, ensure_ascii=False))
    else:
        print(table_of(found, f"{pool.model.name or pool.model.config} on {pool.hardware.name}"))
        for each in found if options.explain else ():
            if each.refusal is None:
                print("\n".join(["", ways_of(each), *(lines_of(f"  {line}") for line in each.lines)]))
    return DONE if any(each.refusal is None for each in found) else NOTHING


def _pool(base, name: str | None, file: str) -> int:
    """Return the number of the pool; -1: the experiment has none."""
    if not base.pools:
        if name is not None:
            raise InputErrors([f"--pool: {file} has no pools"])
        return -1
    names = [pool.name for pool in base.all_pools()]
    if name is None and len(names) == 1:
        return 0
    if name not in names:
        found = "" if name is None else f', found "{name}"{did_you_mean(name, names)}'
        raise InputErrors([f"--pool: expected one of {', '.join(names)}{found}"])
    return names.index(name)


def _counts(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= MOST_GPUS for part in parts):
        raise argparse.ArgumentTypeError(f"expected numbers of GPUs from 1 to {MOST_GPUS} as 1,2,4; found {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))
