"""Duration of DeepEP's kernels: its published times, and rules between and beyond them.

Measured on H800, 8 in a node, NVLink of 200 GB/s and a network card of 50 GB/s each, 7168 wide, 8 experts a token, fp8
there and bfloat16 back: low latency with 128 tokens on a rank, normal kernels with 4096 (deepseek-ai/DeepEP,
docs/legacy.md). A kernel takes

    start-up + bytes x slope

with the bytes of traffic.py and the slope with which it meets the published time. Start-ups are those of one token in
aiconfigurator's tables of 8 H100 (wideep_deepep_*, 20 multiprocessors). Between numbers of ranks the slope is linear in
their log2; beyond them, the nearest. Other links: the slope in proportion, by NVLink where all ranks are in one domain,
which takes the row of 8, else by the network. Links in proportion, destinations and start-ups are ours, and have no
published check.
"""
import math
from typing import NamedTuple

import numpy as np

from simulator.experts.traffic import GATHER, HIGH_THROUGHPUT, LOW_LATENCY, Site, sent_bytes

HIDDEN, CHOSEN = 7168, 8
DOMAIN = 8                                          # ranks that NVLink joins on H800
SCALEUP_BYTES_PER_NS, SCALEOUT_BYTES_PER_NS = 200.0, 50.0
START_UP_NS = {LOW_LATENCY: {"dispatch": 13_194.0, "combine": 14_402.0},
               HIGH_THROUGHPUT: {"dispatch": 25_914.0, "combine": 48_216.0}}


class Row(NamedTuple):
    """One published measurement; ns: None where only a bandwidth is published."""

    backend: str
    what: str
    ranks: int
    tokens: int
    ns: float | None
    bytes_per_ns: float


PUBLISHED = tuple(
    Row(LOW_LATENCY, what, ranks, 128, us * 1e3, rate)
    for what, times in (
        ("dispatch", ((8, 77, 98), (16, 118, 63), (32, 155, 48), (64, 173, 43), (128, 192, 39), (256, 194, 39))),
        ("combine", ((8, 114, 127), (16, 195, 74), (32, 273, 53), (64, 314, 46), (128, 369, 39), (256, 360, 40))))
    for ranks, us, rate in times) + tuple(
    Row(HIGH_THROUGHPUT, what, ranks, 4096, None, rate)
    for what, rates in (("dispatch", ((8, 153), (16, 43), (32, 58), (64, 51))),
                        ("combine", ((8, 158), (16, 43), (32, 57), (64, 50))))
    for ranks, rate in rates)


class Links(NamedTuple):
    """Links between the ranks of a group: bytes per ns, accelerator and direction."""

    domain_size: int            # accelerators in one scale-up fabric
    scaleup_bytes_per_ns: float
    scaleout_bytes_per_ns: float

    def num_domains(self, ranks: int) -> int:
        """Return the number of domains over which ranks are spread."""
        return -(-ranks // self.domain_size)


H800 = Links(DOMAIN, SCALEUP_BYTES_PER_NS, SCALEOUT_BYTES_PER_NS)


def kernel_ns(backend: str, what: str, tokens, site: Site, links: Links = H800):
    """Return the nanoseconds of a dispatch or combine of one layer.

    tokens : on each rank, a number or an array.
    site : its domains are counted from the links.
    """
    num_domains = links.num_domains(site.ranks)
    num_bytes = sent_bytes(backend, what, tokens, site._replace(num_domains=num_domains))
    slope = _slope(backend, what, DOMAIN if num_domains == 1 else max(site.ranks, 2 * DOMAIN))
    faster = (links.scaleup_bytes_per_ns / SCALEUP_BYTES_PER_NS if num_domains == 1
              else links.scaleout_bytes_per_ns / SCALEOUT_BYTES_PER_NS)
    return START_UP_NS[backend][what] + num_bytes * (slope / faster)


def is_beyond(backend: str, ranks: int, links: Links) -> bool:
    """Return whether `ranks` lie beyond the published numbers: the nearest is used."""
    if backend == GATHER:
        return False
    known = [row.ranks for row in PUBLISHED if row.backend == backend]
    if links.num_domains(ranks) == 1:
        return ranks != DOMAIN
    return not 2 * DOMAIN <= ranks <= max(known)


def published_ns(row: Row) -> float:
    """Return the time of a published row: as given, or bytes by bandwidth."""
    return row.ns if row.ns is not None else published_bytes(row) / row.bytes_per_ns


def published_bytes(row: Row) -> float:
    """Return the bytes of a published row."""
    site = Site(HIDDEN, CHOSEN, row.ranks, H800.num_domains(row.ranks))
    return sent_bytes(row.backend, row.what, row.tokens, site)


def _slope(backend: str, what: str, ranks: int) -> float:
    """Return the ns a byte of a kernel over `ranks` ranks of H800."""
    rows = [row for row in PUBLISHED if (row.backend, row.what) == (backend, what)]
    slopes = [(published_ns(row) - START_UP_NS[backend][what]) / published_bytes(row) for row in rows]
    return float(np.interp(math.log2(ranks), [math.log2(row.ranks) for row in rows], slopes))
