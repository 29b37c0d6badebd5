"""The composition of an iteration from tables: every term worked out by hand, and what lies outside the tables."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from simulator.errors import InputErrors
from simulator.latency.aicb.links import AicbLinks
from simulator.latency.forest.measured import measured_ranges
from simulator.latency.forest.model import Forest, Reading
from simulator.latency.forest.profiles import ROUNDED_OPERATORS
from simulator.latency.forest.tables import EXTRAPOLATED, MEASURED, ForestTables
from support.small_models import DENSE, LATENT, MIXTURE, deploy

LAST_TOKENS, LAST_BATCH, LAST_CHUNK = 64, 4, 64


def tables(granularity=16, **changes):
    """Return tables of DENSE: 1 us a rounded operator and token; others by what they grow with."""
    tokens = np.arange(LAST_TOKENS + 1.0)
    contexts = np.arange(0, 65, granularity) * 1.0
    found = {
        "tokens": dict.fromkeys(ROUNDED_OPERATORS, tokens / 1000) | {"attn_kv_cache_save": tokens / 1e6},
        "decode": np.outer(np.arange(LAST_BATCH + 1.0), contexts) / 1e6,        # batch x context ns
        "prefill": np.add.outer(contexts * 1000, np.arange(LAST_CHUNK + 1.0)) / 1e6,    # context us + tokens ns
        "kv_granularity": granularity}
    return ForestTables(**found | changes)


def network(**names):
    """Return tables with collectives of so many ms, whatever their size."""
    return tables(tokens=tables().tokens | {name: np.full(LAST_TOKENS + 1, ms) for name, ms in names.items()})


def forest(model=DENSE, tables_=None, ways=None, **parameters):
    return Forest(convert(parameters, Forest.Parameters), deploy(model, **(ways or {})),
                  reading=Reading(tables_ or tables()))


def in_ns(terms):
    return {name: seconds * 1e9 for name, seconds in terms.items()}


# ---- the terms; DENSE has 2 layers and grouped KV heads

def test_operators_see_tokens_rounded_up_to_eight_and_the_cache_sees_them_exactly():
    found = in_ns(forest().breakdown(decode=[5, 5, 5]))

    # 8 x 1 us x 2 layers; 3 x 1 ns x 2 layers
    assert [found[name] for name in ROUNDED_OPERATORS] == pytest.approx([16_000.0] * 9)
    assert found["attn_kv_cache_save"] == pytest.approx(6.0)


def test_decodes_are_looked_up_at_their_mean_context_cut_then_rounded_up():
    model = forest()

    # mean 16.67, cut to 16, a multiple of the granularity: 3 x 16 ns x 2 layers x 1.1
    assert in_ns(model.breakdown(decode=[16, 16, 18]))["attn_decode"] == pytest.approx(3 * 16 * 2 * 1.1)
    # mean 17: 32
    assert in_ns(model.breakdown(decode=[16, 16, 19]))["attn_decode"] == pytest.approx(3 * 32 * 2 * 1.1)


def test_one_sequence_pays_no_batching_overhead():
    model = forest()

    assert in_ns(model.breakdown(decode=[16]))["attn_decode"] == pytest.approx(16 * 2)
    assert in_ns(model.breakdown(prefill=[(10, 0)]))["attn_prefill"] == pytest.approx(10 * 2)


def test_chunks_share_one_look_up():
    # contexts 1 and 17 round up to 16 + 32 = 48; tokens sqrt(3^2 + 4^2) = 5: (48,000 + 5) ns x 2 layers x 1.1
    found = in_ns(forest().breakdown(prefill=[(3, 1), (4, 17)]))["attn_prefill"]
    assert found == pytest.approx(48_005 * 2 * 1.1)


def test_batching_overheads_are_parameters():
    model = forest(attention_decode_batching_overhead_fraction=0.5, attention_prefill_batching_overhead_fraction=0.0)

    found = in_ns(model.breakdown(prefill=[(3, 0), (4, 0)], decode=[16, 16]))

    assert found["attn_decode"] == pytest.approx(2 * 16 * 2 * 1.5)
    assert found["attn_prefill"] == pytest.approx(5 * 2)


def test_tensor_parallelism_adds_two_all_reduces_a_layer_with_launch_and_skew():
    model = forest(tables_=network(all_reduce=0.003), ways={"tensor_parallel": 2}, nccl_cpu_skew_overhead_us=1.0)

    # (3 us + 20 us launch + 2^1.25 us skew) x 2 layers x 2
    found = model.breakdown(decode=[5])["all_reduce"]
    assert found * 1e6 == pytest.approx((23 + 2 ** 1.25) * 4)


def test_a_collective_model_takes_the_place_of_the_tables():
    deployment = deploy(tensor_parallel=2, pipeline_parallel=2)
    links = AicbLinks(deployment, 1.0, 0.5, 0.0)        # 1 ns a byte all-reduced by two ranks, 2 ns a byte sent
    parameters = Forest.Parameters(nccl_cpu_launch_overhead_us=20.0, nccl_cpu_skew_overhead_us=1.0)
    model = Forest(parameters, deployment, links, Reading(tables()))

    found = in_ns(model.breakdown(decode=[5]))

    # 8 tokens x 64 x 2 bytes: 2 layers x 2 all-reduces, each with 20 us launch and 2^1.25 us skew; one message
    assert found["all_reduce"] == pytest.approx(4 * (1024 + 20e3 + 1e3 * 2 ** 1.25))
    assert found["send_recv"] == pytest.approx(2 * 1024)
    assert model.predict(decode=[5]) * 1e9 == pytest.approx(sum(found.values()))


def test_a_collective_model_is_asked_for_any_number_of_tokens():
    deployment = deploy(tensor_parallel=2)
    model = Forest(Forest.Parameters(), deployment, AicbLinks(deployment, 1.0, 1.0, 0.0), Reading(tables()))

    # 1001 tokens, rounded up to 1008, beyond the tables' 64: 128 bytes each, 4 times, each with 20 us launch
    assert in_ns(model.breakdown(prefill=[(1001, 0)]))["all_reduce"] == pytest.approx(4 * (1008 * 128 + 20e3))


@pytest.mark.parametrize("key", ["all_reduce_file", "send_recv_file"])
def test_profiles_of_what_a_collective_model_times_are_refused(key):
    deployment = deploy(tensor_parallel=2, pipeline_parallel=2)
    with pytest.raises(InputErrors, match=f"latency.{key}: expected none with .latency.collective., which times"):
        Forest.read(Forest.Parameters(**{key: "profile.csv"}), deployment, AicbLinks(deployment, 1.0, 1.0, 0.0))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 64)), min_size=1, max_size=8))
def test_what_a_collective_model_was_asked_before_does_not_matter(batches):
    deployment = deploy(tensor_parallel=2)
    used, *fresh = (Forest(Forest.Parameters(), deployment, AicbLinks(deployment, 1.0, 1.0, 900.0), Reading(tables()))
                    for _ in range(len(batches) + 1))

    for model, (count, context) in zip(fresh, batches, strict=True):
        batch = {"decode": [context] * count}
        assert used.predict(**batch) == model.predict(**batch) == pytest.approx(sum(model.breakdown(**batch).values()))


def test_stages_share_layers_and_all_but_the_last_send():
    model = forest(tables_=network(send_recv=0.007), ways={"pipeline_parallel": 2})

    first, last = model.stage_times(decode=[5])

    # one layer each: 9 operators x 8 us, cache 1 ns, attention 16 ns; 7 us between them
    assert last * 1e9 == pytest.approx(72_017)
    assert first - last == pytest.approx(7e-6)
    assert model.predict(decode=[5]) == pytest.approx(first + last)


@pytest.mark.parametrize("decode", [[5], [5] * 10, [5] * 100], ids=["one", "ten", "beyond the tables"])
@pytest.mark.parametrize("has_links", [False, True], ids=["tables", "links"])
def test_the_engine_sees_the_same_stages(decode, has_links):
    host = {"schedule": np.arange(0.0, 0.011, 0.001)}
    deployment = deploy(pipeline_parallel=2)
    links = AicbLinks(deployment, 1.0, 0.5, 0.0) if has_links else None
    model = Forest(Forest.Parameters(), deployment, links,
                   Reading(tables(host=host, tokens=network(send_recv=0.007).tokens)))
    model.set_stages((1, 1))

    expected_ns = [seconds * 1e9 for seconds in model.stage_times(decode=decode)]

    assert model.predict_stages_ns(decode=decode) == pytest.approx(expected_ns, abs=1)
    assert expected_ns[0] > expected_ns[1]


def test_host_times_go_by_sequences_and_count_once_a_stage():
    host = {"schedule": np.array([0.0, 0.001, 0.002]), "ray_comm_time": np.array([0.0, 0.010, 0.020])}
    model = forest(tables_=tables(host=host, tokens=network(send_recv=0.0).tokens), ways={"pipeline_parallel": 2})

    found = model.breakdown(prefill=[(5, 0)], decode=[5])

    assert found["schedule"] == pytest.approx(2 * 2e-6) and found["ray_comm_time"] == pytest.approx(2 * 20e-6)


def test_a_model_of_one_norm_a_layer_has_no_second_norm():
    assert "post_attention_layernorm" not in forest(replace(DENSE, norms_per_layer=1)).breakdown(decode=[1])


# ---- outside the tables

def test_tokens_beyond_the_table_grow_linearly():
    model = forest()

    edge, beyond = (model.breakdown(prefill=[(tokens, 0)])["mlp_act"] for tokens in (64, 160))

    assert beyond == pytest.approx(edge * 160 / 64)


def test_decodes_beyond_the_table_grow_with_their_tokens_of_context():
    model = forest()

    # 8 x 80 against 4 x 64
    found = in_ns(model.breakdown(decode=[80] * 8))["attn_decode"]
    assert found == pytest.approx(4 * 64 * 2 * 1.1 * (8 * 80) / (4 * 64))


def test_chunks_beyond_the_table_grow_with_pairs():
    model = forest()

    # read at context 0 and 64 tokens: 64 ns x 2 layers, x 128 x 129 / (64 x 65)
    assert in_ns(model.breakdown(prefill=[(128, 0)]))["attn_prefill"] == pytest.approx(128 * 128 * 129 / (64 * 65))


def test_what_lies_outside_is_counted_and_told():
    model = forest()
    model.predict(decode=[16])
    model.predict(prefill=[(100, 0)])
    model.predict(decode=[16])

    assert model.provenance() == {"exact": 0, "interpolated": 2, "extrapolated": 1, "sources": []}
    assert model.warnings() == [
        "forest: 33.3% of 3 predictions lie outside the profiles: 1 x up to iterations of 100 tokens; "
        "1 x up to prefill attention over contexts of 0 tokens, chunks of 100"]


def test_nothing_outside_is_nothing_to_tell():
    model = forest()
    model.predict(prefill=[(10, 16)], decode=[16])

    assert model.warnings() == []


def test_what_lies_outside_is_an_error_if_asked():
    model = forest(outside="error")

    with pytest.raises(InputErrors, match=r"latency\.outside.*decode attention of 5 sequences, mean context 16"):
        model.predict(decode=[16] * 5)

    assert model.predict(decode=[16]) > 0


def test_entries_between_and_beside_measurements_are_told_apart():
    decode = np.full((LAST_BATCH + 1, 5), EXTRAPOLATED, dtype=np.uint8)
    decode[1, 1] = MEASURED
    operators = tables().tokens
    covered = {name: np.zeros(LAST_TOKENS + 1, dtype=np.uint8) for name in operators} | {"attn_decode": decode}
    model = forest(tables_=tables(covered=covered))

    model.predict(decode=[16])
    model.predict(decode=[17])

    assert model.provenance() == {"exact": 1, "interpolated": 0, "extrapolated": 1, "sources": []}


def test_weights_that_were_not_profiled_are_told():
    model = Forest(Forest.Parameters(), deploy(weight_dtype="fp8"), reading=Reading(tables()))

    assert model.warnings() == ["forest: profiles are of 16-bit weights, the model's are fp8"]


# ---- what cannot be predicted

@pytest.mark.parametrize(("model", "ways", "fault"), [
    (MIXTURE, {}, "mixture has experts"),
    (LATENT, {}, "latent has attention other than multi-head attention"),
    (DENSE, {"data_parallel": 2}, "data or expert parallelism"),
])
def test_models_without_profiles_are_refused(model, ways, fault):
    with pytest.raises(InputErrors, match=fault):
        forest(model, ways=ways)


def test_a_forest_needs_a_deployment():
    with pytest.raises(ValueError, match=r"needs \[model\] and \[hardware\]"):
        Forest(Forest.Parameters(), None)


# ---- properties

MODEL = forest()
PREFILL = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 200)), max_size=4)
DECODE = st.lists(st.integers(1, 200), max_size=8)


@given(PREFILL, DECODE, st.integers(1, 3))
def test_breakdown_sums_to_the_prediction(prefill, decode, drafts):
    if not prefill and not decode:
        return

    terms = MODEL.breakdown(prefill, decode, drafts)

    assert sum(terms.values()) == pytest.approx(MODEL.predict(prefill, decode, drafts), rel=1e-12)


@given(st.lists(DECODE.filter(bool), min_size=1, max_size=20))
def test_what_was_asked_before_changes_nothing(batches):
    used = forest()

    assert [used.predict(decode=batch) for batch in batches] == [forest().predict(decode=batch) for batch in batches]
    counts = used.provenance()
    assert counts["exact"] + counts["interpolated"] + counts["extrapolated"] == len(batches)


def test_tables_know_what_range_was_measured():
    between = np.array([2, 1, 0, 1, 0, 2], dtype=np.uint8)      # measured at 2 and 4 tokens
    decode = np.array([[2, 2, 2], [2, 0, 0]], dtype=np.uint8)    # one sequence, contexts of 64 and 128
    found = measured_ranges(ForestTables(
        tokens={"mlp": np.ones(6), "norm": np.ones(6)}, decode=np.ones((2, 3)), prefill=np.ones((1, 2)),
        kv_granularity=64, covered={"mlp": between, "attn_decode": decode}))

    assert found == {"attn_decode": {"sequences": [1, 1], "context_tokens": [64, 128]}, "mlp": {"tokens": [2, 4]}}
