"""Drawn workloads, served: the same bytes with fast-forward and without."""
import numpy as np
import pytest

import simulator
from simulator.domain import records

LENGTHS = {"prompt_tokens": {"distribution": "uniform", "max": 200},
           "output_tokens": {"distribution": "pareto_lognormal", "alpha": 2.0, "xm": 10.0, "mu": 2.0, "sigma": 0.5,
                             "mix_weight": 0.3, "max": 100}}
WORKLOADS = {
    "diurnal": {"type": "synthetic", "duration_s": 3.0, **LENGTHS,
                "rate": {"kind": "diurnal", "mean_per_s": 60.0, "period_s": 2.0}},
    "mmpp": {"type": "synthetic", "num_requests": 150, "time_scale": 0.5,
             "rate": {"kind": "mmpp", "rates_per_s": [20.0, 200.0], "leave_per_s": [4.0, 8.0]}, **LENGTHS},
    "ramp": {"type": "synthetic", "num_requests": 100, **LENGTHS,
             "arrival": {"process": "gamma", "cv": 2.0, "ramp": "linear", "start_rate_per_s": 10.0,
                         "end_rate_per_s": 200.0}},
    "inferencex": {"type": "synthetic", "preset": "inferencex", "isl": 200, "osl": 50, "concurrency": 5},
    "vllm_prefix_repetition": {
        "type": "synthetic", "preset": "vllm_prefix_repetition", "num_requests": 100, "prefix_len": 96,
        "suffix_len": 40, "output_len": 30,
        "arrival": {"process": "poisson", "rate_per_s": 50.0, "rescale_to_rate": True}},
    "guidellm": {"type": "synthetic", "preset": "guidellm", "profile": "poisson", "rate_per_s": 200.0,
                 "max_concurrency": 6, "duration_s": 2.0, "warmup_phase": 0.1, **LENGTHS},
    "inference_perf": {"type": "synthetic", "preset": "inference_perf", "load_type": "poisson", "workers": 2,
                       "worker_max_concurrency": 3, "interval_s": 0.05, "stages": [
                           {"rate_per_s": 60.0, "duration_s": 1.0}, {"rate_per_s": 20.0, "duration_s": 2.0}],
                       **LENGTHS},
    "aiperf": {"type": "synthetic", "preset": "aiperf", "concurrency": 5, "concurrency_ramp_duration_s": 0.2,
               "duration_s": 2.0, "benchmark_grace_period_s": 0.05, "warmup_request_count": 10,
               "request_cancellation_rate": 20.0, "request_cancellation_delay_s": 0.02, **LENGTHS},
    "vllm_random": {"type": "synthetic", "preset": "vllm_random", "num_requests": 90, "input_len": 100,
                    "output_len": 30, "request_rate": 100.0, "burstiness": 0.5, "max_concurrency": 4, "num_warmups": 3},
    "vidur": {"type": "vidur", "num_requests": 100,
              "interval_generator": {"type": "gamma", "qps": 60.0, "cv": 2.0},
              "length_generator": {"type": "zipf", "min_tokens": 50, "max_tokens": 300}},
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_fast_forward_changes_no_byte(name, tmp_path):
    (tmp_path / "a.toml").write_text("")

    def served(fast_forward):
        result = simulator.run(tmp_path / "a.toml", {
            "latency": {"backend": "linear"}, "topology": {"replicas": 2}, "workload": WORKLOADS[name],
            "engine": {"num_gpu_blocks": 200, "max_model_len": 512, "fast_forward": fast_forward}})
        return result.requests, result.summary

    (fast, told), (slow, told_slow) = served(True), served(False)

    assert fast.tobytes() == slow.tobytes()
    assert told == told_slow
    counts = fast["measured"] == 1 if "measured" in fast.dtype.names else fast["status"] >= 0
    is_completed = fast["status"] == records.COMPLETED
    assert told["requests"]["completed"] == np.sum(counts & is_completed) >= 50
    if name not in ("guidellm", "aiperf"):              # whose clients give up
        assert is_completed.all()
