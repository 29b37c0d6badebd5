"""Faults that are known and being mended; an entry goes as soon as its fault does."""
import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Known(NamedTuple):
    """A fault that is not told.

    kind : pattern of its kind.
    is_meant : whether an experiment has what it takes.
    """

    kind: str
    is_meant: Callable[[dict[str, Any]], bool]


def _shortest(data: dict[str, Any]) -> bool:
    return any(table.get("engine", {}).get("max_model_len") == 1 for table in (data, *data.get("pools", ())))


def _text(data: dict[str, Any]) -> str:
    return repr(data)


KNOWN: tuple[Known, ...] = (
    Known("hang", lambda data: "pipeline_parallel" in _text(data) and "structured_outputs" in _text(data)),
    Known("fast_forward:", lambda data: "'lora'" in _text(data)),
    Known("fast_forward:", lambda data: "failing" in _text(data)),
    Known("fast_forward:|crash:RuntimeError:tables.pyx", lambda data: any(
        each in _text(data) for each in ("kv_cache_groups", "gemma", "gpt-oss", "qwen3-next"))),
    Known("(fast_forward|watched):summary.(diagnosis|latency|uncertainty)", lambda data: True),
    Known("busy|negative|mean above peak", lambda data: "'link'" in _text(data)),
    Known("horizon", lambda data: "horizon_s" in data),
    Known("crash:TypeError:build.py", _shortest),
    Known("max_model_len", lambda data: data.get("engine", {}).get("enable_chunked_prefill") is False),
)


def unknown(data: dict[str, Any], faults: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first of the faults of an experiment that is none of these, in a list; empty: there is none."""
    return [fault for fault in faults if not is_known(data, fault[0])][:1]


def is_known(data: dict[str, Any], kind: str) -> bool:
    """Say whether a fault of an experiment is one of these."""
    return any(re.match(each.kind, kind) and each.is_meant(data) for each in KNOWN)
