"""[engine.kv_retention]: blocks of programs are held while their tools run."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.tool_times import LAST, expected, tool_times
from support.agents import agents
from support.workloads import plain_workload

BASE = agents(seed=3, num_blocks=220, num_sessions=14)
LENGTHS = """
[workload.prompt_tokens]
distribution = "constant"
tokens = 30
[workload.output_tokens]
distribution = "constant"
tokens = 3
"""
WAYS = {"ttl": {"policy": "ttl", "ttl_s": 2.0}, "pin": {"policy": "pin"}, "predicted": {"policy": "predicted"},
        "half": {"policy": "predicted", "error_sigma": 1.0, "max_share": 0.5}}
# Two programs of two turns, A and B, and a request X between them: 100 blocks, iterations of 10 ms, a token each.
SMALL = """
[engine]
num_gpu_blocks = 101
block_size = 16
max_model_len = 2000
async_scheduling = false
[workload]
type = "trace"
time_origin = "trace"
path = "trace.csv"
[workload.sessions]
gap = "absolute"
accumulate = true
[latency]
backend = "linear"
base_us = 10_000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
"""


def run(tmp_path, text=BASE, **overrides):
    path = tmp_path / "agents.toml"
    path.write_text(text)
    return simulator.run(path, overrides={key.replace("__", "."): value for key, value in overrides.items()})


def requests_of(result):
    return {name: np.asarray(result.requests[name]) for name in result.requests.dtype.names}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("way", WAYS)
def test_fast_forward_changes_nothing_and_programs_complete(tmp_path, plain, way):
    ahead, slow = (run(tmp_path, engine__kv_retention=WAYS[way], engine__fast_forward=fast) for fast in (True, False))
    one, other = requests_of(ahead), requests_of(slow)
    assert all((one[name] == other[name]).all() for name in one)
    assert ahead.summary["kv_retention"] == slow.summary["kv_retention"]
    assert (one["status"] == records.COMPLETED).all()
    counts = ahead.summary["kv_retention"]
    assert counts["holds"] >= counts["found"] + counts["expired"] + counts["open"] and counts["found"] > 10
    assert counts["given_back_blocks"] + counts["expired"] + counts["over_share_blocks"] > 10
    assert counts["most_held_blocks"] <= (109 if way == "half" else 219)
    assert not np.array_equal(one["cached_tokens"], requests_of(plain)["cached_tokens"])


def test_preemptions_and_drafts_go_on(tmp_path):
    tight = {"engine__num_gpu_blocks": 90, "engine__kv_retention": WAYS["pin"], "engine__max_model_len": 1200}
    drafts = {"engine__speculative": {"num_tokens": 2, "acceptance": {"rates": [0.6, 0.5]}}}
    for more in ({}, drafts, {"engine__async_scheduling": False}, {"topology__replicas": 2}):
        one, other = (run(tmp_path, **tight, **more, engine__fast_forward=fast) for fast in (True, False))
        assert np.array_equal(one.requests, other.requests)
        assert one.summary["kv_retention"] == other.summary["kv_retention"]
        assert one.summary["kv_retention"]["given_back_blocks"] > 0


def test_lru_and_a_time_to_live_of_zero_hold_nothing(tmp_path, plain):
    lru = run(tmp_path, engine__kv_retention={"policy": "lru"})
    assert np.array_equal(lru.requests, plain.requests) and "kv_retention" not in lru.summary
    roomy = {"engine__num_gpu_blocks": 5000}
    zero = run(tmp_path, engine__kv_retention={"policy": "ttl", "ttl_s": 0.0}, **roomy)
    assert np.array_equal(zero.requests, run(tmp_path, **roomy).requests)
    assert zero.summary["kv_retention"]["held_token_s"] == 0


def small(tmp_path, retention, lines=("0,640,2,a,0", "0.5,640,2,b,0", "1,800,2,x,0", "2,60,2,b,1", "9,60,2,a,1")):
    header = "arrived_at,num_prefill_tokens,num_decode_tokens,session,round"
    (tmp_path / "trace.csv").write_text("\n".join([header, *lines, ""]))
    result = run(tmp_path, SMALL, engine__kv_retention=retention)
    return requests_of(result)["cached_tokens"].tolist(), result.summary.get("kv_retention")


def test_the_program_that_comes_back_last_loses_blocks(tmp_path):
    """A and B leave 40 full blocks each; X needs 51, of which 20 are free and 31 are A's or B's.

    The rows are A, A's second turn, B, B's second turn, X.
    """
    cached, _ = small(tmp_path, {})
    assert cached[1::2] == [6 * 16, 640]        # A, used least recently, loses 31, and 3 more to B's second turn
    for policy in ("predicted", "pin"):         # A comes back last, and has been held longest
        cached, counts = small(tmp_path, {"policy": policy})
        assert cached[1::2] == [9 * 16, 640]    # B's second turn takes blocks of X, which is not held
        assert (counts["given_back_blocks"], counts["found"], counts["found_blocks"]) == (31, 2, 49)
        assert counts["most_held_blocks"] == 80
        assert counts["held_token_s"] == pytest.approx(16 * (40 * 1.48 + 9 * 8.98))
    soon = ("0,640,2,a,0", "0.5,640,2,b,0", "1,800,2,x,0", "2,60,2,a,1", "9,60,2,b,1")
    assert small(tmp_path, {"policy": "predicted"}, soon)[0][1::2] == [640, 9 * 16]
    assert small(tmp_path, {"policy": "pin"}, soon)[0][1::2] == [9 * 16, 640]


def test_a_hold_ends_by_time_and_by_share(tmp_path):
    """A leaves 40 full blocks, Y 10; X needs 69, of which 50 are free. The rows are A, A's second turn, Y, X."""
    lines = ("0,640,2,a,0", "0.5,160,2,y,0", "1,1100,2,x,0", "3,60,2,a,1")
    cached, counts = small(tmp_path, {"policy": "ttl", "ttl_s": 5.0}, lines)
    assert cached[1] == 31 * 16 and counts["expired"] == 0 and counts["given_back_blocks"] == 9     # Y's come first
    cached, counts = small(tmp_path, {"policy": "ttl", "ttl_s": 0.2}, lines)
    assert cached[1] == 21 * 16 and counts["expired"] == 1 and counts["given_back_blocks"] == 0     # A's come first
    assert counts["held_token_s"] == pytest.approx(40 * 16 * 0.2)
    cached, counts = small(tmp_path, {"policy": "ttl", "ttl_s": 5.0, "max_share": 0.25}, lines)
    assert counts["over_share_blocks"] == 15 and counts["most_held_blocks"] == 25 and cached[1] == 25 * 16


def test_the_diagnosis_says_that_nothing_was_held(tmp_path):
    retention = {"policy": "pin"}
    cut, whole = (run(tmp_path, engine__kv_retention=retention, **more).summary for more in ({"horizon_s": 0.01}, {}))
    said = "[engine.kv_retention] held nothing: no turn ended with a text that a later prompt begins with"

    assert (cut["kv_retention"]["holds"], said in cut["diagnosis"]) == (0, True)
    assert whole["kv_retention"]["holds"] > 0 and said not in whole["diagnosis"]


def test_expected_times_follow_the_workload():
    workload = plain_workload(np.array([0.0, 1.0, 4.0, 9.0]) * 1e9, 10, 1)
    workload.demands["session"] = [0, -1, 0, 0]
    times = tool_times(workload)
    assert times.tool_ns.tolist() == [4 * 10**9, LAST, 5 * 10**9, LAST] and times.from_arrival.tolist() == [1, 0, 1, 0]
    many = plain_workload(np.arange(4000) * 10**9, 10, 1)
    many.demands["session"] = 0
    guessed = expected(tool_times(many), many, 0.5, 7)
    logs = np.log(guessed[:-1] / 1e9)
    assert guessed[-1] == LAST and abs(logs.mean() + 0.125) < 0.03 and abs(logs.std() - 0.5) < 0.03
    assert np.array_equal(guessed, expected(tool_times(many), many, 0.5, 7))
    assert not np.array_equal(guessed, expected(tool_times(many), many, 0.5, 8))


@pytest.mark.parametrize(("given", "more", "message"), [
    ({"policy": "ttl"}, {}, 'ttl_s and policy = "ttl" take each other'),
    ({"policy": "pin", "ttl_s": 1.0}, {}, 'found policy = "pin" with ttl_s'),
    ({"policy": "pin", "error_sigma": 1.0}, {}, 'error_sigma takes policy = "predicted", found "pin"'),
    ({"max_share": 0.5}, {}, 'found 0.5 with "lru"'),
    ({"policy": "pin"}, {"engine__enable_prefix_caching": False}, "without a prefix cache no turn finds blocks"),
    ({"policy": "pin"}, {"workload__type": "synthetic", "workload__sessions": None}, "a program is a session"),
    ({"policy": "pin"}, {"engine__scheduler": "sarathi"}, "kv_retention"),
])
def test_refusals_name_the_key(tmp_path, given, more, message):
    text = BASE
    if "workload__sessions" in more:
        text, more = BASE.split("[workload.sessions]")[0].replace(
            'type = "sessions"\nnum_sessions = 14', 'type = "synthetic"\nnum_requests = 5') + LENGTHS, {}
    with pytest.raises(InputErrors) as caught:
        run(tmp_path, text, engine__kv_retention=given, **more)
    assert message in str(caught.value)
