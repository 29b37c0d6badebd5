"""What ranks in lock step take that do not have alike: experts by the tokens of all, the rest by a rank's own.

Two ranks, rank 0 with a prompt of 300 tokens and rank 1 with 20 decodes, or rank 1 with nothing: then it brings the one
token of its dummy. MIXTURE (tests/support/small_models.py) has one layer of 8 experts, of which a token chooses 2.
"""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain.experts import Experts, Popularity
from simulator.experts.pricing import ExpertPricing
from simulator.experts.timeline import Arrangement, ExpertTimeline
from simulator.latency.aicb.model import Aicb
from simulator.latency.aicb.tables import Layout, file_name
from simulator.latency.blis.trained_physics import TrainedPhysics
from simulator.latency.operators.model import Operators
from simulator.latency.roofline.model import Roofline, RooflineParameters
from support.operator_profiles import moe_rows, nccl_rows, write_tables
from support.small_models import MIXTURE, deploy

PROMPT, DECODES = ([(300, 0)], []), ([], [101] * 20)
EXPERT = 3 * 64 * 32                    # weights
APART, SLICED = {"data_parallel": 2, "expert_parallel": 2}, {"data_parallel": 2}
SLOW = RooflineParameters(              # 100 FLOP/ns, and nothing but arithmetic and links
    mfu_prefill=1e-4, mfu_decode=1e-4, mfu_attention=1e-4, bandwidth_efficiency=1.0, kernel_latency_us=0.0,
    attention_latency_us=0.0, collective_latency_us=0.0, link_efficiency=1.0)
UNEVEN = Experts(popularity=Popularity(distribution="zipf", s=1.0))


def pricing(deployment):
    deployment = replace(deployment, experts=UNEVEN)
    return ExpertPricing(load=ExpertTimeline(deployment).load_of(Arrangement()))


def step_ns(model, *batches, ranks=2):
    model.set_host(0.0, 0.0)
    return model.predict_step_ns(batches, ranks)


def alike_ns(model, batch):
    """Return the parts of a replica whose two ranks both have this batch."""
    return {name: seconds * 1e9 for name, seconds in model.breakdown(*(list(each) * 2 for each in batch)).items()}


# ---- roofline

@pytest.mark.parametrize(("batches", "gathered"), [((PROMPT, DECODES), 320), ((PROMPT,), 301)])
def test_roofline(batches, gathered):
    # Sliced experts: 2 of 12,288 FLOPs a token on 2 ranks, at 100 FLOP/ns; gathered tokens are of 128 bytes, half of
    # which go over 100 bytes/ns, there and back
    model = Roofline(SLOW, deploy(MIXTURE, **SLICED))
    own = alike_ns(model, PROMPT)
    of_all = gathered * 2 * EXPERT * 2 / 2 / 100 + 2 * gathered * 128 * 0.5 / 100

    expected = sum(own.values()) - own["experts"] - own["collectives"] + of_all
    assert step_ns(model, *batches) == pytest.approx(expected, abs=1)


def test_roofline_of_uneven_experts():
    deployment = deploy(MIXTURE, **APART)
    uneven = pricing(deployment)
    model = Roofline(SLOW, deployment, experts=uneven)
    own = alike_ns(model, PROMPT)
    # 320 tokens keep the busiest rank as busy as if all had this many times as many
    computed = 320 * 2 * EXPERT * 2 / 2 / 100 * uneven.load.imbalance[320]
    moved = 2 * 320 / 2 * 128 * 2 * 0.5 / 100       # gathered over 2 ranks, there and back

    expected = sum(own.values()) - sum(own[part] for part in ("experts", "imbalance", "dispatch", "combine"))
    assert step_ns(model, PROMPT, DECODES) == pytest.approx(expected + computed + moved, abs=1)


# ---- operators

@pytest.fixture
def measured(tmp_path):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(2, 1)) + moe_rows(ways=(1, 2)), nccl=nccl_rows())
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"))
    return lambda experts=None, **ways: Operators(parameters, deploy(MIXTURE, **ways), experts=experts)


@pytest.mark.parametrize(("batches", "gathered"), [((PROMPT, DECODES), 320), ((PROMPT,), 302)])
def test_operators(measured, batches, gathered):
    # Measured: experts of (1000 + 10 T) ns, gathered tokens of (2000 + 64 T) ns either way; an odd token is rounded up
    # to the part of a rank
    model = measured(**SLICED)
    own = alike_ns(model, PROMPT)
    of_all = 1000 + 10 * gathered + 2 * (2000 + 64 * gathered)

    expected = sum(own.values()) - own["experts"] - own["expert_all_gather"] - own["expert_reduce_scatter"] + of_all
    assert step_ns(model, *batches) == pytest.approx(expected, abs=2)


def test_operators_of_uneven_experts(measured):
    deployment = deploy(MIXTURE, **APART)
    uneven = pricing(deployment)
    even, model = measured(**APART), measured(uneven, **APART)

    added = 10 * 320 * (uneven.load.imbalance[320] - 1)
    assert step_ns(model, PROMPT, DECODES) - step_ns(even, PROMPT, DECODES) == pytest.approx(added, abs=2)


# ---- trained_physics

BETA = (2.0, 5.0, 11.0, 23.0, 13.0, 0.001, 19.0, 29.0, 3.0, 7.0, 31.0)         # a sequence: 1 ns


def trained(experts=None, beta=BETA, ways=APART, **more):
    return TrainedPhysics(TrainedPhysics.Parameters(beta=beta, **more), deploy(MIXTURE, **ways), experts=experts)


@pytest.mark.parametrize(("kind", "exchanged"), [
    # half of 320 tokens of 128 bytes, there and back, 1e6 bytes/us; or the 300 of rank 0 to 2 experts each
    ("all_gather", 320 * 0.5 * 128 * 2 / 2), ("all_to_all", 300 * 2 * 0.5 * 128 * 2)])
def test_trained_physics(kind, exchanged):
    model = trained(expert_exchange=kind)
    own = alike_ns(model, PROMPT)
    # Experts of rank 0 compute half of 300 tokens of the prompt and of 20 decodes: 24,576 FLOPs each at 1e9 a us; in
    # its own term are those of 300 tokens, as if both ranks had them.
    computed = 2.0 * (150 - 300) * 2 * 2 * EXPERT / 1e9 + 5.0 * 10 * 2 * 2 * EXPERT / 1e9

    # one sequence, not two
    expected = sum(own.values()) - own["expert_exchange"] + 1e3 * (computed + 31 * exchanged / 1e6) - 1
    assert step_ns(model, PROMPT, ([], [2] * 20)) == pytest.approx(expected, abs=1)


def test_trained_physics_of_uneven_experts():
    uneven = pricing(deploy(MIXTURE, **APART))
    added = (2.0 * 150 + 5.0 * 10) * 2 * 2 * EXPERT / 1e9 * (uneven.load.imbalance[320] - 1)

    found = step_ns(trained(uneven), PROMPT, DECODES) - step_ns(trained(), PROMPT, DECODES)
    assert found == pytest.approx(1e3 * added, abs=1)


# ---- aicb

@pytest.fixture
def tabled(tmp_path):
    """Tables of (1000 + 10 T) ns for attention and MLP, of experts (500 + 100 T) of prompts, half that of decodes."""
    def build(expert_parallel=2, experts=None, **more):
        layout = {"world_size": 2, "tensor_parallel": 1, "pipeline_parallel": 1, "expert_parallel": expert_parallel}
        for phase, size, length, tokens, factor in [
                *(("prefill", 1, length, length, 1.0) for length in (1, 1000)),
                *(("decode", size, 100, size, 0.5) for size in (1, 100))]:
            moe = (500 + 100 * tokens) * factor
            rows = [(0, "attention", 1000 + 10 * tokens, 0), (0, "mlp", 1000 + 10 * tokens, 0),
                    (1, "attention", 1000 + 10 * tokens, 0), (1, "moe", moe, 100 * tokens * (expert_parallel > 1))]
            name = file_name(Layout(model="M", phase=phase, **layout), size, length)
            (tmp_path / name).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
        parameters = Aicb.Parameters(tables=str(tmp_path), collective_latency_us=1.0, **more)
        return Aicb(parameters, deploy(MIXTURE, data_parallel=2, expert_parallel=expert_parallel), experts=experts)
    return build


@pytest.mark.parametrize(("batches", "mean"), [((PROMPT, DECODES), 160), ((PROMPT,), 151)])
def test_aicb(tabled, batches, mean):
    # Rank 0: three components of 300 tokens, experts of the mean, its own 30,000 bytes at 100 bytes/ns
    expected = 3 * (1000 + 3000) + 500 + 100 * mean + 300
    assert step_ns(tabled(), *batches) == expected


def test_aicb_where_another_rank_has_the_prompt(tabled):
    # Of 40 decodes and 4 prompt tokens of another; rank 0: components of 40, experts of 22 as tables of prompts have
    # them, 4000 bytes at 200 bytes/ns
    assert step_ns(tabled(), ([], [101] * 40), ([(4, 0)], [])) == 3 * (1000 + 400) + 500 + 2200 + 20
    # and of decodes alone, 60 and none but the dummy: of 31 sequences
    assert step_ns(tabled(), ([], [101] * 60)) == 3 * 1600 + (500 + 3100) / 2 + 30


def test_aicb_gathers_for_slices_of_experts(tabled):
    # 320 tokens of 128 bytes, half of them at 100 bytes/ns, and 1 us to start, there and back
    model = tabled(expert_parallel=1)
    expected = 3 * 4000 + 500 + 16_000 + 2 * (1000 + 320 * 128 * 0.5 / 100)
    assert step_ns(model, PROMPT, DECODES) == pytest.approx(expected, abs=1)

    parts = model.breakdown([], [101] * 20)
    assert parts["expert_exchange"] == pytest.approx(1e-9 * 2 * (1000 + 20 * 128 * 0.5 / 100))
    assert sum(parts.values()) == pytest.approx(model.predict([], [101] * 20))


def test_aicb_of_uneven_experts(tabled):
    uneven = pricing(deploy(MIXTURE, **APART))
    added = (500 + 16_000) * (uneven.load.imbalance[320] - 1)
    assert step_ns(tabled(experts=uneven), PROMPT, DECODES) - step_ns(tabled(), PROMPT, DECODES) == pytest.approx(
        added, abs=1)


# ---- SGLang's padding

def test_aicb_looks_up_what_sglang_pads(tabled):
    # 40 and 30 decodes as if both had 40: experts of 40, not of 35; beside two dummies the sum counts
    plain, padded = tabled(), tabled()
    padded.pad_gathered()
    uneven = ([], [101] * 40), ([], [101] * 30)
    assert step_ns(padded, *uneven) - step_ns(plain, *uneven) == 5 * 100 / 2
    assert step_ns(padded, uneven[0], ranks=3) == step_ns(plain, uneven[0], ranks=3)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(1, 60), st.booleans())
def test_the_longest_batch_counts_where_sglang_pads(ranks, decodes, is_padded):
    # MAX_LEN: as if all ranks had the decodes of the longest, where that at most doubles them; else their sum
    model = trained(ways={"data_parallel": ranks})
    if is_padded:
        model.pad_gathered()
    batches = [([], [50] * decodes)] + [([], [50] * -(-decodes // 2))] * (ranks - 1)
    total = decodes + -(-decodes // 2) * (ranks - 1)
    seen = ranks * decodes if is_padded and 2 * total >= ranks * decodes else total

    alike = alike_of(model, batches[0], ranks)
    arithmetic = 5.0 * (seen - ranks * decodes) / ranks * 2 * 2 * EXPERT / 1e9
    exchange = 31 * (seen - ranks * decodes) * (1 - 1 / ranks) * 128 * 2 / ranks / 1e6
    expected = alike - decodes * (ranks - 1) + 1e3 * (arithmetic + exchange)
    assert step_ns(model, *batches, ranks=ranks) == pytest.approx(expected, abs=1)


def alike_of(model, batch, ranks):
    return 1e9 * model.predict(*(list(each) * ranks for each in batch))
