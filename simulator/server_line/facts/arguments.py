"""Parse the words of a command line by an engine's flag table, with Python's own argparse, as the engines do."""
import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from simulator.errors import did_you_mean
from simulator.server_line.facts.answers import Refused
from simulator.server_line.facts.flag_tables import ENGINES, FlagTable, flag_table, versions

SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
BARE_SIZE = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
OBJECT = re.compile(r"(?s)^\s*{.*}\s*$")
CAUSES = (("unrecognized arguments", "unknown flag"), ("ambiguous option", "ambiguous flag"),
          ("invalid choice", "not a choice"), ("expected one argument", "missing value"),
          ("expected at least one argument", "missing value"))
# Flags of earlier versions, and their last meaning. vLLM, release notes of 0.9 to 0.32.
GONE = {
    "max_num_partial_prefills": "prompts prefilled at once",
    "max_long_partial_prefills": "long prompts prefilled at once",
    "swap_space": "host memory for preempted sequences", "num_scheduler_steps": "steps a schedule",
    "preemption_mode": "swap or recompute", "use_v2_block_manager": "the second block manager",
    "max_seq_len_to_capture": "longest text in a CUDA graph", "cuda_graph_sizes": "now cudagraph-capture-sizes",
    "task": "now --runner and --convert", "guided_decoding_backend": "now --structured-outputs-config.backend",
    "rope_scaling": "now --hf-overrides"}


def size(text: str) -> int:
    """Return a number with k, m, g, t (decimal) or K, M, G, T (binary, whole)."""
    match = SIZE.fullmatch(text.strip())
    if not match:
        return int(text.strip())
    number, letter = match.groups()
    if letter.islower():
        return int(float(number) * 1000**POWERS[letter])
    return int(number) * 1024**POWERS[letter.lower()]


def size_or_auto(text: str) -> int:
    """Return a size; -1 for auto."""
    return -1 if text.strip().lower() in ("-1", "auto") else size(text)


def with_sizes(text: str) -> str:
    """Return JSON text with bare sizes, 80g, written out."""
    parts = QUOTED.split(text)
    parts[::2] = [BARE_SIZE.sub(lambda match: str(size(match[0])), part) for part in parts[::2]]
    return "".join(parts)


def _object(keys: Sequence[str]) -> Callable[[str], dict]:
    def read(text: str) -> dict:
        value = json.loads(with_sizes(text))
        if not isinstance(value, dict):
            raise ValueError("expected a JSON object")
        if unknown := [key for key in value if key not in keys]:
            raise ValueError(f"unknown key {unknown[0]}{did_you_mean(unknown[0], dict.fromkeys(keys))}")
        return value
    return read


def _json_or_text(text: str) -> Any:
    return json.loads(text) if OBJECT.match(text) else text


READERS = {"int": int, "float": float, "text": str, "json": json.loads, "size": size, "size_or_auto": size_or_auto,
           "json_or_text": _json_or_text}


class Parser(argparse.ArgumentParser):
    """argparse without help and exit: a fault is a refusal of the engine."""

    def error(self, message: str) -> NoReturn:
        """Refuse, with the cause of argparse's message."""
        cause = next((cause for start, cause in CAUSES if start in message), "bad value")
        raise Refused("parse", cause, message)


def _checked(read: Callable[[str], Any], optional: bool) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        if optional and text in ("", "None"):
            return None
        try:
            return read(text)
        except (ValueError, RecursionError) as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from error
    return convert


def parser_of(table: FlagTable) -> Parser:
    """Return the parser of a table; flags not given are absent from its result.

    Beginnings of flags are flags, as argparse has it; trtllm-serve is made with click, which takes whole ones alone.
    """
    parser = Parser(prog=ENGINES[table.engine], add_help=False, argument_default=argparse.SUPPRESS,
                    allow_abbrev=table.engine != "trtllm")
    for key, row in table.rows.items():
        kind = row["kind"]
        if kind in ("switch", "on", "off"):
            parser.add_argument(*row["names"], dest=key, action="store_const", const=kind != "off")
            if row.get("off"):
                parser.add_argument(*row["off"], dest=key, action="store_const", const=False)
            continue
        read = _object(row["keys"]) if kind == "object" else READERS[kind]
        more = {"nargs": row["nargs"]} if "nargs" in row else {}
        convert = _checked(read, "default" not in row or row.get("optional", False))
        if "choices" in row:
            convert = _chosen(convert, row["choices"])
        parser.add_argument(*row["names"], dest=key, type=convert, **more)
    return parser


def _chosen(convert: Callable[[str], Any], choices: Sequence[str]) -> Callable[[str], Any]:
    def choose(text: str) -> Any:
        if (value := convert(text)) is not None and text not in choices:
            raise argparse.ArgumentTypeError(f"invalid choice: {text} (choose from {', '.join(choices)})"
                                             f"{did_you_mean(text, dict.fromkeys(choices))}")
        return value
    return choose


def parse(table: FlagTable, words: Sequence[str]) -> dict[str, Any]:
    """Return the given flags by key.

    Raises
    ------
    Refused
        By argparse's rules; an unknown flag is named with the nearest one and the versions that know it.
    """
    found, unknown = parser_of(table).parse_known_args(list(words))
    if unknown:
        raise Refused("parse", "unknown flag", f"unrecognized arguments: {' '.join(unknown)}"
                      f"{''.join(_hint(table, word) for word in unknown if word.startswith('-'))}")
    return vars(found)


def _hint(table: FlagTable, word: str) -> str:
    flag = word.partition("=")[0]
    key = flag.lstrip("-").replace("-", "_")
    others = [version for version in versions(table.engine)
              if version != table.version and flag in flag_table(table.engine, version).names()]
    if others:
        return f"; {ENGINES[table.engine]} {', '.join(others)} knows {flag}"
    if table.engine == "vllm" and key in GONE:
        return f"; {flag} is gone: {GONE[key]}"
    near = did_you_mean(flag, dict.fromkeys(name for name in table.names() if name.startswith("--")))
    return "" if near.startswith("; valid") else near
