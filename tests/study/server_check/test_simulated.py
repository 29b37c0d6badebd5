"""A run, read as a server is."""
import numpy as np
import pytest
import tomli_w

from simulator.study.server_check.changes import NOTHING, Change
from simulator.study.server_check.demand import Demand
from simulator.study.server_check.simulated import Subject, simulated

TABLES = {"engine": {"scheduler": "vllm", "max_num_seqs": 8, "max_model_len": 200, "num_gpu_blocks": 101},
          "latency": {"backend": "linear", "base_us": 10_000, "per_sequence_us": 0, "per_prefill_token_us": 0,
                      "per_context_token_us": 0},
          "workload": {"type": "synthetic", "num_requests": 9, "arrival": {"process": "constant", "rate_per_s": 2.0},
                       "prompt_tokens": {"distribution": "constant", "value": 20},
                       "output_tokens": {"distribution": "constant", "value": 5}}}
TIMES_S = np.array([0.0, 2.0, 4.0])


@pytest.fixture
def subject(tmp_path):
    (tmp_path / "server.toml").write_text(tomli_w.dumps(TABLES))
    return Subject(str(tmp_path / "server.toml"))


@pytest.mark.parametrize("pace", [1.0, 2.0])
def test_counters_are_those_of_a_server(subject, pace):
    found = simulated(subject, NOTHING, 0, pace, TIMES_S, Demand(np.array([0.0, 2.0]), np.array([3]), 0.0))

    series = found.series
    assert found.planned_per_s == pytest.approx(2.0)    # the arrivals of the run are the observed ones
    assert series.values["ended"][-1] == 3 and series.values["prompt_tokens"][-1] == 60
    assert series.values["output_tokens"][-1] == 15 and series.values["gaps"][-1] == 12
    assert series.ratio("gap_s", "gaps") == pytest.approx(0.01 * pace, rel=0.5)     # prompts of others, at most, wait
    assert series.ratio("gap_s", "gaps") >= 0.01 * pace - 1e-9
    assert series.ratio("ttft_s", "first_tokens") >= 0.01 * pace - 1e-9
    assert series.facts.kv_tokens == 101 * 16 and series.facts.engines == 1
    assert series.facts.longest_bound == 200
    assert series.times_s == pytest.approx(TIMES_S)


def test_lengths_change_as_told(subject):
    change = Change("longer", prompts=2.0, answers=0.4)

    series = simulated(subject, change, 0, 1.0, TIMES_S, Demand(np.array([0.0, 2.0]), np.array([4]), 0.0)).series

    assert series.ratio("prompt_lengths", "prompts") == 40 and series.ratio("answer_lengths", "answers") == 2


def test_a_request_that_is_too_long_comes_beside_those_that_are_observed(tmp_path):
    workload = TABLES["workload"] | {"prompt_tokens": {"distribution": "uniform", "min": 20, "max": 80}}
    tables = TABLES | {"workload": workload, "engine": TABLES["engine"] | {"max_model_len": 60}}
    (tmp_path / "server.toml").write_text(tomli_w.dumps(tables))

    found = simulated(Subject(str(tmp_path / "server.toml")), NOTHING, 3, 1.0, TIMES_S,
                      Demand(np.array([0.0, 2.0]), np.array([9]), 0.0))

    assert found.series.values["ended"][-1] == 9        # a third of the requests is refused, and others come
    assert found.planned_per_s < 1.8
