"""Profiles on which tables were trained, and the measured range of each axis."""
import numpy as np

from simulator.core.csv_columns import file_bytes
from simulator.latency.forest.tables import MEASURED, ForestTables
from simulator.latency.source_digest import digest_of


def profile_facts(files: dict[str, str], cache_directory: str | None) -> dict[str, dict[str, str]]:
    """Return file and SHA-256 of each profile, by the key of [latency]."""
    return {key: {"file": path, "version": "", "sha256": digest_of(path, cache_directory, file_bytes)}
            for key, path in files.items()}


def measured_ranges(tables: ForestTables) -> dict[str, dict[str, list[int]]]:
    """Return the minimum and maximum measured value of each axis.

    By operator, for operators with known coverage.
    """
    contexts = "context_tokens", tables.kv_granularity
    axes = dict.fromkeys(tables.tokens, (("tokens", 1),)) | dict.fromkeys(tables.host, (("sequences", 1),))
    axes |= {"attn_decode": (("sequences", 1), contexts), "attn_prefill": (contexts, ("tokens", 1))}
    found = {}
    for operator in sorted(axes.keys() & tables.covered.keys()):
        places = np.nonzero(tables.covered[operator] == MEASURED)
        if len(places[0]):
            found[operator] = {axis: [int(at.min()) * step, int(at.max()) * step]
                               for (axis, step), at in zip(axes[operator], places, strict=True)}
    return found
