"""Stays of requests at their replicas, with the blocks of their texts, from the requests of a run."""
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.kv.content import Content
from simulator.kv.text_hashes import text_hashes
from simulator.workload.base import Workload

FOREVER_NS = np.iinfo(np.int64).max


class Stay(NamedTuple):
    """A request at its replica.

    begin_ns, end_ns : from the first admission to the end.
    blocks : of its text, numbered, the first block first. lookups : leading blocks that its prompt looks up.
    """

    begin_ns: int
    end_ns: int
    blocks: list[int]
    lookups: int


def stays_of(workload: Workload, block_size: int) -> dict[int, list[Stay]]:
    """Return the stays at each replica, in order of admission.

    workload : of a run that has ended. Requests that did not complete stay for ever.
    """
    content, requests, numbers = Content(workload), workload.requests, {}
    stays = defaultdict(list)
    chosen = np.flatnonzero((requests["scheduled_ns"] >= 0) & (requests["replica"] >= 0))
    for row in chosen[np.argsort(requests["scheduled_ns"][chosen], kind="stable")].tolist():
        prompt, output = int(requests["prompt_tokens"][row]), int(requests["output_tokens"][row])
        hashes = text_hashes(content, row, block_size, prompt + output).tolist()
        is_done = requests["status"][row] == records.COMPLETED
        end_ns = int(requests["completed_ns"][row]) if is_done else FOREVER_NS
        stays[int(requests["replica"][row])].append(Stay(
            int(requests["scheduled_ns"][row]), end_ns, [numbers.setdefault(each, len(numbers)) for each in hashes],
            min((prompt - 1) // block_size, len(hashes))))
    return stays
