"""Iterations composed of measured operators: terms by hand, how each was found, and what is beyond the tables."""
import hashlib
import shutil

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.collective.base import CollectiveModel
from simulator.domain.efficiency import COLLECTIVE_LATENCY_US
from simulator.domain.model_spec import Quantization
from simulator.errors import InputErrors
from simulator.latency.operators.model import Operators
from simulator.latency.overheads.drafter import Drafter
from support.operator_profiles import (
    SITES,
    context_rows,
    gemm_rows,
    generation_rows,
    moe_rows,
    write_tables,
)
from support.small_models import DENSE, LATENT, MIXTURE, NODE, RECURRENT, SLIDING, deploy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def build(folder, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")

    def build(model=DENSE, path=None, parameters=(), **ways):
        chosen = Operators.Parameters(path=str(path or folder), cache_directory=str(cache), **dict(parameters))
        return Operators(chosen, deploy(model, **ways))
    return build


def in_ns(terms):
    return {name: seconds * 1e9 for name, seconds in terms.items()}


# ---- a measured iteration, term by term; DENSE has 2 layers

def test_products_are_the_measured_ones_of_every_layer(build):
    found = in_ns(build().breakdown(decode=[4] * 8))

    # 8 tokens: 1000 + 8 n x 0.001 ns, twice; the head, once, of 8 rows
    assert found["qkv"] == pytest.approx(2 * (1000 + 8 * 128 * 1e-3))
    assert found["attention_out"] == pytest.approx(2 * (1000 + 8 * 64 * 1e-3))
    assert found["up_gate"] == pytest.approx(2 * (1000 + 8 * 256 * 1e-3))
    assert found["down"] == pytest.approx(2 * (1000 + 8 * 64 * 1e-3))
    assert found["lm_head"] == pytest.approx(1000 + 8 * 1024 * 1e-3)


def test_operators_in_no_table_move_their_bytes_at_four_fifths_of_bandwidth(build):
    found = in_ns(build().breakdown(decode=[4] * 8))

    # 8 tokens x 2 bytes / 800 bytes a ns: 4 x 64 elements a norm, 5 of them, 3 us each; 3 x 128 of the activation;
    # 2 (64 + 32) rotated and 2 x 64 of the cache
    per_element = 8 * 2 / 800
    assert found["norms"] == pytest.approx(5 * (3000 + 256 * per_element))
    assert found["activation"] == pytest.approx(2 * (3000 + 384 * per_element))
    assert found["rope_kv_write"] == pytest.approx(2 * (3000 + 320 * per_element))
    assert found["sampler"] == pytest.approx(6000 + 8 * 1024 * 10 / 800)


def test_decodes_attend_as_measured(build):
    # 2 layers x (1000 + 8 sequences x 4 tokens) ns
    assert in_ns(build().breakdown(decode=[4] * 8))["decode_attention"] == pytest.approx(2 * 1032)


@pytest.mark.parametrize(("decode", "ns"), [
    ([6] * 8, 1048),            # between columns 4 and 8: linear in the context
    ([4] * 6, 1024),            # between rows 4 and 8: linear in sequences
    ([2, 4, 6, 4], 1016),       # by the mean context
])
def test_decodes_between_measured_points_are_linear(build, decode, ns):
    assert in_ns(build().breakdown(decode=decode))["decode_attention"] == pytest.approx(2 * ns)


def test_a_measured_number_of_sequences_is_no_mean_of_its_neighbours(build, tmp_path):
    three = [row.rsplit(",", 1)[0] + ",0.0015" for row in generation_rows(batches=(3,))]

    model = build(path=write_tables(tmp_path, generation_attention=generation_rows() + three))

    assert in_ns(model.breakdown(decode=[4] * 3))["decode_attention"] == pytest.approx(2 * 1500)
    assert in_ns(model.breakdown(decode=[4] * 6))["decode_attention"] == pytest.approx(2 * 1024)


@pytest.mark.parametrize(("prefill", "ns"), [
    ([(16, 0)], 256),
    ([(40, 0)], 1600),                      # the root of time is linear: 40 x 40
    ([(16, 48)], 64 * 64 - 48 * 48),        # what it adds to its prefix
    ([(16, 0), (40, 0)], 256 + 1600),       # two prompts cost what half of a batch of two of each does
    ([(16, 0)] * 3, 3 * 256),
])
def test_prompts_attend_as_measured(build, prefill, ns):
    assert in_ns(build().breakdown(prefill=prefill))["prefill_attention"] == pytest.approx(2 * ns)


def test_a_chunk_costs_no_less_than_without_its_prefix(build, tmp_path):
    flat = [row.rsplit(",", 1)[0] + ",0.05" for row in context_rows()]

    model = build(path=write_tables(tmp_path, context_attention=flat))

    assert in_ns(model.breakdown(prefill=[(16, 48)]))["prefill_attention"] == pytest.approx(2 * 50_000)


def test_tensor_parallel_ranks_reduce_twice_a_layer(build):
    model = build(tensor_parallel=2)

    # 8 tokens x 64 elements of 2 bytes: 1000 + 512 ns, between measured 128 and 1024 elements
    assert in_ns(model.breakdown(decode=[4] * 8))["all_reduce"] == pytest.approx(2 * 2 * 1512)
    assert model.provenance()["operators"]["all_reduce"] == "measured"


def test_all_reduces_outside_of_a_cuda_graph_are_dearer(build):
    eager = build(parameters={"cuda_graph": False}, tensor_parallel=2)

    assert in_ns(eager.breakdown(decode=[4] * 8))["all_reduce"] == pytest.approx(2 * 2 * 11_512)


def test_mixture_layers_have_router_and_experts(build):
    found = in_ns(build(MIXTURE).breakdown(decode=[4] * 4))

    # one of two layers: 1000 + 10 x 4 ns
    assert found["experts"] == pytest.approx(1040)
    assert found["router"] == pytest.approx(1000 + 4 * 8 * 1e-3)


def test_shared_experts_are_products_beside_the_routed_ones(build):
    found = in_ns(build(MIXTURE).breakdown(decode=[4] * 4))

    # 64 wide, 2 x 32 up and 64 down, as a routed one; the other layer's network is 2 x 128 up; each 1000 + 4 n / 1000
    assert found["up_gate"] == pytest.approx(1000 + 4 * 256e-3 + 1000 + 4 * 64e-3)
    assert found["down"] == pytest.approx(1000 + 4 * 64e-3 + 1000 + 4 * 64e-3)


def test_data_parallel_ranks_share_the_batch_and_exchange_it_for_their_experts(build, tmp_path):
    path = write_tables(tmp_path, moe=moe_rows(ways=(1, 2)))

    found = in_ns(build(MIXTURE, path, data_parallel=2, expert_parallel=2).breakdown(decode=[4] * 8))

    # 4 tokens a rank in the router, 8 in the experts; 8 x 64 elements gathered: 2000 + 512 ns
    assert found["router"] == pytest.approx(1000 + 4 * 8 * 1e-3)
    assert found["experts"] == pytest.approx(1080)
    assert found["expert_all_gather"] == found["expert_reduce_scatter"] == pytest.approx(2512)


def test_the_load_of_experts_chooses_the_rows(build, tmp_path):
    rows = [*moe_rows(), *(row.rsplit(",", 1)[0] + ",0.5" for row in moe_rows(distribution="power_law_1.2"))]
    path = write_tables(tmp_path, moe=rows)

    skewed = build(MIXTURE, path, {"expert_load": "power_law_1.2"})

    assert in_ns(skewed.breakdown(decode=[4] * 4))["experts"] == pytest.approx(500_000)


def test_windowed_layers_see_their_window(build):
    found = in_ns(build(SLIDING).breakdown(decode=[512] * 8))

    # one layer sees all 512 tokens, one 100; between columns 64 and 128 linear all the same
    assert found["decode_attention"] == pytest.approx(1000 + 8 * 512 + 1000 + 8 * 100)


def test_measured_windows_come_first(build, tmp_path):
    rows = generation_rows() + [row.rsplit(",", 1)[0] + ",0.007" for row in generation_rows(window=100)]

    model = build(SLIDING, write_tables(tmp_path, generation_attention=rows))

    assert in_ns(model.breakdown(decode=[512] * 8))["decode_attention"] == pytest.approx(1000 + 8 * 512 + 7000)


# ---- how predictions were found

def counts(model):
    return [model.provenance()[name] for name in ("exact", "interpolated", "extrapolated", "roofline")]


def test_predictions_are_counted_by_their_worst_operator(build):
    model = build()

    model.predict(decode=[4] * 8)                   # all measured
    model.predict(decode=[5] * 8)                   # between contexts
    model.predict(prefill=[(16, 0)])                # measured: 16 tokens, 1 sample
    model.predict(decode=[1 << 21])                 # beyond all contexts
    model.predict(decode=[4] * 9)                   # 9 tokens lie between 8 and 16

    assert counts(model) == [2, 2, 1, 0]


def test_an_operator_without_a_table_falls_back_to_the_roofline_and_says_so(build):
    model = build(LATENT)

    model.predict(decode=[4] * 8)

    assert counts(model) == [0, 0, 0, 1]
    assert model.provenance()["operators"]["attention decode"] == "roofline"
    assert any("latent attention" in told and "roofline" in told for told in model.warnings())


def test_what_is_missing_can_be_refused(build):
    with pytest.raises(InputErrors, match="no latent attention of 4 heads"):
        build(LATENT, parameters={"missing": "error"})


def test_what_lies_beyond_the_tables_can_be_refused(build):
    model = build(parameters={"outside": "error"})

    assert model.predict(decode=[4]) > 0
    for _ in range(2):
        with pytest.raises(InputErrors, match=r"latency\.outside"):
            model.predict(decode=[1 << 21])


def test_extrapolations_are_warned_of(build):
    model = build()
    model.predict(decode=[1 << 21])

    assert any("100.0% of 1 predictions" in told for told in model.warnings())


def test_products_launched_by_the_host_are_refused_and_fp8_stands_in(build, tmp_path):
    blocks = msgspec.structs.replace(DENSE, quantization=Quantization(
        method="fp8", weight_dtype="fp8", group_size=16384, scale_bits=32))
    rows = gemm_rows() + gemm_rows("fp8", factor=0.5) + gemm_rows("fp8_block", factor=60)

    model = build(blocks, write_tables(tmp_path, gemm=rows))

    assert in_ns(model.breakdown(decode=[4] * 8))["qkv"] == pytest.approx(2 * 0.5 * (1000 + 8 * 128 * 1e-3))
    assert model.provenance()["operators"]["qkv"] == "extrapolated"
    assert any("launched by the host" in told for told in model.warnings())


@pytest.mark.parametrize(("method", "dtype", "group_size", "format"), [
    ("none", None, 0, "bfloat16"), ("fp8", "fp8", 0, "fp8"), ("fp8", "fp8", 128 * 128, "fp8_block"),
    ("modelopt", "fp4", 16, "nvfp4"), ("mxfp4", "fp4", 32, "w4a16_mxfp4"), ("awq", "int4", 128, "int4_wo")])
def test_weights_choose_the_rows_of_their_format(build, tmp_path, method, dtype, group_size, format):
    stored = Quantization(method=method, weight_dtype=dtype, group_size=group_size, scale_bits=16) if dtype else None
    rows = gemm_rows() + (gemm_rows(format, factor=0.5) if dtype else [])

    model = build(msgspec.structs.replace(DENSE, quantization=stored), write_tables(tmp_path, gemm=rows))

    factor = 0.5 if dtype else 1
    found = in_ns(model.breakdown(decode=[4] * 8))
    assert found["qkv"] == pytest.approx(2 * factor * (1000 + 8 * 128 * 1e-3))
    assert found["lm_head"] == pytest.approx(1000 + 8 * 1024 * 1e-3)        # never quantised
    assert model.provenance()["operators"]["qkv"] == "measured"


def test_points_that_ran_from_a_cache_are_raised_to_the_bandwidth_of_memory(build, tmp_path):
    # (128, 64) weights of 2 bytes at 1000 bytes/ns: 16.384 ns; keys and values of 2 x 16 elements, 8 x 1024 tokens
    fast = [row.rsplit(",", 1)[0] + ",0.000004" for row in gemm_rows(sites=((128, 64),))]
    decodes = [row.rsplit(",", 1)[0] + ",0.0001" for row in generation_rows()]

    model = build(path=write_tables(tmp_path, gemm=gemm_rows(sites=SITES[1:]) + fast, generation_attention=decodes))

    found = in_ns(model.breakdown(decode=[1024] * 8))
    assert found["qkv"] == pytest.approx(2 * 16.384)
    assert found["decode_attention"] == pytest.approx(2 * 8 * 1024 * 2 * 16 * 2 * 2 / 1000)
    assert any("8 of 56 measured points of bfloat16 products are faster than memory" in told
               for told in model.warnings())


def test_recurrent_layers_are_priced_by_the_roofline(build):
    model = build(RECURRENT)

    assert model.breakdown(decode=[4] * 8)["state"] > 0
    assert model.provenance()["operators"]["linear_attention"] == "roofline"


def test_provenance_names_the_files_by_their_contents(build, folder):
    digest = hashlib.sha256((folder / "gemm_perf.csv").read_bytes()).hexdigest()

    assert build().provenance()["tables"]["gemm"] == {
        "file": str(folder / "gemm_perf.csv"), "version": "", "sha256": digest,
        "measured": {"k": [32.0, 128.0], "m": [1.0, 32768.0], "n": [8.0, 1024.0]}}


def test_a_table_without_its_columns_is_named(build, tmp_path):
    path = write_tables(tmp_path)
    table = path / "gemm_perf.csv"
    table.write_text(table.read_text().replace("gemm_dtype,m,n,k", "gemm_dtype,m,width,k", 1))

    with pytest.raises(InputErrors, match=r"gemm_perf\.csv:1: n: no such column"):
        build(path=path)


class Microsecond(CollectiveModel):
    """A collective model: everything takes a microsecond."""

    def predict(self, group, kind, num_bytes):
        return 1e-6


def test_a_collective_model_times_all_communication(folder, tmp_path):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path))

    model = Operators(parameters, deploy(DENSE, tensor_parallel=2, pipeline_parallel=2), Microsecond())

    found = in_ns(model.breakdown(decode=[4] * 8))
    assert found["all_reduce"] == pytest.approx(4000)           # 2 layers, twice
    assert found["send_recv"] == pytest.approx(1000)            # between 2 stages
    assert found["logits_all_gather"] == pytest.approx(1000)
    assert model.provenance()["operators"]["all_reduce"] == "collective"


@pytest.mark.parametrize(("size", "bytes_per_ns"), [(4, 100), (2, 1)])
def test_stages_that_lie_on_two_nodes_hand_over_between_them(build, size, bytes_per_ns):
    node = replace(NODE, num_accelerators=size, scaleup_domain_size=size)
    found = build(node=node, tensor_parallel=2, pipeline_parallel=2).breakdown(decode=[4] * 8)

    # 8 tokens of 64 x 2 bytes at 0.6 of the link, and what every collective takes
    assert in_ns(found)["send_recv"] == pytest.approx(1024 / (0.6 * bytes_per_ns) + COLLECTIVE_LATENCY_US * 1e3)


# ---- properties

batches = st.fixed_dictionaries({
    "prefill": st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=4),
    "decode": st.lists(st.integers(2, 3000), max_size=40)}).filter(lambda batch: batch["prefill"] or batch["decode"])


@settings(max_examples=100)
@given(batch=batches, tokens_per_decode=st.integers(1, 3))
def test_terms_add_up_to_the_prediction(shared, batch, tokens_per_decode):
    total = sum(shared.breakdown(**batch, tokens_per_decode=tokens_per_decode).values())

    assert shared.predict(**batch, tokens_per_decode=tokens_per_decode) == pytest.approx(total, rel=1e-12)


@settings(max_examples=50)
@given(contexts=st.lists(st.integers(2, 5000), min_size=1, max_size=20), steps=st.integers(1, 30))
def test_a_prediction_does_not_depend_on_those_before(shared, contexts, steps):
    in_a_row = [shared.predict(decode=[c + step for c in contexts]) for step in range(steps)]
    shared.predict(prefill=[(7, 0)], decode=[9])
    shared.predict(decode=[2] * 21)

    assert shared.predict(decode=[c + steps - 1 for c in contexts]) == in_a_row[-1]


@pytest.fixture(scope="module")
def shared(folder, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return Operators(Operators.Parameters(path=str(folder), cache_directory=str(cache)), deploy(DENSE))


def test_a_damaged_file_of_the_cache_is_told_of_once(folder, tmp_path):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path))
    Operators(parameters, deploy(DENSE))
    kept = next(tmp_path.glob("*.h5"))
    kept.write_bytes(b"not HDF5")
    shutil.rmtree(tmp_path / "composed")        # else nobody reads it

    assert f"operators: {kept}: was damaged, or made from other inputs; it was made again" in Operators(
        parameters, deploy(DENSE)).warnings()
    assert not any("made again" in told for told in Operators(parameters, deploy(DENSE)).warnings())


def test_a_draft_model_is_looked_up_like_the_model(build):
    target, draft = build(tensor_parallel=2), build()
    batch = [(16, 0)], [8, 8]
    drafting = Drafter(target, 1, 0.0, 0.0, 0.0, drafter=draft)
    # The pass is that of the chunk, and of a second token of the two others, which read one more each.
    assert drafting.drafting_us(*batch) == pytest.approx(1e6 * build().predict([(16, 0)], [9, 9], 2))
    beyond = [warning for warning in drafting.warnings() if warning.startswith("draft model: ")]
    assert len(beyond) == len(draft.warnings())
    assert drafting.provenance() == target.provenance() | {"draft_model": draft.provenance()}


# ---- tables that say how, and on what width, they were measured

SMALL = "operator,elements,num_tokens,latency_ms"


def test_norms_of_a_measured_width_are_looked_up_and_others_borrow_their_effort(build, tmp_path):
    folder = write_tables(tmp_path)
    rows = [f"norms,{width},{tokens},{(1000 + 2 * tokens) * 1e-6}" for width in (256,) for tokens in (1, 8, 32768)]
    (folder / "small_perf.csv").write_text("\n".join([SMALL, *rows, "activation,768,8,0.004"]) + "\n")

    found = in_ns(build(path=folder).breakdown(decode=[4] * 8))

    assert found["norms"] == pytest.approx(5 * 1016)        # 4 x 64 elements; 2 a layer and the last
    assert found["activation"] == pytest.approx(2 * 2000)   # 3 x 128 elements: half of 768, half the time


def test_slow_products_count_where_the_table_says_how_they_were_timed(build, tmp_path):
    folder = write_tables(tmp_path)
    rows = [f"{row},cuda_graph" for row in gemm_rows(factor=20.0)]
    (folder / "gemm_perf.csv").write_text("\n".join(["gemm_dtype,m,n,k,latency_ms,timing", *rows]) + "\n")

    # 20 us at least: without the column it would pass for launched by the host
    assert build(path=folder).origins["qkv"] == "measured"
