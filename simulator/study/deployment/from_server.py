"""Servers' command lines as an experiment: pools, and four lists of flags and defaults."""
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simulator.domain.server_defaults.cards import Card
from simulator.errors import InputErrors
from simulator.server_line.facts.answers import Answer, Question, Refused
from simulator.server_line.facts.checkpoints import Checkpoint, checkpoint_of
from simulator.server_line.facts.effects import effect_of
from simulator.server_line.facts.flag_tables import ENGINES, flag_table, nearest_version, version_named
from simulator.server_line.sglang.resolve import resolve as resolve_sglang
from simulator.server_line.sources.launches import Launch
from simulator.server_line.trtllm import resolve as resolve_trtllm
from simulator.server_line.vllm.resolve import resolve as resolve_vllm
from simulator.study.deployment.keyed import Keyed, of_engine
from simulator.study.deployment.keys_of import keys_of

RESOLVERS = {"vllm": resolve_vllm, "sglang": resolve_sglang, "trtllm": resolve_trtllm}
ESTIMATES = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"      # of vLLM's environment
PROTOCOLS = {"NixlConnector": "nixl", "MooncakeConnector": "mooncake"}


class Machine(NamedTuple):
    """The machine, and the reader's wishes.

    version : of the engine, None: of the image's tag, else the newest; nearest: the nearest modelled. folder : with
    config.json, in place of the model's name.
    """

    card: Card
    gpus: int
    version: str | None = None
    folder: str | None = None
    environment: Mapping[str, str] = {}
    read_config: Callable[[str], list[str]] | None = None


class Served(NamedTuple):
    """A start of a server, resolved.

    launches : the start, and others with the same values. version : of the flags. why : of that version.
    """

    launch: Launch
    version: str
    why: str
    answer: Answer
    keyed: Keyed
    replicas: int


class Lists(NamedTuple):
    """The lists of a translation, as rows of words.

    taken : flag, value, key. defaulted : key, value, rule. without_effect : flag, value. not_modelled : flag, value,
    likely effect.
    """

    taken: list[tuple[str, str, str]]
    defaulted: list[tuple[str, str, str]]
    without_effect: list[tuple[str, str]]
    not_modelled: list[tuple[str, str, str]]


class RefusedLine(InputErrors):
    """The engine refuses the command line: its version, the step and the cause."""

    def __init__(self, engine: str, release: str, refused: Refused):
        self.refused = refused
        super().__init__([f"{ENGINES[engine]} {release} refuses this command line ({refused.stage}: {refused.cause}): "
                          f"{refused.message}"])

    def __reduce__(self):
        return InputErrors, (self.faults,)


def answer_of(launch: Launch, machine: Machine, version: str | None = None) -> tuple[str, str, Answer]:
    """Return the version of a start, why it is that one, and its resolved values.

    Raises
    ------
    InputErrors
        A version or a model that is not known.
    RefusedLine
        As the engine refuses.
    """
    asked = version or machine.version
    if asked == "nearest":
        named = nearest_version(launch.engine, launch.version)
        why = f"nearest to {launch.version or 'the newest'}"
    else:
        named, why = version_named(launch.engine, asked or launch.version)
    environment = {**machine.environment, **launch.environment}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = len([part for part in visible.split(",") if part.strip()]) if visible else machine.gpus
    question = Question(launch.engine, named, launch.argv, machine.card, gpus,
                        lambda name: checkpoint_of(name), environment)
    if machine.folder is not None:
        question = question._replace(checkpoint_of=lambda name: checkpoint_of(name, machine.folder))
    try:
        return named, why, RESOLVERS[launch.engine](question, machine.read_config)
    except Refused as refused:
        raise RefusedLine(launch.engine, flag_table(launch.engine, named).release, refused) from refused


def served_by(launches: list[Launch], machine: Machine) -> list[Served]:
    """Return the servers of some starts: equal ones once, with the replicas of all.

    Raises
    ------
    InputErrors
        As `answer_of`; servers of several engines; a model without shapes for times.
    """
    if len({launch.engine for launch in launches}) > 1:
        names = ", ".join(sorted({launch.engine for launch in launches}))
        raise InputErrors([f"servers of several engines in one source: {names}"])
    found: list[Served] = []
    for launch in launches:
        version, why, answer = answer_of(launch, machine)
        name = str(answer.given.get("model", answer.given.get("model_path")))
        checkpoint = checkpoint_of(name, machine.folder)
        keyed = keys_of(launch.engine, version, answer, checkpoint)
        _say_checkpoint(keyed, checkpoint, machine)
        _say_estimate(keyed, {**machine.environment, **launch.environment})
        role = _role(launch, answer)
        same = next((item for item in found if of_engine(item.keyed.keys) == of_engine(keyed.keys)
                     and item.launch.role == role), None)
        copies = launch.replicas * (answer.values["dp_size"] if launch.engine == "sglang" else 1)
        if answer.given.get("headless"):        # further ranks of the fleet that another command starts
            copies = 0 if found else copies
        if same is None:
            found.append(Served(launch._replace(role=role), version, why, answer, keyed, copies))
        else:
            found[found.index(same)] = same._replace(replicas=same.replicas + copies)
    return found


def _say_checkpoint(keyed: Keyed, checkpoint: Checkpoint, machine: Machine) -> None:
    if checkpoint.spec is not None and checkpoint.model is None:        # of a folder with config.json
        folder = Path(machine.folder or checkpoint.hub_id).expanduser().resolve()
        keyed.keys["model.config"] = (str(folder / "config.json" if folder.is_dir() else folder),
                                      f"given: config.json of {checkpoint.hub_id}")
    elif checkpoint.spec is None:
        raise InputErrors([f"{checkpoint.hub_id}: an experiment needs its shape; give --config FOLDER with its "
                           "config.json"])


def _say_estimate(keyed: Keyed, environment: Mapping[str, str]) -> None:
    """Take from the environment that vLLM takes nothing off for CUDA graphs."""
    mode = keyed.keys.get("engine.cuda_graphs.mode", ("none", ""))[0]
    is_sized = {"engine.num_gpu_blocks", "engine.kv_cache_memory_bytes"} & keyed.keys.keys()
    if environment.get(ESTIMATES) == "0" and mode != "none" and not is_sized:
        keyed.keys["engine.cuda_graphs.memory_gib"] = (0.0, f"environment: {ESTIMATES}")


def _role(launch: Launch, answer: Answer) -> str:
    """Return the part of requests that a server computes, by the file or its connector's role."""
    if launch.role != "both":
        return launch.role
    role = (answer.values.get("kv_transfer") or {}).get("kv_role")
    mode = answer.values.get("disaggregation_mode")
    return {"kv_producer": "prefill", "kv_consumer": "decode"}.get(role) or (
        mode if mode in ("prefill", "decode") else "both")


def lists_of(served: list[Served]) -> Lists:
    """Return the lists of all servers; a row that servers share is there once."""
    lists = Lists([], [], [], [])
    for server in served:
        table = flag_table(server.launch.engine, server.version)
        for key, value in server.answer.given.items():
            row = table.rows.get(key)
            flag = row["names"][0] if row else key
            if key in server.keyed.left:
                _add(lists.not_modelled, (flag, _text(value), server.keyed.left[key]))
            elif key in server.keyed.taken:
                _add(lists.taken, (flag, _text(value), server.keyed.taken[key]))
            elif key in server.keyed.idle or (row and row.get("default") == value) or (
                    (effect := effect_of(key)) is None):
                _add(lists.without_effect, (flag, _text(value)))
            else:
                _add(lists.not_modelled, (flag, _text(value), effect))
        for key, (value, why) in server.keyed.keys.items():
            if why and not why.startswith("given"):
                _add(lists.defaulted, (key, _text(value), why))
        _add_gpus(lists, server)
    return lists


def _add(rows: list, row: tuple) -> None:
    if row not in rows:
        rows.append(row)


def _add_gpus(lists: Lists, server: Served) -> None:
    """Add a limit of GPUs that is not the number that the ranks of this command need."""
    keys = {key: value for key, (value, _) in server.keyed.keys.items()}
    needed = keys.get("topology.tensor_parallel", 1) * keys.get("topology.pipeline_parallel", 1)
    local = server.answer.values.get("parallel", {}).get("data_parallel_size_local", keys.get(
        "topology.data_parallel", 1))
    if server.launch.gpus is not None and server.launch.gpus != needed * local:
        _add(lists.not_modelled, ("GPUs of the container", str(server.launch.gpus),
                                  f"its ranks need {needed * local}: it does not start, or leaves GPUs idle"))


def _text(value: Any) -> str:
    """Return a value as a command line or a file of JSON has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
