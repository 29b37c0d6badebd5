"""Drawn workloads, served: the same bytes with fast-forward and without."""
import pytest

import simulator

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
    warmups = 10 if name == "inferencex" else 0         # which do not count
    assert told["requests"]["completed"] == len(fast) - warmups >= 50
