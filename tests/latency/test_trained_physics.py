"""`trained_physics` worked out by hand on the round models, and what it says of where its numbers hold.

Dense model of tests/support/small_models.py, per token: 73,728 weights x 2 FLOPs at 1e9 FLOP/us = 1.47456e-4 us, KV
cache 2 layers x 64 elements x 2 bytes at 1e6 bytes/us = 2.56e-4 us; per pair 2 layers x 4 heads x 16 x 4 FLOPs =
5.12e-7 us. Weights: 147,456 bytes = 0.147456 us.
"""
import msgspec
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator, load_model
from simulator.errors import InputErrors
from simulator.latency.blis.trained_counts import blis_counts, blis_rates, model_counts
from simulator.latency.blis.trained_physics import TrainedPhysics
from support.small_models import DENSE, LATENT, MIXTURE, deploy

#       prompts, decodes, weights, reduces, layer, sequence, iteration, alternation, prompt KV, decode KV, exchange
BETA = (2.0, 5.0, 11.0, 23.0, 13.0, 17.0, 19.0, 29.0, 3.0, 7.0, 31.0)
BATCH = {"prefill": [(100, 20)], "decode": [50, 50, 50]}
H100 = load_accelerator("h100-sxm-80gb")
ALTERNATING = replace(MIXTURE, first_dense_layers=0, moe_layer_interval=2)


def trained(model=DENSE, beta=BETA, deployment=None, **given):
    ways = {key: given.pop(key) for key in ("tensor_parallel", "data_parallel") if key in given}
    return TrainedPhysics(TrainedPhysics.Parameters(beta=beta, **given), deployment or deploy(model, **ways))


def in_us(seconds):
    return {name: value * 1e6 for name, value in seconds.items()}


# ---- the formula

def test_each_coefficient_weighs_its_term():
    # prompts: 100 tokens = 0.0147456; 100 x (120 + 100 / 2) pairs = 0.008704; KV 0.0256: 2 x 0.0234496 + 3 x 0.0256
    # decodes: 3 tokens = 0.000442368; 150 - 3 pairs = 0.000075264; KV 0.0384: 5 x 0.000517632 + 7 x 0.0384
    assert in_us(trained().breakdown(**BATCH)) == pytest.approx({
        "prefill": 0.1236992, "decode": 0.27138816, "weights": 11 * 0.147456, "all_reduces": 0.0,
        "expert_exchange": 0.0, "layers": 26.0, "sequences": 68.0, "iteration": 19.0, "alternation": 0.0})


def test_prediction_is_the_sum_of_its_terms():
    model = trained(MIXTURE, tensor_parallel=2)

    assert model.predict(**BATCH) == pytest.approx(sum(model.breakdown(**BATCH).values()), rel=1e-14)


@pytest.mark.parametrize(("length", "prefill_us", "decode_us"), [
    (8, 2 * 0.0256, 5 * 0.0384),                            # the larger of the two: memory, both times
    (9, 2 * 0.0234496 + 3 * 0.0256, 5 * 0.0384),
    (10, 2 * 0.0234496 + 3 * 0.0256, 5 * 0.000517632 + 7 * 0.0384)])
def test_arithmetic_and_memory_add_up_where_both_have_a_coefficient(length, prefill_us, decode_us):
    found = in_us(trained(beta=BETA[:length]).breakdown(**BATCH))

    assert (found["prefill"], found["decode"]) == pytest.approx((prefill_us, decode_us))


def test_arithmetic_counts_alone_where_it_is_longer():
    # 2000 tokens = 0.294912 and 2000 x (2000 + 1000) pairs = 3.072; KV 0.512
    assert in_us(trained(beta=BETA[:8]).breakdown(prefill=[(2000, 0)]))["prefill"] == pytest.approx(2 * 3.366912)


def test_tensor_parallel_ranks_reduce_after_every_mixer_and_network():
    # 103 tokens x (2 + 2) x 64 elements x 2 bytes x 2 (2 - 1) / 2 = 52,736 bytes
    model = trained(tensor_parallel=2)

    assert in_us(model.breakdown(**BATCH))["all_reduces"] == pytest.approx(23 * 0.052736)
    assert in_us(model.breakdown(**BATCH))["weights"] == pytest.approx(11 * 0.147456 / 2)


def test_all_experts_are_read_and_the_chosen_ones_computed():
    # dense layer 24,576; layer of experts 2 x 6,144 chosen, 8 x 6,144 held, 6,144 shared; projections 24,576
    found = in_us(trained(MIXTURE, beta=BETA).breakdown(decode=[1]))

    assert found["weights"] == pytest.approx(11 * 2 * (24_576 + 24_576 + 9 * 6_144) / 1e6)
    assert found["decode"] == pytest.approx(5 * 2 * (24_576 + 24_576 + 3 * 6_144) / 1e9 + 7 * 2.56e-4)


@pytest.mark.parametrize(("kind", "copies"), [("all_gather", 1), ("all_to_all", 2)])
def test_data_parallel_ranks_exchange_tokens_for_experts(kind, copies):
    # 8 tokens, 4 of a rank, to 3/4 of 4 ranks, there and back, 64 elements of 2 bytes, one layer; chosen: 2 experts
    model = trained(MIXTURE, expert_exchange=kind, tensor_parallel=2, data_parallel=2)

    found = in_us(model.breakdown(decode=[1] * 8))["expert_exchange"]
    assert found == pytest.approx(31 * copies * 4 * 0.75 * 2 * 64 * 2 / 1e6)


def test_experts_are_reduced_where_there_is_nothing_to_exchange():
    # mixers 2, dense network 1, experts 1: 4 all-reduces of 8 x 64 x 2 bytes
    found = in_us(trained(MIXTURE, tensor_parallel=2).breakdown(decode=[1] * 8))

    assert (found["all_reduces"], found["expert_exchange"]) == (pytest.approx(23 * 4 * 1024 / 1e6), 0.0)


def test_exchange_costs_what_a_reduction_costs_unless_it_has_a_coefficient():
    ten, eleven = (trained(MIXTURE, beta=BETA[:length], data_parallel=2).breakdown(decode=[1])["expert_exchange"]
                   for length in (10, 11))

    assert ten / eleven == pytest.approx(23 / 31)


def test_alternation_is_paid_where_layers_alternate():
    assert in_us(trained(ALTERNATING).breakdown(decode=[1]))["alternation"] == pytest.approx(29.0)
    assert trained(MIXTURE).breakdown(decode=[1])["alternation"] == 0.0       # dense layers first, then experts
    assert trained(ALTERNATING, beta=BETA[:7]).breakdown(decode=[1])["alternation"] == 0.0


def test_drafts_are_tokens_that_attend_to_the_context():
    one, three = (in_us(trained().breakdown(decode=[50], tokens_per_decode=tokens))["decode"] for tokens in (1, 3))

    # two more tokens, each with 49 pairs; the context is read once
    assert three - one == pytest.approx(5 * 2 * (1.47456e-4 + 49 * 5.12e-7))


def test_durations_are_truncated_to_microseconds_and_at_least_one():
    model = trained(beta=(0.0,) * 6 + (3.7,))
    model.set_host(0.0, 1.0)
    nothing = trained(beta=(0.0,) * 7)
    nothing.set_host(0.0, 1.0)

    assert (model.predict_iteration_ns(decode=[1]), nothing.predict_iteration_ns(decode=[1])) == (3_000, 1_000)


# ---- what is counted

def test_blis_counts_llama_4_in_alternating_layers():
    scout, maverick = (blis_counts(load_model(f"llama-4-{name}")) for name in ("scout", "maverick"))

    assert (scout.num_moe_layers, scout.num_dense_layers, scout.alternates) == (24, 24, True)
    assert (maverick.num_moe_layers, maverick.num_dense_layers, maverick.alternates) == (16, 32, True)
    assert (scout.dense, scout.shared) == (3 * 5120 * 16384, 0)


def test_the_model_itself_is_counted_for_own_coefficients():
    scout = load_model("llama-4-scout")
    model = trained(deployment=deploy(scout, accelerator=H100))

    assert model_counts(scout).num_moe_layers == 48
    assert model.breakdown(decode=[1])["alternation"] == 0.0
    assert in_us(trained(deployment=deploy(scout, accelerator=H100), conventions="blis").breakdown(decode=[1]))[
        "alternation"] == pytest.approx(24 * 29)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-2-70b", "mixtral-8x7b", "qwen2.5-7b"])
def test_both_ways_of_counting_agree_on_plain_models(name):
    model = load_model(name)

    assert blis_counts(model) == model_counts(model)


def test_latent_attention_is_counted_as_full_heads_by_blis():
    # 4 heads of 64 / 4 = 16: q, o 64 x 64; k, v 64 x 64; two layers
    assert blis_counts(LATENT).projections == 2 * 4 * 64 * 64
    assert model_counts(LATENT).kv_elements == 2 * (32 + 8)


def test_blis_has_rates_of_its_own_for_the_accelerators_it_knows():
    b200 = load_accelerator("b200-sxm-180gb")

    assert blis_rates(deploy(accelerator=H100)).flops == pytest.approx(989.5e6)
    assert blis_rates(deploy(accelerator=H100, weight_dtype="fp8")).flops == pytest.approx(1979e6)
    assert blis_rates(deploy(accelerator=b200)).memory_bytes * 1e6 == b200.memory_bandwidth_bytes_per_s


# ---- the published set

def test_published_set_is_the_default_and_says_where_it_comes_from():
    model = TrainedPhysics(TrainedPhysics.Parameters(), deploy(load_model("llama-3.1-8b"), accelerator=H100))

    assert model.provenance()["coefficients"] == "blis"
    assert "fitted to 15 runs" in model.provenance()["source"]
    assert model.warnings() == []


@pytest.mark.parametrize(("change", "expected"), [
    ({"accelerator": load_accelerator("l40s")}, "fitted on accelerator h100-sxm-80gb, not l40s; BLIS reports"),
    ({"tensor_parallel": 8}, "fitted on tensor_parallel 1, 2, 4, not 8"),
    ({"pipeline_parallel": 2}, "fitted on pipeline_parallel 1, not 2"),
    ({"data_parallel": 2}, "fitted on data_parallel 1, not 2")])
def test_leaving_what_was_fitted_is_warned_of(change, expected):
    deployment = deploy(load_model("llama-3.1-8b"), **{"accelerator": H100} | change)

    warnings = TrainedPhysics(TrainedPhysics.Parameters(), deployment).warnings()
    assert len(warnings) == 1 and expected in warnings[0]


def test_own_coefficients_are_not_warned_of():
    assert trained(tensor_parallel=4).warnings() == []


def test_alpha_becomes_host_time():
    model = TrainedPhysics(TrainedPhysics.Parameters(), deploy(load_model("llama-3.1-8b"), accelerator=H100))

    assert model.host_terms() == {
        "queue_base_us": 15563.199579, "queue_per_prompt_token_us": 0.0, "output_token_us": 45.907545}
    assert model.completion_us == 777.3455


def test_alpha_can_be_changed_alone():
    given = TrainedPhysics.Parameters(alpha=(1.0, 2.0, 3.0))
    model = TrainedPhysics(given, deploy(load_model("llama-3.1-8b"), accelerator=H100))

    assert model.host_terms()["queue_base_us"] == 1.0
    assert model.provenance()["coefficients"] == "blis"


# ---- faults

@pytest.mark.parametrize(("given", "expected"), [
    ({"coefficients": "bliss"}, 'latency.coefficients: no set "bliss"; did you mean blis?'),
    ({"coefficients": "blis", "beta": BETA}, "latency.coefficients: give a set or beta, not both")])
def test_a_wrong_choice_is_told(given, expected):
    with pytest.raises(InputErrors) as caught:
        TrainedPhysics(TrainedPhysics.Parameters(**given), deploy())
    assert caught.value.faults == (expected,)


@pytest.mark.parametrize("given", [
    {"beta": [1.0] * 6}, {"beta": [1.0] * 12}, {"beta": [-1.0] * 7}, {"alpha": [1.0, 2.0]}, {"conventions": "mine"}])
def test_coefficients_out_of_range_are_refused(given):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, TrainedPhysics.Parameters)


def test_a_model_and_hardware_are_needed():
    with pytest.raises(ValueError, match="needs"):
        TrainedPhysics(TrainedPhysics.Parameters(beta=BETA), None)
