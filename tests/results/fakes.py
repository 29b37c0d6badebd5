"""Runs made by hand, and a cluster that replays one: everything the results need of an engine.

The small run, worked by hand; one replica of 100 blocks, times in ms:

    request  arrival  enqueued  scheduled  first token  completed  prompt  output  status
    0              0         1          2           10         40     100       4  completed
    1              5         5         12           30         30      50       1  completed
    2             10        10         35           50         --      20       2  running
    3             20        20         --           --         --      10       0  waiting
    4             30        --         --           --         --       5       0  rejected
    5            900        --         --           --         --       7       0  pending
"""
from types import SimpleNamespace

import numpy as np

from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.workload.base import Workload

MS = 1_000_000
NEVER = records.NEVER_NS


def requests_of(rows):
    """Return a request table.

    A row is (arrival, enqueued, scheduled, first token, completed) in ms, None for never, prompt, output, status.
    """
    table = np.zeros(len(rows), records.REQUEST)
    for record, (*times_ms, prompt_tokens, output_tokens, status) in zip(table, rows, strict=True):
        arrival_ns, enqueued_ns, scheduled_ns, first_token_ns, completed_ns = (
            NEVER if time_ms is None else round(time_ms * MS) for time_ms in times_ms)
        record["arrival_ns"], record["enqueued_ns"], record["scheduled_ns"] = arrival_ns, enqueued_ns, scheduled_ns
        record["first_token_ns"], record["completed_ns"] = first_token_ns, completed_ns
        record["prompt_tokens"], record["output_tokens"], record["status"] = prompt_tokens, output_tokens, status
        record["replica"] = -1 if enqueued_ns == NEVER else 0
    return table


SMALL_REQUESTS = (
    (0, 1, 2, 10, 40, 100, 4, records.COMPLETED),
    (5, 5, 12, 30, 30, 50, 1, records.COMPLETED),
    (10, 10, 35, 50, None, 20, 2, records.RUNNING),
    (20, 20, None, None, None, 10, 0, records.WAITING),
    (30, None, None, None, None, 5, 0, records.REJECTED),
    (900, None, None, None, None, 7, 0, records.PENDING),
)


def workload_of(requests, request_ids=None, **labels):
    """Return a workload around a request table; labels are lists of names, one a request, None for none."""
    demands = np.zeros(len(requests), records.DEMAND)
    demands["deadline_ns"] = demands["due_ns"] = demands["expected_tokens"] = NEVER
    names = {}
    for column in ("slo_class", "tenant", "session", "model", "adapter", "grammar"):
        given = labels.get(column, [None] * len(requests))
        names[column] = sorted({name for name in given if name is not None})
        demands[column] = [-1 if name is None else names[column].index(name) for name in given]
    ids = np.arange(len(requests)) if request_ids is None else request_ids
    empty = np.empty(0, records.SEGMENT)
    return Workload(requests, demands, np.zeros(len(requests), records.OUTCOME), empty, ids, names)


def replicas_of(*rows):
    """Return a replica table; each row a dict of the fields that are not 0."""
    table = np.zeros(len(rows), records.REPLICA)
    for number, row in enumerate(rows):
        table["replica"][number] = number
        for name, value in row.items():
            table[name][number] = value
    return table


def small_run(request_ids=None, complete=True, **labels):
    """Return the run of the table above."""
    replica = {"num_blocks": 100, "peak_used_blocks": 30, "iterations": 3, "preemptions": 1, "requests": 4,
               "completed": 2, "busy_ns": 50 * MS, "used_block_ns": 1000.0 * MS, "prefix_query_tokens": 170,
               "prefix_hit_tokens": 34, "prefill_tokens": 170, "decode_tokens": 4}
    gaps_ns = WeightedSamples()
    for gap_ms, count in ((20, 1), (5, 2), (5, 1)):
        gaps_ns.observe(gap_ms * MS, count)
    return Run(workload_of(requests_of(SMALL_REQUESTS), request_ids, **labels), complete, 60 * MS, replicas_of(replica),
               gaps_ns)


def iterations_of(num_rows):
    """Return plausible iterations, a prefill first."""
    rows = np.zeros(num_rows, records.ITERATION)
    number = np.arange(num_rows)
    rows["start_ns"], rows["duration_ns"] = 10 * MS * number, 10 * MS + number % 7
    is_first = number == 0
    rows["sequences"], rows["prefill_tokens"], rows["decode_tokens"] = 2, np.where(is_first, 100, 0), 2 * ~is_first
    rows["context_tokens"], rows["waiting"], rows["running"], rows["used_blocks"] = 100 + number, 1, 2, 7
    rows["begin_ns"][1:] = np.cumsum(rows["duration_ns"])[:-1]      # each has to wait for those before it
    return rows


def tokens_of(*messages):
    """Return messages of tokens; each (time in ms, request, tokens)."""
    table = np.zeros(len(messages), records.TOKEN)
    for number, (time_ms, request, tokens) in enumerate(messages):
        table[number] = (round(time_ms * MS), request, tokens)
    return table


SMALL_TOKENS = ((10, 0, 1), (30, 0, 1), (30, 1, 1), (35, 0, 1), (40, 0, 1), (50, 2, 2))


def output_of(**changes):
    """Return an [output] table; everything on but the Chrome trace and the token times."""
    return SimpleNamespace(**{"directory": None, "requests": True, "iterations": True, "chrome_trace": False,
                              "chrome_trace_window_s": (), "chrome_trace_max_events": 0, "token_times": False,
                              **changes})


def bounds_of(ttft_ms=None, tpot_ms=None, e2el_ms=None, classes=()):
    """Return an [slo] table."""
    return SimpleNamespace(ttft_ms=ttft_ms, tpot_ms=tpot_ms, e2el_ms=e2el_ms, classes=classes)


class FakeCluster:
    """Replay a run: hand the sink its rows in reused memory, ask the monitor, return the run.

    Parameters
    ----------
    before_monitor : called before each question to the monitor; a test sends its signal there.
    """

    def __init__(self, run, sink, monitor, num_iterations=3, chunk_rows=2, before_monitor=lambda: None):
        self._run, self._sink, self._monitor = run, sink, monitor
        self._iterations, self._chunk_rows = iterations_of(num_iterations), chunk_rows
        self._before_monitor = before_monitor

    def run(self):
        """Return the run, marked incomplete if the monitor said stop."""
        buffer = np.empty(self._chunk_rows, records.ITERATION)
        for first in range(0, len(self._iterations), self._chunk_rows):
            rows = self._iterations[first:first + self._chunk_rows]
            buffer[:len(rows)] = rows
            if self._sink.wants_iterations:
                self._sink.iterations(buffer[:len(rows)])
            buffer.view(np.uint8)[:] = 255
            self._before_monitor()
            if self._monitor(int(rows["start_ns"][-1]), first):
                self._run.complete = False
                break
        if self._sink.wants_tokens:
            self._sink.tokens(tokens_of(*SMALL_TOKENS))
        return self._run


def legs_of(rows):
    """Return legs; each row (request, replica, sent, enqueued and ended in ms, None for never; how it ended)."""
    legs = np.zeros(len(rows), records.LEG)
    for leg, (request, replica, *times, how) in zip(legs, rows, strict=True):
        leg["request"], leg["replica"], leg["how"] = request, replica, records.LEG_ENDS.index(how)
        for name, time_ms in zip(("sent_ns", "enqueued_ns", "ended_ns"), times, strict=True):
            leg[name] = -1 if time_ms is None else time_ms * 1_000_000
    return legs
