"""`python -m simulator profile-operators MODEL HARDWARE`: profiles for `forest`, each operator by the roofline.

For dense models on accelerators without measurements. Every row of the files says that it is synthetic.
"""
import argparse
from pathlib import Path

from simulator import registry
from simulator.results.directory import staged, tables_contents
from simulator.study.subject import add_subject, deployment_of, numbers, parameters_of

DONE = 0
# Forests are constant between their training points: two points an octave keep the steps below 1.5.
TOKENS = (1, 2, 4, *(step * 2**i for i in range(2, 12) for step in (2, 3)), 8192)
BATCH_SIZES = tuple(count for count in TOKENS if count <= 256)
CONTEXTS = tuple(step * 2**i for i in range(6, 17) for step in (2, 3))
WAYS = ("tensor_parallel", "pipeline_parallel")
PRICES = "roofline"
TABLES = tables_contents("profile-operators", r"(mlp|attention|all_reduce|send_recv)\.csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    add_subject(parser, WAYS)
    parser.add_argument("--tokens", type=numbers, default=TOKENS, metavar="N,N,...", help=(
        "tokens of an iteration, and of a prompt chunk; default: two an octave, 1 to 8192"))
    parser.add_argument("--batch-sizes", type=numbers, default=BATCH_SIZES, metavar="N,N,...", help=(
        "decoding sequences; default: two an octave, 1 to 256"))
    parser.add_argument("--contexts", type=numbers, metavar="N,N,...", help=(
        "tokens in the KV cache; default: two an octave, 128 to the model's longest text"))
    parser.add_argument("--set", dest="keys", action="append", default=[], metavar="KEY=VALUE", help=(
        f"a key of the backend {PRICES}, VALUE as in TOML; repeatable"))


def run(options: argparse.Namespace) -> int:
    """Write the profiles, print their place; return the exit status.

    Raises
    ------
    InputErrors
        No such model or hardware, a model that `forest` has no profiles for; the folder has files already, which
        may not be overwritten.
    """
    deployment = deployment_of(options, WAYS)
    longest = deployment.model.max_position_embeddings
    contexts = options.contexts or tuple(context for context in CONTEXTS if context <= longest)
    forest = registry.load("latency", "forest")
    profiles = forest.Profiles(
        deployment=deployment, parameters=forest.Parameters(), tokens=options.tokens, batch_sizes=options.batch_sizes,
        contexts=contexts, roofline=parameters_of(registry.load("latency", PRICES), options.keys),
        source=f"synthetic: {PRICES}, {deployment.accelerator.name}, {deployment.matrix_dtype}")
    with staged(options.out, options.overwrite, TABLES) as folder:
        names = [path.name for path in profiles.write(folder)]
    print("\n".join(str(Path(options.out, name)) for name in names))
    return DONE
