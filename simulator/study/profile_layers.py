"""`python -m simulator profile-layers MODEL HARDWARE`: per-layer tables for `aicb` from another latency backend.

For models and accelerators that nobody has measured. Every row of the tables says that it is synthetic.
"""
import argparse
import os
from typing import get_args

import tomli

from simulator import registry
from simulator.config.huggingface import read_config
from simulator.config.layers import Source
from simulator.config.reader import MISSING, Reader
from simulator.domain.deployment import Deployment
from simulator.domain.dtypes import KvCacheDtype, WeightDtype
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors

DONE = 0
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LENGTHS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
WAYS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
# Terms of a breakdown that are communication: tables have bytes in their place.
COMMUNICATION = ("collectives",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("model", metavar="MODEL", help="name in models/, or a Hugging Face config.json")
    parser.add_argument("hardware", metavar="HARDWARE", help="name in hardware/")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the tables")
    parser.add_argument("--node", metavar="NAME", help="name in hardware/nodes/; default: one is not needed")
    for name in WAYS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--dtype", choices=get_args(WeightDtype), help="of the weights; default: as published")
    parser.add_argument("--kv-cache-dtype", choices=get_args(KvCacheDtype), default="auto", help="default auto")
    parser.add_argument("--batch-sizes", type=_numbers, default=BATCH_SIZES, metavar="N,N,...", help=(
        f"decoding sequences of one rank; default {','.join(map(str, BATCH_SIZES))}"))
    parser.add_argument("--lengths", type=_numbers, metavar="N,N,...", help=(
        "tokens of a prompt, of a decoding sequence's context; default: powers of 2 up to the model's longest text"))
    parser.add_argument("--table-model", metavar="NAME", help="model in the names of the tables; default: its name")
    parser.add_argument("--backend", default="roofline", metavar="NAME", help=(
        "latency backend to ask, one with a breakdown; default roofline"))
    parser.add_argument("--set", dest="keys", action="append", default=[], metavar="KEY=VALUE", help=(
        "a key of that backend, VALUE as in TOML; repeatable"))


def run(options: argparse.Namespace) -> int:
    """Write the tables, say where they are; return the exit status."""
    paths = write_tables(options)
    print(f"{len(paths)} tables in {options.out}")
    return DONE


def write_tables(options: argparse.Namespace) -> list:
    """Write the tables that the options ask for; return their paths.

    Raises
    ------
    InputErrors
        No such model, hardware or backend, a model that cannot be spread as asked, tables that exist already.
    """
    deployment = _deployment(options)
    longest = deployment.model.max_position_embeddings
    lengths = options.lengths or tuple(length for length in LENGTHS if length < longest)
    profile = registry.load("latency", "aicb").Profile(
        deployment=deployment, build=_builder(options), table_model=options.table_model or deployment.model.name,
        batch_sizes=options.batch_sizes, sequence_lengths=lengths,
        source=f"synthetic: {options.backend}, {deployment.accelerator.name}, {deployment.matrix_dtype}")
    return profile.write(options.out)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted({int(each) for each in text.split(",")}))
    if numbers[0] < 1:
        raise ValueError
    return numbers


def _deployment(options: argparse.Namespace) -> Deployment:
    is_path = options.model.endswith(".json") or os.path.isdir(options.model)
    model = read_config(options.model) if is_path else load_model(options.model)
    ways = Parallelism(**{name: getattr(options, name) for name in WAYS})
    faults = [f"--{name.replace('_', '-')}: expected an integer >= 1, found {getattr(ways, name)}"
              for name in WAYS if getattr(ways, name) < 1] or ways.faults(model)
    if faults:
        raise InputErrors(faults)
    return Deployment(
        model=model, accelerator=load_accelerator(options.hardware), parallelism=ways,
        node=load_node(options.node) if options.node else None, weight_dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype)


def _builder(options: argparse.Namespace):
    """Return what makes a prediction function, communication left out, of a deployment."""
    backend = registry.load("latency", options.backend, ("",))
    if not backend.takes_collective:        # such a backend prices operators one by one, communication apart
        raise InputErrors([f"--backend: {options.backend} does not say what its times are made of"])
    parameters = _parameters(backend, options.keys)

    def build(deployment: Deployment):
        try:
            model = backend(parameters, deployment)
        except ValueError as error:
            raise InputErrors([f"{options.backend}: {error}"]) from None

        def seconds(**batch) -> float:
            terms = model.breakdown(**batch)
            return sum(value for name, value in terms.items() if name not in COMMUNICATION)
        return seconds
    return build


def _parameters(backend: type, texts: list[str]):
    struct, table = registry.parameters_of(backend), {}
    # Latencies of collectives are not in the tables either.
    if "collective_latency_us" in struct.__struct_fields__:
        table["collective_latency_us"] = 0.0
    for text in texts:
        key, _, value = text.partition("=")
        try:
            table[key.strip()] = tomli.loads(f"value = {value}")["value"]
        except tomli.TOMLDecodeError:
            raise InputErrors([f"--set {text}: expected KEY=VALUE, VALUE as in TOML"]) from None
    reader = Reader(lambda path: Source("--set", ""))
    parameters = reader.table(struct, table, ())
    if parameters is MISSING or reader.faults:
        raise InputErrors(reader.faults)
    return parameters
