"""Recorded decisions of real routers: JSON Lines anywhere in folders `cluster_*` of $SIM_GOLDENS, a case a line."""
import json
from functools import cache

from support.goldens import GOLDENS


@cache
def _by_file():
    return {path: [json.loads(line) for line in path.read_text().splitlines() if line]
            for path in sorted(GOLDENS.glob("cluster_*/**/*.jsonl")) if "router" in path.stem}


def cases(system, has=()):
    """Return the cases that were recorded from a system: the beginning of its name, and keys of each case."""
    return [case for found in _by_file().values() for case in found
            if case.get("system", "").startswith(system) and all(key in case for key in has)]
