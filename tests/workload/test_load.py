"""From the section [workload] to requests."""
import numpy as np

from simulator.config.load import load_experiment
from simulator.workload.load import load


def section(tmp_path, text):
    (tmp_path / "e.toml").write_text('[hardware]\nname = "h100-sxm-80gb"\n[model]\nname = "llama-3.1-8b"\n' + text)
    return load_experiment(tmp_path / "e.toml").workload


def test_a_trace_is_found_beside_its_experiment(tmp_path):
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n1,10,3\n2,20,3\n")

    built = load(section(tmp_path, (
        '[workload]\ntype = "trace"\npath = "t.csv"\nprefill_scale = 2.0\nmax_requests = 1\n')), 0)

    assert built.requests["prompt_tokens"].tolist() == [20]


def test_keys_of_the_format_stand_in_the_same_table(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"timestamp": 3, "input_length": 17, "output_length": 1, "hash_ids": [0, 1]}\n')

    built = load(section(tmp_path, (
        '[workload]\ntype = "trace"\npath = "t.jsonl"\nformat = "mooncake"\nblock_size = 16\n')), 0)

    assert built.segments.tolist() == [(0, 16), (4, 1)]


def test_a_synthetic_workload_depends_on_the_seed(tmp_path):
    text = ('[workload]\ntype = "synthetic"\nnum_requests = 20\n'
            '[workload.arrival]\nprocess = "gamma"\nrate_per_s = 5.0\ncv = 2.0\n'
            '[workload.prompt_tokens]\ndistribution = "lognormal"\nmean = 500.0\nstd = 300.0\nmax = 4096\n'
            '[workload.output_tokens]\ndistribution = "uniform"\nmin = 5\nmax = 9\n'
            '[workload.system_prompts]\nnum_tokens = 100\nshare = 0.5\n')

    one, again, other = (load(section(tmp_path, text), seed) for seed in (1, 1, 2))

    assert (one.requests == again.requests).all()
    assert not np.array_equal(one.requests, other.requests)
    assert set(one.outcomes["output_tokens"]) <= {5, 6, 7, 8, 9}
