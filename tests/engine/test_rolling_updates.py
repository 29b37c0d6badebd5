"""Rolling updates from one pool to another, worked out by hand: an iteration of the old pool takes 10 ms."""
import pytest
import tomli_w

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

MS = 1_000_000
EXPERIMENT = {
    "pools": [{"name": "old", "replicas": 2}, {"name": "new", "replicas": 2, "latency": {"base_us": 20_000.0}}],
    "cluster": {"routing": {"policy": "round_robin"}},
    "engine": {"max_model_len": 200, "num_gpu_blocks": 100, "block_size": 16, "async_scheduling": False},
    "latency": {"backend": "linear", "base_us": 10_000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                "per_context_token_us": 0.0},
    "workload": {"type": "trace", "path": "requests.csv"}}
UPDATE = {"at_s": 0.025, "pool": "old", "to": "new", "loading_delay": {"mean_s": 0.03},
          "warm_up_delay": {"mean_s": 0.01}}
PAIR = ["0,20,5,a:20", "0,20,8,b:20"]      # one for each replica: the first ends at 50 ms, the second at 80
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


def serve(folder, rows, update, fast=True, **tables):
    """Serve rows (s, prompt tokens, output tokens, prompt) with a rolling update."""
    (folder / "requests.csv").write_text("\n".join(
        ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *rows]) + "\n")
    (folder / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT | {"restarts": [UPDATE | update]} | tables))
    return simulator.run(folder / "experiment.toml", {"engine.fast_forward": fast})


def changes(result, replica):
    """Return [(ms, state)] of a replica after the begin."""
    return [(row["time_ns"] / MS, records.STAGE_NAMES[row["state"]]) for row in result.lifecycle
            if row["replica"] == replica and records.LIFECYCLE_CAUSES[row["cause"]] == "restart"]


@every_way
def test_a_new_replica_serves_before_an_old_one_goes(tmp_path, fast):
    # A quarter of 2: one more at once, none fewer. New replica 2 starts at 25 and serves from 65 on; then 0, which is
    # empty, goes at once, and 3 starts and serves from 105 on; then 1 goes. Those of 30 and 100 ms are sent to 0 and 2
    # (the round goes 0, 1, 0; then 1, 2), that of 200 to a new replica.
    result = serve(tmp_path, [*PAIR, "0.03,20,1,c:20", "0.2,20,1,d:20"], {}, fast)

    assert changes(result, 2) == [(25, "loading"), (55, "warming"), (65, "up")]
    assert changes(result, 0) == [(65, "draining"), (65, "off")]
    assert changes(result, 3) == [(65, "loading"), (95, "warming"), (105, "up")]
    assert changes(result, 1) == [(105, "draining"), (105, "off")]
    assert result.requests["replica"].tolist()[:3] == [0, 1, 0]
    assert result.requests["replica"][3] in (2, 3)
    assert result.requests["completed_ns"].tolist()[3] == 220 * MS          # an iteration of 20 ms
    assert any("rolling update" in text for text in result.summary["diagnosis"])


@every_way
def test_without_surge_an_old_replica_drains_first(tmp_path, fast):
    # 0 drains from 25 to 50, then 2 starts and serves from 90 on; 1 is empty by then and goes, and 3 starts.
    result = serve(tmp_path, [*PAIR, "0.2,20,1,d:20"], {"max_surge": 0}, fast)

    assert changes(result, 0) == [(25, "draining"), (50, "off")]
    assert changes(result, 2) == [(50, "loading"), (80, "warming"), (90, "up")]
    assert changes(result, 1) == [(90, "draining"), (90, "off")]
    assert changes(result, 3) == [(90, "loading"), (120, "warming"), (130, "up")]


def test_all_at_once_takes_twice_the_replicas(tmp_path):
    # Both new ones start at 25; both old ones drain at 65: 0 is empty, 1 ends its request at 80.
    result = serve(tmp_path, [*PAIR, "0.2,20,1,d:20"], {"max_surge": 2})

    assert changes(result, 2) == changes(result, 3) == [(25, "loading"), (55, "warming"), (65, "up")]
    assert changes(result, 0) == [(65, "draining"), (65, "off")]
    assert changes(result, 1) == [(65, "draining"), (80, "off")]


def test_requests_left_after_the_grace_go_to_the_new_version(tmp_path):
    # 0 has 5 ms from 25 on; its request goes to 1, with its tokens of 10 and 20 ms. 2 serves from 70 on; 1 has 5 ms
    # from then on, and its request, which would end at 80, goes to 2.
    result = serve(tmp_path, [*PAIR, "0.2,20,1,d:20"], {"max_surge": 0, "grace_s": 0.005})

    assert changes(result, 0) == [(25, "draining"), (30, "off")]
    assert changes(result, 1) == [(70, "draining"), (75, "off")]
    assert result.requests["retries"].tolist() == [1, 1, 0]
    assert result.requests["replica"].tolist()[:2] == [1, 2]


@pytest.mark.parametrize(("update", "tables", "message"), [
    ({"to": "gone"}, {}, 'there is no pool "gone"'),
    ({}, {"pools": [EXPERIMENT["pools"][0], EXPERIMENT["pools"][1] | {"replicas": 3}]},
     'as "old" with as many replicas, 2'),
    ({"to": "old"}, {}, "the pool that it replaces"),
    ({"at_once": 2}, {}, "at_once: leave it out"),
    ({"max_surge": 0, "max_unavailable": 0}, {}, "no replica could ever change"),
    ({"drain": "migrate"}, {}, 'expected "finish" with `to`')])
def test_updates_that_cannot_be_are_refused(tmp_path, update, tables, message):
    with pytest.raises(InputErrors, match=message):
        serve(tmp_path, PAIR, update, **tables)


def test_pools_of_an_update_take_part_in_no_other_restart(tmp_path):
    with pytest.raises(InputErrors, match="not in other restarts"):
        serve(tmp_path, PAIR, {}, restarts=[UPDATE, {"at_s": 1.0, "loading_delay": {}}])
