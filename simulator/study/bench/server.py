"""The experiment of a benchmark: its [workload] replaced, its engine changed by vLLM's flags."""
import argparse
from typing import Any, NamedTuple

from simulator.config.experiment import Experiment
from simulator.config.layers import add_overrides
from simulator.config.load import experiment_layers, resolve
from simulator.errors import InputErrors
from simulator.study.telling.said import Said, backends_of

FLAGS = "bench"                 # name of the command line in messages
# Flag of vLLM's engine -> type, key of the experiment. None: true with the flag, false with --no-.
ENGINE = {
    "--tensor-parallel-size": (int, "topology.tensor_parallel"),
    "--pipeline-parallel-size": (int, "topology.pipeline_parallel"),
    "--data-parallel-size": (int, "topology.data_parallel"),
    "--decode-context-parallel-size": (int, "topology.decode_context_parallel"),
    "--max-num-seqs": (int, "engine.max_num_seqs"),
    "--max-num-batched-tokens": (int, "engine.max_num_batched_tokens"),
    "--max-model-len": (int, "engine.max_model_len"),
    "--block-size": (int, "engine.block_size"),
    "--num-gpu-blocks-override": (int, "engine.num_gpu_blocks"),
    "--gpu-memory-utilization": (float, "engine.gpu_memory_utilization"),
    "--kv-cache-dtype": (str, "model.kv_cache_dtype"),
    "--dtype": (str, "model.dtype"),
    "--enable-prefix-caching": (None, "engine.enable_prefix_caching"),
    "--enable-chunked-prefill": (None, "engine.enable_chunked_prefill"),
    "--async-scheduling": (None, "engine.async_scheduling"),
}


class Benched(NamedTuple):
    """The results of a benchmark.

    text : as vLLM's benchmark prints it. notes : on the flags, for the user, one sentence each.
    said : remarks of its run. experiment : that ran.
    """

    text: str
    notes: list[str]
    said: Said
    experiment: Experiment


def said_of(experiment: Experiment, summary: dict[str, Any]) -> Said:
    """Return the remarks of the run of a benchmark."""
    said = Said()
    said.add(experiment.name, summary["diagnosis"], backends_of([experiment]))
    return said


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the experiment."""
    parser.add_argument("file", nargs="?", metavar="EXPERIMENT.toml", help="the server; its [workload] is replaced")
    parser.add_argument("--experiment", metavar="EXPERIMENT.toml", help="the server, as an option")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the flags of vLLM's engine for which the experiment has keys."""
    group = parser.add_argument_group("engine", "over the experiment; default: as it says")
    for name, (kind, key) in ENGINE.items():
        if kind is None:
            group.add_argument(name, dest=name, action=argparse.BooleanOptionalAction, default=None, help=key)
        else:
            group.add_argument(name, dest=name, type=kind, metavar=kind.__name__.upper(), help=key)


def engine_keys(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keys that flags of the engine set; `auto` sets none."""
    given = {key: getattr(options, name, None) for name, (_, key) in ENGINE.items()}
    return {key: value for key, value in given.items() if value not in (None, "auto")}


def server(options: argparse.Namespace, workload: dict[str, Any], keys: dict[str, Any],
           token_times: bool) -> Experiment:
    """Return the experiment with another workload.

    Parameters
    ----------
    workload : table. keys : others of the experiment, by dotted names. token_times : whether token times are kept.

    Raises
    ------
    InputErrors
        No file, or two; faults of the file or of the flags.
    """
    if (options.file is None) == (options.experiment is None):
        raise InputErrors([f"{FLAGS}: give the experiment that stands for the server, once: EXPERIMENT.toml, or "
                           "--experiment"])
    if replaced := [text for text in options.overrides if text.partition("=")[0].split(".")[0].strip() == "workload"]:
        raise InputErrors([f"--set: {text}: {FLAGS} replaces [workload]; its own flags say what is sent"
                           for text in replaced])
    layers = experiment_layers(options.file or options.experiment, options.overrides, "--set")
    layers.data.pop("workload", None)
    layers.data.pop("output", None)
    add_overrides(layers, {"workload": workload, "output": {"iterations": False, "token_times": token_times}} | keys,
                  FLAGS)
    return resolve(layers)


def model_name(options: argparse.Namespace, experiment: Experiment) -> str:
    """Return the model's name on the server.

    It is --model, else the experiment's model, or the name of the experiment itself.
    """
    own = experiment.model and (experiment.model.name or experiment.model.config)
    return options.model or own or experiment.name


def model_keys(options: argparse.Namespace) -> dict[str, str]:
    """Return the key that --model sets, where the experiment has a model."""
    file = options.file or options.experiment
    if options.model is None or file is None:
        return {}
    return {"model.name": options.model} if "model" in experiment_layers(file, (), "--set").data else {}
