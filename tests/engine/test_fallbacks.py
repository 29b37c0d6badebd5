"""Requests that another pool serves after one failed, on timelines worked out by hand: an iteration takes 10 ms."""
import re

import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

MS = 1_000_000
EXPERIMENT = """
engine = {max_num_seqs = 1, max_model_len = 100, num_gpu_blocks = 100, block_size = 16, async_scheduling = false}
pools = [{name = "a", serves = "a"}, {name = "b", serves = "b"}, {name = "c", serves = "c"}]
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[workload]
type = "trace"
path = "requests.csv"
"""
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens,model,deadline_s"
TO_B = [{"of": "a", "to": ["b"]}]
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


def serve(folder, rows, fallbacks=TO_B, text=EXPERIMENT, **overrides):
    """Return the result; rows have all columns of HEAD but the last, the deadline, where there is none."""
    rows = [f"{row}," if row.count(",") == 3 else row for row in rows]
    (folder / "requests.csv").write_text("\n".join([HEAD, *rows]))
    (folder / "experiment.toml").write_text(text)
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return simulator.run(folder / "experiment.toml", keys | ({"cluster.fallbacks": fallbacks} if fallbacks else {}))


def stops(pool):
    """Return a failure of a pool for good."""
    return {"kind": "stop", "target": "pool", "pool": pool, "at_s": 0.005, "duration_s": 1e4, "on_failure": "lost"}


def column(result, name):
    return [value / MS if value >= 0 else None for value in result.requests[name].tolist()]


@every_way
def test_a_lost_request_is_served_by_the_next_pool(tmp_path, fast):
    # Lost at 5 ms in its first iteration; two iterations of pool b after that. The second arrives after the failure.
    rows = ["0,32,2,a", "0.05,32,1,a", "0.05,32,1,c"]
    result = serve(tmp_path, rows, failures=[stops("a")], engine__fast_forward=fast)

    assert column(result, "completed_ns") == [25, 60, 60]
    assert column(result, "first_token_ns") == [15, 60, 60]
    assert result.requests["fallbacks"].tolist() == [1, 1, 0]
    assert result.requests["replica"].tolist() == [1, 1, 2]
    assert result.summary["fallbacks"] == {"sent": 2, "requests": 2, "completed": 2}
    assert [records.LEG_ENDS[how] for how in result.legs["how"]][:2] == ["ended", "completed"]


def test_pools_are_tried_in_their_order_until_none_is_left(tmp_path):
    fallbacks = [{"of": "a", "to": ["b", "c"]}, {"of": "b", "to": ["a"]}]
    # The first is lost at 5 ms, when pool b stops as well. The second comes after that.
    result = serve(tmp_path, ["0,32,1,a", "0.02,32,1,b"], fallbacks, failures=[stops("a"), stops("b")])

    assert column(result, "completed_ns") == [15, None]
    assert result.requests["fallbacks"].tolist() == [2, 1]
    assert result.requests["status"].tolist() == [records.COMPLETED, records.REJECTED]


@pytest.mark.parametrize(("on", "sent"), [(["rejected", "lost"], 0), (["too_long"], 1)])
def test_a_prompt_that_does_not_fit_goes_to_a_longer_context_if_that_counts(tmp_path, on, sent):
    result = serve(tmp_path, ["0,80,1,a"], [{"of": "a", "to": ["b"], "on": on}], text=EXPERIMENT.replace(
        'serves = "a"', 'serves = "a", engine.max_model_len = 50'))

    assert result.requests["fallbacks"].tolist() == [sent]
    assert column(result, "completed_ns") == [10 if sent else None]


@every_way
def test_the_client_gives_up_when_it_would_have(tmp_path, fast):
    # At 20 ms; the iteration of pool b ends at 25. The deadline of the second passes in pool a alone.
    result = serve(tmp_path, ["0,32,5,a,0.02", "0,32,1,b,0.5"], failures=[stops("a")], engine__fast_forward=fast)

    assert result.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert result.requests["fallbacks"].tolist() == [1, 0]


def test_a_slot_of_a_closed_loop_is_held_until_the_last_pool_is_done(tmp_path):
    result = serve(tmp_path, ["0,32,2,a", "0,33,1,c"], failures=[stops("a")],
                   workload__load={"mode": "concurrency", "concurrency": 1})

    assert column(result, "completed_ns") == [25, 35]


SELECTION = """
[cluster.pool_selection]
isl = {max_tokens = 60, cells = 2}
table = [["a"], ["b"]]
retry = ["c", "b", "a"]
"""


def test_pool_selection_retries_on_faster_pools_the_slowest_first(tmp_path):
    # Prompts below 30 tokens belong to a, which is slower than b, which is slower than c.
    text = re.sub(', serves = "."', "", EXPERIMENT) + SELECTION
    down = serve(tmp_path, ["0,20,1,", "0.03,40,1,"], [], text, failures=[stops("a")])
    assert down.requests["replica"].tolist() == [1, 1]
    assert down.requests["fallbacks"].tolist() == [1, 0]

    down = serve(tmp_path, ["0,20,1,", "0.03,40,1,"], [], text, failures=[stops("a"), stops("b")])
    assert down.requests["replica"].tolist() == [2, 2]
    assert down.requests["fallbacks"].tolist() == [2, 1]

    down = serve(tmp_path, ["0,40,1,"], [], text, failures=[stops("b"), stops("c")])
    assert column(down, "completed_ns") == [None]           # a is slower


@pytest.mark.parametrize(("fallbacks", "message"), [
    ([{"of": "a", "to": ["d"]}], 'no pool serves "d"'),
    ([{"of": "x", "to": ["b"]}], 'no pool serves "x"'),
    ([{"of": "a", "to": ["b"]}, {"of": "a", "to": ["c"]}], 'expected each name once, found "a" again'),
    ([{"of": "a", "to": ["a"]}], 'expected each name once, and not "a" itself'),
])
def test_names_are_those_of_pools(tmp_path, fallbacks, message):
    with pytest.raises(InputErrors, match=message):
        serve(tmp_path, ["0,32,1,a"], fallbacks)
