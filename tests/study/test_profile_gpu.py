"""`profile-gpu`: the processor measured with PyTorch, and read by `operators`; refusals."""
import argparse
import csv
import json
import sys
from types import ModuleType

import pytest

from simulator.errors import InputErrors, MissingExtra
from simulator.latency.operators.model import Operators
from simulator.profiling.journal import Journal
from simulator.profiling.plan import Point
from simulator.study import profile_gpu_command
from support.small_models import DENSE, MIXTURE, deploy

TINY = """num_layers = 2
hidden_size = 64
vocab_size = 1024
max_position_embeddings = 128
dtype = "bfloat16"

[attention]
kind = "multi_head"
num_heads = 4
num_kv_heads = 2
head_dim = 16

[mlp]
intermediate_size = 128

[published]
parameters = 1
kind = "rounded"
includes = ["vision"]
"""


def run(folder, *words):
    model = folder / "tiny.toml"
    model.write_text(TINY)
    parser = argparse.ArgumentParser()
    profile_gpu_command.add_arguments(parser)
    return profile_gpu_command.run(parser.parse_args([str(model), "--out", str(folder / "profile"), *words]))


def test_without_pytorch_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtra, match=r"pip install 'simulator\[gpu\]'"):
        run(tmp_path)


def test_ranks_and_kernels_that_cannot_be_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))

    with pytest.raises(InputErrors, match=r"--ranks: expected integers >= 2, found '1'"):
        run(tmp_path, "--ranks", "2,1")
    with pytest.raises(InputErrors, match="--kernels: vllm: vLLM is not installed; --kernels torch"):
        run(tmp_path, "--kernels", "vllm", "--device", "cpu")


def test_what_the_host_takes_is_by_launch_graph_and_kernel(tmp_path):
    with Journal(tmp_path) as journal:
        assert profile_gpu_command.host_us(journal) == {}
        for operation, count, latency_ms in (("launch", 1, 0.004), ("graph_replay", 1, 0.01),
                                             ("graph_replay", 512, 0.521)):
            journal.add(Point("host", (operation, count)), kernel_source="torch", timing="perf_counter",
                        latency_ms=latency_ms, spread_frac=0, repeats=5, sm_mhz="")

        # (521 - 10) us over 511 kernels more
        assert profile_gpu_command.host_us(journal) == {"launch": 4.0, "graph_replay": 10.0, "graph_kernel": 1.0}


def test_unknown_tables_are_refused(tmp_path):
    with pytest.raises(InputErrors, match=r'--tables: .*found "gem".*gemm'):
        run(tmp_path, "--tables", "gem")


@pytest.mark.slow
def test_a_profile_of_the_processor_is_read_by_operators(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")

    assert run(tmp_path, "--quick", "--device", "cpu") == 0

    folder = tmp_path / "profile"
    chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"), missing="error")
    model = Operators(chosen, deploy(DENSE))
    assert {model.origins[name] for name in ("qkv", "down", "lm_head", "norms", "rope_kv_write", "activation",
                                             "embedding")} == {"measured"}
    assert model.predict(decode=[16] * 4) > 0
    rows = list(csv.DictReader((folder / "gemm_perf.csv").read_text().splitlines()))
    assert {(row["kernel_source"], row["timing"]) for row in rows} == {("torch.nn.functional.linear", "perf_counter")}
    [one] = [row for row in rows if (row["m"], row["n"], row["k"]) == ("64", "256", "64")]
    times = model.tables.tokens_ns["up_gate"]
    assert times[64] >= 2 * float(one["latency_ms"]) * 1e6 * 0.999      # 2 layers; raised where a cache was faster


@pytest.mark.slow
def test_a_profile_goes_on_and_refuses_another_subject(tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")
    words = ("--quick", "--device", "cpu", "--tables", "gemm")
    run(tmp_path, *words)
    file = tmp_path / "profile" / "gemm_perf.csv"
    before = file.read_text()

    with pytest.raises(InputErrors, match="--resume goes on with it"):
        run(tmp_path, *words)
    with pytest.raises(InputErrors, match="tensor_parallel: this profile has 1, --resume finds 2"):
        run(tmp_path, *words, "--resume", "--tensor-parallel", "2")
    run(tmp_path, *words, "--resume")

    assert file.read_text() == before
    assert len(json.loads((tmp_path / "profile" / "provenance.json").read_text())["sessions"]) == 2


@pytest.mark.slow
def test_experts_and_norms_of_heads_are_measured():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")
    from simulator.profiling.plan import Plan, Point
    from simulator.profiling.torch_kernels import TorchKernels
    plan = Plan([], {("rope_kv_write", 320): (4, 2, 16), ("qk_norm", 96): (4, 2, 16)}, {})
    kernels = TorchKernels(torch, "cpu", plan)
    moe = MIXTURE.moe

    for point in (Point("moe", ("bfloat16", 4, 64, moe.intermediate_size, 2, 8, 1, 2, "balanced")),
                  Point("small", ("rope_kv_write", 320, 4)), Point("small", ("qk_norm", 96, 4))):
        _, make = kernels.make(point)
        call, num_bytes = make()
        call()
        assert 0 < num_bytes <= 4 * kernels.needed_bytes(point)
