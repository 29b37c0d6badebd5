"""The reader of BLIS's TraceV2 files, for `[workload] format = "support.blis_trace:BlisTrace"`.

Source of the format and of the priorities: inference-sim (BLIS) at f90a1e3a, sim/workload/tracev2.go, sim/slo.go.
"""
import csv

import msgspec
import numpy as np

from simulator.domain import records
from simulator.workload.columns import Columns, Prompts
from simulator.workload.limits import MISSING
from support.blis import HELD_BACK

HIGHEST = 4                     # priority of a class; what is subtracted from it goes first if it is low
PRIORITIES = {"critical": 4, "standard": 3, "": 3, "batch": -1, "sheddable": -2, "background": -3}
LABELS = {"slo_class": "slo_class", "tenant": "tenant_id", "model": "model"}                    # ours: BLIS's


class BlisTraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Priorities of SLO classes that differ from BLIS's own."""

    priorities: dict[str, int] = {}


class BlisTrace:
    """The reader of BLIS's traces; prompts are the prefix of their group, as long as its first row says, and a rest."""

    Parameters = BlisTraceParameters

    def __init__(self, parameters):
        self._priorities = PRIORITIES | parameters.priorities

    def keeps(self, row):
        """Say whether a row counts."""
        return True

    def read(self, path, data):
        """Return the requests of a file that holds `data`, in file order."""
        rows = [row for row in csv.DictReader(data.decode().splitlines()) if self.keeps(row)]
        arrival_us = _numbers(rows, lambda row: int(row["send_time_us"]) or int(row["arrival_time_us"]))
        deadline_us = _numbers(rows, lambda row: int(row["deadline_us"]))
        own, shared, groups = _lengths(rows)
        return Columns(
            arrival_ns=1000 * arrival_us, prompt_tokens=own + shared,
            output_tokens=_numbers(rows, lambda row: int(row["output_tokens"])),
            request_ids=[f"request_{row['request_id']}" for row in rows],
            priority=HIGHEST - _numbers(rows, lambda row: self._priorities.get(row["slo_class"], PRIORITIES[""])),
            timeout_ns=np.where(deadline_us > 0, 1000 * (deadline_us - arrival_us), MISSING),
            labels={ours: _label(rows, theirs) for ours, theirs in LABELS.items()},
            prompts=_prompts(own, shared, groups))


class UrgentBlisTrace(BlisTrace):
    """Without the requests that v0.7.1 holds back until no other is left."""

    def keeps(self, row):
        """See BlisTrace."""
        return row["slo_class"] not in HELD_BACK


def _lengths(rows):
    """Return the own and the shared tokens of each prompt, and the numbers of the groups that share them."""
    lengths, own, shared = {}, [], []
    for row in rows:
        group = row["prefix_group"]
        lengths.setdefault(group, int(row["prefix_length"]) if group else 0)
        served = 0 if group else int(row["server_input_tokens"])
        own.append(served or int(row["input_tokens"]))
        shared.append(lengths[group])
    numbers = {group: number for number, group in enumerate(lengths)}
    return np.array(own), np.array(shared), [numbers[row["prefix_group"]] for row in rows]


def _prompts(own, shared, groups):
    counts, streams, tokens = [], [], []
    for row, group in enumerate(groups):
        pieces = [(records.named_stream(group), shared[row]), (records.own_stream(row), own[row])]
        pieces = [piece for piece in pieces if piece[1] > 0]
        counts.append(len(pieces))
        streams += [stream for stream, _ in pieces]
        tokens += [length for _, length in pieces]
    return Prompts(*(np.array(each, dtype=np.int64) for each in (counts, streams, tokens)))


def _label(rows, column):
    names = sorted({row[column] for row in rows} - {""})
    return _numbers(rows, lambda row: names.index(row[column]) if row[column] else -1), names


def _numbers(rows, read):
    return np.array([read(row) for row in rows], dtype=np.int64)
