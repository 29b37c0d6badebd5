"""`python -m simulator from`: the experiment of a server that a command line or a file starts."""
import argparse
import json
import sys
from pathlib import Path
from typing import Any

from simulator.domain.server_defaults.cards import card_of
from simulator.domain.short_names import accelerator_named
from simulator.errors import InputErrors
from simulator.server_line.sources.read import config_reader, launches_from
from simulator.study.deployment.from_server import (
    Lists,
    Machine,
    RefusedLine,
    answer_of,
    lists_of,
    served_by,
)
from simulator.study.deployment.runnable import runnable
from simulator.study.export_command import check_free_file

DONE = 0
NOT_MODELLED = 3
TITLES = {"taken": "Taken: flag, value, key", "defaulted": "Set by the engine: key, value, rule",
          "without_effect": "No effect on time or capacity", "not_modelled": "Not modelled: flag, value, likely effect"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.set_defaults(texts=("source", "diff"))
    parser.add_argument("source", metavar="SOURCE", help=(
        "a command line in quotes (vllm serve ..., sglang serve ..., trtllm-serve ..., docker run ...); or a shell "
        "script, Dockerfile, file of Docker Compose, Kubernetes, Helm (llm-d) or Dynamo; - reads standard input"))
    parser.add_argument("--gpu", required=True, metavar="NAME", help=(
        "accelerator, a name of hardware/ or its first parts: h100"))
    parser.add_argument("--gpus-per-node", "--gpus", dest="gpus", type=int, default=8, metavar="N",
                        help="GPUs of a node; default: 8")
    parser.add_argument("--version", metavar="V", help=(
        "of the engine; nearest: the nearest that is modelled; default: the image's tag, else the newest modelled"))
    parser.add_argument("--config", metavar="FOLDER", help="folder with the model's config.json, in place of its name")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="value of a variable in the source; repeatable")
    parser.add_argument("--out", metavar="FILE", help="where the experiment goes; default: the terminal")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier file")
    parser.add_argument("--json", action="store_true", help="print experiment and lists as JSON")
    parser.add_argument("--allow-unmodelled", action="store_true",
                        help="exit with status 0 even if flags are not modelled")
    parser.add_argument("--diff", metavar="SOURCE", help="another source: print the resolved values that differ")
    parser.add_argument("--diff-version", metavar="V", help="another version: print the resolved values that differ")


def run(options: argparse.Namespace) -> int:
    """Print or write the experiment, and the lists; return the exit status.

    Raises
    ------
    InputErrors
        No server in the source, a model, card or version that is not known, or a line that the engine refuses.
    """
    if options.gpus < 1:
        raise InputErrors([f"--gpus-per-node: expected 1 or more, found {options.gpus}"])
    card = accelerator_named(options.gpu)
    if remark := card.remark(f"--gpu {options.gpu}"):
        print(remark, file=sys.stderr)
    machine = Machine(card_of(card.name), options.gpus, options.version, options.config, _environment(options.env),
                      config_reader(options.source))
    if options.diff is not None or options.diff_version is not None:
        return _differ(options, machine)
    out = check_free_file(Path(options.out), options.overwrite) if options.out is not None else None
    served = served_by(launches_from(options.source, machine.environment), machine)
    text, unbuilt = runnable(served, card.name)
    lists = lists_of(served)
    lists.not_modelled.extend(unbuilt)
    if out is not None:
        out.write_text(text, encoding="utf-8", newline="\n")
    if options.json:
        print(json.dumps({"experiment": text, **{key: [list(row) for row in rows]
                                                 for key, rows in lists._asdict().items()}}, indent=2))
    else:
        if out is None:
            print(text, end="")
        _show(lists)
    return NOT_MODELLED if lists.not_modelled and not options.allow_unmodelled else DONE


def _environment(pairs: list[str]) -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise InputErrors([f"--env: expected NAME=VALUE, found {pair}" for pair in wrong])
    return dict(pair.split("=", 1) for pair in pairs)


def _show(lists: Lists) -> None:
    for key, rows in lists._asdict().items():
        print(f"\n{TITLES[key]}{'' if rows else ': none'}", file=sys.stderr)
        for row in rows:
            print("  " + "\n      ".join(_folded("  ".join(map(_cut, row)))), file=sys.stderr)


def _folded(text: str, width: int = 74) -> list[str]:
    """Return a line in parts that fit a terminal of 80 columns."""
    parts = [""]
    for word in text.split(" "):
        if parts[-1] and len(parts[-1]) + 1 + len(word) > width:
            parts.append(word)
        else:
            parts[-1] = f"{parts[-1]} {word}" if parts[-1] else word
    return parts


def _differ(options: argparse.Namespace, machine: Machine) -> int:
    """Print the resolved values that differ between two sources or two versions of the first start."""
    if options.diff is not None and options.diff_version is not None:
        raise InputErrors(["--diff and --diff-version: one of them at a time"])
    first = launches_from(options.source, machine.environment)[0]
    other = first if options.diff is None else launches_from(options.diff, machine.environment)[0]
    there = machine if options.diff is None else machine._replace(read_config=config_reader(options.diff))
    before, after = _flat(first, machine, None), _flat(other, there, options.diff_version)
    changed = {key: (before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())
               if before.get(key) != after.get(key)}
    if options.json:
        print(json.dumps(changed, indent=2))
        return DONE
    for key, (old, new) in changed.items():
        print(f"{key}: {_cut(json.dumps(old), 60)} -> {_cut(json.dumps(new), 60)}")
    if not changed:
        print("no resolved value differs")
    return DONE


def _flat(launch: Any, machine: Machine, version: str | None) -> dict[str, Any]:
    try:
        _, _, answer = answer_of(launch, machine, version)
    except RefusedLine as refused:
        return {"refused": refused.faults[0]}
    return dict(_leaves(answer.values, ""))


def _leaves(table: dict, path: str) -> Any:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _cut(text: str, most: int = 400) -> str:
    """Return a text for the screen; a chat template, for instance, is cut."""
    text = " ".join(text.split("\n"))
    return text if len(text) <= most else f"{text[:most - 3]}..."
