"""How long one iteration takes, from Python and from the command line."""
from pathlib import Path

import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.study.predict_command import read_chunks, read_contexts

CONFIGS = Path(__file__).parents[2] / "configs"
LINEAR = str(CONFIGS / "linear.toml")
QUICKSTART = str(CONFIGS / "quickstart.toml")


def test_prediction_is_that_of_the_backend():
    # linear.toml: 6000 + 10 x 3 sequences + 20 x 600 prompt tokens + 0.05 x 1500 tokens of context = 18105 us
    prediction = simulator.predict(LINEAR, prefill=[500, (100, 50)], decode=[1500])
    assert prediction.seconds == pytest.approx(18105e-6, rel=1e-12)


def test_iteration_has_the_time_of_the_host_and_is_truncated():
    # 6000 + 10 + 0.05 x 30 + 7 of the host = 6018.5 us
    prediction = simulator.predict(LINEAR, decode=[30],
                                   overrides={"latency.host.iteration_us": 7, "latency.resolution_us": 1})
    assert prediction.seconds == pytest.approx(6011.5e-6, rel=1e-12)
    assert prediction.iteration_seconds == 6018e-6


def test_breakdown_adds_up_to_the_prediction():
    prediction = simulator.predict(QUICKSTART, [512, np.int64(2048)], [1024] * 64)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.seconds, rel=1e-12)
    assert min(prediction.breakdown.values()) >= 0


def test_speculation_verifies_drafts_with_each_decoding_sequence():
    overrides = {"latency.per_decode_token_us": 100.0}
    plain = simulator.predict(LINEAR, decode=[30, 40], overrides=overrides)
    verifying = simulator.predict(LINEAR, decode=[30, 40], overrides=overrides | {"engine.speculative.num_tokens": 3})
    assert verifying.seconds - plain.seconds == pytest.approx(2 * 3 * 100e-6, rel=1e-9)


def test_resolved_experiment_can_be_asked_too():
    experiment = load_experiment(LINEAR)
    assert simulator.predict(experiment, [5]) == simulator.predict(LINEAR, [5])
    with pytest.raises(ValueError, match="overrides apply to a file"):
        simulator.predict(experiment, [5], overrides={"seed": 3})


def test_a_pool_is_asked_by_its_name():
    # 6000 + 10 + 0.05 x 30 = 6011.5 us; the other pool, 4000 us more
    pools = {"pools": [{"name": "one"}, {"name": "two", "latency": {"base_us": 10_000.0}}]}
    one, two = (simulator.predict(LINEAR, decode=[30], pool=name, overrides=pools) for name in ("one", "two"))
    assert (one.seconds, two.seconds) == (pytest.approx(6011.5e-6), pytest.approx(10_011.5e-6))
    with pytest.raises(InputErrors, match=r'pools: 2 pools, .* --pool NAME, with the name "one" or "two"'):
        simulator.predict(LINEAR, decode=[30], overrides=pools)
    with pytest.raises(InputErrors, match=r'there is no pool "tow"; did you mean two'):
        simulator.predict(LINEAR, decode=[30], pool="tow", overrides=pools)


def test_the_command_takes_the_name_of_a_pool(capsys):
    pools = "pools=[{name = 'one'}, {name = 'two', latency = {base_us = 10000.0}}]"
    assert cli.main(["predict", LINEAR, "--set", pools, "--pool", "two", "--decode", "30"]) == 0
    assert capsys.readouterr().out.startswith("linear, pool two, linear\n")


def test_what_is_wrong_with_the_deployment_names_the_file():
    with pytest.raises(InputErrors, match=r"quickstart\.toml: engine\.num_gpu_blocks"):
        simulator.predict(QUICKSTART, [5], overrides={"model.name": "llama-3.1-405b"})


@pytest.mark.parametrize(("text", "chunks"), [
    ("", []), ("512", [(512, 0)]), ("512,2x2048", [(512, 0), (2048, 0), (2048, 0)]),
    (" 3x8+1024 , 1", [(8, 1024)] * 3 + [(1, 0)])])
def test_chunks_are_read(text, chunks):
    assert read_chunks(text) == chunks


def test_contexts_are_read():
    assert read_contexts("2x1024,7") == [1024, 1024, 7]


@pytest.mark.parametrize("text", ["0", "a", "3x", "x3", "-1", "0x5", "5+3", "2097153x1", "99999999999", "1.5", "٣"])
def test_what_is_no_context_is_refused(text):
    with pytest.raises(InputErrors, match=r"--decode: expected tokens >= 1 or COUNTxTOKENS, found"):
        read_contexts(text)


def test_the_table_shows_operators_with_their_share(capsys):
    assert cli.main(["predict", QUICKSTART, "--prefill", "512,2048", "--decode", "64x1024"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["quickstart, roofline",
                         "2 prompt chunks, 2,560 tokens; 64 decoding sequences, 65,536 tokens of context"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[4:lines.index("", 4)]}
    assert {"dense", "decode_attention", "accelerator", "iteration"} <= set(rows)
    assert rows["accelerator"][1] == "100.0%"
    shares = [float(row[1].rstrip("%")) for name, row in rows.items() if name not in ("accelerator", "iteration")]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert rows["dense"][4:] == ["FLOPs", "(1)"] and rows["decode_attention"][4] == "bytes"
    assert "(1) roofline by laws, products bfloat16, h100_sxm" in lines
    assert max(map(len, lines)) <= 80


def test_bounds_are_flops_over_the_peak_and_bytes_over_the_bandwidth():
    # Llama-3.1-8B: 6,979,321,856 weights in 32 layers of projections and MLPs; an H100 of 989.4
    # TFLOP/s and 3.35 TB/s. One token reads all weights; 64 queries over 1024 tokens read their keys and values.
    one = simulator.predict(QUICKSTART, decode=[1024] * 64).bounds
    assert one["dense"].by == "bytes" and one["dense"].bytes_s == pytest.approx(6_979_321_856 * 2 / 3.35e12, rel=1e-3)
    assert one["dense"].flops_s == pytest.approx(6_979_321_856 * 2 * 64 / 989.4e12, rel=1e-3)
    assert one["decode_attention"].seconds == pytest.approx(64 * 1024 * 131_072 / 3.35e12, rel=1e-3)
    assert "collectives" in one and one["collectives"].seconds == 0.0


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite"])
@pytest.mark.parametrize("card", ["h100-sxm-80gb", "l40s", "mi300x"])
def test_no_operator_is_faster_than_its_bound(model, card):
    overrides = {"model.name": model, "hardware.name": card, "topology.tensor_parallel": 2,
                 "engine.max_model_len": 9000}
    for prefill, decode in (([512], [1024] * 64), ([], [8000]), ([4096], []), ([1], [])):
        found = simulator.predict(QUICKSTART, prefill, decode, overrides=overrides)
        assert {name: (bound.seconds, found.breakdown[name]) for name, bound in found.bounds.items()
                if bound.seconds > found.breakdown[name] * 1.0001} == {}


def test_a_backend_without_a_model_has_no_bounds():
    found = simulator.predict(LINEAR, decode=[30])
    assert (found.bounds, found.sources) == ({}, {})


def test_shares_that_the_file_gives_have_no_source():
    found = simulator.predict(QUICKSTART, decode=[30], overrides={"latency.mfu_prefill": 0.5})
    assert found.sources == {} and found.bounds["dense"].seconds < found.breakdown["dense"]


def test_faults_come_at_once_with_status_2(capsys):
    assert cli.main(["predict", LINEAR, "--prefill", "0,a", "--decode", "b"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert cli.main(["predict", LINEAR]) == 2
    assert "give --prefill, --decode or both" in capsys.readouterr().err


@pytest.mark.parametrize(("batch", "why"), [
    ({"prefill": [(4000, 5000)]}, "a sequence has 9,000 tokens, max_model_len is 8,192"),
    ({"decode": [9000]}, "a sequence has 9,000 tokens, max_model_len is 8,192"),
    ({"decode": [10] * 300}, "there are 300 sequences, 256 run at once at most"),
    ({"prefill": [3000], "decode": [10] * 10}, "there are 3,010 tokens to compute, an iteration takes 2,048 at most"),
    ({"decode": [1600] * 20}, "it takes 2,000 KV blocks if no prefix is shared, there are 999")])
def test_a_batch_that_the_engine_never_forms_is_told(batch, why):
    limits = {"engine.max_num_seqs": 256, "engine.max_num_batched_tokens": 2048, "engine.max_model_len": 8192,
              "engine.num_gpu_blocks": 1000, "engine.block_size": 16}

    assert f"vllm never forms this batch: {why}" in simulator.predict(LINEAR, overrides=limits, **batch).warnings


def test_a_batch_that_fills_the_engine_is_no_fault():
    limits = {"engine.max_num_seqs": 4, "engine.max_num_batched_tokens": 2048, "engine.max_model_len": 8192,
              "engine.num_gpu_blocks": 1000, "engine.block_size": 16}
    prediction = simulator.predict(LINEAR, [(2045, 6147)], [2500] * 3, overrides=limits)      # 512 + 3 x 157 blocks

    assert not any("never forms" in note for note in prediction.warnings)
