"""Rows of iterations that logs hold as differences come out as they went in, in the order that NumPy gives them."""
from itertools import pairwise

import numpy as np
import pytest

from simulator.domain import records
from simulator.engine.output.row_log import RowLog
from simulator.engine.output.row_merge import RowMerge


class Sink:
    """Keeps rows."""

    def __init__(self):
        self._pieces = []

    def iterations(self, rows):
        self._pieces.append(rows.copy())

    @property
    def rows(self):
        return np.concatenate([np.empty(0, records.ITERATION), *self._pieces])


def runs_of(generator, replica, num_runs):
    """Return rows of a replica: runs of iterations, right behind each other or overlapping, after other rows."""
    parts, now_ns = [], int(generator.integers(0, 50))
    for _ in range(num_runs):
        length, overlaps = int(generator.integers(1, 9)), bool(generator.integers(2))
        rows = np.repeat(drawn(generator, 1), length)
        rows["duration_ns"] += np.cumsum(generator.choice([0, 1, -1, 300, 70_000, 2**33], length))
        rows["context_tokens"] += np.cumsum(generator.choice([5, 5, 5, 200, -7, 2**40], length))
        rows["used_blocks"] += np.cumsum(generator.choice([0, 0, 1, 200, -40_000], length)).astype(np.int32)
        rows["duration_ns"] = np.abs(rows["duration_ns"])
        rows["begin_ns"] = now_ns + np.concatenate([[0], np.cumsum(rows["duration_ns"])[:-1]])
        rows["start_ns"] = rows["begin_ns"]
        if overlaps:
            rows["start_ns"][1:] = rows["begin_ns"][:-1]
        now_ns = int(rows["begin_ns"][-1]) + int(generator.integers(0, 20))
        parts.append(rows)
    whole = np.concatenate(parts)
    whole["replica"], whole["stage"] = replica, 0
    return whole


def drawn(generator, count):
    rows = np.zeros(count, records.ITERATION)
    for name in records.ITERATION.names:
        rows[name] = generator.choice([0, 3, 1000, 2**30], count)
    return rows


def in_order(rows):
    return rows[np.lexsort((rows["replica"], rows["start_ns"]))]


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_replicas_are_merged_and_complete(seed):
    # Starts are few, so that many are equal; two logs hold the odd and the even replicas, passed on in three parts.
    generator = np.random.default_rng(seed)
    replicas = [runs_of(generator, replica, 30) for replica in range(int(generator.integers(1, 12)))]
    sink, logs = Sink(), [RowLog(), RowLog()]
    merge = RowMerge(sink, logs)
    whole = in_order(np.concatenate(replicas))
    bounds_ns = [int(whole["start_ns"][len(whole) * third // 3]) for third in range(3)] + [2**63 - 1]

    for first_ns, before_ns in pairwise(bounds_ns):
        for replica, rows in enumerate(replicas):
            logs[replica % 2].extend(rows[(rows["start_ns"] >= first_ns) & (rows["start_ns"] < before_ns)])
        merge.pass_on(before_ns)
        assert sum(log.held_bytes for log in logs) == 0
    merge.close()

    assert sink.rows.tobytes() == whole.tobytes()


def test_rows_that_start_later_stay():
    rows = drawn(np.random.default_rng(1), 20_000)
    rows["replica"], rows["stage"], rows["start_ns"] = 7, 0, np.arange(20_000)
    log, sink = RowLog(), Sink()
    merge = RowMerge(sink, [log])
    log.extend(rows)

    merge.pass_on(10_000)
    assert len(sink.rows) == 8192       # the one piece that was full
    assert log.held_bytes > 0
    merge.close()
    assert len(sink.rows) == 10_000

    merge.pass_on(2**63 - 1)
    merge.close()
    assert sink.rows.tobytes() == rows.tobytes()


def test_stages_of_equal_start_come_in_the_order_of_their_batches():
    # The second batch enters stage 0 when the first enters stage 1, and a batch may leave stage 0 in no time.
    rows = np.zeros(6, records.ITERATION)
    rows["stage"] = [0, 1, 0, 1, 0, 1]
    rows["start_ns"] = [0, 5, 5, 9, 9, 9]
    rows["duration_ns"] = np.arange(6)      # which row it is
    log, sink = RowLog(), Sink()
    merge = RowMerge(sink, [log])

    log.extend(rows)
    merge.pass_on(2**63 - 1)
    merge.close()

    assert sink.rows["duration_ns"].tolist() == [0, 1, 2, 3, 4, 5]


def test_repetitions_take_few_bytes():
    rows = np.zeros(1000, records.ITERATION)
    rows["duration_ns"] = 10_000_000 + 120 * np.arange(1000)
    rows["begin_ns"] = rows["start_ns"] = np.concatenate([[0], np.cumsum(rows["duration_ns"])[:-1]])
    rows["context_tokens"] = 64 * np.arange(1000)
    log = RowLog()

    log.extend(rows)

    # A byte, and one for the longer duration: the first shows the slope of the tokens, which stays.
    assert log.held_bytes == 2 * 999 + 1
