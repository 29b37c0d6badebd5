"""Lanes that begin in the middle of a play, and plays that come again; iterations of 1 ms."""
import numpy as np
import pytest

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.recycling import repeated
from simulator.workload.trims import begun
from support.traces import play

HEADER = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,play,wait_for,not_before_s,prompt\n"
# Two plays of 0.1 s: one request each 10 ms.
PLAYS = HEADER + "".join(
    f"{name}{k},0,20,1,{name},{f'{name}{k - 1}:end' if k else ''},{k * 0.01:.2f},{name}:16/:4\n"
    for name in "xy" for k in range(11))
LANES = {"mode": "lanes", "lanes": 2}


def read(text):
    return NativeCsv().read("t.csv", text.encode())


@pytest.fixture
def path(tmp_path):
    (tmp_path / "t.csv").write_text(PLAYS)
    return tmp_path / "t.csv"


def points_ms():
    return (RandomStreams(0).generator("snapshot").random(2) * 100).tolist()


@pytest.mark.parametrize("assign", ["static", "dynamic"])
def test_lanes_begin_in_the_middle_of_their_first_play(tmp_path, path, assign):
    played = play(tmp_path, path, load=LANES | {"snapshot": "uniform", "assign": assign})

    requests = played.result.requests
    for name, point in zip("xy", points_ms(), strict=True):
        sent = [k for k in range(11) if k * 10 >= point]
        for k in sent:
            assert played.ms(f"{name}{k}")[0] == pytest.approx(k * 10 - point, abs=1e-6)
    assert len(requests) == sum(k * 10 >= point for point in points_ms() for k in range(11))
    assert 0 < len(requests) < 22


def test_what_is_not_sent_is_told():
    columns = read(PLAYS)
    plays, offsets = columns.waits.plays, columns.waits.not_before_ns
    left = begun(columns, plays, offsets, 2, RandomStreams(0))

    unsent = 22 - len(left.columns)
    assert left.columns.notes == (
        f"requests before the points at which the first plays of lanes begin, which are not sent: {unsent}",)
    assert left.plays.tolist() == sorted(left.plays.tolist())
    assert [left.offset_ns[left.plays == play].min() for play in (0, 1)] == [0, 0]


def test_later_plays_of_a_lane_begin_at_their_first_request(tmp_path, path):
    played = play(tmp_path, path, load={"mode": "lanes", "lanes": 1, "snapshot": "uniform"})

    assert all(played.ms(f"y{k}")[0] == played.ms("y0")[0] + 10 * k for k in range(11))


def test_a_play_without_recorded_times_is_cut_by_its_delays(tmp_path):
    # 1 s of tools between two requests: whoever begins between them waits for the rest.
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,session,round,think_time_s\n"
                                    "0,1,50,s,0,\n0,1,1,s,1,1.0\n")
    played = play(tmp_path, tmp_path / "t.csv", load={"mode": "lanes", "lanes": 1, "snapshot": "uniform"})

    point_ms = RandomStreams(0).generator("snapshot").random(1)[0] * 1000
    assert len(played.result.requests) == 1
    assert played.ms("1")[0] == pytest.approx(1000 - point_ms, abs=1e-6)


def test_a_graph_keeps_the_order_of_what_is_left():
    # The recorded beginnings are 0, 1, 2, 3; what is left keeps who waits for whom.
    rows = "a,0,1,1,p,,,\nb,0,1,1,p,a:start+1,,\nc,0,1,1,p,b:end+1|a:end+0.5,,\nd,0,1,1,p,c:end+1,,\n"
    columns = read(HEADER + rows)
    for seed in range(50):
        streams = RandomStreams(seed)
        point = int(RandomStreams(seed).generator("snapshot").random(1)[0] * 3e9)
        left = begun(columns, columns.waits.plays, np.zeros(4, np.int64), 1, streams)
        kept = [name for place, name in enumerate("abcd") if place * 10**9 >= point]
        assert left.columns.request_ids == kept
        assert left.offset_ns.tolist() == [0] * len(kept)
        assert left.late_ns.tolist() == [-point % 10**9]
        waits = left.columns.waits
        assert set(zip(waits.sources.tolist(), waits.targets.tolist(), strict=True)) == {
            (kept.index(source), kept.index(target)) for source, target in ("ab", "bc", "ac", "cd")
            if source in kept and target in kept}


def test_plays_come_again_with_new_texts(tmp_path, path):
    played = play(tmp_path, path, load=LANES | {"recycle": True}, max_requests=66, engine={"block_size": 16})

    assert played.result.summary["requests"]["completed"] == 66
    assert played.ms("x0") == (0, 1)
    assert played.ms("x0#1") == (101, 102)              # the lane is free when x10 is done
    assert played.ms("x0#2") == (202, 203)
    cached = [played.of(name, "cached_tokens") for name in ("x0", "x1", "x0#1", "x1#1")]
    assert cached == [0, 16, 0, 16]


def test_plays_come_again_until_the_end(tmp_path, path):
    played = play(tmp_path, path, load=LANES | {"recycle": True}, duration_s=0.25)

    assert played.ms("y4#2")[0] == 242
    assert (played.status("y4#2"), played.status("y5#2")) == ("completed", "not_sent")


def test_references_stay_within_a_turn():
    columns = read("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round,prompt\n"
                   "a,0,10,3,s,0,\nb,0,14,1,s,1,a.own:10/a.out:3/:1\n")
    again = repeated(columns, 3)

    assert again.request_ids == ["a", "b", "a#1", "b#1"]
    assert again.labels["session"] == (pytest.approx(np.array([0, 0, 1, 1])), ["s", "s#1"])
    half = len(columns.prompts.streams)
    assert (again.prompts.streams[half:] - again.prompts.streams[:half]).tolist() == [2 << 2] * half
    assert again.waits.plays.tolist() == [0, 0, 1, 1]
    assert list(zip(again.waits.sources.tolist(), again.waits.targets.tolist(), strict=True)) == [(0, 1), (2, 3)]


def test_without_an_end_plays_do_not_come_again(tmp_path, path):
    with pytest.raises(InputErrors, match="plays come again until duration_s or max_requests"):
        play(tmp_path, path, load=LANES | {"recycle": True})


@pytest.mark.parametrize(("key", "value"), [("snapshot", "uniform"), ("recycle", True)])
def test_only_lanes_take_snapshots_and_recycle(tmp_path, path, key, value):
    with pytest.raises(InputErrors, match=f'mode = "timestamps" does not read {key}'):
        play(tmp_path, path, load={key: value})
