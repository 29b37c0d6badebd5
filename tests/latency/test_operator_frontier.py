"""Frontier's profiles: operators of one model, worked out by hand, and rows of the published files."""
import gzip

import pytest
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.layers.networks import Moe
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.latency.operators import frontier as operator_frontier
from simulator.latency.operators.model import Operators
from support.goldens import GOLDENS
from support.small_models import DENSE, deploy

PROFILES = GOLDENS.parent / "data" / "profiles" / "frontier"
published = pytest.mark.skipif(not PROFILES.is_dir(), reason="needs ../shared/data/profiles/frontier")
SPLIT = "attn_pre_proj", "attn_rope", "attn_post_proj", "mlp_up_proj", "mlp_act", "mlp_down_proj"
WHOLE = "emb", "input_layernorm", "post_attention_layernorm", "lm_head_linear"
TOKENS = (1, 2, 4, 8, 16, 1024)
# All layers have 8 experts of width 32, 2 chosen.
EXPERTS = replace(DENSE, mlp=None, moe=Moe(num_experts=8, experts_per_token=2, intermediate_size=32))


def write_csv(path, operators, keys, rows):
    """Write rows of (medians of operators, keys)."""
    header = ",".join([*(f"time_stats.{name}.median" for name in operators), *keys])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def write_linear(folder, name="linear_op", factor=1.0, signature="none"):
    """Write operators of 1, 2, 3, ... us a token, of degrees 1 and 2; those that are not split of degree 1 alone."""
    keys = ("n_head", "n_kv_head", "n_embd", "num_tokens", "num_tensor_parallel_workers", "quant_signature")
    rows = [[f"{factor * (i + 1) * tokens / ways * 1e-3:.9g}" if ways == 1 or name in SPLIT else ""
             for i, name in enumerate(SPLIT + WHOLE)] + [4, 2, 64, tokens, ways, signature]
            for tokens in TOKENS for ways in (1, 2)]
    write_csv(folder / f"{name}.csv", SPLIT + WHOLE, keys, rows)
    return folder


def write_attention(folder):
    """Write decodes of n (c + 1) / 100 us, prompts of s x s / 100 us, and rows that are neither."""
    keys = ("n_embd", "n_q_head", "n_kv_head", "num_tensor_parallel_workers", "batch_size", "prefill_chunk_size",
            "kv_cache_size", "is_prefill", "is_mixed_batch", "mode")
    model = (64, 4, 2, 1)
    rows = [(0.5, n * (c + 1) * 1e-5, *model, n, 0, c, False, False, "even") for n in (1, 2, 4) for c in (15, 31, 63)]
    rows += [(s * s * 1e-5, 0.5, *model, 1, s, 0, True, False, "even") for s in (16, 32, 64)]
    rows += [(9, 0, *model, 1, 16, 16, True, False, "even"), (9, 0, *model, 2, 16, 0, True, True, "online_grid_skewed")]
    write_csv(folder / "attention.csv", ("attn_prefill", "attn_decode"), keys, rows)
    return folder


def write_moe(folder):
    """Write one rank of two: 16 tokens each of which goes to one of its experts take 100 us, and 10 us to sort."""
    keys = ("num_tokens", "num_experts", "router_topk", "hidden_dim", "expert_hidden_dim", "expert_parallel_size",
            "num_tensor_parallel_workers", "total_routed_tokens", "routing_runtime_path")
    model = (8, 2, 64, 32, 2, 1)
    usual = "standard_fused_topk"
    rows = [(0.09, 0.01, 0.004, 8, *model, 16, usual), (0.11, "", "", 8, *model, 16, usual),
            (0.2, 0.01, 0.008, 16, *model, 32, usual), (0.9, 0.9, 0.9, 8, *model, 16, "uniform_topk")]
    write_csv(folder / "moe.csv", ("moe_grouped_gemm", "moe_shuffling", "moe_gating_linear"), keys, rows)
    return folder


def build(folder, cache, model=DENSE, graph=True, **ways):
    return Operators(Operators.Parameters(path=str(folder), cache_directory=str(cache), cuda_graph=graph),
                     deploy(model, **ways))


def in_us(terms):
    return {name: seconds * 1e6 for name, seconds in terms.items()}


def test_products_and_what_lies_between_them_are_those_of_every_layer(tmp_path):
    model = build(write_linear(tmp_path / "profile"), tmp_path)

    found = in_us(model.breakdown(decode=[4] * 8))

    # 8 tokens, 2 layers: 1, 3, 4 and 6 us a token for the products, 2 and 5 between them; once 7 and 10
    assert [found[name] for name in ("qkv", "attention_out", "up_gate", "down")] == pytest.approx([16, 48, 64, 96])
    assert (found["rope_kv_write"], found["activation"]) == pytest.approx((32, 80))
    assert (found["embedding"], found["lm_head"]) == pytest.approx((56, 80))
    # 2 norms a layer and the last one, of 8 and 9 us a token: 8.5 each
    assert found["norms"] == pytest.approx(5 * 8 * 8.5)
    assert model.provenance()["operators"]["norms"] == model.provenance()["operators"]["qkv"] == "measured"


def test_a_degree_of_tensor_parallelism_has_its_own_rows(tmp_path):
    model = build(write_linear(tmp_path / "profile"), tmp_path, tensor_parallel=2)

    found = in_us(model.breakdown(decode=[4] * 8))

    assert found["qkv"] == pytest.approx(8)             # half of it
    assert found["norms"] == pytest.approx(340)         # not split


def test_another_degree_is_refused_and_told_of(tmp_path):
    with pytest.raises(InputErrors, match=r"linear_op\.csv: num_tensor_parallel_workers: no row holds 4; found 1, 2"):
        build(write_linear(tmp_path / "profile"), tmp_path, tensor_parallel=4)


def test_another_model_is_refused_and_told_of(tmp_path):
    with pytest.raises(InputErrors, match=r"linear_op\.csv: n_embd: no row holds 128; found 64"):
        build(write_linear(tmp_path / "profile"), tmp_path, replace(DENSE, hidden_size=128))


def test_times_without_launches_are_taken_where_the_engine_runs_graphs(tmp_path):
    folder = write_linear(write_linear(tmp_path / "profile"), "linear_op_kernel_only", factor=0.5)

    assert in_us(build(folder, tmp_path).breakdown(decode=[4] * 8))["qkv"] == pytest.approx(8)
    assert in_us(build(folder, tmp_path, graph=False).breakdown(decode=[4] * 8))["qkv"] == pytest.approx(16)


def test_the_signature_names_the_format_of_weights(tmp_path):
    folder = write_linear(tmp_path / "profile", signature="method=fp8|act=none|serialized=False|block=none")
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path))

    quantized = Operators(parameters, deploy(weight_dtype="fp8")).provenance()["operators"]

    assert (quantized["qkv"], quantized["lm_head"]) == ("measured", "measured")
    assert build(folder, tmp_path).provenance()["operators"]["qkv"] == "roofline"


def test_attention_is_that_of_prompts_or_of_decodes_alone(tmp_path):
    model = build(write_attention(write_linear(tmp_path / "profile")), tmp_path)

    # 2 layers: 4 sequences x 32 tokens after the step / 100 us; 16 x 16 / 100 us
    assert in_us(model.breakdown(decode=[32] * 4))["decode_attention"] == pytest.approx(2 * 1.28)
    assert in_us(model.breakdown(prefill=[(16, 0)]))["prefill_attention"] == pytest.approx(2 * 2.56)


def test_a_rank_of_experts_gets_its_share_of_the_tokens(tmp_path):
    folder = write_moe(write_linear(tmp_path / "profile"))

    model = build(folder, tmp_path, EXPERTS, tensor_parallel=2, expert_parallel=2)

    # 16 tokens, 2 experts each, over 2 ranks are 16 on each: the mean of 90 and 110, and 10; two layers
    assert in_us(model.breakdown(decode=[4] * 16))["experts"] == pytest.approx(2 * 110)
    assert in_us(model.breakdown(decode=[4] * 24))["experts"] == pytest.approx(2 * 160)
    assert in_us(model.breakdown(decode=[4] * 8))["router"] == pytest.approx(2 * 4)


def test_a_profile_is_converted_once(tmp_path, monkeypatch):
    folder = write_linear(tmp_path / "profile")
    first = build(folder, tmp_path / "cache").predict(decode=[4] * 8)
    monkeypatch.setattr(operator_frontier, "read_profile", None)

    assert build(folder, tmp_path / "cache").predict(decode=[4] * 8) == first
    assert len(list((tmp_path / "cache").glob("*.h5"))) == 1


# ---- the published profiles; numbers are cells of their files

@published
def test_a_dense_layer_takes_what_its_rows_say(tmp_path):
    model = Operators(
        Operators.Parameters(path=str(PROFILES / "a800/meta-llama/Llama-2-7b-hf"), cache_directory=str(tmp_path)),
        Deployment(model=load_model("llama-2-7b"), accelerator=load_accelerator("a800-sxm-80gb")))

    wanted = cells("a800/meta-llama/Llama-2-7b-hf/mlp.csv.gz", num_tokens="1024")
    found = in_us(model.breakdown(decode=[1000] * 1024))

    assert found["qkv"] == pytest.approx(32 * 1e3 * wanted["attn_pre_proj"])
    assert found["down"] == pytest.approx(32 * 1e3 * wanted["mlp_down_proj"])
    assert set(model.provenance()["operators"].values()) == {"measured", "interpolated"}
    assert model.provenance()["operators"]["lm_head"] == "interpolated"      # a column that Vidur's form lacks


@published
@pytest.mark.parametrize(("tensor", "expert"), [(1, 1), (4, 1), (4, 4)])
def test_a_mixture_is_measured_in_all_its_spreads(tensor, expert, tmp_path):
    model = Operators(
        Operators.Parameters(path=str(PROFILES / "a800/qwen3-a3b-30b-moe"), cache_directory=str(tmp_path)),
        Deployment(model=load_model("qwen3-30b-a3b"), accelerator=load_accelerator("a800-sxm-80gb"),
                   parallelism=Parallelism(tensor_parallel=tensor, expert_parallel=expert)))

    found = model.provenance()["operators"]

    assert {found[name] for name in ("qkv", "attention_out", "router", "experts", "norms", "attention decode",
                                     "attention prefill")} == {"measured"}


@published
def test_kernels_of_405b_are_within_what_its_accelerator_can_do(tmp_path):
    model = Operators(
        Operators.Parameters(path=str(PROFILES / "h800/Llama-3.1-405B-Instruct-FP8"), cache_directory=str(tmp_path)),
        Deployment(model=load_model("llama-3.1-405b"), accelerator=load_accelerator("h800-sxm-80gb"),
                   parallelism=Parallelism(tensor_parallel=8), weight_dtype="fp8"))

    wanted = cells("h800/Llama-3.1-405B-Instruct-FP8/linear_op_kernel_only.csv.gz", num_tokens="1",
                   num_tensor_parallel_workers="8")

    # 16384 x 2 x 53248 / 8 bytes of weights: 65 us at 3.35 TB/s
    assert wanted["mlp_up_proj"] > 0.065
    assert in_us(model.breakdown(decode=[1000]))["up_gate"] == pytest.approx(126e3 * wanted["mlp_up_proj"])


def cells(path, **wanted):
    """Return the medians of the first row whose cells are `wanted`."""
    with gzip.open(PROFILES / path, "rt") as file:
        names = file.readline().rstrip("\n").split(",")
        for line in file:
            row = dict(zip(names, line.rstrip("\n").split(",")))
            if all(row[name] == value for name, value in wanted.items()):
                return {name.split(".")[1]: float(cell) for name, cell in row.items()
                        if name.endswith(".median") and cell}
    raise AssertionError(f"no such row in {path}")
