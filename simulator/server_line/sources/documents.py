"""Servers in YAML documents: Docker Compose, Kubernetes, Helm values of llm-d and production-stack, Dynamo's graphs.

A container is any table with `image`, `command` or `args`; its replicas, role and model are those of the tables around.
"""
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from simulator.errors import InputErrors, MissingExtra
from simulator.server_line.sources.launches import (
    Launch,
    engine_of_image,
    launches_of,
    version_of_image,
)
from simulator.server_line.sources.words import UNSET, Command, commands, faults_of

ROLES = ("prefill", "decode")
COMMANDS_OF_LLM_D = {"vllmServe": "vllm", "imageDefault": "vllm"}
# vllmConfig of vLLM's production-stack, as flags.
STACK = {"tensorParallelSize": "--tensor-parallel-size", "pipelineParallelSize": "--pipeline-parallel-size",
         "maxModelLen": "--max-model-len", "maxNumSeqs": "--max-num-seqs", "dtype": "--dtype",
         "gpuMemoryUtilization": "--gpu-memory-utilization"}
STACK_SWITCHES = {"enablePrefixCaching": "enable-prefix-caching", "enableChunkedPrefill": "enable-chunked-prefill"}


class Around(NamedTuple):
    """Facts of the tables around a container."""

    place: str = ""
    replicas: int = 1
    role: str = "both"
    model: str | None = None
    ways: tuple[str, ...] = ()
    gpus: int | None = None


def documents(text: str, name: str) -> list[Any]:
    """Return the documents of a YAML text.

    Raises
    ------
    InputErrors
        It is no YAML, with line and column.
    MissingExtra
        PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtra([f'{name}: a YAML file needs PyYAML: pip install "simulator[deploy]"']) from None
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}: column {mark.column + 1}" if mark else ""
        raise InputErrors([f"{name}{where}: not YAML: {getattr(error, 'problem', None) or error}"]) from error


def launches_in(text: str, name: str, environment: Mapping[str, str]) -> list[Launch]:
    """Return the starts of servers in a YAML text.

    Raises
    ------
    InputErrors
        As `documents`; a start hangs on a variable that is not set.
    """
    found = []
    for document in documents(text, name):
        found += _walk(document, Around(name), environment)
    return found


def _walk(node: Any, around: Around, environment: Mapping[str, str]) -> Iterator[Launch]:
    if isinstance(node, list):
        for item in node:
            yield from _walk(item, around, environment)
        return
    if not isinstance(node, dict):
        return
    around = _seen(node, around)
    if "modelURL" in node:
        yield _of_stack(node, around)
        return
    if node.keys() & {"command", "args", "image"} and not isinstance(node.get("image"), dict):
        yield from _container(node, around, environment)
    for key, value in node.items():
        if key not in ("env", "environment", "command", "args", "resources", "initContainers"):
            inside = around._replace(place=f"{around.place}: {key}" if around.place.count(":") < 2 else around.place)
            yield from _walk(value, inside._replace(role=key) if key in ROLES else inside, environment)


def _seen(node: dict, around: Around) -> Around:
    """Return the facts with those of this table."""
    if isinstance(node.get("replicas"), int) and node.get("create", True):
        around = around._replace(replicas=node["replicas"])
    deploy = node.get("deploy")
    if isinstance(deploy, dict) and isinstance(deploy.get("replicas"), int):
        around = around._replace(replicas=deploy["replicas"])
    if node.get("subComponentType") in ROLES:
        around = around._replace(role=node["subComponentType"])
    artifacts, ways = node.get("modelArtifacts"), node.get("parallelism")
    if isinstance(artifacts, dict):
        around = around._replace(model=artifacts.get("name") or str(artifacts.get("uri", "")).removeprefix("hf://"))
    if isinstance(ways, dict):
        flags = {"tensor": "--tensor-parallel-size", "data": "--data-parallel-size"}
        around = around._replace(ways=tuple(word for key, flag in flags.items() if ways.get(key, 1) != 1
                                            for word in (flag, str(ways[key]))))
    if (gpus := _gpus(node)) is not None:
        around = around._replace(gpus=gpus)
    return around


def _gpus(node: dict) -> int | None:
    """Return the GPUs that a table limits its containers to."""
    resources = node.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    for key in ("nvidia.com/gpu", "gpu"):
        if isinstance(limits, dict) and str(limits.get(key, "")).isdigit():
            return int(limits[key])
    deploy = node.get("deploy")
    try:
        device = deploy["resources"]["reservations"]["devices"][0]
    except (TypeError, KeyError, IndexError):
        return None
    if isinstance(device.get("count"), int):
        return device["count"]
    return len(device["device_ids"]) if isinstance(device.get("device_ids"), list) else None


def _container(node: dict, around: Around, environment: Mapping[str, str]) -> Iterator[Launch]:
    if around.replicas == 0:
        return
    known = dict(environment) | _environment(node)
    image = str(node.get("image", ""))
    words = [*_words(node.get("command"), known), *_words(node.get("args"), known)]
    found = launches_of(Command(words, known), around.place)
    engine = COMMANDS_OF_LLM_D.get(node.get("modelCommand", "")) or engine_of_image(image)
    is_argument = words and (words[0].startswith("-") or "/" in words[0])
    if not found and engine and ("modelCommand" in node or is_argument):
        if faults := faults_of(words):
            raise InputErrors([f"{around.place}: {fault}" for fault in faults])
        found = [Launch(engine, tuple(words), known, place=around.place)]
    for launch in found:
        argv = launch.argv
        if around.model and "modelCommand" in node and not (argv and not argv[0].startswith("-")):
            argv = (around.model, *argv)
        if around.ways and around.ways[0] not in argv:
            argv = (*argv, *around.ways)
        yield launch._replace(argv=argv, version=launch.version or version_of_image(image), gpus=around.gpus,
                              role=launch.role if launch.role != "both" else around.role, replicas=around.replicas)


def _environment(node: dict) -> dict[str, str]:
    given = node.get("env", node.get("envs", node.get("environment")))
    if isinstance(given, dict):
        return {str(name): str(value) for name, value in given.items()}
    found = {}
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and "value" in item:
            found[str(item.get("name"))] = str(item["value"])
        elif isinstance(item, str) and "=" in item:
            name, _, value = item.partition("=")
            found[name] = value
    return found


def _words(value: Any, known: dict[str, str]) -> list[str]:
    """Return the words of a command: a list, or text that a shell splits."""
    if isinstance(value, str):
        return [word for command in commands(value.replace("\n", " "), known) for word in command.words]
    return [_filled(str(word), known) for word in value] if isinstance(value, list) else []


def _filled(word: str, known: dict[str, str]) -> str:
    """Return a word of a list with $(NAME) and ${NAME} filled in, as Kubernetes and Compose fill them."""
    for opening, closing in (("$(", ")"), ("${", "}")):
        start = 0
        while (start := word.find(opening, start)) >= 0 and (end := word.find(closing, start)) >= 0:
            name, _, other = word[start + 2:end].partition(":-")
            if not name.isidentifier():
                break
            value = known.get(name, other or f"{UNSET}{name}{UNSET}")
            word = word[:start] + value + word[end + 1:]
            start += len(value)
    return word


def _of_stack(node: dict, around: Around) -> Launch:
    """Return the start of one model of vLLM's production-stack."""
    config = node.get("vllmConfig") or {}
    words = [str(node["modelURL"])]
    for key, flag in STACK.items():
        if config.get(key) is not None:
            words += [flag, str(config[key])]
    for key, flag in STACK_SWITCHES.items():
        if config.get(key) is not None:
            words.append(f"--{flag}" if config[key] else f"--no-{flag}")
    for extra in config.get("extraArgs") or ():
        words += shlex.split(str(extra))
    gpus = node.get("requestGPU")
    return Launch("vllm", tuple(words), {}, version_of_image(f"vllm-openai:{node.get('tag', '')}"), gpus=gpus,
                  replicas=int(node.get("replicaCount", 1)), place=around.place)
