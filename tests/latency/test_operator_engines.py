"""Kernels that an engine of some version runs: norms split and fused, fixed scales, versions of tables; by hand."""
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.assembly.kernel_engine import with_engine
from simulator.domain.model_spec import Quantization
from simulator.errors import InputErrors
from simulator.latency.operators.curves import Curve
from simulator.latency.operators.model import Operators
from simulator.latency.operators.outliers import without_outliers
from simulator.latency.operators.versions import of_versions
from support.operator_profiles import ALL_REDUCE, all_reduce_rows, gemm_rows, moe_rows, nccl_rows, write_tables
from support.small_models import ACCELERATOR, DENSE, MIXTURE, deploy

FULL = replace(DENSE, architecture="MiniMaxM2ForCausalLM", attention=replace(DENSE.attention, qk_norm="full"))
OLMO, COHERE = (replace(FULL, architecture=name) for name in ("Olmo2ForCausalLM", "CohereForCausalLM"))
BLACKWELL = replace(ACCELERATOR, architecture="Blackwell")
LAYERS, TOKENS = 2, 8


@pytest.fixture
def terms(tmp_path):
    """Return the nanoseconds of each operator of decodes on tables in a folder."""
    def of(folder, model=DENSE, accelerator=ACCELERATOR, tokens=TOKENS, ways=None, **parameters):
        chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"), **parameters)
        found = Operators(chosen, deploy(model, accelerator=accelerator, **(ways or {"tensor_parallel": 2})))
        return {name: seconds * 1e9 for name, seconds in found.breakdown(decode=[4] * tokens).items()}
    return of


# ---- norms over all heads

def test_sums_of_squares_are_added_over_the_ranks(terms, tmp_path):
    folder = write_tables(tmp_path / "t")
    # 8 tokens of (4 + 2) heads of 16, halved, read and written in 2 bytes at 800 bytes a ns
    moved = TOKENS * 2 * 48 * 2 / 800
    # the smallest message measured, 128 bytes: 1 us and 64 ns; a kernel takes 3 us
    reduced = 1064

    def norms(**given):
        return terms(folder, FULL, **given)["qk_norm"] / LAYERS

    assert norms() == pytest.approx(reduced + moved)
    assert norms(engine_version="0.18.0") == pytest.approx(reduced + moved + 4 * 3000)
    assert norms(engine_version="0.14.1") == pytest.approx(2 * reduced + moved + 4 * 3000)
    assert norms(framework="sglang") == pytest.approx(reduced + moved + 2 * 3000)
    assert norms(without=("split_norms",)) == pytest.approx(2 * 3000 + moved)
    # beyond 2,048 tokens there is no such kernel: 20,000 bytes of sums
    many = 2500
    assert norms(tokens=many) == pytest.approx(1000 + many * 8 / 2 + many * 2 * 48 * 2 / 800 + 2 * 3000, rel=1e-6)


def test_one_rank_has_all_heads(terms, tmp_path):
    found = terms(write_tables(tmp_path / "t"), FULL, ways={"tensor_parallel": 1})

    assert found["qk_norm"] == pytest.approx(LAYERS * (2 * 3000 + TOKENS * 2 * 96 * 2 / 800))


def test_queries_and_keys_are_gathered_where_a_model_norms_them_whole(terms, tmp_path):
    found = terms(write_tables(tmp_path / "t", nccl=nccl_rows()), OLMO)

    # gathers of 64 and 32 elements a token at 2 us and an ns an element; two norms of all 96 elements
    gathers = 2 * 2000 + TOKENS * (64 + 32)
    assert found["qk_norm"] == pytest.approx(LAYERS * (gathers + 2 * 3000 + TOKENS * 2 * 96 * 2 / 800))


def test_heads_with_norms_of_their_own_are_split(terms, tmp_path):
    found = terms(write_tables(tmp_path / "t"), COHERE)

    assert found["qk_norm"] == pytest.approx(LAYERS * (2 * 3000 + TOKENS * 2 * 48 * 2 / 800))


# ---- norms in the all-reduce

def fused_tables(folder):
    """Write an all-reduce of TensorRT-LLM of 500 ns, beside vLLM's of 1 us and a ns an element."""
    write_tables(folder)
    (folder / "trtllm_allreduce_perf.csv").write_text("\n".join(
        [ALL_REDUCE.rpartition(",")[0], *(f"bfloat16,2,{size},0.0005" for size in (64, 1 << 26))]) + "\n")
    return folder


def test_blackwell_servers_norm_in_the_all_reduce(terms, tmp_path):
    folder = fused_tables(tmp_path / "t")
    apart, fused = terms(folder), terms(folder, accelerator=BLACKWELL)

    # two norms a layer and the last one, of 64 elements, in 4 passes of 2 bytes; the last one stands for the first
    assert apart["norms"] == pytest.approx((LAYERS * 2 + 1) * (3000 + TOKENS * 4 * 64 * 2 / 800))
    assert fused["norms"] == pytest.approx(apart["norms"] - LAYERS * 2 * 3000)
    assert apart["all_reduce"] == pytest.approx(LAYERS * 2 * (1000 + TOKENS * 64))
    assert fused["all_reduce"] == pytest.approx(LAYERS * 2 * 500)


@pytest.mark.parametrize("given", [
    {"engine_version": "0.15.1"}, {"without": ("fused_norms",)}, {"framework": "sglang"},
    {"engine_version": "0.20.0", "ways": {"tensor_parallel": 2, "pipeline_parallel": 2}}])
def test_other_engines_norm_by_themselves(terms, tmp_path, given):
    found = terms(fused_tables(tmp_path / "t"), accelerator=BLACKWELL, **given)

    assert found["all_reduce"] == pytest.approx(LAYERS * 2 * (1000 + TOKENS * 64))


def test_tensorrt_llm_norms_in_its_all_reduce_on_every_card(terms, tmp_path):
    folder = write_tables(tmp_path / "t", custom_allreduce=all_reduce_rows(elements=(64, 128, 1024)))
    apart, fused = terms(folder, framework="sglang"), terms(folder, framework="trtllm")

    assert fused["norms"] == pytest.approx(apart["norms"] - LAYERS * 2 * 3000)


# ---- scales

def test_checkpoints_of_tensorrt_llm_fix_the_scales(terms, tmp_path):
    fixed = replace(DENSE, quantization=Quantization(method="modelopt", weight_dtype="fp8"))
    found = replace(DENSE, quantization=Quantization(method="compressed-tensors", weight_dtype="fp8"))
    folder = write_tables(tmp_path / "t", gemm=gemm_rows() + gemm_rows("fp8"))
    (folder / "computescale_perf.csv").write_text("m,k,latency_ms\n1,64,0.0004\n64,64,0.0004\n")
    alone = {"tensor_parallel": 1}

    # the product takes 1 us and 8 x 128 / 10^6 us, 0.4 us of which find the scale
    assert terms(folder, found, framework="trtllm", ways=alone)["qkv"] == pytest.approx(LAYERS * 1001.024)
    assert terms(folder, fixed, framework="trtllm", ways=alone)["qkv"] == pytest.approx(LAYERS * 601.024)
    assert terms(folder, fixed, framework="vllm", ways=alone)["qkv"] == pytest.approx(LAYERS * 1001.024)
    kept = terms(folder, fixed, framework="trtllm", ways=alone, without=("fixed_scales",))
    assert kept["qkv"] == pytest.approx(LAYERS * 1001.024)


# ---- outliers

def grid():
    """Return products of (1000 + m) ns times the shape, of five by five shapes."""
    rows = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    return {(float(n), float(k)): Curve(rows, (1000 + rows) * (n * k) ** 0.25)
            for n in (64, 128, 256, 512, 1024) for k in (64, 128, 256, 512, 1024)}


def with_times(curves, site, index, factor):
    ns = curves[site].ns.copy()
    ns[index] *= factor
    return curves | {site: Curve(curves[site].sizes, ns)}


def test_points_far_above_their_neighbours_are_left_out():
    curves = with_times(with_times(grid(), (256.0, 256.0), 2, 1.4), (256.0, 512.0), 2, 1.6)

    found, count = without_outliers(curves)

    assert count == 2
    assert found[256.0, 256.0].sizes.tolist() == found[256.0, 512.0].sizes.tolist() == [1.0, 2.0, 8.0, 16.0]
    assert all(found[site] is curves[site] or found[site].ns.tolist() == curves[site].ns.tolist()
               for site in curves if site not in ((256.0, 256.0), (256.0, 512.0)))


def test_kernels_that_are_slow_at_a_size_are_kept():
    slow = grid()
    for site in slow:
        slow = with_times(slow, site, 2, 1.6)
    few = {site: curve for site, curve in grid().items() if site[0] <= 128}

    assert without_outliers(slow)[1] == 0
    assert without_outliers(with_times(grid(), (256.0, 256.0), 2, 1.2))[1] == 0
    assert without_outliers(with_times(few, (128.0, 256.0), 2, 1.6))[1] == 0     # no shapes on both sides
    assert without_outliers({}) == ({}, 0)


def test_outliers_are_told_and_can_be_kept(tmp_path):
    sites = [(n, k) for n in (64, 128, 256) for k in (64, 128, 256)]
    rows = [row.replace(",0.001", ",0.003", 1) if row.startswith("bfloat16,4,128,128,") else row
            for row in gemm_rows(sites=sites)]
    folder = write_tables(tmp_path / "t", gemm=rows)

    def notes(**given):
        chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "c"), **given)
        model = Operators(chosen, deploy())
        return [note for note in model.warnings() if "1 of 72 measured bfloat16 products" in note]

    assert len(notes()) == 1
    assert not notes(without=("outliers",))


# ---- experts

def test_a_mixture_measured_on_fewer_ranks_keeps_its_launches(terms, tmp_path):
    folder = write_tables(tmp_path / "t", moe=moe_rows(tokens=(1, 1024)))
    eight = terms(folder, replace(MIXTURE, attention=replace(MIXTURE.attention, num_heads=8, num_kv_heads=8)),
                  tokens=1, ways={"tensor_parallel": 8})

    # of 1,010 ns at one token 997.7 are no reading of 2 experts' 24,576 bytes: they stay, an eighth of the rest is left
    light = 2 * 3 * 64 * 32 * 2 / 1000
    assert eight["experts"] == pytest.approx(1010 - light + light / 8, rel=1e-3)


# ---- versions

def paths(*names):
    return [Path("/d/data/h100") / name for name in names]


FILES = {"gemm": paths("gemm/vllm/0.24.0/gemm_perf.parquet"),
         "moe": paths("moe/vllm/0.24.0/moe_perf.parquet", "moe/vllm/0.19.0/moe_perf.parquet"),
         "custom_allreduce": paths("comm/vllm/0.24.0/custom_allreduce_perf.parquet",
                                   "comm/vllm/0.19.0/custom_allreduce_perf.parquet")}


def test_versions_of_tables_are_chosen_together_or_by_table_or_family():
    assert of_versions(FILES, "newest") == (FILES, [])
    old, notes = of_versions(FILES, "0.19.0")
    assert [path.parent.name for table in old.values() for path in table] == ["0.24.0", "0.19.0", "0.19.0"]
    assert notes == ["table_version 0.19.0: not of gemm: the newest"]
    by_table, notes = of_versions(FILES, {"moe": "0.19.0"})
    assert by_table == FILES | {"moe": FILES["moe"][1:]} and not notes
    assert of_versions(FILES, {"comm": "0.19.0"})[0] == FILES | {"custom_allreduce": FILES["custom_allreduce"][1:]}


@pytest.mark.parametrize(("asked", "fault"), [
    ("0.20.0", 'table_version: "0.20.0" is in no folder of these tables; found 0.19.0, 0.24.0'),
    ({"gemm": "0.19.0"}, 'table_version.gemm: "0.19.0" is in no folder of these tables; found 0.24.0'),
    ({"mo": "0.19.0"}, "table_version.mo: no such table or family")])
def test_versions_that_no_table_has_are_refused(asked, fault):
    with pytest.raises(InputErrors) as raised:
        of_versions(FILES, asked)
    assert fault in str(raised.value)


def test_tables_without_versions_refuse_one(terms, tmp_path):
    with pytest.raises(InputErrors, match="found no versions"):
        terms(write_tables(tmp_path / "t"), table_version="0.19.0")


def test_a_version_is_a_number():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"engine_version": "newest"}, Operators.Parameters)


# ---- the engine's framework and version

@pytest.mark.parametrize(("scheduler", "version", "given", "framework", "engine_version"), [
    ("vllm", "0.32", {}, "vllm", "0.32"), ("sglang", None, {}, "sglang", None),
    ("tensorrt_llm", None, {}, "trtllm", None),
    ("blis", None, {}, "vllm", None), ("vllm", "0.32", {"framework": "sglang"}, "sglang", None),
    ("vllm", "0.32", {"engine_version": "0.18.0"}, "vllm", "0.18.0")])
def test_kernels_are_those_of_the_engine(scheduler, version, given, framework, engine_version):
    own = SimpleNamespace(vllm_version=version) if version else SimpleNamespace()
    pool = SimpleNamespace(engine=SimpleNamespace(scheduler=scheduler, parameters=own))

    found = with_engine(pool, Operators.Parameters(**given))

    assert (found.framework, found.engine_version) == (framework, engine_version)
    assert with_engine(pool, SimpleNamespace()) == SimpleNamespace()


def test_old_engines_multiply_experts_by_triton_on_blackwell(terms, tmp_path):
    kernels = (f"bfloat16,{t},64,32,2,8,1,1,balanced,{name},{ms}" for t in (1, 1024)
               for name, ms in (("vllm_fused_moe_triton", 0.009), ("vllm_flashinfer_trtllm", 0.005)))
    folder = write_tables(tmp_path / "t", moe=None)
    (folder / "moe_perf.csv").write_text("\n".join([
        "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,kernel_source,"
        "latency_ms", *kernels]) + "\n")
    alone = {"tensor_parallel": 1}

    def experts(**given):
        return terms(folder, MIXTURE, ways=alone, **given)["experts"]

    assert experts(accelerator=BLACKWELL) == pytest.approx(5000)
    assert experts(accelerator=BLACKWELL, engine_version="0.10") == pytest.approx(9000)
    assert experts(engine_version="0.10") == pytest.approx(5000)
    chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"), engine_version="0.10")
    served = Operators(chosen, deploy(MIXTURE, accelerator=BLACKWELL)).provenance()["tables"]["moe"]
    assert served["kernels"] == ["vllm_fused_moe_triton"]


# ---- PCIe

def test_a_slower_link_lengthens_all_reduces_by_their_bytes(terms, tmp_path):
    # 16-bit elements: half a byte a ns
    folder = write_tables(tmp_path / "t", custom_allreduce=all_reduce_rows(elements=(64, 1 << 22)))
    fast = replace(ACCELERATOR, scaleup_bytes_per_s=0.0, pcie_bytes_per_s=1e11)
    slow = replace(fast, pcie_bytes_per_s=1e9)
    linked = replace(slow, scaleup_bytes_per_s=1e11)
    share = 0.6                                         # of the link
    sent = TOKENS * 64 * 2
    measured = 32768 * 64 * 2 / (1000 + 32768 * 64)     # bytes a ns of the largest message

    def reduced(card):
        return terms(folder, accelerator=card)["all_reduce"] / (LAYERS * 2)

    assert reduced(fast) == reduced(linked) == pytest.approx(1000 + TOKENS * 64)
    assert reduced(slow) == pytest.approx(1000 + TOKENS * 64 + sent * (1 / share - 1 / measured))
