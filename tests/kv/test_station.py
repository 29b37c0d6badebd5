"""BLIS's station against its rules in plain Python, used at random, and by hand."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.station_model import BLOCK_BYTES, READ, WRITE, StationModel
from simulator.core.clock import NEVER_NS
from simulator.kv.tiers.protocols.blis_chain import ServedLevel
from simulator.kv.tiers.station import Station
from support.kv_faces import StationFace

LEVELS = st.builds(
    ServedLevel, readers=st.integers(1, 3), writers=st.integers(1, 3), base_us=st.integers(0, 3),
    read_gb_per_s=st.sampled_from([0.1, 0.3, 1.0]), write_gb_per_s=st.sampled_from([0.1, 0.7, 10.0]),
    full_depth=st.integers(0, 4), first_frac=st.sampled_from([0.25, 0.5, 1.0]))
JOBS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from([READ, WRITE]), st.integers(1, 4)))


@settings(max_examples=300)
@given(levels=st.lists(LEVELS, min_size=1, max_size=3), jobs=JOBS)
def test_jobs_end_when_and_in_the_order_that_the_rules_say(levels, jobs):
    station, model, now, told = Station(levels, BLOCK_BYTES), StationModel(levels), 0, []
    ours = StationFace(station)
    for pause, level, way, blocks in jobs:
        now += pause
        model.submit(level % len(levels), way, blocks, now)
        ours.submit(level % len(levels), way, blocks, 1000 * now)
        station.check()
    while ours.next_end_ns() < NEVER_NS:
        now = max(ours.next_end_ns() // 1000, now + 1)
        told += ours.done(1000 * now)
        model.done(now)
        assert told == model.finished
        station.check()
    assert not model.waiting
    assert not model.served
    assert sorted(told) == list(range(1, len(jobs) + 1))


def test_servers_prefer_their_direction_and_take_the_other():
    # 10 us each. The reader takes the first write, the writer the second; then the reader the read, the writer a write.
    level = ServedLevel(readers=1, writers=1, read_gb_per_s=0.1, write_gb_per_s=0.1, base_us=0)
    ours = StationFace(Station([level], BLOCK_BYTES))
    for way in (WRITE, WRITE, WRITE, WRITE, READ):
        ours.submit(0, way, 1, 0)

    assert [ours.done(now) for now in (9_999, 10_000, 20_000, 30_000)] == [[], [1, 2], [5, 3], [4]]


@pytest.mark.parametrize("until_ns", [0, 10_000])
def test_what_is_cancelled_never_ends_and_frees_the_servers(until_ns):
    level = ServedLevel(readers=1, writers=1, read_gb_per_s=0.1, write_gb_per_s=0.1, base_us=0)
    ours = StationFace(Station([level], BLOCK_BYTES))
    for _ in range(5):
        ours.submit(0, WRITE, 1, 0)
    ended = len(ours.done(until_ns))
    ours.cancel_all()
    ours.station.check()

    assert ours.next_end_ns() == NEVER_NS
    row = ours.station.row(0)
    assert (row["stores"], row["cancelled"], row["underway"]) == (ended, 5 - ended, 0)
