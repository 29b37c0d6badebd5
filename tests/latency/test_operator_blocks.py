"""Attention to compressed tokens and to picked blocks, measured as whole blocks; hyper-connections: by hand."""
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.csa_hca import CompressedAttention
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.msa import BlockSparseAttention
from simulator.domain.layers.residuals import HyperConnections
from simulator.domain.parallelism import Parallelism
from simulator.latency.operators.curves import Curve
from simulator.latency.operators.model import Operators
from simulator.latency.operators.prefixes import left_out
from simulator.latency.operators.rows import NEEDED
from simulator.latency.roofline.kind_laws import ELSEWHERE, kind_law, kinds
from support.operator_profiles import write_table, write_tables
from support.small_models import DENSE, deploy

HAS_PACKAGE = find_spec("aiconfigurator_core") is not None and find_spec("pyarrow") is not None
package = pytest.mark.skipif(not HAS_PACKAGE, reason="needs the package aiconfigurator-core")

BLOCK = "model,kernel_source,kv_cache_dtype,gemm_type,num_heads,batch_size,isl,step,latency_ms"
FLASH, M3 = "sgl-project/DeepSeek-V4-Flash-FP8", "MiniMaxAI/MiniMax-M3"
# DeepSeek-V4-Flash on 8 ranks: 8 of 64 heads, one of 8 groups of outputs, in a model that is otherwise small.
CSA = CompressedAttention(
    num_heads=8, head_dim=512, rope_head_dim=64, query_rank=1024, output_rank=1024, output_groups=1, window=128,
    ratio=4, indexer=Indexer(num_heads=64, head_dim=128, top_k=512))
HCA = replace(CSA, ratio=128, indexer=None)
NEAR = replace(HCA, ratio=0)
# MiniMax-M3 on 4 ranks: 16 of 64 heads, one of 4 KV heads; all of the indexer.
MSA = BlockSparseAttention(num_heads=16, num_kv_heads=1, head_dim=128, qk_norm="head", index_heads=4,
                           index_head_dim=128, top_k_blocks=16)
# (n, k) of products: latents of queries, key, compressor (with indexer: its compressor and weights of heads); queries
# up and output (alike); the indexer's queries; the first part of the output. Each takes 3 us at any number of tokens.
SITES = ((1024 + 512 + 2 * 1024 + 2 * 256 + 64, 4096), (1024 + 512 + 2 * 512, 4096), (4096, 1024), (8192, 1024),
         (1024, 4096), (2048 + 2 * 128 + 512 + 128, 6144), (6144, 2048))
CSA_US, HCA_US, MSA_US = 5 * 3, 4 * 3, 2 * 3
# Rotary embedding and KV write at 800 bytes/ns and 3 us: 2 x (9 heads of 512 and 512) elements of 2 bytes; MSA: 2 x (17
# heads of 128 and 256), and norms of these heads, read and written, 6 us more.
TOKEN_US, MSA_TOKEN_US = 2 * 10 * 512 * 2 / 800e3, (2 * (17 * 128 + 256) + 2 * 17 * 128) * 2 / 800e3


def in_us(terms):
    return {name: seconds * 1e6 for name, seconds in terms.items()}


def rows(phase, name, heads, us, gemm="fp8_block", kv="fp8", kernel="sparse", slower=1):
    """Return blocks that take `us` and 1 us a token of prompts, of decodes 1/8 us a token in the cache."""
    found = []
    for batch in (1, 2, 4):
        for length in (1, 16, 64, 1024):
            took = us + batch * (length if phase == "context" else length / 8)
            place = f"{length},0" if phase == "context" else f"1,{length - 1}"
            found.append(f"{name},{kernel},{kv},{gemm},{heads},{batch},{place},{took * slower * 1e-3:.9g}")
    return found


@pytest.fixture
def folder(tmp_path):
    folder = write_tables(tmp_path / "tables")
    gemm = [f"{dtype},{m},{n},{k},0.003" for dtype in ("bfloat16", "fp8") for n, k in SITES for m in (1, 32768)]
    path = folder / "gemm_perf.csv"
    path.write_text(path.read_text() + "\n".join(gemm) + "\n")
    for phase in ("context", "generation"):
        write_table(folder, f"dsv4_csa_{phase}_module", BLOCK, rows(phase, FLASH, 8, 100))
        write_table(folder, f"dsv4_hca_{phase}_module", BLOCK, rows(phase, FLASH, 8, 80))
        msa = rows(phase, M3, 16, 60, "bfloat16", "bfloat16") + rows(phase, M3, 16, 500, "fp8_block", "bfloat16")
        write_table(folder, f"msa_{phase}_module", BLOCK, msa)
    return folder


def build(folder, part):
    """Return a model of the tables as they are: on an accelerator of round numbers 3 us beat its memory."""
    parameters = Operators.Parameters(
        path=str(folder), cache_directory=str(folder / "cache"), without=("memory_floor",))
    return Operators(parameters, deploy(replace(DENSE, attention=part)))


@pytest.mark.parametrize(("part", "block_us", "products_us", "token_us", "name"), [
    (CSA, 100, CSA_US + 3, TOKEN_US, "csa"), (HCA, 80, HCA_US + 3, TOKEN_US, "hca"),
    (MSA, 60, MSA_US + 9, MSA_TOKEN_US, "msa")])
def test_attention_is_the_rest_of_a_block_beyond_its_products(folder, part, block_us, products_us, token_us, name):
    model = build(folder, part)

    # 2 layers; 16 tokens; 4 sequences of 64 tokens
    assert in_us(model.breakdown(prefill=[(16, 0)]))["prefill_attention"] == pytest.approx(
        2 * (block_us + 16 - products_us - 16 * token_us))
    assert in_us(model.breakdown(decode=[64] * 4))["decode_attention"] == pytest.approx(
        2 * (block_us + 4 * 8 - products_us - 4 * token_us))
    found = model.provenance()
    assert found["operators"][f"{name} prefill"] == found["operators"][f"{name} decode"] == "measured"
    assert not any("is in no table" in text for text in model.warnings())


def test_quantising_of_outputs_is_a_part_of_a_block_with_fp8_products(folder):
    before = in_us(build(folder, CSA).breakdown(prefill=[(16, 0)]))["prefill_attention"]
    write_table(folder, "scale_matrix", "m,k,latency_ms", ["1,1024,0.002", "1024,1024,0.002"])
    after = in_us(build(folder, CSA).breakdown(prefill=[(16, 0)]))["prefill_attention"]

    assert before - after == pytest.approx(2 * 2)


def test_heads_of_half_a_rank_launch_no_less(folder):
    half = replace(CSA, num_heads=16, output_groups=2)

    model = build(folder, half)

    # the same utilisation, of the shortest time and the speed of light: 1 token of window and indices takes 0.8 ns more
    # of 82 us
    assert in_us(model.breakdown(decode=[2]))["decode_attention"] == pytest.approx(
        2 * (100.25 - CSA_US - 3 - TOKEN_US), rel=1e-4)
    assert model.provenance()["operators"]["csa decode"] == "interpolated"


def test_layers_with_a_window_alone_take_their_share_of_the_work(folder):
    model = build(folder, NEAR)

    hca_us = 80 + 1024 / 8 - HCA_US - 3 - TOKEN_US
    # 128 vectors of 584 bytes, of them and 8 compressed ones
    assert in_us(model.breakdown(decode=[1024]))["decode_attention"] == pytest.approx(2 * hca_us * 128 / (128 + 8))
    assert model.provenance()["operators"]["window_attention decode"] == "interpolated"


# ---- chunks behind a prefix

@pytest.fixture
def behind(folder):
    """Return a folder of tables with CSA behind 64 and 1,024 tokens, a tenth of a us a token of the prefix."""
    found = [f"{FLASH},sparse,fp8,fp8_block,8,1,{chunk},{prefix},{(100 + chunk + prefix / 10) * 1e-3:.9g}"
             for chunk in (16, 64) for prefix in (64, 1024)]
    write_table(folder, "dsv4_csa_context_module", BLOCK, rows("context", FLASH, 8, 100) + found)
    return folder


def csa_us(chunk, prefix):
    return 2 * (100 + chunk + prefix / 10 - CSA_US - 3 - chunk * TOKEN_US)


def prefill_us(model, *prompts):
    return in_us(model.breakdown(prefill=prompts))["prefill_attention"]


@pytest.mark.parametrize(("chunk", "prefix"), [(16, 64), (64, 1024), (16, 544), (16, 32)])
def test_a_measured_chunk_behind_a_prefix_is_verbatim_and_others_are_between(behind, chunk, prefix):
    for model in (build(behind, CSA), build(behind, CSA)):         # as composed, and as kept in the cache
        assert prefill_us(model, (chunk, prefix)) == pytest.approx(csa_us(chunk, prefix))
        assert not any("the difference of two prompts" in text for text in model.warnings())


def test_the_share_of_the_difference_is_linear_along_chunks_and_held_beyond_them(behind):
    model, shares = build(behind, CSA), [csa_us(chunk, 64) / csa_us(chunk, 0) for chunk in (16, 64)]

    assert prefill_us(model, (32, 64)) == pytest.approx(prefill_us(model, (32, 0)) * (2 * shares[0] + shares[1]) / 3)
    assert prefill_us(model, (4, 64)) == pytest.approx(prefill_us(model, (4, 0)) * shares[0])
    assert prefill_us(model, (256, 64)) == pytest.approx(prefill_us(model, (256, 0)) * shares[1])


def test_batches_that_were_not_measured_have_the_share_of_half_the_batch(behind):
    model, share = build(behind, CSA), csa_us(16, 64) / csa_us(16, 0)

    assert prefill_us(model, (16, 64), (16, 64)) == pytest.approx(prefill_us(model, (16, 0), (16, 0)) * share)
    assert prefill_us(model, *[(16, 64)] * 3) == pytest.approx(prefill_us(model, *[(16, 0)] * 3) * share)


def test_beyond_the_prefixes_a_chunk_grows_with_the_speed_of_light(behind):
    model = build(behind, CSA)
    last, near, far, farthest = (prefill_us(model, (16, prefix)) for prefix in (1024, 4096, 8192, 16384))

    assert last < near < far
    assert farthest - far == pytest.approx(2 * (far - near))     # of the indexer alone: all else reads its last 2,048


def test_a_chunk_left_out_is_predicted_from_others_along_and_across():
    prefixes = np.array([0.0, 64.0, 128.0])
    curves = {tokens: Curve(prefixes, 100 + tokens + prefixes / 10) for tokens in (16.0, 32.0, 64.0)}

    (prefix, along, across, ns), = left_out(curves, lambda tokens: 100 + tokens)

    assert (prefix, along, ns) == (64, pytest.approx(138.4), 138.4)
    assert across == pytest.approx(132 * (2 * (122.4 / 116) + 170.4 / 164) / 3)


def test_chunks_without_measured_prefixes_are_differences(folder):
    assert any("is the difference of two prompts" in text for text in build(folder, CSA).warnings())


@pytest.mark.parametrize(("part", "kernel"), [
    (CSA, "dsv4_paged_mqa_logits_module"), (HCA, "dsv4_hca_attn_module")])
def test_long_contexts_grow_as_the_kernel_that_reads_them(folder, part, kernel):
    times = {1024: 5, 2048: 6, 8192: 12}
    write_table(folder, kernel, "num_heads,batch_size,isl,step,latency_ms", [
        f"64,1,{isl},{length - 1},{isl * us * 1e-3}" for length, us in times.items() for isl in (1, 8)])

    model = build(folder, part)
    short, long = (in_us(model.breakdown(decode=[length]))["decode_attention"] for length in (1024, 4096))

    # a third of the way from 6 to 12 us, 5 at the end of the blocks; bytes of compressed tokens serve all heads
    assert long - short == pytest.approx(2 * 3)
    assert kernel in model.provenance()["tables"]


def test_a_table_without_a_sparse_kernel_is_refused(folder):
    for phase in ("context", "generation"):
        write_table(folder, f"msa_{phase}_module", BLOCK, rows(phase, M3, 16, 60, "bfloat16", "bfloat16", "default"))
        write_table(folder, f"dsv4_csa_{phase}_module", BLOCK, rows(phase, FLASH, 8, 600))

    for part, name in ((MSA, "msa"), (CSA, "csa")):
        model = build(folder, part)
        assert model.provenance()["operators"][f"{name} prefill"] == "roofline"
        assert any("timed without a sparse kernel, and not used" in text for text in model.warnings())
        assert any(f"{name} decode: no " in text for text in model.warnings())


@pytest.mark.parametrize("part", [replace(CSA, window=64), replace(MSA, top_k_blocks=8), replace(HCA, ratio=64)])
def test_other_sizes_were_not_measured(folder, part):
    assert any("of these widths: priced by the roofline" in text for text in build(folder, part).warnings())


def test_other_sizes_take_the_law_of_their_kind_and_its_error(folder):
    model, law = build(folder, replace(HCA, ratio=64)), kind_law("any", "hca").decode

    # 1 024 tokens: a 64th of 584 bytes and of 4 x 8 heads x 512 FLOPs each, and 128 whole ones; 1e6 FLOPs, 1000 bytes a
    # ns; queries and outputs of 8 heads of 512
    token_ns = max(16_384 / (1e6 * law.compute_frac), 584 / (1e3 * law.memory_frac))
    by_hand = (1024 / 64 + 128) * token_ns + law.passes * 8 * 1024 * 2 / 1e3 + law.floor_us * 1e3 + 3000
    assert in_us(model.breakdown(decode=[1024]))["decode_attention"] == pytest.approx(2e-3 * by_hand)
    error = kinds().errors["hca"].decode[ELSEWHERE]
    assert any(f"hca decode: no compressed attention of 8 heads, fp8 cache, of these widths: priced by the roofline, "
               f"{error:.0%} off in the mean (roofline by laws" in text for text in model.warnings())


def test_attention_of_several_kinds_keeps_the_worst_origin(folder):
    model = replace(
        DENSE, parts={"first": NamedPart(mixer=DENSE.attention), "second": NamedPart(
            mixer=replace(DENSE.attention, num_heads=2, num_kv_heads=1))},
        layer_kinds=(LayerParts(layers=(0,), parts=("second", "mlp")), LayerParts(layers=(1,), parts=("first", "mlp"))))

    found = Operators(Operators.Parameters(path=str(folder), cache_directory=str(folder / "cache")), deploy(model))

    assert found.provenance()["operators"]["attention decode"] == "interpolated"


# ---- hyper-connections

STREAMS = replace(DENSE, parts={"streams": NamedPart(around=HyperConnections(streams=4))}, layer_kinds=(
    LayerParts(layers=(0, 1), parts=("attention", "mlp", "streams")),))


def test_streams_have_a_table_with_their_products_or_the_time_of_their_bytes(folder):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(folder / "cache"))
    formula = Operators(parameters, deploy(STREAMS))
    write_table(folder, "mhc_module", "op_name,num_tokens,num_sites,hc_mult,hidden_size,latency_ms", [
        f"{name},{tokens},2,{streams},64,{factor * (us + tokens) * 1e-3}" for name, us in (("pre", 18), ("post", 6))
        for tokens in (1, 8, 1024) for streams, factor in ((4, 1), (2, 9))])
    tabled = Operators(parameters, deploy(STREAMS))

    before, after = (in_us(model.breakdown(decode=[4] * 8)) for model in (formula, tabled))

    # 2 layers: at two sites 14 vectors of 64 elements of 2 bytes of 8 tokens, 4 kernels; or both kernels of the table
    assert before["hyper_connections"] == pytest.approx(2 * (8 * 2 * 14 * 64 * 2 / 800e3 + 4 * 3))
    assert before["hyper_connection"] > 0
    assert after["hyper_connections"] == pytest.approx(2 * (18 + 8 + 6 + 8))
    assert "hyper_connection" not in after
    assert tabled.provenance()["operators"]["hyper_connections"] == "measured"


# ---- the tables of the package; times are cells of their files

@package
@pytest.mark.parametrize(("name", "accelerator", "ranks", "tokens"), [
    ("deepseek-v4-flash", "h100-sxm-80gb", 4, 4096), ("minimax-m3-nvfp4", "b200-sxm-180gb", 4, 2048)])
def test_models_of_the_package_are_priced_by_their_blocks(name, accelerator, ranks, tokens, tmp_path):
    model = Operators(Operators.Parameters(cache_directory=str(tmp_path)), Deployment(
        model=load_model(name), accelerator=load_accelerator(accelerator),
        parallelism=Parallelism(tensor_parallel=ranks)))

    found = model.provenance()["operators"]

    names = ("csa", "hca") if "v4" in name else ("msa",)
    assert {found[f"{each} {phase}"] for each in names for phase in ("prefill", "decode")} == {"measured"}
    assert model.breakdown(prefill=[(tokens, 0)])["prefill_attention"] > 0


# ---- the page of all kinds

PAGE = (Path(__file__).parents[2] / "docs/guide/operator_tables.md").read_text(encoding="utf-8")


def named_in(heading):
    """Return the tables in the first column below a heading."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {name for line in part.splitlines() if line.startswith("| `")
            for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_the_page_lists_the_tables_that_are_read():
    own = {"mixed_attention", "small"}                  # of profiles of one model

    assert named_in("Read") == NEEDED.keys() - own
    assert not named_in("Read") & named_in("Refused")


@package
def test_the_page_lists_all_kinds_of_the_package():
    systems = Path(find_spec("aiconfigurator_core").submodule_search_locations[0]) / "systems"
    kinds = {path.name.removesuffix("_perf.parquet") for path in systems.rglob("*_perf.parquet")}

    assert kinds == (named_in("Read") | named_in("Refused")) - {"trtllm_allreduce", "sglang_moe"}       # parts
    assert len(kinds) == 45
