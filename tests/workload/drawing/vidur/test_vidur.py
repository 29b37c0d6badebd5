"""Vidur's requests."""
import gzip
import json

import numpy as np
import pytest

from simulator.config.load import load_experiment
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors
from simulator.workload.columns import nearest
from simulator.workload.types.vidur import Vidur
from support.goldens import GOLDENS

CASES = ("s01_poisson_uniform", "s02_gamma_zipf", "s03_static_fixed", "s05_poisson_duration")
EXPERIMENT = ('[latency]\nbackend = "linear"\n[engine]\nnum_gpu_blocks = 10\nmax_model_len = 100\n'
              '[workload]\ntype = "vidur"\n')


def drawn(tmp_path, text):
    (tmp_path / "e.toml").write_text(EXPERIMENT + text)
    return Vidur(load_experiment(tmp_path / "e.toml").workload.parameters).columns(RandomStreams(0))


def table(name, given, keys):
    lines = [f"{key} = {json.dumps(given[key])}" for key in keys if key in given]
    return "\n".join([f"[workload.{name}]", f'type = "{given["name"]}"', *lines, ""])


@pytest.mark.parametrize("case", CASES)
def test_recorded_requests_are_drawn_again_to_the_last_bit(case, tmp_path):
    folder = GOLDENS / "vidur" / case
    if not folder.exists():
        pytest.skip("needs ../shared/goldens/vidur")
    given = json.loads((folder / "config.json").read_text())["request_generator_config"]
    lines = gzip.decompress((folder / "requests.jsonl.gz").read_bytes()).splitlines()
    recorded = sorted(map(json.loads, lines), key=lambda each: each["id"])
    end = f'duration_s = {given["duration"]}\n' if given["duration"] else f'num_requests = {given["num_requests"]}\n'
    lengths = given["length_generator_config"]
    totals = ("min_tokens", "max_tokens", "prefill_to_decode_ratio")
    keys = {"fixed": ("prefill_tokens", "decode_tokens"), "uniform": totals,
            "zipf": (*totals, "theta", "scramble", "seed")}[lengths["name"]]

    found = drawn(tmp_path, f'{end}seed = {given["seed"]}\n' + table("length_generator", lengths, keys)
                  + table("interval_generator", given["interval_generator_config"], ("qps", "cv")))

    assert len(found) == len(recorded)
    assert found.arrival_ns.tolist() == nearest(np.array([each["arrived_at"] for each in recorded]) * 1e9).tolist()
    assert found.prompt_tokens.tolist() == [each["num_prefill_tokens"] for each in recorded]
    assert found.output_tokens.tolist() == [each["num_decode_tokens"] for each in recorded]


def test_gaps_are_cut_at_three_times_their_mean(tmp_path):
    gaps = np.diff(drawn(tmp_path, "num_requests = 20000\ninterval_generator = {qps = 2.0}\n").arrival_ns) / 1e9

    assert gaps.max() == pytest.approx(1.5, abs=1e-8)
    assert np.mean(gaps > 1.4999) == pytest.approx(np.exp(-3), rel=0.1)       # of 20,000; standard error 3 %
    assert gaps.mean() == pytest.approx(0.5 * (1 - np.exp(-3)), rel=0.02)


def test_scrambled_totals_are_spread_over_the_range(tmp_path):
    def mean(scramble):
        found = drawn(tmp_path, f'num_requests = 3000\n[workload.length_generator]\ntype = "zipf"\nmin_tokens = 100\n'
                      f'max_tokens = 1099\ntheta = 0.9\nscramble = {scramble}\n')
        return (found.prompt_tokens + found.output_tokens).mean()

    assert mean("false") < 300
    assert mean("true") == pytest.approx(600, rel=0.15)


def test_a_trace_gives_gaps_in_whole_seconds(tmp_path):
    (tmp_path / "t.csv").write_text("arrival_time\n1970-01-04 12:00:00\n1970-01-04 12:00:01.9\n1970-01-04 12:00:04.5\n"
                                    "1970-01-04 12:00:04.8\n1970-01-04 15:00:00\n")
    found = drawn(tmp_path, 'interval_generator = {type = "trace", trace_file = "t.csv", time_scale_factor = 2.0}\n')

    # inside (12:00, 15:00): 1.9, 4.5, 4.8 s; since the first in whole seconds 0, 2, 2; the first is not sent
    assert found.arrival_ns.tolist() == [4 * 10**9, 4 * 10**9]
    with pytest.raises(InputErrors, match="end after 2 requests; more are asked for"):
        drawn(tmp_path, 'num_requests = 3\ninterval_generator = {type = "trace", trace_file = "t.csv"}\n')


def test_lengths_of_a_trace_are_scaled_cut_and_shuffled(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [(100, 50), (7, 3), (300, 900), (5000, 1), (1, 0)]
    (tmp_path / "t.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + "".join(f"{p},{d}\n" for p, d in rows))
    found = drawn(tmp_path, 'interval_generator = {type = "static"}\n[workload.length_generator]\ntype = "trace"\n'
                  'trace_file = "t.csv"\nmax_tokens = 1000\ndecode_scale_factor = 1.5\nseed = 3\n')

    # (100, 75); (7, 4); (300, 1350) of 1650 gives up 650: ceil(118.2), ceil(531.8); (5000, 1) of 5001: 4001; (1, 0)
    expected = [(100, 75), (7, 4), (300 - 119, 1350 - 532), (5000 - 4001, 1), (1, 1)]
    order = pandas.DataFrame({"row": range(5)}).sample(frac=1, random_state=3)["row"].tolist()
    assert list(zip(found.prompt_tokens.tolist(), found.output_tokens.tolist(), strict=True)) == [
        expected[row] for row in order]


def test_requests_need_an_end(tmp_path):
    with pytest.raises(InputErrors, match="give num_requests, duration_s, or both"):
        drawn(tmp_path, "")
