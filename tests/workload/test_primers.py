"""What is sent before others to warm caches, and prompts that plays do not share; iterations of 1 ms."""
import numpy as np
import pytest

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load, Warmup
from simulator.errors import InputErrors
from simulator.workload.columns import Columns, Prompts
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.private_prefixes import with_private_prefixes
from simulator.workload.script import Script
from simulator.workload.trims import begun
from simulator.workload.warmup import with_copies
from support.traces import play

HEADER = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,play,wait_for,prompt\n"
# Two plays of 0.1 s: one request each 10 ms, 32 tokens of text that the play shares and 4 of its own.
PLAYS = HEADER + "".join(
    f"{name}{k},0,36,{3 if k % 2 else 2},{name},{name},{f'{name}{k - 1}:start+0.01' if k else ''},{name}:32/:4\n"
    for name in "xy" for k in range(11))
LANES = {"mode": "lanes", "lanes": 2, "snapshot": "uniform"}
TALK = ("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round,think_time_s,prompt\n"
        "a0,0,32,4,a,0,,\na1,0,52,2,a,1,0.005,a0.own:32/a0.out:4/:16\na2,0,60,1,a,2,0.001,a0.own:32/a0.out:4/a1.own:16/"
        "a1.out:2/:6\nb0,0,16,3,b,0,,\nc0,0,16,1,c,0,,\nc1,0,20,1,c,1,0.002,c0.own:16/:4\n")


@pytest.fixture
def run(tmp_path):
    def run(text, load, warmup=None, **workload):
        (tmp_path / "t.csv").write_text(text)
        return play(tmp_path, tmp_path / "t.csv", load=load, **({"warmup": warmup} if warmup else {}), **workload)
    return run


def points_ms(lanes=2, length_ms=100, seed=0):
    return (RandomStreams(seed).generator("snapshot").random(lanes) * length_ms).tolist()


def last_before(point):
    return max(k for k in range(11) if k * 10 < point)


def test_the_last_turn_before_the_point_is_sent_before(run):
    played = run(PLAYS, LANES, {"primers": "last_turn"})
    outputs = [3 if last_before(point) % 2 else 2 for point in points_ms()]

    for name, point, output in zip("xy", points_ms(), outputs, strict=True):
        primer = f"{name}{last_before(point)}"
        assert played.ms(primer) == (0, output)
        assert played.of(primer, "measured") == 0
        # The clock of the others begins when both primers have ended.
        first = f"{name}{last_before(point) + 1}"
        assert played.ms(first)[0] == pytest.approx(max(outputs) + 10 - point % 10, abs=1e-6)
        assert played.of(first, "cached_tokens") == 32
    assert played.result.summary["requests"]["completed"] == len(played.names()) - 2
    unsent = 22 - len(played.names())
    assert any(line.endswith(f"which are not sent: {unsent}") for line in played.result.summary["diagnosis"])


def test_without_primers_lanes_begin_cold(run):
    played = run(PLAYS, LANES)

    assert played.of(f"x{last_before(points_ms()[0]) + 1}", "cached_tokens") == 0


@pytest.mark.parametrize("assign", ["static", "dynamic"])
def test_primers_of_one_token_and_requests_of_each_lane(run, assign):
    played = run(PLAYS, LANES | {"assign": assign}, {"primers": "one_token", "requests_per_lane": 3})

    primers = [f"{name}{last_before(point)}" for name, point in zip("xy", points_ms(), strict=True)]
    more = [name for name in played.names() if name.startswith("primer")]
    assert [played.ms(name) for name in primers] == [(0, 1)] * 2
    assert sorted(played.ms(name) for name in more) == [(1, 2), (1, 2), (2, 3), (2, 3), (3, 4), (3, 4)]
    assert {played.of(name, "output_tokens") for name in primers + more} == {1}
    assert {played.of(name, "cached_tokens") for name in more} == {32}      # all but the last token's block
    for name, point in zip("xy", points_ms(), strict=True):
        assert played.ms(f"{name}{last_before(point) + 1}")[0] == pytest.approx(4 + 10 - point % 10, abs=1e-6)


def test_without_a_turn_before_it_a_lane_repeats_its_first_request(run):
    rows = "".join(f"{name},0,32,1,{name},{name},,\n" for name in "pq")
    played = run(HEADER + rows, LANES, {"primers": "one_token", "requests_per_lane": 2})

    assert played.ms("p") == (2, 3)
    assert [played.of(name, "cached_tokens") for name in ("primer 0", "primer 1", "p", "q")] == [0, 16, 16, 16]


@pytest.mark.parametrize("seed", range(40))
def test_primers_are_the_last_turns_of_what_goes_on(seed):
    # A random graph of up to three conversations, one of them without a name, whose requests are a second apart.
    draws = np.random.default_rng(seed)
    talks = draws.choice(["", "s", "t"], 9).tolist()
    rows = "".join(f"r{k},0,1,1,{talk},p,{f'r{k - 1}:start+1' if k else ''},\n" for k, talk in enumerate(talks))
    columns = NativeCsv().read("t.csv", (HEADER + rows).encode())
    point = points_ms(1, 8, seed)[0]
    cut = begun(columns, np.zeros(9, np.int64), np.zeros(9, np.int64), 1, RandomStreams(seed), is_primed=True)

    before, after = [k for k in range(9) if k < point], [k for k in range(9) if k >= point]
    primers = sorted(max(k for k in before if talks[k] == talk) for talk in set(talks)
                     if {talk} & {talks[k] for k in before} & {talks[k] for k in after})
    assert cut.columns.request_ids == [f"r{k}" for k in after + primers]
    assert cut.primers.tolist() == [0] * len(primers)


def test_first_turns_of_sessions_are_sent_before(run):
    # One slot: a0 0-4, b0 4-7, c0 7-8; at 8 the sessions go on with their second turns, b has none.
    played = run(TALK, {"mode": "concurrency", "concurrency": 1, "unit": "session"}, {"primers": "first_turn"})

    assert [played.ms(name) for name in ("a0", "b0", "c0")] == [(0, 4), (4, 7), (7, 8)]
    assert [played.ms(name) for name in ("a1", "a2", "c1")] == [(8, 10), (11, 12), (12, 13)]
    assert [played.of(name, "measured") for name in ("a0", "b0", "c0", "a1", "a2", "c1")] == [0, 0, 0, 1, 1, 1]
    assert [played.of(name, "cached_tokens") for name in ("a1", "a2", "c1")] == [32, 48, 16]
    assert played.result.summary["requests"]["completed"] == 3


def test_first_turns_before_sessions_that_have_times(run):
    text = TALK.replace("b0,0", "b0,0.1").replace("c0,0", "c0,0.1")
    played = run(text, {"client_delay_s": 0.0}, {"primers": "first_turn", "copies_of_first": 1})

    # The copy is of a1, the first of the others: 0-2. Then all first turns at once, until 6. a1 at 6, c1 at 106.
    assert played.ms("warmup 0") == (0, 2)
    assert [played.ms(name) for name in ("a0", "b0", "c0")] == [(2, 6), (2, 5), (2, 3)]
    assert [played.ms(name)[0] for name in ("a1", "a2", "c1")] == [6, 9, 106]


@pytest.mark.parametrize(("sessions", "status"), [({}, "not_sent"), ({"on_reject": "continue"}, "completed")])
@pytest.mark.parametrize("load", [
    {}, {"mode": "concurrency", "concurrency": 1, "unit": "session"}, {"mode": "lanes", "lanes": 2},
    {"mode": "concurrency", "concurrency": 1, "unit": "session", "sessions_per_slot": 2}])
def test_a_session_whose_first_turn_failed_does_not_go_on(run, load, sessions, status):
    # The first turn of b is longer than any text may be; its second one is not. a has one turn more than b.
    text = HEADER.replace("play,wait_for", "round,think_time_s") + (
        "b0,0,2000,1,b,0,,\nb1,0,20,1,b,1,,\na0,0,20,1,a,0,,\na1,0,20,2,a,1,,\na2,0,20,1,a,2,,\n")
    played = run(text, load or None, {"primers": "first_turn"}, engine={"max_model_len": 1000}, sessions=sessions)

    assert [played.status(name) for name in ("b0", "b1", "a0", "a1", "a2")] == [
        "rejected", status, "completed", "completed", "completed"]


def test_what_waits_for_a_primer_that_failed_is_not_sent(run):
    # Two conversations in one lane; the point is between 0 and 1 s. The primer of s is refused: s1 is not sent.
    text = HEADER + "s0,0,2000,1,s,p,,\nt0,0,20,1,t,p,,\ns1,0,20,1,s,p,s0:end+1,\nt1,0,20,1,t,p,t0:end+1,\n"
    played = run(text, {"mode": "lanes", "lanes": 1, "snapshot": "uniform"}, {"primers": "last_turn"},
                 engine={"max_model_len": 1000})

    assert [played.status(name) for name in ("s0", "t0", "s1", "t1")] == [
        "rejected", "completed", "not_sent", "completed"]


def test_an_idle_play_at_its_point_goes_on_after_the_cap(run):
    # 10 s between two turns: the point is somewhere between them, and the rest of the wait is 1 s at most.
    text = HEADER + "p0,0,32,1,p,p,,\np1,0,32,1,p,p,p0:end+10,\n"
    load = {"mode": "lanes", "lanes": 1, "snapshot": "uniform"}

    assert run(text, load).ms("p1")[0] == pytest.approx(10_000 - points_ms(1, 10_000)[0], abs=1e-6)
    assert run(text, load | {"tree_idle_cap_s": 1.0}).ms("p1")[0] == 1000


@pytest.mark.parametrize(("load", "warmup", "message"), [
    ({"mode": "lanes", "lanes": 1}, {"primers": "last_turn"}, '"last_turn" is of plays that begin in their middle'),
    ({}, {"primers": "one_token"}, '"one_token" is of plays that begin in their middle'),
    (LANES, {"primers": "first_turn"}, '"first_turn" is of sessions that come as they are'),
    ({"mode": "user_rate", "users": 1, "rate_per_s": 1.0}, {"primers": "first_turn"}, "not with user_rate"),
    (LANES, {"requests_per_lane": 2}, 'requests_per_lane takes primers = "last_turn" or "one_token"'),
    ({}, {"primers": "first_turns"}, "did you mean first_turn?")])
def test_primers_of_nothing_are_refused(run, load, warmup, message):
    with pytest.raises(InputErrors) as caught:
        run(TALK, load, warmup)
    assert message in caught.value.faults[0]


def test_first_turns_alone_leave_nothing(run):
    with pytest.raises(InputErrors, match='"first_turn" leaves nothing to send after it'):
        run(HEADER + "p,0,32,1,p,p,,\n", {}, {"primers": "first_turn"})


def test_what_was_left_out_is_not_what_a_copy_says():
    # The second request of two was left out: its output stands in the first prompt. The copy is another one.
    left_out = records.output_stream(1)
    columns = Columns(np.zeros(1, np.int64), np.array([8]), np.array([1]), request_ids=["a"], prompts=Prompts(
        np.array([2]), np.array([records.named_stream(1), left_out]), np.array([5, 3])))
    warmed, script = with_copies(columns, Script((), np.zeros(1, np.int64)), 2, None)

    assert warmed.prompts.streams.tolist() == [records.named_stream(1), records.output_stream(3)] * 3
    assert (script.start_ns.tolist(), script.groups[0].plays.tolist()) == ([0, 0, 0], [1, 2])


# ---- prefixes of plays

def test_plays_share_nothing_and_requests_of_one_do(run):
    load = {"mode": "lanes", "lanes": 1, "recycle": True, "private_prefix_tokens": 12}
    text = HEADER + "".join(f"{name}{k},0,36,1,{name},{name},{f'{name}0:end' if k else ''},sys:32/:4\n"
                            for name in "xy" for k in range(2))
    shared = run(text, load | {"private_prefix_tokens": 0}, max_requests=6)
    private = run(text, load, max_requests=6)

    names = ["x0", "x1", "y0", "y1", "x0#1", "x1#1"]
    assert [shared.of(name, "cached_tokens") for name in names] == [0, 32, 32, 32, 0, 32]
    assert [private.of(name, "cached_tokens") for name in names] == [0, 32, 0, 32, 0, 32]      # of 44 in blocks of 16
    assert {private.of(name, "prompt_tokens") for name in names} == {48}


def test_prefixes_stand_in_front_of_what_was_there():
    prompts = Prompts(np.array([0, 2]), np.array([records.named_stream(7), records.own_stream(1)]), np.array([5, 3]))
    columns = with_private_prefixes(Columns(np.zeros(2, np.int64), np.array([4, 8]), np.ones(2, np.int64),
                                            prompts=prompts), 10)

    assert columns.prompt_tokens.tolist() == [14, 18]
    assert columns.prompts.num_segments.tolist() == [2, 3]
    assert columns.prompts.streams.tolist() == [records.named_stream(8), records.own_stream(0), records.named_stream(9),
                                                records.named_stream(7), records.own_stream(1)]
    assert columns.prompts.num_tokens.tolist() == [10, 4, 10, 5, 3]


def test_a_prefix_that_makes_prompts_too_long_is_refused():
    columns = Columns(np.zeros(1, np.int64), np.array([10]), np.array([1]))
    with pytest.raises(InputErrors, match="private_prefix_tokens: 2147483647 make a prompt of 2147483657 tokens"):
        with_private_prefixes(columns, 2**31 - 1)


def test_more_lanes_than_plays_play_copies_of_them(run):
    text = HEADER + "".join(f"x{k},0,16,1,x,x,{f'x{k - 1}:end' if k else ''},\n" for k in range(100))
    played = run(text, {"mode": "lanes", "lanes": 3, "recycle": True}, duration_s=0.05)

    assert [played.ms(name)[0] for name in ("x0", "x0#1", "x0#2")] == [0, 0, 0]


def test_keys_of_warm_ups_and_loads_go_together():
    with pytest.raises(ValueError, match='sessions_per_slot takes unit = "session"'):
        Load(mode="concurrency", concurrency=1, sessions_per_slot=2)
    with pytest.raises(ValueError, match="requests_per_slot and ends_with take sessions_per_slot"):
        Load(mode="concurrency", concurrency=1, unit="session", ends_with="first_slot")
    with pytest.raises(ValueError, match="think_time_from takes think_time_s"):
        Load(mode="concurrency", concurrency=1, think_time_from="arrival")
    with pytest.raises(ValueError, match='think_time_from is of requests, unit = "session" takes sessions_per_slot'):
        Load(mode="concurrency", concurrency=1, unit="session", think_time_s=1.0, think_time_from="arrival")
    assert Warmup(primers="one_token", requests_per_lane=10).copies_of_first == 0
