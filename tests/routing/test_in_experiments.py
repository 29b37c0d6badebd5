"""Routers chosen in an experiment, in front of whole replicas."""
import numpy as np
import pytest

import simulator
from simulator import registry

EXPERIMENT = """
name = "routed"
seed = 3
[topology]
replicas = 4
[engine]
max_model_len = 4096
num_gpu_blocks = 700
max_num_seqs = 16
[latency]
backend = "linear"
[workload]
type = "trace"
path = "trace.csv"
[cluster.routing]
"""
POLICIES = {
    "always_busiest": 'policy = "always_busiest"',
    "bucket": 'policy = "bucket"\nadjust_interval_s = 0.5',
    "cache_aware": 'policy = "cache_aware"\nbalance_abs_threshold = 4',
    "consistent_hash": 'policy = "consistent_hash"\nkey = "tenant"\nmax_load_factor = 1.25',
    "dynamo": 'policy = "dynamo"\ntemperature = 0.5',
    "dynamo predicted": 'policy = "dynamo"\nprefill_load_model = "line"\nper_prefill_token_us = 100',
    "dynamo approximate": 'policy = "dynamo"\noverlap = "approximate"',
    "kvaware": 'policy = "kvaware"\nthreshold_tokens = 300',
    "least_busy_time": 'policy = "least_busy_time"\nperiod_s = 0.1',
    "least_latency": 'policy = "least_latency"',
    "least_throughput": 'policy = "least_throughput"',
    "least_loaded requests": 'policy = "least_loaded"',
    "least_loaded effective": 'policy = "least_loaded"\nmetric = "effective"',
    "least_loaded expected": 'policy = "least_loaded"\nmetric = "expected_tokens"\n[workload.output_knowledge]\n'
                             'predictor = "lognormal_error"',
    "least_loaded kv": 'policy = "least_loaded"\nmetric = "kv"',
    "litellm_latency": 'policy = "litellm_latency"\nlowest_latency_buffer = 0.1',
    "litellm_usage": 'policy = "litellm_usage"',
    "lor": 'policy = "lor"',
    "lor as upstream": 'policy = "lor"\nupstream_compat = true',
    "manual": 'policy = "manual"\nassignment = "min_group"',
    "power_of_two": 'policy = "power_of_two"\nmetric = "waiting"',
    "power_of_two reported": 'policy = "power_of_two"\nmetric = "reported_tokens"\nsnapshot_refresh_interval_s = 0.1',
    "prefix_hash": 'policy = "prefix_hash"',
    "prefix_preble": 'policy = "prefix_preble"\nmatch_share = 0.8',
    "prefix_threshold": 'policy = "prefix_threshold"',
    "prefixaware": 'policy = "prefixaware"\nmin_match_tokens = 100',
    "random": 'policy = "random"',
    "session": 'policy = "session"\notherwise = "least_loaded"',
    "slo_least_load": 'policy = "slo_least_load"',
    "slo_pack_load": 'policy = "slo_pack_load"\nusual_concurrency = 10\nretry_timeout_s = 9',
    "vllm_dp": 'policy = "vllm_dp"\nsnapshot_refresh_interval_s = 0.1',
    "vtc": 'policy = "vtc"',
    "weighted": 'policy = "weighted"',
    "weighted, all scorers": 'policy = "weighted"\nscorers = [' + ", ".join(
        f'{{name = "{name}", weight = 1.0}}' for name in sorted(registry.KINDS["scorer"].entries)) + "]",
    "weighted_random": 'policy = "weighted_random"',
    "weighted, filters": 'policy = "weighted"\nfilters = [{name = "prefix-affinity"}, {name = "session-affinity"}, '
                         '{name = "slo-headroom-tier"}, {name = "utilization", max_kv_usage = 0.9, '
                         'fallback_on_empty = true}, {name = "utilization-detector"}, {name = "concurrency-detector"}]',
    "MostFree": 'policy = "my_lab:MostFree"',
    "ShortContext": 'policy = "weighted"\nscorers = [{name = "my_lab:ShortContext", weight = 2.0}]',
}
MY_LAB = '''
from simulator.routing.python_router import PythonRouter
from simulator.routing.scoring.python import PythonScorer


class MostFree(PythonRouter):
    def choose(self, request, now_ns):
        return int((self.states["num_blocks"] - self.states["used_blocks"]).argmax())


class ShortContext(PythonScorer):
    def rate_all(self, request, now_ns):
        return 1.0 / (1.0 + self.states["running_tokens"] / 1e6)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a trace of 200 requests that share system prompts, and with classes of a user."""
    folder = tmp_path_factory.mktemp("routed")
    rng = np.random.default_rng(5)
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt,tenant,session,adapter"]
    for number in range(200):
        own, outputs, kind = rng.integers(10, 300), rng.integers(1, 80), rng.integers(4)
        lines.append(f"{number * 0.01:.2f},{256 + own},{outputs},sys{kind}:256/:{own},tenant{kind},"
                     f"{f's{number % 30}' if number % 3 else ''},{f'a{kind}' if number % 2 else ''}")
    (folder / "trace.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "my_lab.py").write_text(MY_LAB, encoding="utf-8")
    return folder


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_served_and_fast_forward_changes_nothing(policy, folder):
    file = folder / f"{policy.replace(' ', '_')}.toml"
    file.write_text(EXPERIMENT + POLICIES[policy], encoding="utf-8")

    fast = simulator.run(file)
    slow = simulator.run(file, overrides={"engine.fast_forward": False})

    assert fast.summary["requests"]["completed"] == 200
    np.testing.assert_array_equal(fast.requests, slow.requests)
    busy = set(fast.requests["replica"].tolist())
    assert busy == {0} if policy == "always_busiest" else len(busy) > 1
