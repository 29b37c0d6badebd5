"""Options of the commands that write synthetic tables: a model on accelerators, and a backend."""
import argparse
import os
from typing import get_args

import tomli

from simulator import registry
from simulator.config.huggingface.reader import read_config
from simulator.config.layers import Source
from simulator.config.reader import MISSING, Reader
from simulator.domain.deployment import Deployment
from simulator.domain.dtypes import KvCacheDtype, WeightFormat
from simulator.domain.facts import load_accelerator, load_model, load_node_with, reach_of
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors


def add_subject(parser: argparse.ArgumentParser, ways: tuple[str, ...]) -> None:
    """Add the options for the profiled deployment.

    ways : kinds of parallelism that the command allows, as Parallelism names them.
    """
    parser.add_argument("model", metavar="MODEL", help="name in models/, or a Hugging Face config.json")
    parser.add_argument("hardware", metavar="HARDWARE", help="name in hardware/")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the tables, a new or an empty one")
    parser.add_argument("--overwrite", action="store_true", help="replace tables that are there already")
    parser.add_argument("--node", metavar="NAME", help=(
        "name in hardware/nodes/; default: the accelerator's, where its own links do not reach"))
    for name in ways:
        parser.add_argument(_option(name), type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--dtype", choices=get_args(WeightFormat), metavar="DTYPE", help=(
        f"of the weights: {', '.join(get_args(WeightFormat))}; default: as published"))
    parser.add_argument("--kv-cache-dtype", choices=get_args(KvCacheDtype), metavar="DTYPE", default="auto", help=(
        f"{', '.join(get_args(KvCacheDtype))}; default auto"))


def numbers(text: str) -> tuple[int, ...]:
    """Read an option that lists counts."""
    found = tuple(sorted({int(each) for each in text.split(",")}))
    if found[0] < 1:
        raise ValueError
    return found


def deployment_of(options: argparse.Namespace, ways: tuple[str, ...]) -> Deployment:
    """Return the deployment of the options; `ways` as in `add_subject`.

    Raises
    ------
    InputErrors
        No such model, hardware or node, a model that the parallelism does not fit.
    """
    is_path = options.model.endswith(".json") or os.path.isdir(options.model)
    model = read_config(options.model) if is_path else load_model(options.model)
    spread = Parallelism(**{name: getattr(options, name) for name in ways})
    faults = [f"{_option(name)}: expected an integer >= 1, found {getattr(spread, name)}"
              for name in ways if getattr(spread, name) < 1] or spread.faults(model)
    if faults:
        raise InputErrors(faults)
    accelerator = load_accelerator(options.hardware)
    node = options.node or (accelerator.node if spread.num_accelerators > reach_of(accelerator) else "")
    deployment = Deployment(
        model=model, accelerator=accelerator, parallelism=spread,
        node=load_node_with(accelerator, node, "--node") if node else None, weight_dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype)
    if faults := deployment.format_faults():
        raise InputErrors([f"--{fault}" for fault in faults])
    return deployment


def parameters_of(backend: type, texts: list[str], **defaults):
    """Return the Parameters of a latency backend from options `--set KEY=VALUE`.

    Raises
    ------
    InputErrors
        An unknown key, or an invalid value.
    """
    table = dict(defaults)
    for text in texts:
        key, _, value = text.partition("=")
        try:
            table[key.strip()] = tomli.loads(f"value = {value}")["value"]
        except tomli.TOMLDecodeError:
            raise InputErrors([f"--set {text}: expected KEY=VALUE, VALUE as in TOML"]) from None
    reader = Reader(lambda path: Source("--set", ""))
    parameters = reader.table(registry.parameters_of(backend), table, ())
    if parameters is MISSING or reader.faults:
        raise InputErrors(reader.faults)
    return parameters


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
