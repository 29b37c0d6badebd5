"""`python -m simulator profile-layers MODEL HARDWARE`: per-layer tables for `aicb` from another latency backend.

For models and accelerators without measurements. Every row of the tables says that it is synthetic.
"""
import argparse
from pathlib import Path

from simulator import registry
from simulator.domain.deployment import Deployment
from simulator.errors import InputErrors
from simulator.results.directory import staged, tables_contents
from simulator.study.subject import add_subject, deployment_of, numbers, parameters_of

DONE = 0
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LENGTHS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
WAYS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
TABLES = tables_contents("profile-layers", r"vidur-.+-bs\d+-seq\d+-(prefill|decode)\.csv")
# Terms of a breakdown that are communication: tables have bytes in their place.
COMMUNICATION = ("collectives",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    add_subject(parser, WAYS)
    parser.add_argument("--batch-sizes", type=numbers, default=BATCH_SIZES, metavar="N,N,...", help=(
        f"decoding sequences of one rank; default {','.join(map(str, BATCH_SIZES))}"))
    parser.add_argument("--lengths", type=numbers, metavar="N,N,...", help=(
        "tokens of a prompt, of a decoding sequence's context; default: powers of 2 up to the model's longest text"))
    parser.add_argument("--table-model", metavar="NAME", help="model in the names of the tables; default: its name")
    parser.add_argument("--backend", default="roofline", metavar="NAME", help=(
        "latency backend to ask, one with a breakdown; default roofline"))
    parser.add_argument("--set", dest="keys", action="append", default=[], metavar="KEY=VALUE", help=(
        "a key of that backend, VALUE as in TOML; repeatable"))


def run(options: argparse.Namespace) -> int:
    """Write the tables, print their place; return the exit status.

    Raises
    ------
    InputErrors
        As `write_tables`; or the folder has files already, which may not be overwritten.
    """
    with staged(options.out, options.overwrite, TABLES) as folder:
        paths = write_tables(options, folder)
    print(f"{len(paths)} tables in {options.out}")
    return DONE


def write_tables(options: argparse.Namespace, folder: Path) -> list[Path]:
    """Write the tables of the options into a folder; return their paths.

    Raises
    ------
    InputErrors
        No such model, hardware or backend, a model that the parallelism does not fit.
    """
    deployment = deployment_of(options, WAYS)
    longest = deployment.model.max_position_embeddings
    lengths = options.lengths or tuple(length for length in LENGTHS if length < longest)
    profile = registry.load("latency", "aicb").Profile(
        deployment=deployment, build=_builder(options), table_model=options.table_model or deployment.model.name,
        batch_sizes=options.batch_sizes, sequence_lengths=lengths,
        source=f"synthetic: {options.backend}, {deployment.accelerator.name}, {deployment.matrix_dtype}")
    return profile.write(folder)


def _builder(options: argparse.Namespace):
    """Return a function that makes a prediction function, without communication, for a deployment."""
    backend = registry.load("latency", options.backend, ("",))
    if not backend.takes_collective:        # such a backend prices operators one by one, communication apart
        raise InputErrors([f"--backend: {options.backend} does not say what its times are made of"])
    # Latencies of collectives are not in the tables either.
    has_latency = "collective_latency_us" in registry.parameters_of(backend).__struct_fields__
    parameters = parameters_of(backend, options.keys, **{"collective_latency_us": 0.0} if has_latency else {})

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
