"""What replicas did over time, summed and averaged."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from results.fakes import MS
from results.reports.made import ITERATIONS, REPLICAS
from simulator.domain import records
from simulator.results.lanes import Lanes


def test_totals_step_with_iterations_and_end_where_a_replica_falls_idle():
    lanes = Lanes(ITERATIONS, REPLICAS)

    # ends that are followed by nothing: replica 1 at 25, replica 0 at 30 and 50 ms
    assert (lanes.event_times_s * 1000).round(9).tolist() == [10, 15, 20, 25, 30, 40, 50]
    assert lanes.total("running").tolist() == [2, 3, 3, 2, 0, 1, 0]
    assert lanes.total("used_blocks").tolist() == [99, 109, 109, 99, 0, 30, 0]


def test_means_count_idle_time_as_nothing():
    lanes = Lanes(ITERATIONS, REPLICAS)

    # bins 0 to 20, 20 to 40, 40 to 60 ms; replica 0 is busy 10, 10, 10 ms, replica 1 5, 5, 0 ms
    edges_ns = np.array([0, 20, 40, 60]) * MS
    assert lanes.means(edges_ns).tolist() == [[0.5, 0.5, 0.5], [0.25, 0.25, 0.0]]
    assert lanes.means(edges_ns, lanes.column("running")).tolist() == [[1.0, 1.0, 0.5], [0.25, 0.25, 0.0]]


def test_later_pipeline_stages_are_not_counted_twice():
    rows = np.concatenate([ITERATIONS, ITERATIONS[:1]])
    rows["stage"][-1], rows["start_ns"][-1] = 1, 50 * MS

    assert len(Lanes(rows, REPLICAS)) == 4


def test_no_iterations_are_no_fault():
    lanes = Lanes(ITERATIONS[:0], REPLICAS)

    assert lanes.total("running").tolist() == []
    assert lanes.means(np.array([0, 10])).tolist() == [[0.0], [0.0]]
    assert lanes.end_of_all_ns == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 5), st.integers(1, 9)), max_size=30))
def test_totals_are_what_a_look_at_each_replica_finds(steps):
    clock, rows = [0, 0, 0], []
    for replica, gap, duration, running in steps:
        begin = clock[replica] + gap
        clock[replica] = begin + duration
        rows.append((replica, begin, duration, running))
    rows.sort(key=lambda row: row[1])
    table = np.zeros(len(rows), records.ITERATION)
    for record, (replica, begin, duration, running) in zip(table, rows, strict=True):
        record["replica"], record["start_ns"], record["begin_ns"] = replica, begin, begin
        record["duration_ns"], record["running"] = duration, running

    lanes = Lanes(table, np.zeros(3, REPLICAS.dtype))
    times_ns, totals = (lanes.event_times_s * 1e9).round().astype(int), lanes.total("running")

    for row, time_ns in enumerate(times_ns.tolist()):
        if row + 1 == len(times_ns) or times_ns[row + 1] > time_ns:     # the last event of an instant
            expected = sum(running for _, begin, duration, running in rows if begin <= time_ns < begin + duration)
            assert totals[row] == expected
