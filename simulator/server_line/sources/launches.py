"""Starts of servers in commands: `vllm serve`, modules of Python, `sglang serve`, `trtllm-serve`, `docker run`."""
import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

from simulator.errors import InputErrors
from simulator.server_line.sources.words import Command, commands, faults_of

MODULES = {"vllm.entrypoints.openai.api_server": "vllm", "sglang.launch_server": "sglang", "dynamo.vllm": "vllm",
           "dynamo.sglang": "sglang", "dynamo.trtllm": "trtllm"}
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "zsh", "/usr/bin/bash")
IMAGES = ((re.compile(r"(^|/)vllm-openai(-[\w.]+)?([:@]|$)"), "vllm"),
          (re.compile(r"(^|/)vllm-runtime([:@]|$)"), "vllm"), (re.compile(r"(^|/)llm-d(-cuda)?([:@]|$)"), "vllm"))
OWN_TAGS = re.compile(r"(^|/)(vllm-openai|sglang)(-[\w.]+)?:")       # of images with an engine's version as their tag
TAG = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")
# Flags of Dynamo's workers that the engine does not see, with the values that each takes.
DYNAMO = {"--is-prefill-worker": 0, "--is-decode-worker": 0, "--connector": 1,
          "--disaggregation-mode": 1, "--disaggregation-strategy": 1, "--endpoint": 1, "--migration-limit": 1,
          "--store-kv": 1, "--request-plane": 1, "--extra-engine-args": 1}


class Launch(NamedTuple):
    """A server's start.

    argv : words behind the command. version : of an image's tag, None: none. role : both, prefill or decode.
    gpus : of a replica, as the file limits them, None: not said. place : in the source.
    """

    engine: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    version: str | None = None
    role: str = "both"
    replicas: int = 1
    gpus: int | None = None
    place: str = ""


def launches(text: str, environment: Mapping[str, str], place: str = "") -> list[Launch]:
    """Return the starts in a shell text.

    Raises
    ------
    InputErrors
        A start hangs on a variable that is not set, or on the output of a command.
    """
    found = []
    for command in commands(text, environment):
        found += launches_of(command, place)
    return found


def launches_of(command: Command, place: str = "") -> list[Launch]:
    """Return the starts in one command, or in the shell text behind its `-c`."""
    words, environment = command
    inner = next((words[at + 1] for at, word in enumerate(words[:-1])
                  if re.fullmatch(r"-[a-z]*c", word) and at and words[at - 1] in SHELLS), None)
    if inner is not None:
        return launches(inner, environment, place)
    found = _by_program(words) or _by_image(words)
    if found is None:
        return []
    engine, at, version = found
    options = words[:at]
    environment = environment | _set_by_docker(options)
    argv = words[at:]
    if faults := faults_of(argv):
        raise InputErrors([f"{place or 'the command'}: {fault}" for fault in faults])
    launch = Launch(engine, tuple(argv), environment, version, gpus=_gpus_of(options), place=place)
    is_dynamo = any(word.startswith("dynamo.") for word in options)
    return [_of_dynamo(launch) if is_dynamo else _with_role(launch)]


def _by_program(words: list[str]) -> tuple[str, int, str | None] | None:
    """Return the engine, and the place of the first word behind the program."""
    version = next((tag for word in words if (tag := version_of_image(word))), None)
    for at, word in enumerate(words):
        name, after = word.rpartition("/")[2], words[at + 1] if at + 1 < len(words) else ""
        if name in ("vllm", "sglang") and after == "serve":
            return name, at + 2, version
        if name == "trtllm-serve":
            return "trtllm", at + (2 if after == "serve" else 1), version
        if word == "-m" and after in MODULES:
            return MODULES[after], at + 2, version
    return None


def _by_image(words: list[str]) -> tuple[str, int, str | None] | None:
    if not words or words[0].rpartition("/")[2] not in ("docker", "podman", "nerdctl") or "run" not in words:
        return None
    for at, word in enumerate(words):
        if engine := engine_of_image(word):
            return engine, at + 1, version_of_image(word)
    return None


def engine_of_image(image: str) -> str | None:
    """Return the engine of an image that starts a server by itself; None: of none."""
    return next((engine for pattern, engine in IMAGES if pattern.search(image)), None)


def version_of_image(image: str) -> str | None:
    """Return the engine's version in an image's tag; None: it names none.

    Tags of llm-d and Dynamo count versions of their own.
    """
    tag = TAG.search(image.rpartition("/")[2]) if OWN_TAGS.search(image) else None
    return tag[1] if tag else None


def _set_by_docker(options: list[str]) -> dict[str, str]:
    """Return the variables of -e and --env before the image."""
    given = [after for word, after in itertools.pairwise(options) if word in ("-e", "--env")]
    given += [word.partition("=")[2] for word in options if word.startswith("--env=")]
    return dict(text.split("=", 1) for text in given if "=" in text)


def _gpus_of(options: list[str]) -> int | None:
    for word, after in itertools.pairwise(options):
        if word == "--gpus":
            text = after.strip("\"'")
            if text.isdigit():
                return int(text)
            if text.startswith("device="):
                return len(text.removeprefix("device=").split(","))
    return None


def _with_role(launch: Launch) -> Launch:
    argv = launch.argv
    for at, word in enumerate(argv[:-1]):
        if word == "--disaggregation-mode" and argv[at + 1] in ("prefill", "decode"):
            return launch._replace(role=argv[at + 1])
    return launch


def _of_dynamo(launch: Launch) -> Launch:
    """Return the launch without Dynamo's own flags, which give the role."""
    role, kept, skip = launch.role, [], 0
    for at, word in enumerate(launch.argv):
        if skip:
            skip -= 1
            continue
        flag, after = word.partition("=")[0], launch.argv[at + 1] if at + 1 < len(launch.argv) else ""
        if flag not in DYNAMO:
            kept.append(word)
            continue
        role = {"--is-prefill-worker": "prefill", "--is-decode-worker": "decode"}.get(flag, role)
        if flag.startswith("--disaggregation-mode") and after in ("prefill", "decode"):
            role = after
        skip = 0 if "=" in word else DYNAMO[flag]
    return launch._replace(argv=tuple(kept), role=role)
