"""Native traces whose requests wait for others; every iteration lasts 1 ms, numbers worked out by hand."""
import numpy as np
import pytest

from simulator.domain.sessions import TraceSessions
from simulator.errors import InputErrors
from simulator.workload.formats.native_csv import NativeCsv
from support.traces import play

HEADER = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens"
ROUNDS = "arrived_at,num_prefill_tokens,num_decode_tokens,session,round,think_time_s\n"


def read(text, gap="ignore"):
    return NativeCsv(None, TraceSessions(gap=gap)).read("t.csv", text.encode())


def faults(text, gap="ignore"):
    with pytest.raises(InputErrors) as caught:
        read(text, gap)
    return list(caught.value.faults)


def fault(text, gap="ignore"):
    [only] = faults(text, gap)
    return only


def edges(columns):
    waits = columns.waits
    return sorted(zip(waits.sources.tolist(), waits.targets.tolist(), waits.delays_ns.tolist(),
                      waits.from_dispatch.tolist(), strict=True))


GRAPH = f"""{HEADER},play,wait_for
p0,0,1,2,a,
c0,0,1,3,a,p0:start+0.0005
p1,0,1,1,a,p0:end+0.001|c0:end+0.002
"""


def test_a_graph_waits_for_arrivals_and_ends():
    assert edges(read(GRAPH)) == [(0, 1, 500_000, True), (0, 2, 1_000_000, False), (1, 2, 2_000_000, False)]


def test_d1_a_graph_is_played(tmp_path):
    (tmp_path / "t.csv").write_text(GRAPH)
    played = play(tmp_path, tmp_path / "t.csv")

    assert [played.ms(name) for name in ("p0", "c0", "p1")] == [(0, 2), (0.5, 4), (6, 7)]


def test_d2_lanes_take_plays_in_turns_or_as_they_are_free(tmp_path):
    (tmp_path / "t.csv").write_text(f"{HEADER}\na,5,1,3\nb,0,1,1\nc,9,1,2\n")      # in the order of the file
    static, dynamic = (play(tmp_path, tmp_path / "t.csv", load={"mode": "lanes", "lanes": 2, "assign": assign})
                       for assign in ("static", "dynamic"))

    assert [static.ms(name) for name in "abc"] == [(0, 3), (0, 1), (3, 5)]
    assert [dynamic.ms(name) for name in "abc"] == [(0, 3), (0, 1), (1, 3)]


SESSIONS = ("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round,think_time_s,prompt\n"
            "S0,0,100,3,S,0,,\nS1,0,153,2,S,1,0.005,S0.own:100/S0.out:3/:50\nT0,0,80,1,T,0,,\n")


@pytest.mark.parametrize(("unit", "expected"), [
    ("session", [(0, 3), (8, 10), (10, 11)]),           # S1
    ("request", [(0, 3), (8, 10), (3, 4)])])            # S2
def test_s1_s2_sessions_share_a_slot(tmp_path, unit, expected):
    (tmp_path / "t.csv").write_text(SESSIONS)
    played = play(tmp_path, tmp_path / "t.csv", load={"mode": "concurrency", "concurrency": 1, "unit": unit})

    assert [played.ms(name) for name in ("S0", "S1", "T0")] == expected
    assert played.of("S1", "cached_tokens") == 96       # of the 102 whose KV is there, blocks of 16


def test_s3_sessions_come_when_the_trace_says(tmp_path):
    (tmp_path / "t.csv").write_text(
        SESSIONS.replace("T0,0,", "T0,0.0004,") + "T1,0,121,1,T,1,0,T0.own:80/T0.out:1/:40\n")
    played = play(tmp_path, tmp_path / "t.csv")

    assert [played.ms(name) for name in ("S0", "S1", "T0", "T1")] == [(0, 3), (8, 10), (0.4, 2), (2, 3)]


def test_s4_a_refused_round_ends_its_session(tmp_path):
    (tmp_path / "t.csv").write_text("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round\n"
                                    "S0,0,5000,3,S,0\nS1,0,50,2,S,1\nT0,0,80,1,T,0\n")
    played = play(tmp_path, tmp_path / "t.csv", engine={"max_model_len": 1000},
                  load={"mode": "concurrency", "concurrency": 1, "unit": "session"})

    assert [played.status(name) for name in ("S0", "S1", "T0")] == ["rejected", "not_sent", "completed"]
    assert played.ms("T0") == (0, 1)


@pytest.mark.parametrize(("gap", "arrival_ms"), [
    ("ignore", 22),             # 2 ms after the end at 20
    ("recorded", 45),           # 25 ms after it
    ("absolute", 25)])          # at its own time, since that is later
def test_rounds_come_after_the_one_before_or_at_their_time(tmp_path, gap, arrival_ms):
    (tmp_path / "t.csv").write_text(f"{ROUNDS}0.000,1,20,s,0,\n0.025,1,1,s,1,0.002\n")
    table = {} if gap == "ignore" else {"sessions": {"gap": gap}}

    assert play(tmp_path, tmp_path / "t.csv", **table).ms("1") == (arrival_ms, arrival_ms + 1)


def test_absolute_times_move_with_the_play(tmp_path):
    # In a lane the second play begins when the first is over, at 3; its second round was 7 ms after its first.
    (tmp_path / "t.csv").write_text(f"{ROUNDS}0,1,3,s,0,\n1.000,1,1,t,0,\n1.007,1,1,t,1,0.002\n")
    played = play(tmp_path, tmp_path / "t.csv", load={"mode": "lanes", "lanes": 1}, sessions={"gap": "absolute"})

    assert played.all_ms() == [(0, 3), (3, 4), (10, 11)]


def test_a_request_does_not_come_before_its_time_in_the_play(tmp_path):
    (tmp_path / "t.csv").write_text(f"{HEADER},play,wait_for,not_before_s\na,1,1,2,x,,0.010\nb,0,1,1,x,a:end,0.030\n"
                                    "c,0,1,1,x,a:end,0.001\n")
    played = play(tmp_path, tmp_path / "t.csv")

    # times in a play count from its first request, which may not come before 10 ms of it: b 20 ms after a
    assert [played.ms(name) for name in "abc"] == [(0, 2), (20, 21), (2, 3)]


def test_roots_of_a_play_keep_their_distance(tmp_path):
    (tmp_path / "t.csv").write_text(f"{HEADER},play\na,1.005,1,1,x\nb,1.000,1,1,x\nc,0,1,1,\n")

    assert [play(tmp_path, tmp_path / "t.csv").ms(name)[0] for name in "abc"] == [1005, 1000, 0]
    lanes = play(tmp_path, tmp_path / "t.csv", load={"mode": "lanes", "lanes": 1})
    assert [lanes.ms(name) for name in "abc"] == [(5, 6), (0, 1), (6, 7)]


def test_the_last_play_may_be_cut(tmp_path):
    (tmp_path / "t.csv").write_text(f"{HEADER},play,wait_for\na,0,1,1,w,\nb,1,1,1,x,a0:end\nc,2,1,1,x,\n"
                                    "a0,0.5,1,1,x,\n")

    assert play(tmp_path, tmp_path / "t.csv", max_requests=1).all_ms() == [(0, 1)]
    # of x, which begins at 0.5, b and c are left: who waits for what is cut comes with what is left
    assert play(tmp_path, tmp_path / "t.csv", max_requests=3).all_ms() == [(0, 1), (2000, 2001), (2000, 2001)]


def test_rounds_may_begin_with_one_and_stand_in_any_order():
    columns = read(f"{ROUNDS}0,1,1,s,3,0.3\n0,1,1,s,1,\n0,1,1,s,2,0.2\n0,1,1,,,\n")

    assert edges(columns) == [(1, 2, 200_000_000, False), (2, 0, 300_000_000, False)]
    assert columns.waits.plays[0] == columns.waits.plays[1] == columns.waits.plays[2] != columns.waits.plays[3]


def test_without_anything_to_wait_for_there_are_no_waits():
    assert read(f"{HEADER},session\na,0,1,1,s\nb,0,1,1,s\n").waits is None
    assert read(f"{HEADER},session,round\na,0,1,1,s,0\nb,0,1,1,t,0\n").waits is None


def test_ids_may_be_numbers_of_rows_and_hold_colons():
    assert edges(read("arrived_at,num_prefill_tokens,num_decode_tokens,play,wait_for\n0,1,1,p,\n0,1,1,p,0:end\n")) == [
        (0, 1, 0, False)]
    assert edges(read(f"{HEADER},play,wait_for\na:end,0,1,1,p,\nb,0,1,1,p,a:end:start+1.0000000005\n")) == [
        (0, 1, 1_000_000_001, True)]


ONE_PLAY = f"{HEADER},play,wait_for\na,0,1,1,p,\n"


@pytest.mark.parametrize(("rows", "message"), [
    ("b,0,1,1,p,x:end", '3: wait_for: expected the id of a request, found "x"'),
    ("b,0,1,1,p,b:end", "3: wait_for: expected another request, found its own id"),
    ("b,0,1,1,q,a:end", "3: wait_for: expected a request of its play, found that of line 2"),
    ("b,0,1,1,,a:end", "3: wait_for: expected a request of its play, found that of line 2"),
    *((f"b,0,1,1,p,{text}", "3: wait_for: expected ID:end+SECONDS or ID:start+SECONDS, joined by |, "
                            f'found "{found}"')
      for text, found in [("a", "a"), ("a:done", "a:done"), ("a:end+", "a:end+"), ("a:end+-1", "a:end+-1"),
                          ("a:end+1s", "a:end+1s"), ("a:end|", ""), ("a:end+1e3", "a:end+1e3")]),
    ("b,0,1,1,p,a:end+9999999999", '3: wait_for: expected at most 9e+09 s, found "9999999999"'),
])
def test_a_wait_that_cannot_be_is_named(rows, message):
    assert fault(f"{ONE_PLAY}{rows}\n") == f"t.csv:{message}"


def test_every_line_of_a_circle_is_named():
    text = f"{HEADER},play,wait_for\na,0,1,1,p,c:end\nb,0,1,1,p,a:end\nc,0,1,1,p,b:end\nd,0,1,1,p,c:end\ne,0,1,1,p,\n"

    assert faults(text) == [f"t.csv:{line}: wait_for: the request waits for itself, by way of others"
                            for line in (2, 3, 4)]


@pytest.mark.parametrize(("rows", "message"), [
    ("0,1,1,s,0,\n0,1,1,s,0,", '3: round: expected a round that line 2 of the session does not have, found "0"'),
    ("0,1,1,s,0,\n0,1,1,s,2,", '3: round: expected 1, after that of line 2, found "2"'),
    ("0,1,1,s,2,", '2: round: expected 0 or 1 as the first of its session, found "2"'),
    ("0,1,1,,1,", '2: round: expected none or 0 on a row without session, found "1"'),
    ("0,1,1,s,,", '2: round: expected an integer on a row with session, found ""'),
])
def test_rounds_have_no_holes_and_no_ties(rows, message):
    assert fault(f"{ROUNDS}{rows}\n") == f"t.csv:{message}"


def test_a_time_between_rounds_that_nobody_gives_changes_nothing():
    assert read(f"{HEADER},session,think_time_s\na,0,1,1,s,\nb,0,1,1,s,0\n").waits is None


def test_the_time_between_rounds_needs_rounds():
    assert fault(f"{HEADER},think_time_s\na,0,1,1,\nb,0,1,1,0.5\n") == (
        "t.csv:3: think_time_s: is between two rounds of a session, and there is no column round")
    assert fault(f"{HEADER}\na,0,1,1\n", "recorded") == (
        "workload.sessions.gap: is between rounds, and the trace has no column round")
    assert "at least that of the round before it" in fault(f"{ROUNDS}2,1,1,s,0,\n1,1,1,s,1,\n", "recorded")


def test_a_round_in_another_play_is_refused():
    assert fault(f"{HEADER},session,round,play\na,0,1,1,s,0,p\nb,0,1,1,s,1,q\n") == (
        "t.csv:3: play: expected that of the round before it")


def test_random_graphs_are_acyclic_exactly_where_they_can_be_sorted():
    from graphlib import CycleError, TopologicalSorter
    for seed in range(200):
        draws = np.random.default_rng(seed)
        count = 6
        waits = {row: draws.choice(count, draws.integers(0, 3), replace=False).tolist() for row in range(count)}
        waits = {row: [source for source in sources if source != row] for row, sources in waits.items()}
        text = f"{HEADER},play,wait_for\n" + "".join(
            f"{row},0,1,1,p,{'|'.join(f'{source}:end' for source in sources)}\n" for row, sources in waits.items())
        try:
            TopologicalSorter(waits).prepare()
        except CycleError:
            on_circle = {row for row in waits if _reaches(waits, row, row)}
            assert faults(text) == [f"t.csv:{row + 2}: wait_for: the request waits for itself, by way of others"
                                    for row in sorted(on_circle)]
        else:
            read(text)


def _reaches(waits, row, goal):
    seen, todo = set(), list(waits[row])
    while todo:
        each = todo.pop()
        if each not in seen:
            seen.add(each)
            todo += waits[each]
    return goal in seen
