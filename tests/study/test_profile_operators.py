"""`profile-operators`: profiles that `forest` reads."""
import argparse
import csv

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.latency.forest.model import Forest
from simulator.latency.roofline.model import Roofline
from simulator.study import profile_operators
from support.forest_profiles import parameters_for

LLAMA = ["llama-3.1-8b", "h100-sxm-80gb", "--node", "dgx-h100", "--tensor-parallel", "2"]
SMALL = ["--tokens", "1,64,4096", "--batch-sizes", "1,32", "--contexts", "64,1024"]
LAYERS, KERNEL_US, ATTENTION_US = 32, 3.0, 12.1     # of the model; KERNEL_LATENCY_US; of the H100


def run(folder, *words):
    parser = argparse.ArgumentParser()
    profile_operators.add_arguments(parser)
    return profile_operators.run(parser.parse_args([*words, *SMALL, "--out", str(folder)]))


def deployment(**ways):
    return Deployment(model=load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"),
                      node=load_node("dgx-h100"), parallelism=Parallelism(**ways))


def row(path, **point):
    """Return the microseconds of all layers, by operator, in the one row of a profile with these values."""
    with open(path, encoding="utf-8") as file:
        [found] = [each for each in csv.DictReader(file)
                   if all(each[key] == str(value) for key, value in point.items())]
    return {key.split(".")[1]: LAYERS * 1e3 * float(value) for key, value in found.items()
            if key.startswith("time_stats.") and value}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """Write the profiles of LLAMA; return their folder and the roofline of the same deployment."""
    folder = tmp_path_factory.mktemp("profiles")
    run(folder, *LLAMA)
    return folder, Roofline(Roofline.Parameters(efficiency="shares"), deployment(tensor_parallel=2))


@pytest.mark.parametrize("tokens", [1, 4096])       # all products wait for weights, or all for arithmetic
def test_operators_add_up_to_the_layers_of_the_roofline(profiles, tokens):
    folder, roofline = profiles
    took_us = row(folder / "mlp.csv", num_tokens=tokens)
    products = [us for name, us in took_us.items() if name.endswith("_proj")]
    others = [us for name, us in took_us.items() if not name.endswith("_proj")]
    saved_us = row(folder / "attention.csv", prefill_chunk_size=tokens, kv_cache_size=0)["attn_kv_cache_save"]

    expected = roofline.breakdown(prefill=[(tokens, 0)])

    # 4 products and 4 other kernels, a launch each; weights of norms, 1e-4 of all, are left out
    assert (len(products), len(others)) == (4, 4)
    assert sum(products) - 4 * LAYERS * KERNEL_US == pytest.approx(1e6 * expected["dense"], rel=2e-4)
    assert sum(others) + saved_us - 4 * LAYERS * KERNEL_US == pytest.approx(1e6 * expected["activations"], rel=1e-4)


def test_attention_is_that_of_the_roofline(profiles):
    folder, roofline = profiles
    prefill = row(folder / "attention.csv", prefill_chunk_size=4096, kv_cache_size=1024)["attn_prefill"]
    decode = row(folder / "attention.csv", prefill_chunk_size=0, batch_size=32, kv_cache_size=1024)["attn_decode"]

    expected = roofline.breakdown(prefill=[(4096, 1024)], decode=[1024] * 32)

    assert prefill - LAYERS * ATTENTION_US == pytest.approx(1e6 * expected["prefill_attention"], rel=1e-5)
    assert decode - LAYERS * ATTENTION_US == pytest.approx(1e6 * expected["decode_attention"], rel=1e-5)


def test_all_reduces_are_those_of_the_roofline(profiles):
    folder, roofline = profiles
    took_us = row(folder / "all_reduce.csv", size=4096 * 4096 * 2)["all_reduce"]

    # two a layer, 5 us each beside the bytes
    expected_us = 1e6 * roofline.breakdown(prefill=[(4096, 0)])["collectives"] / 2 + LAYERS * 5.0
    assert took_us == pytest.approx(expected_us, rel=1e-5)


def test_forest_learns_from_them_and_says_that_they_are_synthetic(profiles, tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    folder, roofline = profiles
    parameters = parameters_for(folder, cache_directory=str(tmp_path), all_reduce_file=str(folder / "all_reduce.csv"),
                                nccl_cpu_launch_overhead_us=0.0, num_estimators=[100], kv_granularity_tokens=64)

    for _ in range(2):      # trained, then read
        forest = Forest(parameters, deployment(tensor_parallel=2))

        assert forest.warnings() == ["forest: profiles are synthetic: roofline, h100-sxm-80gb, bfloat16"]
        # Means over bootstraps of three points: of their order, no more.
        assert 0.5 < forest.predict(decode=[1024] * 32) / roofline.predict(decode=[1024] * 32) < 3
    assert forest.predict(decode=[1024]) < forest.predict(prefill=[(4096, 0)])


def test_stages_send_to_one_another(tmp_path, capsys):
    run(tmp_path, *LLAMA, "--pipeline-parallel", "2")

    names = ("mlp.csv", "attention.csv", "all_reduce.csv", "send_recv.csv")
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in names]
    text = (tmp_path / "send_recv.csv").read_text().splitlines()
    # 64 tokens x 4096 x 2 bytes at 0.6 of 450 GB/s, and 5 us; in milliseconds
    assert text[2].split(",")[:6] == [f"{64 * 8192 / 270e6 + 5e-3:.6g}", "2", "524288", "send_recv", "2", "8"]


def test_keys_of_the_roofline_can_be_set(tmp_path):
    run(tmp_path, *LLAMA, "--set", "kernel_latency_us=50.0")

    took_us = row(tmp_path / "mlp.csv", num_tokens=1)
    assert took_us["mlp_act"] == pytest.approx(LAYERS * 50.0, rel=1e-3)


@pytest.mark.parametrize(("words", "expected"), [
    (["lama-3.1-8b", "h100-sxm-80gb"], 'no model "lama-3.1-8b" in models/; did you mean llama-3.1-8b?'),
    (["gpt-oss-20b", "h100-sxm-80gb"], '"forest" has no profiles for this: gpt-oss-20b has experts'),
    (["llama-3.1-8b", "h100-sxm-80gb", "--tensor-parallel", "3"], "num_heads = 32 is not divisible by"),
    (["llama-3.1-8b", "h100-sxm-80gb", "--set", "kernel_us=1"],
     "--set: kernel_us: unknown key; did you mean kernel_latency_us?"),
])
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, words, expected):
    with pytest.raises(InputErrors) as caught:
        run(tmp_path / "out", *words)

    assert expected in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_profiles_that_are_there_stay_unless_they_are_to_be_replaced(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "send_recv.csv").write_text("mine")

    with pytest.raises(InputErrors, match=r"out: tables exist; --overwrite replaces them, --out chooses another"):
        run(folder, *LLAMA)
    assert (folder / "send_recv.csv").read_text() == "mine"
    run(folder, *LLAMA, "--overwrite")

    assert sorted(path.name for path in folder.iterdir()) == ["all_reduce.csv", "attention.csv", "mlp.csv"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(InputErrors, match=r"holds notes\.txt, which no `profile-operators` writes, and is left alone"):
        run(tmp_path, *LLAMA, "--overwrite")

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
