"""Clusters as an experiment file asks for them: pools, models, signals, the order of what happens at one instant."""
import sys

import numpy as np
import pytest

import simulator
from simulator.domain import records
from support.engine import TEN_MS

MS = 1_000_000
SEEN = '''
from simulator.routing.python_router import PythonRouter

LOG = []


class Seen(PythonRouter):
    """Request n to replica n modulo their number; writes down what it sees and hears."""

    uses_caches = True

    def choose(self, request, now_ns):
        LOG.append(("choose", now_ns, self.states["running"].tolist(), self.states["time_ns"].tolist(),
                    self.accounts["in_flight"].tolist(), self.cached_blocks(request, now_ns)))
        return request.row % self.num_replicas

    def on_left(self, request, replica, now_ns):
        LOG.append(("left", now_ns, request.row, replica))
'''


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Return a function: the result of serving rows of a trace, and what the router of SEEN wrote down."""
    def run(more, *rows, columns="", **overrides):
        header = "arrived_at,num_prefill_tokens,num_decode_tokens" + columns
        (tmp_path / "trace.csv").write_text("\n".join([header, *rows]) + "\n")
        (tmp_path / "a.toml").write_text(TEN_MS + more)
        (tmp_path / "seen_lab.py").write_text(SEEN)
        monkeypatch.setattr(sys, "path", list(sys.path))
        sys.modules.pop("seen_lab", None)
        result = simulator.run(tmp_path / "a.toml", overrides)
        return result, list(sys.modules["seen_lab"].LOG) if "seen_lab" in sys.modules else []
    return run


ROUTED = '[topology]\nreplicas = %d\n[cluster.routing]\npolicy = "seen_lab:Seen"\n'


def test_what_comes_at_an_instant_is_routed_before_replicas_act_and_these_act_by_number(serve):
    # Requests 0, 1, 2 go to replicas 0, 1, 2 at 0 and are complete at 20 ms; request 3 comes at that very instant.
    result, log = serve(ROUTED % 3, *["0,10,2"] * 3, "0.02,10,1", "0.020000001,10,1")
    at_20 = [entry for entry in log if entry[1] == 20 * MS]
    assert at_20[0][:3] == ("choose", 20 * MS, [1, 1, 1])
    assert at_20[0][4] == [1, 1, 1]
    assert at_20[1:] == [("left", 20 * MS, row, row) for row in range(3)]
    later, = [entry for entry in log if entry[1] == 20 * MS + 1 and entry[0] == "choose"]
    assert later[4] == [1, 0, 0]
    assert result.requests["completed_ns"][:3].tolist() == [20 * MS] * 3


def test_a_request_is_in_flight_from_its_dispatch_on(serve):
    # Admission takes 3 ms, routing 4: a request of 0 is sent at 7 ms, and one of 5 ms still finds nobody in flight when
    # it is admitted, but the first one when it is routed, at 12.
    latencies = "latency_s = 0.004\n[cluster.admission]\nlatency_s = 0.003\n"
    _, log = serve(ROUTED % 2 + latencies, "0,10,5", "0.005,10,5")
    assert [(entry[1], entry[4]) for entry in log if entry[0] == "choose"] == [(7 * MS, [0, 0]), (12 * MS, [1, 0])]


def test_snapshots_grow_old_and_what_the_gateway_counts_does_not(serve):
    # All requests run long. Looked at when 50 ms old: at 50 and at 100, since one comes every 20 ms.
    rows = [f"{0.01 + 0.02 * i:.2f},10,100" for i in range(6)]
    fresh = [entry for entry in serve(ROUTED % 2, *rows)[1] if entry[0] == "choose"]
    stale = [entry for entry in serve(ROUTED % 2 + "snapshot_refresh_interval_s = 0.05\n", *rows)[1]
             if entry[0] == "choose"]
    assert [sum(entry[4]) for entry in fresh] == [sum(entry[4]) for entry in stale] == [0, 1, 2, 3, 4, 5]
    assert [sum(entry[2]) for entry in fresh] == [0, 1, 2, 3, 4, 5]
    # at 10, 30, 50, 70, 90, 110 ms: the empty one of 0 twice, then that of 50 until it is 50 ms old
    assert [sum(entry[2]) for entry in stale] == [0, 0, 2, 2, 2, 5]
    assert [max(entry[3]) for entry in stale] == [0, 0, 50 * MS, 50 * MS, 50 * MS, 110 * MS]


def test_caches_are_seen_late_on_their_own(serve):
    # Every prompt begins alike, 64 tokens. The first fills the cache of replica 0, the second that of replica 1.
    rows = [f"{0.05 * i:.2f},80,1,sys:64/:16" for i in range(5)]
    fresh, late = ([entry[5] for entry in serve(ROUTED % 2 + more, *rows, columns=",prompt")[1] if entry[0] == "choose"]
                   for more in ("", "cache_signal_delay_s = 0.12\n"))
    assert fresh == [[0, 0], [4, 0], [4, 4], [4, 4], [4, 4]]
    assert late == [[0, 0], [0, 0], [0, 0], [4, 4], [4, 4]]         # looked at when 120 ms old: at 150 ms


POOLS = """
[[pools]]
name = "large"
serves = "large"
replicas = 1
engine = {num_gpu_blocks = 300, max_num_seqs = 1}
latency.base_us = 20_000.0
[[pools]]
name = "small"
serves = "small"
replicas = 2
[[pools]]
name = "small-wide"
serves = "small"
replicas = 1
engine.block_size = 32
cost_per_hour = 3.6
"""


def test_pools_differ_and_requests_go_to_those_that_serve_their_model(serve):
    rows = [f"0,10,2,{model}" for model in ("large", "large", "small", "small", "small", "unknown")]
    result, _ = serve(POOLS, *rows, columns=",model")
    requests, replicas = result.requests, result.summary["replicas"]
    assert requests["replica"].tolist() == [0, 0, 1, 2, 3, -1]
    # The large one runs one request at a time, at 20 ms an iteration.
    assert requests["completed_ns"].tolist() == [40 * MS, 80 * MS, 20 * MS, 20 * MS, 20 * MS, -1]
    assert records.STATUS_NAMES[requests["status"][5]] == "rejected"
    assert result.summary["by_cause"] == {"rejected": {"no_replica": 1}}
    assert [replica["pool"] for replica in replicas] == ["large", "small", "small", "small-wide"]
    assert [replica["kv_cache"]["num_blocks"] for replica in replicas] == [299, 99, 99, 99]   # without null blocks
    assert {model: part["requests"]["completed"] for model, part in result.summary["by_model"].items()} == {
        "large": 2, "small": 3, "unknown": 0}
    assert result.summary["by_pool"]["small-wide"]["cost"] == pytest.approx(3.6 * 0.08 / 3600)


def test_pools_differ_in_hardware_model_and_topology(tmp_path):
    path = tmp_path / "pools.toml"
    path.write_text("""
        model.name = "llama-3.1-8b"
        hardware.name = "h100-sxm-80gb"
        workload = {type = "synthetic", num_requests = 20}
        [[pools]]
        name = "one"
        [[pools]]
        name = "two"
        topology = {tensor_parallel = 2, node = "dgx-h100"}
        [[pools]]
        name = "old"
        hardware.name = "a100-sxm-80gb"
        [[pools]]
        name = "mistral"
        model.name = "mistral-7b"
        """)
    result = simulator.run(path, {"workload.arrival": {"process": "constant", "rate_per_s": 0.5},
                                  "workload.prompt_tokens": {"distribution": "constant", "tokens": 500},
                                  "workload.output_tokens": {"distribution": "constant", "tokens": 50}})
    requests = result.requests
    took_ns = requests["completed_ns"] - requests["arrival_ns"]
    one, two, old, mistral = (int(np.median(took_ns[requests["replica"] == i])) for i in range(4))
    assert two < one < old
    assert mistral != one
    blocks = [replica["kv_cache"]["num_blocks"] for replica in result.summary["replicas"]]
    assert len(set(blocks)) == 4
    assert blocks[1] > 2 * blocks[0]
