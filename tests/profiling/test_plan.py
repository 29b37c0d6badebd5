"""A plan holds what the tables of a model are asked for, and names what it cannot measure."""
from simulator.latency.operators.model import Operators
from simulator.profiling import plan
from support.small_models import DENSE, LATENT, MIXTURE, SLIDING, deploy


def planned(model, tables=tuple(plan.KEYS), is_grid=False, **ways):
    return plan.make_plan(model, [Operators.asked(deploy(model, **ways))], tables, plan.QUICK, is_grid)


def sites(found, table, *columns):
    return {tuple(point.values()[name] for name in columns) for point in found.points if point.table == table}


def test_products_are_those_of_a_rank():
    # DENSE: 4 heads, 2 of KV, of 16; hidden 64, intermediate 128, 1024 words; two ranks halve all but the hidden size
    assert sites(planned(DENSE), "gemm", "n", "k") == {(128, 64), (64, 64), (256, 64), (64, 128), (1024, 64)}
    assert sites(planned(DENSE, tensor_parallel=2), "gemm", "n", "k") == {
        (64, 64), (64, 32), (128, 64), (64, 64), (512, 64)}


def test_heads_widths_and_experts_are_the_models():
    found = planned(MIXTURE)

    assert sites(found, "generation_attention", "num_heads", "num_key_value_heads", "head_dim") == {(4, 2, 16)}
    assert ("norms", 4 * 64) in sites(found, "small", "operator", "elements")
    assert sites(found, "moe", "hidden_size", "topk", "num_experts", "moe_tp_size") == {(64, 2, 8, 1)}


def test_contexts_end_at_the_longest_text_of_the_model():
    contexts = {step + 1 for step, in sites(planned(DENSE), "generation_attention", "step")}

    assert max(contexts) == DENSE.max_position_embeddings
    assert all(context & (context - 1) == 0 for context in contexts - {DENSE.max_position_embeddings})


def test_prompts_are_powers_of_two_without_a_gap():
    assert sites(planned(DENSE), "context_attention", "batch_size") == {(1,), (2,)}


def test_what_cannot_be_measured_is_named():
    assert "latent attention" in planned(LATENT).left_out
    assert "send_recv of 2 ranks" in planned(DENSE, pipeline_parallel=2).left_out
    assert "products of fp8_block" not in planned(SLIDING).left_out


def test_fp8_asks_for_quantising_and_vllm_has_experts_of_it():
    asked = [Operators.asked(deploy(MIXTURE, weight_dtype="fp8"))]
    formats = {}
    for kernels in ("torch", "vllm"):
        found = plan.make_plan(MIXTURE, asked, tuple(plan.KEYS), plan.QUICK, kernels=kernels)
        formats[kernels] = sites(found, "moe", "moe_dtype")
        assert sites(found, "scale_matrix", "k") == {(64,)}         # 4 heads of 16
        assert ("experts of fp8" in found.left_out) == (kernels == "torch")

    assert formats == {"torch": set(), "vllm": {("fp8",)}}


def test_a_grid_adds_to_the_model_and_no_point_stands_twice():
    found = planned(DENSE, is_grid=True)

    assert {(8192, 4096), (128, 64)} <= sites(found, "gemm", "n", "k")
    assert len(set(found.points)) == len(found.points)


def test_only_the_tables_that_are_asked_for():
    assert {point.table for point in planned(DENSE, tables=("gemm",)).points} == {"gemm"}
