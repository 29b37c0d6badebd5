"""What replicas did over time, summed and averaged."""
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.fakes import MS
from results.reports.made import ITERATIONS, REPLICAS, lanes_of
from simulator.domain import records
from simulator.results.lane_sums import Means
from simulator.results.lanes import MEANS, NUM_SLICES

# iterations of three replicas: which, idle before, duration, running
STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 5), st.integers(1, 9)), max_size=30)
NONE = np.zeros(3, REPLICAS.dtype)


def table_of(steps):
    """Return iterations in order of start; each is scheduled when the one before it begins, as in asynchronous mode."""
    clock, started, rows = [0, 0, 0], [0, 0, 0], []
    for replica, gap, duration, running in steps:
        begin = clock[replica] + gap
        rows.append((replica, begin, duration, running, max(started[replica], begin - 1)))
        started[replica], clock[replica] = begin, begin + duration
    rows.sort(key=lambda row: row[4])
    table = np.zeros(len(rows), records.ITERATION)
    for record, (replica, begin, duration, running, start) in zip(table, rows, strict=True):
        record["replica"], record["start_ns"], record["begin_ns"] = replica, start, begin
        record["duration_ns"], record["running"], record["sequences"] = duration, running, running
        record["waiting"], record["used_blocks"] = running % 3, 7 * running
        record["decode_tokens"], record["prefill_tokens"] = running, 10 * (running % 2)
    return table


def found(lanes):
    """Return all that lanes found, to compare."""
    arrays = [*lanes.timeline.values, lanes.timeline.times_s, lanes.timeline.at_s, lanes.timeline.looks,
              *lanes.means.values(), *(part for kind in lanes.batches.kinds().values() for part in (kind.x, kind.y)),
              *(part for name in ("sequences", "tokens") for part in lanes.batches.histogram(name)[:2])]
    others = [lanes.timeline.peaks, lanes.timeline.peak_times_s, vars(lanes.span)["held_ns"], lanes.batches.sizes(),
              [kind[:2] for kind in lanes.batches.kinds().values()],
              [lanes.batches.histogram(name)[2:] for name in ("sequences", "tokens")]]
    return [each.tobytes() for each in arrays], others


def test_totals_step_with_iterations_and_end_where_a_replica_falls_idle():
    found = lanes_of(ITERATIONS).timeline

    # ends that are followed by nothing: replica 1 at 25, replica 0 at 30 and 50 ms
    assert (found.times_s * 1000).round(9).tolist() == [10, 15, 20, 25, 30, 40, 50]
    assert found.values[0].tolist() == [2, 3, 3, 2, 0, 1, 0]
    assert found.values[2].tolist() == [99, 109, 109, 99, 0, 30, 0]


def test_means_count_idle_time_as_nothing():
    # bins 0 to 20, 20 to 40, 40 to 60 ms; replica 0 is busy 10, 10, 10 ms, replica 1 5, 5, 0 ms
    means = Means(np.array([0, 20, 40, 60]) * MS, 2, 2)
    values = np.stack((np.ones(len(ITERATIONS)), ITERATIONS["running"]), axis=1)
    means.take(*(np.ascontiguousarray(ITERATIONS[name]) for name in ("replica", "begin_ns", "duration_ns")), values)

    assert means.means().tolist() == [[[0.5, 0.5, 0.5], [0.25, 0.25, 0.0]], [[1.0, 1.0, 0.5], [0.25, 0.25, 0.0]]]


def test_later_pipeline_stages_are_not_counted_twice():
    rows = np.concatenate([ITERATIONS, ITERATIONS[:1]])
    rows["stage"][-1], rows["start_ns"][-1] = 1, 50 * MS

    assert len(lanes_of(rows)) == 4


def test_no_iterations_are_no_fault():
    lanes = lanes_of(ITERATIONS[:0])

    assert [values.tolist() for values in lanes.timeline.values] == [[], [], []]
    assert [lanes.means[name].any() for name in MEANS] == [False] * 4
    assert (lanes.span.end_ns, lanes.batches.kinds(), lanes.batches.sizes()) == (0, {}, [])


@given(STEPS)
def test_totals_are_what_a_look_at_each_replica_finds(steps):
    rows = table_of(steps)
    lanes = lanes_of(rows, NONE)
    times_ns, totals = (lanes.timeline.times_s * 1e9).round().astype(int), lanes.timeline.values[0]

    for row, time_ns in enumerate(times_ns.tolist()):
        if row + 1 == len(times_ns) or times_ns[row + 1] > time_ns:     # the last event of an instant
            assert totals[row] == running_at(rows, time_ns)
    for at_s, looked in zip(lanes.timeline.at_s.tolist(), lanes.timeline.looks[:, 0].tolist(), strict=True):
        assert looked == running_at(rows, round(at_s * 1e9))


def running_at(rows, time_ns):
    """Return what is running at an instant; what is scheduled takes the place of what went before without a pause."""
    total = 0
    for replica in range(3):
        own = rows[rows["replica"] == replica]
        for place, row in enumerate(own):
            until_ns = end_ns = row["begin_ns"] + row["duration_ns"]
            if place + 1 < len(own) and own["begin_ns"][place + 1] <= end_ns:
                until_ns = own["start_ns"][place + 1]
            total += int(row["running"]) if row["start_ns"] <= time_ns < until_ns else 0
    return total


@given(STEPS, st.integers(1, 6))
def test_of_each_column_of_pixels_the_least_and_the_greatest_are_kept(steps, num_columns):
    rows = table_of(steps)
    all_of, kept = (lanes_of(rows, NONE, num_columns=each).timeline for each in (1000, num_columns))
    x, y = all_of.times_s, all_of.values[0]
    expected = x.tolist(), y.tolist()
    if len(x) > 2 * num_columns:
        edges = np.linspace(x[0], x[-1], num_columns + 1)[:-1]
        columns = [part for part in np.split(np.arange(len(x)), np.searchsorted(x, edges)[1:]) if len(part)]
        expected = ([x[part[0]] for part in columns for _ in range(2)],
                    [extreme for part in columns for extreme in (y[part].min(), y[part].max())])

    assert (kept.times_s.tolist(), kept.values[0].tolist()) == expected
    assert kept.peaks[0] == (y.max() if len(y) else 0)
    assert not len(y) or kept.peak_times_s[0] == x[y.argmax()]


@given(STEPS)
def test_means_are_those_of_the_time_in_which_iterations_ran(steps):
    rows = table_of(steps)
    lanes = lanes_of(rows, NONE)
    edges = lanes.slices_ns
    for replica in range(3):
        ran = np.zeros(edges[-1] + 1)
        for row in rows[rows["replica"] == replica]:
            ran[row["begin_ns"]:row["begin_ns"] + row["duration_ns"]] = row["running"]
        expected = [ran[low:high].mean() for low, high in pairwise(edges)]

        assert lanes.means["sequences"][replica] == pytest.approx(expected)


@given(STEPS, st.integers(1, 7))
def test_blocks_of_any_size_give_the_same(steps, size):
    rows = table_of(steps)

    assert found(lanes_of(rows, NONE, size)) == found(lanes_of(rows, NONE))


@pytest.mark.parametrize(("column", "value", "says"), [
    ("replica", 2, "a replica that"), ("replica", -1, "a replica that"), ("start_ns", 90 * MS, "not in order"),
    ("start_ns", -1, "no run"), ("duration_ns", 1 << 62, "no run")])
def test_what_no_run_writes_is_refused(column, value, says):
    rows = ITERATIONS.copy()
    rows[column][1] = value

    with pytest.raises(ValueError, match=says):
        lanes_of(rows)


def test_slices_are_120_of_the_whole_time():
    assert (len(lanes_of(ITERATIONS).slices_ns), lanes_of(ITERATIONS).slices_ns[-1]) == (NUM_SLICES + 1, 50 * MS)
