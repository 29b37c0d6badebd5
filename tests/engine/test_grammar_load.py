"""Compilers of grammars that are too slow for the requests delay them, and the diagnosis says how busy they are."""
import pytest

import simulator
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {max_model_len = 100, num_gpu_blocks = 1000, structured_outputs = {fraction = 1.0, mask_us = 0.0, cpus = 2}}
latency = {backend = "linear", base_us = 1000.0}
workload = {type = "synthetic", num_requests = 21, arrival = {process = "constant", rate_per_s = 10.0}, \
    prompt_tokens = {distribution = "constant", tokens = 10}, output_tokens = {distribution = "constant", tokens = 2}}
"""


@pytest.fixture
def run(tmp_path):
    def ran(others=None, **keys):
        path = tmp_path / "a.toml"
        path.write_text(EXPERIMENT)
        own = {f"engine.structured_outputs.{key}": value for key, value in keys.items()}
        return simulator.run(path, own | (others or {}))

    return ran


def notes(result):
    return [each for each in result.summary["diagnosis"] if each.startswith("grammars:")]


def test_more_work_than_the_workers_have_time_saturates(run):
    # one worker, 200 ms a grammar, ten requests a second: the last of 21 waits for 21 x 200 ms less 2 s
    result = run(compile_ms=200.0)

    assert result.summary["ttft_ms"]["max"] == pytest.approx(21 * 200 - 2000 + 1, abs=1)
    assert notes(result) == ["grammars: compilation saturates: requests wait the longer, the later they come: new "
                             "grammars take 210% of the time of 1 worker (1 for 2 CPUs on each of 1 replica) while "
                             "requests arrive"]


def test_a_busy_compiler_delays_and_an_idle_one_is_not_mentioned(run):
    assert "delays requests: new grammars take 84%" in notes(run(compile_ms=80.0))[0]
    assert notes(run(compile_ms=20.0)) == notes(run(compile_ms=200.0, num_grammars=2)) == []


def test_waits_of_passes_of_sglang_are_named(run):
    sglang = {"engine.scheduler": "sglang"}
    assert notes(run(sglang, compile_ms=0.5)) == []
    assert ["waits up to 5 ms in each pass" in each for each in notes(run(sglang, compile_ms=20.0))] == [True]


def test_published_times_of_an_old_compiler_are_named(run):
    assert "xgrammar 0.1.10" in notes(run())[0]
    assert not any("0.1.10" in each for each in notes(run(backend="guidance")) + notes(run(kind="json_schema")))


def test_grammars_beyond_the_measured_ones_are_named(run):
    assert "size = 2,000, measured 4 to 16" in notes(run(kind="ebnf", size=2000))[0]


def test_the_vocabulary_is_that_of_the_model(run):
    known = {"kind": "ebnf", "size": 16}
    plain, small = run(**known), run(**known, vocabulary=32_768)

    assert plain.summary["ttft_ms"]["mean"] == run(**known, vocabulary=131_072).summary["ttft_ms"]["mean"]
    assert plain.summary["ttft_ms"]["mean"] > small.summary["ttft_ms"]["mean"]


@pytest.mark.parametrize(("keys", "why"), [
    ({"size": 3}, "kind is missing"), ({"new_lengths": 1}, "kind is missing"),
    ({"kind": "regex", "compile_ms": 1.0}, "give one of them"),
    ({"kind": "regex", "new_lengths": 1}, "expected 0 with kind"),
    ({"kind": "json", "size": 3}, "one grammar for any object")], ids=str)
def test_keys_without_effect_are_refused(run, keys, why):
    with pytest.raises(InputErrors) as refused:
        run(**keys)

    assert why in str(refused.value)
