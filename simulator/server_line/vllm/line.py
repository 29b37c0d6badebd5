"""The words of `vllm serve`: --config files, underscores, -O, dotted keys, the model.

Sources: vLLM 0.32.0 and 0.33.0, vllm/utils/argparse_utils.py, vllm/entrypoints (validate_parsed_serve_args).
"""
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from simulator.server_line.facts.answers import Refused
from simulator.server_line.facts.arguments import parse, size
from simulator.server_line.facts.flag_tables import FlagTable

NAME = re.compile(r"(?<=--)[^.]*")
DEFAULT_MODEL = "Qwen/Qwen3-0.6B"


def given_by(table: FlagTable, argv: Sequence[str], read_config: Callable[[str], list[str]] | None = None
             ) -> dict[str, Any]:
    """Return the given flags of the words behind `vllm serve`, "model" among them.

    Parameters
    ----------
    read_config : words of a --config file; None: no file is read.

    Raises
    ------
    Refused
        As the parser refuses, and the checks of the parsed line.
    """
    model, words = _model_in_front(list(argv))
    if "--config" in words and read_config is not None:
        place = words.index("--config")
        if place + 1 == len(words):
            raise Refused("parse", "missing value", "--config: expected a file")
        model, words = _with_config(model, words[:place] + words[place + 2:], read_config(words[place + 1]))
    given = parse(table, _with_objects(_with_dashes(words)))
    if model is not None:
        given["model"] = model
    given.setdefault("model", DEFAULT_MODEL)
    _check(given)
    return given


def _model_in_front(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the model and the other words: --model MODEL, or the first word."""
    for place, word in enumerate(words):
        if word == "--model" and place + 1 < len(words):
            return words[place + 1], words[:place] + words[place + 2:]
        if word.startswith("--model="):
            return word.removeprefix("--model="), words[:place] + words[place + 1:]
    if words and not words[0].startswith("-"):
        return words[0], words[1:]
    return None, words


def _with_config(model: str | None, words: list[str], read: list[str]) -> tuple[str | None, list[str]]:
    theirs, read = _model_in_front(read)
    return model or theirs, [*read, *words]


def _with_dashes(words: list[str]) -> list[str]:
    """Return words with dashes in names, and -O written out."""
    done = []
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            done.append(NAME.sub(lambda match: match[0].replace("_", "-"), name, count=1) + equals + value)
        elif word.startswith("-O") and word != "-O":
            done += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif word == "-O" and words[place + 1:place + 2] and words[place + 1] in ("0", "1", "2", "3"):
            done.append("--optimization-level")
        else:
            done.append(word)
    return done


def _with_objects(words: list[str]) -> list[str]:
    """Return words with `--flag.key value` collected as `--flag '{"key": value}'`, at the end."""
    objects, kept, skip = {}, [], False
    for place, word in enumerate(words):
        if skip:
            skip = False
            continue
        name, equals, value = word.partition("=")
        if not (word.startswith("-") and "." in name) or _is_number(word):
            kept.append(word)
            continue
        if not equals:
            if place + 1 == len(words):
                raise Refused("parse", "missing value", f"argument {name}: expected one argument")
            value, skip = words[place + 1], True
        if name.endswith("+"):
            name, value = name[:-1], json.dumps(value.split(","))
        flag, *keys = name.split(".")
        _merge(objects.setdefault(flag, {}), keys, _value(value))
    return [*kept, *(word for flag, value in objects.items() for word in (flag, json.dumps(value)))]


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-\d*\.?\d+", word))


def _value(text: str) -> Any:
    for read in (json.loads, size):
        try:
            return read(text)
        except ValueError:
            pass
    return text


def _merge(table: dict, keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    last = keys[-1]
    if isinstance(value, list) and isinstance(table.get(last), list):
        table[last] = table[last] + value
    elif isinstance(value, dict) and isinstance(table.get(last), dict):
        table[last] = table[last] | value
    else:
        table[last] = value


def _check(given: dict[str, Any]) -> None:
    """Check what `vllm serve` checks before it makes the engine's configuration."""
    if given.get("enable_auto_tool_choice") and not given.get("tool_call_parser"):
        raise Refused("validate", "tool choice without parser",
                      "--enable-auto-tool-choice requires --tool-call-parser")
    if given.get("enable_log_outputs") and not given.get("enable_log_requests"):
        raise Refused("validate", "log outputs without requests",
                      "--enable-log-outputs requires --enable-log-requests")
