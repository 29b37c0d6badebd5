"""Latent attention measured as whole blocks: what is left of them beyond their products, by hand and in real tables."""
from importlib.util import find_spec

import pytest
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.latent import LatentAttention
from simulator.domain.parallelism import Parallelism
from simulator.latency.operators.model import Operators
from support.goldens import GOLDENS
from support.operator_profiles import GEMM, MLA, mla_rows, write_table, write_tables
from support.small_models import DENSE, deploy

TABLES = GOLDENS.parent / "data" / "profiles" / "aiconfigurator"
published = pytest.mark.skipif(not TABLES.is_dir(), reason="needs ../shared/data/profiles/aiconfigurator")
HAS_PACKAGE = find_spec("aiconfigurator_core") is not None and find_spec("pyarrow") is not None
package = pytest.mark.skipif(not HAS_PACKAGE, reason="needs the package aiconfigurator-core")

BLOCK = "model,mla_dtype,kv_cache_dtype,gemm_type,num_heads,batch_size,isl,step,latency_ms"
# DeepSeek's widths, in a model that is otherwise small: its queries have a rank of their own.
DEEPSEEK = replace(DENSE, attention=LatentAttention(
    num_heads=4, query_rank=48, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128))
SPARSE = replace(DEEPSEEK, attention=replace(
    DEEPSEEK.attention, indexer=Indexer(num_heads=64, head_dim=128, top_k=2048)))
# Of DeepSeek-V3 with 4 heads, (n, k) and us: queries up, all latents down, keys and values up, output.
SITES = ((768, 1536, 3), (2112, 7168, 31), (1024, 512, 2), (7168, 512, 8))
INDEXER = ((64 * 128, 1536, 35), (128 + 64, 7168, 4))    # its queries; its keys and weights of heads
PRODUCTS_US, INDEXER_US = 3 + 31 + 2 + 8, 35 + 4
# Rotary embedding and KV write: 2 x (4 + 1) heads x 192 and 2 x 576 elements of 2 bytes a token at 800 bytes/ns; 3 us
TOKEN_US = (2 * 5 * 192 + 2 * 576) * 2 / 800e3


def in_us(terms):
    return {name: seconds * 1e6 for name, seconds in terms.items()}


def block_rows(phase, name, batches=(1, 2, 4), lengths=(1, 15, 63)):
    """Return blocks that take 100 us and 1 us a token of prompts, of decodes 1/8 us a token in the cache."""
    rows = []
    for batch in batches:
        for length in lengths:
            us = 100 + batch * (length if phase == "context" else (length + 1) / 8)
            place = f"{length},0" if phase == "context" else f"1,{length}"
            rows += [f"{name},bfloat16,bfloat16,{gemm},4,{batch},{place},{us * slower * 1e-3:.9g}"
                     for gemm, slower in (("bfloat16", 1), ("fp8_block", 5))]
    return rows


@pytest.fixture
def folder(tmp_path):
    """Return tables of blocks, and of products of so many us whatever the tokens."""
    folder = write_tables(tmp_path / "tables")
    gemm = [f"bfloat16,{m},{n},{k},{us * 1e-3}" for n, k, us in SITES + INDEXER for m in (1, 2, 32768)]
    path = folder / "gemm_perf.csv"
    assert path.read_text().startswith(GEMM)
    path.write_text(path.read_text() + "\n".join(gemm) + "\n")
    for phase in ("context", "generation"):
        write_table(folder, f"mla_{phase}_module", BLOCK, block_rows(phase, "deepseek-ai/DeepSeek-V3"))
        write_table(folder, f"dsa_{phase}_module", BLOCK, block_rows(phase, "deepseek-ai/DeepSeek-V3.2"))
    return folder


def build(folder, model=DEEPSEEK, graph=True, **ways):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(folder / "cache"), cuda_graph=graph)
    return Operators(parameters, deploy(model, **ways))


def test_attention_is_what_a_block_takes_beyond_its_products(folder):
    model = build(folder)

    # 2 layers; 15 tokens: 115 us less the products, and less rotation and writing
    assert in_us(model.breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(
        2 * (115 - PRODUCTS_US - 3 - 15 * TOKEN_US))
    # 4 sequences of 16 tokens: 108 us less the same of 4 tokens
    assert in_us(model.breakdown(decode=[16] * 4))["decode_attention"] == pytest.approx(
        2 * (108 - PRODUCTS_US - 3 - 4 * TOKEN_US))
    assert model.provenance()["operators"]["attention prefill"] == "measured"


def test_prompts_take_the_block_and_decodes_from_a_graph_the_kernel(folder):
    for phase in ("context", "generation"):
        write_table(folder, f"{phase}_mla", MLA, mla_rows(phase))

    graph, eager = build(folder), build(folder, graph=False)

    block_us = 2 * (108 - PRODUCTS_US - 3 - 4 * TOKEN_US)
    assert in_us(graph.breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(
        2 * (115 - PRODUCTS_US - 3 - 15 * TOKEN_US))
    assert in_us(graph.breakdown(decode=[16] * 4))["decode_attention"] == pytest.approx(2 * 1.064)
    assert in_us(eager.breakdown(decode=[16] * 4))["decode_attention"] == pytest.approx(block_us)


def test_decodes_that_were_measured_as_blocks_are_told_of(folder):
    # one sequence, 2 tokens: 100.25 us less 44 and 3: 53
    assert any("as whole blocks, 53 us at least beyond" in told for told in build(folder).warnings())
    assert not any("as whole blocks" in told for told in build(folder, graph=False).warnings())


def test_sparse_attention_takes_its_own_blocks(folder):
    model = build(folder, SPARSE)

    assert in_us(model.breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(
        2 * (115 - PRODUCTS_US - INDEXER_US - 3 - 15 * TOKEN_US))
    assert sorted(name for name in model.provenance()["tables"] if "module" in name) == [
        "dsa_context_module", "dsa_generation_module"]


def test_layers_that_share_a_choice_have_rows_of_their_own(folder):
    """SGLang's tables hold both kinds of layers, of other times at equal heads, batch and length."""
    choosing = replace(SPARSE.attention, query_rank=2048, nope_head_dim=192, value_head_dim=256,
                       indexer=Indexer(num_heads=32, head_dim=128, top_k=2048))
    sharing = replace(choosing, indexer=replace(choosing.indexer, is_shared=True))
    products = {(each.n, each.k) for part in (choosing, sharing) for each in part.products(6144)}
    gemm = folder / "gemm_perf.csv"
    gemm.write_text(gemm.read_text() + "".join(
        f"bfloat16,{m},{n},{k},0.001\n" for n, k in sorted(products) for m in (1, 2, 32768)))
    for phase in ("context", "generation"):
        rows = [f"dsa_{phase}_module{ending},{row}"
                for name, ending, slower in (("zai-org/GLM-5", "", 1), ("zai-org/GLM-5.2", "_skip_indexer", 0.5))
                for row in (_slower(row, slower) for row in block_rows(phase, name))]
        write_table(folder, f"dsa_{phase}_module", f"op_name,{BLOCK}", rows)

    of_choosing, of_sharing = (in_us(build(folder, replace(SPARSE, attention=part)).breakdown(decode=[16] * 4))
                               ["decode_attention"] for part in (choosing, sharing))

    # 108 us a layer; half of it. The indexer's products take no less than reading their weights: 1000 bytes a ns
    indexer_us = (32 * 128 * 2048 + (128 + 32) * 6144) * 2 / 1e6
    assert of_choosing - of_sharing == pytest.approx(2 * (108 - 54 - indexer_us))


def _slower(row, factor):
    *place, ms = row.split(",")
    return ",".join([*place, f"{float(ms) * factor:.9g}"])


def test_blocks_with_other_products_serve_where_these_were_measured(folder):
    for path in folder.glob("*_module_perf.csv"):
        rows = [row for row in path.read_text().splitlines() if ",bfloat16,4," not in row]
        path.write_text("\n".join(rows) + "\n")
    gemm = folder / "gemm_perf.csv"
    rows = [row.replace("bfloat16", "fp8_block") for row in gemm.read_text().splitlines()[1:]]
    gemm.write_text(gemm.read_text() + "\n".join(rows) + "\n")

    # five times 115 us
    assert in_us(build(folder).breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(
        2 * (575 - PRODUCTS_US - 3 - 15 * TOKEN_US))


def test_other_widths_were_not_measured(folder):
    wide = replace(DEEPSEEK, attention=replace(DEEPSEEK.attention, value_head_dim=256))

    assert build(folder, wide).provenance()["operators"]["attention prefill"] == "roofline"


def test_attention_is_never_faster_than_light(folder):
    slow = (folder / "gemm_perf.csv").read_text().replace("768,1536,0.003", "768,1536,1.0")
    (folder / "gemm_perf.csv").write_text(slow)

    # 15 x 4 heads x 2 bytes x 2 (192 + 128) moved at 1000 bytes/ns; 120 pairs x 4 x 640 FLOPs at 1e6 a ns
    assert in_us(build(folder).breakdown(prefill=[(15, 0)]))["prefill_attention"] == pytest.approx(
        2 * max(4 * 15 * 4 * 320 / 1e6, 120 * 4 * 640 / 1e9))


# ---- the published tables; times are cells of their files

@published
@pytest.mark.parametrize(("prompts", "tokens", "block_ms"), [(1, 8192, 8.3037), (1, 1024, 0.8171), (4, 2048, 6.0023)])
def test_products_and_the_rest_make_the_measured_block_of_deepseek(prompts, tokens, block_ms, tmp_path):
    model = Operators(
        Operators.Parameters(path=str(TABLES / "h200_sxm"), cache_directory=str(tmp_path)),
        Deployment(model=load_model("deepseek-v3"), accelerator=load_accelerator("h200-sxm-141gb"),
                   weight_dtype="bfloat16"))

    found = model.breakdown(prefill=[(tokens, 0)] * prompts)

    parts = ("q_up", "latent_down", "kv_up", "attention_out", "rope_kv_write", "prefill_attention")
    assert sum(found[name] for name in parts) * 1e3 == pytest.approx(61 * block_ms, rel=1e-9)


@package
def test_sparse_attention_of_the_package_costs_less_than_dense_in_long_contexts(tmp_path):
    found = {}
    for name in ("deepseek-v3", "deepseek-v3.2", "glm-5"):
        model = Operators(Operators.Parameters(cache_directory=str(tmp_path), cuda_graph=False), Deployment(
            model=load_model(name), accelerator=load_accelerator("h200-sxm-141gb"), weight_dtype="bfloat16",
            parallelism=Parallelism(tensor_parallel=8, expert_parallel=8)))
        layers = model.provenance()["operators"]
        assert layers["attention decode"] == layers["attention prefill"] == "measured"
        found[name] = model.breakdown(decode=[65537] * 128)["decode_attention"]

    # both read all keys, dense ones 576 elements of a token, sparse ones an index of 128
    assert found["deepseek-v3.2"] < 0.3 * found["deepseek-v3"]
