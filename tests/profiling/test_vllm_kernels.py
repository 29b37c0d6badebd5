"""vLLM's kernels are measured where they are there, PyTorch's where not; vLLM is a stand-in with its signatures."""
import argparse
import csv
import json
import sys
from collections import Counter

import pytest

from simulator.errors import InputErrors
from simulator.latency.operators.model import Operators
from simulator.profiling import plan
from simulator.profiling.plan import Plan, Point
from simulator.profiling.session import NotMeasured
from simulator.profiling.torch_kernels import TorchKernels
from simulator.profiling.vllm_kernels import VllmKernels, find_vllm
from simulator.study import profile_gpu_command
from study.test_profile_gpu import TINY
from support import vllm_stand_in
from support.small_models import DENSE, deploy

SHAPES = {("norms", 256): (64,), ("qk_norm", 96): (4, 2, 16), ("activation", 384): (128, True),
          ("activation", 256): (128, False), ("rope_kv_write", 320): (4, 2, 16)}
DECODE = (3, 1, 4, 2, 16, "bfloat16", "bfloat16", 39, 0)
PROMPT = (2, 24, 4, 2, 16, "bfloat16", "bfloat16", 0, 0)
EXPERTS = ("bfloat16", 5, 64, 32, 2, 8, 1, 1, "balanced")


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")


@pytest.fixture
def kernels(torch, monkeypatch):
    """Return a function that makes kernels of a stand-in: they, and the list of its calls."""
    def made(**given):
        calls = vllm_stand_in.install(monkeypatch, torch, **given)
        version, reason = find_vllm()
        assert (version, reason) == (vllm_stand_in.VERSION, "")
        return VllmKernels(torch, "cpu", version, TorchKernels(torch, "cpu", Plan([], SHAPES, {}))), calls
    return made


def with_(cells, place, value):
    return (*cells[:place], value, *cells[place + 1:])


@pytest.mark.slow
@pytest.mark.parametrize(("point", "source", "called"), [
    (Point("small", ("norms", 256, 5)), "fused_add_rms_norm", {"fused_add_rms_norm": 1, "rms_norm": 1}),
    (Point("small", ("qk_norm", 96, 5)), "rms_norm", {"rms_norm": 2}),
    (Point("small", ("activation", 384, 5)), "silu_and_mul", {}),
    (Point("small", ("rope_kv_write", 320, 19)), "rotary_embedding",
     {"rotary_embedding": 1, "reshape_and_cache_flash": 1}),
    (Point("gemm", ("fp8", 5, 32, 64)), "cutlass_scaled_mm", {"cutlass_scaled_mm": 1}),
    (Point("scale_matrix", (5, 64)), "scaled_fp8_quant", {"scaled_fp8_quant": 1}),
    (Point("generation_attention", DECODE), "flash_attn_varlen_func fa3", {"flash_attn_varlen_func 3 (-1, -1)": 1}),
    (Point("generation_attention", with_(DECODE, 8, 10)), "flash_attn_varlen_func fa3",
     {"flash_attn_varlen_func 3 (9, 0)": 1}),
    (Point("generation_attention", with_(DECODE, 6, "fp8")), "flash_attn_varlen_func fa3",
     {"flash_attn_varlen_func 3 (-1, -1)": 1}),
    (Point("context_attention", PROMPT), "flash_attn_varlen_func fa3", {"flash_attn_varlen_func 3 (-1, -1)": 1}),
    (Point("moe", EXPERTS), "fused_experts triton", {"fused_experts bfloat16": 1}),
    (Point("moe", with_(EXPERTS, 7, 4)), "fused_experts triton", {"fused_experts bfloat16": 1}),
    (Point("moe", with_(EXPERTS, 0, "fp8")), "fused_experts triton", {"fused_experts float8_e4m3fn": 1})],
    ids=lambda value: str(value)[:60] if isinstance(value, Point) else "")
def test_each_operator_is_vllms(kernels, point, source, called):
    kernels, calls = kernels()

    assert kernels.refuses(point) == ""
    name, make = kernels.make(point)
    call, num_bytes = make()
    calls.clear()
    call()

    assert name == f"vllm {vllm_stand_in.VERSION} {source}"
    assert Counter(calls) == called
    assert 0 < num_bytes <= 4 * kernels.needed_bytes(point)
    assert kernels.lacking == {}


@pytest.mark.slow
def test_products_of_bfloat16_and_activations_without_a_gate_are_pytorchs(kernels):
    kernels, _ = kernels()

    assert kernels.make(Point("gemm", ("bfloat16", 4, 32, 64)))[0] == "torch.nn.functional.linear"
    assert kernels.make(Point("small", ("activation", 256, 4)))[0] == "torch_activation"
    assert kernels.lacking == {}


@pytest.mark.slow
def test_what_this_vllm_lacks_is_pytorchs_and_named(kernels):
    kernels, _ = kernels(without=("scaled_fp8_quant", "reshape_and_cache_flash", "fused_experts"))

    assert kernels.make(Point("scale_matrix", (5, 64)))[0] == "torch_per_token_fp8"
    assert kernels.make(Point("small", ("rope_kv_write", 320, 4)))[0] == "torch_rope_kv_write"
    assert kernels.refuses(Point("moe", with_(EXPERTS, 0, "fp8"))) == "PyTorch has no experts of fp8"
    assert set(kernels.lacking) == {"scaled_fp8_quant", "rotary_embedding", "fused_experts"}
    assert "reshape_and_cache_flash" in kernels.lacking["rotary_embedding"]


@pytest.mark.slow
def test_another_signature_or_shape_is_pytorchs_and_named(kernels, monkeypatch):
    kernels, _ = kernels(fa_version=2)
    monkeypatch.setattr(sys.modules["vllm._custom_ops"], "fused_add_rms_norm", lambda input, residual: None)

    assert kernels.make(Point("small", ("norms", 256, 4)))[0] == "torch_norms"
    assert "positional arguments" in kernels.lacking["fused_add_rms_norm"]
    with pytest.raises(NotMeasured, match="reads no fp8 cache"):     # FlashAttention 2 does not, nor PyTorch
        kernels.make(Point("generation_attention", with_(DECODE, 6, "fp8")))
    assert "FlashAttention 2 reads no fp8 cache" in kernels.lacking["flash_attn_varlen_func"]
    assert kernels.make(Point("generation_attention", DECODE))[0].endswith("flash_attn_varlen_func fa2")


@pytest.mark.slow
def test_older_flags_of_fp8_experts_are_known(kernels, torch, monkeypatch):
    seen = []
    kernels, _ = kernels()

    def fused_experts(hidden_states, w1, w2, topk_weights, topk_ids, global_num_experts=-1, expert_map=None,
                      use_fp8_w8a8=False, w1_scale=None, w2_scale=None):
        seen.append((use_fp8_w8a8, w1_scale.shape, w2_scale.shape))
    monkeypatch.setattr(sys.modules[f"{vllm_stand_in.FUSED_MOE}.fused_moe"], "fused_experts", fused_experts)

    kernels.make(Point("moe", with_(EXPERTS, 0, "fp8")))

    assert seen == [(True, (8,), (8,))]


def test_without_vllm_the_reason_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)

    assert find_vllm() == ("", "vLLM is not installed")


def test_a_vllm_that_does_not_import_is_told_of(tmp_path, monkeypatch):
    (tmp_path / "vllm.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)

    assert find_vllm() == ("", "vLLM does not import: libcudart.so.13: cannot open shared object file")


@pytest.mark.slow
def test_a_profile_of_vllms_kernels_is_read_by_operators(torch, tmp_path, monkeypatch, capsys):
    vllm_stand_in.install(monkeypatch, torch, without=("rotary_embedding",))
    monkeypatch.setattr(plan, "QUICK", plan.QUICK._replace(tokens=(1, 4, 64), batches=(1, 4), contexts=(16, 128)))
    (tmp_path / "tiny.toml").write_text(TINY)
    parser = argparse.ArgumentParser()
    profile_gpu_command.add_arguments(parser)
    words = [str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "profile"), "--quick", "--device", "cpu",
             "--tables", "small,generation_attention"]

    assert profile_gpu_command.run(parser.parse_args(words)) == 0

    rows = list(csv.DictReader((tmp_path / "profile" / "small_perf.csv").read_text().splitlines()))
    sources = {row["operator"]: row["kernel_source"] for row in rows}
    assert sources["norms"] == f"vllm {vllm_stand_in.VERSION} fused_add_rms_norm"
    assert (sources["embedding"], sources["rope_kv_write"]) == ("torch_embedding", "torch_rope_kv_write")
    provenance = json.loads((tmp_path / "profile" / "provenance.json").read_text())
    assert provenance["machine"]["vllm"] == vllm_stand_in.VERSION
    assert provenance["sessions"][0]["not_of_vllm"] == {
        "rotary_embedding": f"vLLM {vllm_stand_in.VERSION} has none where it is looked for"}
    assert "measured by PyTorch: rotary_embedding: vLLM" in capsys.readouterr().out
    model = Operators(Operators.Parameters(path=str(tmp_path / "profile"), cache_directory=str(tmp_path / "cache")),
                      deploy(DENSE))
    assert {model.origins[name] for name in ("norms", "activation", "rope_kv_write")} == {"measured"}
    with pytest.raises(InputErrors, match="kernels: this profile has"):
        profile_gpu_command.run(parser.parse_args([*words, "--resume", "--kernels", "torch"]))
