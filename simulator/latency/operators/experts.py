"""Experts that are not loaded evenly, in tables of operators.

Their time is that of evenly loaded experts at the number of tokens that loads every rank like the busiest: table(T x
imbalance). The number of needed experts is that of T tokens that choose evenly, as in the measurements.
"""
from dataclasses import replace

import numpy as np

from simulator.experts.pricing import ExpertPricing
from simulator.latency.operators.curves import INTERPOLATED

EXCHANGES = ("expert_dispatch", "expert_combine", "expert_all_gather", "expert_reduce_scatter")
NOTE = ("experts are looked up at tokens x imbalance: how many experts of a rank are needed is no axis of tables of "
        "experts")


def unevenly_loaded(tables, experts: ExpertPricing, data_ranks: int):
    """Return IterationTables of the busiest rank: `experts` and `imbalance` add up.

    data_ranks : number of ranks over which tokens are spread; tables are by the tokens of one rank.
    """
    even_ns = tables.tokens_ns["experts"]
    tokens = np.arange(len(even_ns), dtype=float)
    busiest = experts.load.tokens(tokens * data_ranks) / data_ranks
    last = len(even_ns) - 1
    busiest_ns = np.interp(busiest, tokens, even_ns) * np.maximum(busiest / last, 1.0)
    origins = np.where(busiest == tokens, tables.tokens_origins, np.maximum(tables.tokens_origins, INTERPOLATED))
    return replace(tables, tokens_ns=tables.tokens_ns | {"imbalance": busiest_ns - even_ns},
                   tokens_origins=origins.astype(np.uint8), origins=tables.origins | {"imbalance": "formula"})


def exchange_of(tables) -> np.ndarray:
    """Return the time of exchanging tokens with experts, by tokens of a rank."""
    return sum((tables.tokens_ns[name] for name in EXCHANGES if name in tables.tokens_ns),
               np.zeros(len(next(iter(tables.tokens_ns.values())))))
