"""`profile-layers`: tables that `aicb` reads."""
import argparse

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.latency.aicb.model import Aicb
from simulator.study import profile_layers

SMALL = ["--batch-sizes", "1,4", "--lengths", "128,16,1024"]


def run(folder, *words):
    parser = argparse.ArgumentParser()
    profile_layers.add_arguments(parser)
    return profile_layers.run(parser.parse_args([*words, "--out", str(folder)]))


def test_tables_of_any_model_and_hardware_are_read_back(tmp_path, capsys):
    assert run(tmp_path, "llama-3.1-8b", "h100-sxm-80gb", *SMALL) == 0

    assert capsys.readouterr().out == f"9 tables in {tmp_path}\n"
    deployment = Deployment(model=load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"))
    model = Aicb(Aicb.Parameters(tables=str(tmp_path)), deployment)
    # weights of 7 GB of layers at 3.35 TB/s take 4 to 5 ms
    assert 0.003 < model.predict(decode=[129]) < 0.008
    assert model.warnings() == ["aicb: tables are synthetic: roofline, h100-sxm-80gb, bfloat16"]


def test_tables_of_a_spread_model(tmp_path):
    ways = {"tensor_parallel": 8, "data_parallel": 2, "expert_parallel": 16}
    options = [word for name, count in ways.items() for word in (f"--{name.replace('_', '-')}", str(count))]

    run(tmp_path, "deepseek-v3", "h20-96gb", "--node", "hgx-h20", "--table-model", "DeepSeek-671B", *options, *SMALL)

    assert (tmp_path / "vidur-DeepSeek-671B-world_size16-tp8-pp1-ep16-bs4-seq128-decode.csv").exists()
    deployment = Deployment(model=load_model("deepseek-v3"), accelerator=load_accelerator("h20-96gb"),
                            parallelism=Parallelism(**ways))
    found = Aicb(Aicb.Parameters(tables=str(tmp_path)), deployment).breakdown(decode=[129] * 8)
    # 58 layers x 4 tokens x 8 x 7168 / 8 x (2 + 1.03125) bytes at 200 bytes/ns
    assert found["expert_exchange"] == pytest.approx(58 * 4 * 7168 * 3.03125 / 200e9, rel=1e-6)


def test_two_runs_write_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        run(tmp_path / folder, "qwen3-next-80b-a3b", "h20-96gb", *SMALL)

    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_keys_of_the_backend_can_be_set(tmp_path):
    for folder, latency in (("a", "0.0"), ("b", "50.0")):
        run(tmp_path / folder, "llama-3.1-8b", "h100-sxm-80gb", "--set", f"kernel_latency_us={latency}", *SMALL)

    name = "vidur-llama-3.1-8b-world_size1-tp1-pp1-ep1-bs1-seq16-decode.csv"
    attention = [int((tmp_path / folder / name).read_text().splitlines()[1].split("\t")[2]) for folder in "ab"]
    assert attention[1] - attention[0] == pytest.approx(4 * 50_000, abs=1)      # four kernels of a token mixer


@pytest.mark.parametrize(("words", "expected"), [
    (["lama-3.1-8b", "h100-sxm-80gb"], 'no model "lama-3.1-8b" in models/; did you mean llama-3.1-8b?'),
    (["llama-3.1-8b", "h100"], 'no hardware "h100" in hardware/'),
    (["llama-3.1-8b", "h100-sxm-80gb", "--tensor-parallel", "0"],
     "--tensor-parallel: expected an integer >= 1, found 0"),
    (["llama-3.1-8b", "h100-sxm-80gb", "--tensor-parallel", "3"], "num_heads = 32 is not divisible by"),
    (["llama-3.1-8b", "h100-sxm-80gb", "--backend", "linear"],
     "--backend: linear does not say what its times are made of"),
    (["llama-3.1-8b", "h100-sxm-80gb", "--set", "kernel_us=1"],
     "--set: kernel_us: unknown key; did you mean kernel_latency_us?"),
    (["llama-3.1-8b", "h100-sxm-80gb", "--set", "kernel_latency_us"], "--set kernel_latency_us: expected KEY=VALUE"),
])
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, words, expected):
    with pytest.raises(InputErrors) as caught:
        run(tmp_path / "out", *words, *SMALL)

    assert expected in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_tables_go_into_a_new_or_empty_folder_unless_they_are_to_be_replaced(tmp_path):
    words = ["llama-3.1-8b", "h100-sxm-80gb", *SMALL]
    run(tmp_path / "out", *words)
    before = sorted(path.name for path in (tmp_path / "out").iterdir())

    with pytest.raises(InputErrors, match=r"out: tables exist; --overwrite replaces them, --out chooses another"):
        run(tmp_path / "out", *words)
    run(tmp_path / "out", *words, "--table-model", "other", "--overwrite")

    after = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(after) == len(before) == 9
    assert all("vidur-other-" in name for name in after)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.csv").write_text("mine")

    with pytest.raises(InputErrors, match=r"holds mine\.csv, which no `profile-layers` writes, and is left alone"):
        run(tmp_path, "llama-3.1-8b", "h100-sxm-80gb", "--overwrite", *SMALL)

    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]
