"""A server that is there, for `plan --from`: its experiment, and the rate that it holds."""
import argparse
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from simulator.config.load import load_experiment
from simulator.domain.server_defaults.cards import card_of
from simulator.domain.short_names import accelerator_named
from simulator.errors import InputErrors
from simulator.server_line.facts.flag_tables import ENGINES as TITLES
from simulator.server_line.sources.read import config_reader, launches_from
from simulator.study.deployment.from_server import Machine, lists_of, served_by
from simulator.study.deployment.runnable import runnable
from simulator.study.planning.question import SGLANG, TENSORRT, VLLM
from simulator.study.planning.texts import SERVER
from simulator.study.sweep.bench import num_gpus

SCHEDULERS = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TENSORRT}


class Server(NamedTuple):
    """A server of a command line.

    text : of its experiment, without requests. gpus : that it takes. unmodelled : flags without effect here, each with
    its likely effect.
    """

    text: str
    gpus: int
    unmodelled: tuple[str, ...]


def server_of(options: argparse.Namespace) -> Server:
    """Return the server of --from, and complete the options by its command line.

    Raises
    ------
    InputErrors
        As `from`; options that contradict the command line.
    """
    card = accelerator_named(options.gpu).name
    machine = Machine(card_of(card), options.gpus or 8, options.engine_version, options.config, {},
                      config_reader(options.source))
    served = served_by(launches_from(options.source, {}), machine)
    text, unbuilt = runnable(served, card)
    text = text[:text.index("# Not of the server")]
    first = served[0]
    name = str(first.answer.given.get("model", first.answer.given.get("model_path")))
    faults = []
    if options.model is not None and options.model.rpartition("/")[2].lower() != name.rpartition("/")[2].lower():
        faults.append(f"MODEL: {options.model}, the command line serves {name}")
    engine = SCHEDULERS[first.launch.engine]
    if options.engine is not None and options.engine != engine:
        faults.append(f"--engine: {options.engine}, the command line starts {TITLES[first.launch.engine]}")
    length = first.keyed.keys.get("engine.max_model_len", (None,))[0]
    if length is not None and options.max_model_len not in (None, length):
        faults.append(f"--max-model-len: {options.max_model_len:,}, the command line leads to {length:,}")
    if faults:
        raise InputErrors(faults)
    options.model, options.engine, options.max_model_len = name, engine, length or options.max_model_len
    if engine == VLLM:
        options.engine_version = first.version
    gpus = _gpus_of(text)
    options.gpus = options.gpus or gpus
    left = [*lists_of(served).not_modelled, *unbuilt]
    return Server(text, gpus, tuple(dict.fromkeys(f"{flag} ({effect})" for flag, _, effect in left)))


def _gpus_of(text: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, SERVER)
        Path(path).write_text(text + _ONE_REQUEST, encoding="utf-8")
        return num_gpus(load_experiment(path))


_ONE_REQUEST = """
[workload]
type = "synthetic"
num_requests = 1
arrival = {process = "poisson", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 1}
output_tokens = {distribution = "constant", tokens = 1}
"""
