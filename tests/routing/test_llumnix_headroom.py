"""Room that Llumnix keeps for urgent requests: in `freeness`, in dispatches, in migrations."""
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

import simulator
from routing.faces import context_of, tell, view_of, workload
from simulator.errors import InputErrors
from simulator.routing.llumnix.rescheduler import LlumnixRescheduler, LlumnixReschedulerParameters
from simulator.routing.llumnix.router import Llumnix, LlumnixParameters
from support.every_key import read
from support.llumnix_faces import selected_by

LIVE = {"status_push_interval_s": 0.0, "status_poll_interval_s": 0.0, "status_steps": 0}
BY_FREENESS = {"dispatch_neutral_load_metric": "freeness", "enable_instance_status_local_account": False}
WAITING, RUNNING, COMPLETED = 1, 2, 3


def busy_view(num_replicas=3, **fields):
    """Return a view of replicas with 100 blocks of 16 tokens and a request each."""
    return view_of(num_replicas, **{"num_blocks": 100, "block_size": 16, "running": 1, "iterations": 1, "time_ns": 0}
                   | fields)


def requests_of(*placed):
    """Return requests by priority, replica and status."""
    given = workload([16] * len(placed))
    for name, column in zip(("replica", "status"), list(zip(*placed, strict=True))[1:], strict=True):
        given.requests[name] = column
    given.demands["priority"] = [priority for priority, _, _ in placed]
    return given


def router_of(view, requests, tokens=800, **keys):
    keys = LIVE | BY_FREENESS | {"headroom": [{"priority": -1, "tokens": tokens}]} | keys
    return Llumnix(msgspec.convert(keys, LlumnixParameters), context_of(view, requests))


def freeness_of(router):
    router.choose_replica(0, 0)
    return [router.candidates.array[name].tolist() for name in ("total_tokens", "used_tokens", "headroom_tokens")]


def test_urgent_requests_of_a_replica_add_their_headroom_once():
    # two at 0, one that waits at 1; at 2 one that is complete, one of another priority; one has not come
    requests = requests_of((-1, 0, RUNNING), (-1, 0, RUNNING), (-1, 1, WAITING), (-1, 2, COMPLETED), (0, 2, RUNNING),
                           (-1, -1, 0))

    assert freeness_of(router_of(busy_view(), requests))[2] == [800, 800, 0]


def test_each_priority_has_a_headroom_of_its_own():
    requests = requests_of((-2, 0, RUNNING), (-1, 0, RUNNING), (-1, 1, RUNNING))
    router = router_of(busy_view(), requests, headroom=[{"priority": -1, "tokens": 100}, {"priority": -2, "tokens": 7}])

    assert freeness_of(router)[2] == [107, 100, 0]


def test_a_replica_with_an_urgent_request_gets_others_last():
    # 0: 1600 - 160 used; 1: 1600 - 960 used: 1440 against 640 tokens, with headroom 440 against 640
    requests = requests_of((-1, 0, RUNNING), (0, 1, RUNNING), (0, -1, 0))
    view = busy_view(2, used_blocks=[10, 60])

    assert router_of(view, requests, tokens=1000).choose_replica(2, 0) == 1
    assert router_of(view, requests, tokens=700).choose_replica(2, 0) == 0
    assert router_of(view, requests, headroom=[]).choose_replica(2, 0) == 0


def test_headroom_is_known_as_of_the_last_status():
    requests = requests_of((0, 0, RUNNING), (-1, -1, 0))
    view = busy_view(2)
    router = router_of(view, requests, status_push_interval_s=0.04, status_poll_interval_s=0.05)
    assert freeness_of(router)[2] == [0, 0]
    requests.requests["replica"][1], requests.requests["status"][1] = 1, RUNNING
    tell(view, time_ns=10**6, iterations=2)

    router.choose_replica(0, 10**6)
    assert router.candidates.array["headroom_tokens"].tolist() == [0, 0]
    router.choose_replica(0, 60 * 10**6)        # pushed at 60 ms, polled at 100 ms
    router.choose_replica(0, 101 * 10**6)
    assert router.candidates.array["headroom_tokens"].tolist() == [0, 800]


def rescheduler_of(view, requests, **keys):
    keys = LIVE | {"policies": ["neutral_load"], "neutral_load_metric": "freeness"} | keys
    return LlumnixRescheduler(msgspec.convert(keys, LlumnixReschedulerParameters),
                              SimpleNamespace(view=view, workload=requests))


def test_where_more_is_better_the_source_has_less():
    # freeness 160, 1280 and 1520; up to 200 is a source, 1520 - 160 = 1360 are the difference
    view = busy_view(used_blocks=[90, 20, 5])
    requests = requests_of((0, 0, RUNNING))

    def moves(**keys):
        return [move[:2] for move in rescheduler_of(view, requests, neutral_load_threshold=200.0, **keys).planned(0)]

    assert moves() == moves(load_balance_threshold=1360.0) == [(0, 2)]
    assert moves(load_balance_threshold=1361.0) == []


def test_headroom_makes_a_replica_a_source():
    # freeness 1280 each, 480 at the replica with an urgent request
    view = busy_view(2, used_blocks=20)
    requests = requests_of((-1, 0, RUNNING), (0, 1, RUNNING))
    keys = {"neutral_load_threshold": 500.0}

    assert rescheduler_of(view, requests, **keys).planned(0) == []
    with_room = rescheduler_of(view, requests, headroom=[{"priority": -1, "tokens": 800}], **keys)
    assert [move[:2] for move in with_room.planned(0)] == [(0, 1)]


def test_urgent_requests_move_only_where_no_other_can():
    policy = rescheduler_of(busy_view(2), requests_of((-1, 0, RUNNING), (0, 0, RUNNING), (0, 0, RUNNING)),
                            headroom=[{"priority": -1, "tokens": 800}])
    rows = [(0, 10, 5, True, False), (1, 50, 5, True, False), (2, 40, 5, True, False)]      # row, tokens, outputs
    free = rescheduler_of(busy_view(2), requests_of((0, 0, RUNNING)))

    assert selected_by(policy, rows, "TOKEN", "SR", 60.0) == [2, 1]       # 40 tokens, then 50: until 60 are used
    assert selected_by(free, rows, "TOKEN", "SR", 60.0) == [0, 2, 1]
    assert selected_by(policy, rows[:1], "TOKEN", "SR", 60.0) == [0]
    assert selected_by(policy, rows, "NUM_REQ", "LR", -1.0) == [0, 1, 2]  # a failed replica: all


@pytest.mark.parametrize(("keys", "message"), [
    ({"dispatch_neutral_load_metric": "num_requests"}, 'cluster.routing.headroom: nothing counts it: the metric "free'),
    ({"headroom": [{"priority": 1, "tokens": 3}] * 2}, "cluster.routing.headroom: priority 1 is given twice")])
def test_headroom_that_cannot_act_is_refused(keys, message):
    with pytest.raises(InputErrors) as error:
        router_of(busy_view(), requests_of((0, 0, RUNNING)), **keys)

    assert message in str(error.value)


def test_headroom_of_replicas_for_one_leg_is_refused():
    keys = {"infer_types": [{"infer_type": "prefill", "selector": {"metrics": ["freeness"]}}]}
    with pytest.raises(InputErrors, match="with pools for prefill and decode it is not supported"):
        router_of(busy_view(2, infer_type=[1, 2]), requests_of((0, 0, RUNNING)), **keys)


def test_a_rescheduler_without_freeness_refuses_headroom():
    with pytest.raises(InputErrors, match=r"cluster\.rescheduling\.headroom: nothing counts it"):
        rescheduler_of(busy_view(), requests_of((0, 0, RUNNING)), neutral_load_metric="num_requests",
                       headroom=[{"priority": -1, "tokens": 800}])


def test_an_urgent_request_has_its_replica_for_itself(tmp_path, monkeypatch):
    # Iterations take 10 ms. The urgent request comes at 0 ms, four others from 5 ms on, one each 20 ms. Without
    # headroom freeness alternates, with 480 of 512 tokens all four go to the other replica.
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens,priority", "0,16,40,-1",
            *(f"{0.005 + 0.02 * i:.3f},16,40,0" for i in range(4))]
    (tmp_path / "five.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def replicas(headroom):
        routing = {"policy": "llumnix", "dispatch_neutral_load_metric": "freeness", "headroom": headroom} | LIVE
        result = simulator.run(read({
            "topology": {"replicas": 2}, "engine": {"num_gpu_blocks": 33, "max_model_len": 64},
            "latency": {"backend": "linear", "base_us": 10_000.0}, "workload": {"type": "trace", "path": "five.csv"},
            "cluster": {"routing": routing}}))
        assert any("headroom has no effect" in note for note in result.summary["diagnosis"]) == (headroom == unasked)
        return result.requests["replica"].tolist()

    unasked = [{"priority": -2, "tokens": 480}]

    urgent_at, *others = replicas([{"priority": -1, "tokens": 480}])
    assert others == [1 - urgent_at] * 4
    assert len(set(replicas([])[1:])) == 2
    assert replicas(unasked) == replicas([])
    assert np.unique(replicas([])).tolist() == [0, 1]
