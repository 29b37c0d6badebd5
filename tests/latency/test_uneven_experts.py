"""Experts that are not loaded evenly, under each backend that prices them."""
import numpy as np
import pytest
from msgspec.structs import replace

from latency.test_aicb import moe_layers, write
from simulator.domain.deployment import Deployment
from simulator.domain.experts import Dbo, Eplb, Experts, Popularity
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.memory_plan import plan
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.experts.deepep import H800, PUBLISHED
from simulator.experts.pricing import ExpertPricing
from simulator.experts.timeline import Arrangement, ExpertTimeline
from simulator.latency.aicb.model import Aicb
from simulator.latency.blis.trained_physics import TrainedPhysics
from simulator.latency.operators.model import Operators
from simulator.latency.roofline.laws import efficiency
from simulator.latency.roofline.model import Roofline
from support.experts import is_split, overlapped_ns
from support.operator_profiles import moe_rows, nccl_rows, write_table, write_tables
from support.small_models import MIXTURE, NO_RESERVE, NODE, deploy

LOADS = "800,100,100,100,60,60,40,40\n"
ONE = replace(MIXTURE, moe=replace(MIXTURE.moe, experts_per_token=1))
SHARES = {"mfu_prefill": 0.5, "mfu_decode": 0.5, "mfu_attention": 0.5, "bandwidth_efficiency": 0.5,
          "link_efficiency": 0.5, "kernel_latency_us": 0.001, "attention_latency_us": 0.01,
          "collective_latency_us": 0.1}


@pytest.fixture
def loads(tmp_path):
    path = tmp_path / "loads.csv"
    path.write_text(LOADS)
    return Popularity(distribution="file", file=str(path))


def deployment(model=ONE, experts=None, node=NODE, **ways):
    return replace(deploy(model, node, **ways), experts=experts or Experts())


def pricing(site, backend="allgather_reducescatter", arrangement=None):
    load = ExpertTimeline(site).load_of(arrangement or Arrangement())
    return ExpertPricing(load=load, all2all_backend=backend, dbo=site.experts.dbo)


def roofline(site, backend="allgather_reducescatter", **given):
    return Roofline(Roofline.Parameters(**SHARES), site, experts=pricing(site, backend), **given)


def in_ns(seconds):
    return {name: value * 1e9 for name, value in seconds.items()}


BATCHES = [{"prefill": [(500, 0)]}, {"decode": [100] * 40}, {"decode": [9]},
           {"prefill": [(300, 20)], "decode": [50] * 8}]


# ---- roofline

@pytest.mark.parametrize("batch", BATCHES)
def test_where_every_rank_holds_a_part_of_every_expert_even_loads_change_nothing(batch):
    site = deployment(tensor_parallel=2)
    plain = Roofline(Roofline.Parameters(**SHARES), deploy(ONE, NODE, tensor_parallel=2))

    # within what tables by tokens are interpolated
    assert roofline(site).predict(**batch) == pytest.approx(plain.predict(**batch), rel=1e-4)


@pytest.mark.parametrize("batch", BATCHES)
def test_parts_add_up(batch, loads):
    for site, backend in ((deployment(experts=Experts(popularity=loads), tensor_parallel=4, expert_parallel=4), None),
                          (deployment(tensor_parallel=2, data_parallel=4, expert_parallel=8), "deepep_low_latency"),
                          (deployment(data_parallel=4, expert_parallel=4), "allgather_reducescatter")):
        model = roofline(site, backend or "allgather_reducescatter")

        assert sum(model.breakdown(**batch).values()) == pytest.approx(model.predict(**batch), rel=1e-12)


def test_long_batches_take_as_long_as_the_hot_rank(loads):
    # Of 1300 / 4 = 325 the hot rank has 900; 20,000 choices add 1.2 % of noise at most. One expert: 6,144 weights x 2
    # FLOPs on 4 ranks at 5e5 FLOP/ns.
    site = deployment(experts=Experts(popularity=loads), tensor_parallel=4, expert_parallel=4)
    found = in_ns(roofline(site).breakdown(prefill=[(20_000, 0)]))

    assert found["experts"] == pytest.approx(20_000 * 2 * 6144 / 4 / 5e5)
    assert found["experts"] + found["imbalance"] == pytest.approx(found["experts"] * 900 / 325, rel=0.012)


def test_a_balanced_placement_costs_less_than_the_linear_one(loads):
    experts = Experts(popularity=loads, eplb=Eplb(num_redundant_experts=4))
    site = deployment(experts=experts, tensor_parallel=4, expert_parallel=4)
    after = Roofline(Roofline.Parameters(**SHARES), site, experts=pricing(site, arrangement=Arrangement(0, 1)))
    found = in_ns(after.breakdown(prefill=[(20_000, 0)]))

    assert found["experts"] + found["imbalance"] == pytest.approx(found["experts"] * 360 / 325, rel=0.012)


def test_one_token_reads_the_experts_that_it_chooses():
    # One of 8: with even loads each rank of 4 needs 2/8 of an expert; whole, 12,288 bytes at 500 bytes/ns.
    site = deployment(tensor_parallel=4, expert_parallel=4)
    found = in_ns(roofline(site).breakdown(decode=[10]))

    assert found["experts"] + found["imbalance"] == pytest.approx(2 / 8 * 6144 * 2 / 500)


def test_hot_experts_are_few_so_that_less_is_read(loads):
    site = deployment(experts=Experts(popularity=Popularity(distribution="zipf", s=3.0)))
    found = in_ns(roofline(site).breakdown(decode=[10] * 8))

    assert found["imbalance"] < 0


def test_experts_behind_an_exchange_move_the_tokens_that_reach_their_rank():
    # 6,400 tokens of 7,168 elements of 2 bytes, read and summed; with 8 experts a token, 1 - (63/64)^8 come to a rank.
    site = Deployment(
        model=load_model("deepseek-v3"), accelerator=load_accelerator("h800-sxm-80gb"), node=load_node("hgx-h800"),
        parallelism=Parallelism(data_parallel=64, expert_parallel=64), experts=Experts())
    law = efficiency().generations["hopper"].experts["fp8"]
    gathered, exchanged = (
        in_ns(Roofline(Roofline.Parameters(), site, experts=pricing(site, backend)).breakdown(decode=[100] * 6400))
        for backend in ("allgather_reducescatter", "deepep_low_latency"))

    moved = 2 * 2 * 6400 * 7168 * (63 / 64) ** 8
    assert gathered["experts"] - exchanged["experts"] == pytest.approx(58 * law.activation_passes * moved / 3350)
    assert exchanged["imbalance"] == pytest.approx(gathered["imbalance"])


def test_gathered_tokens_take_their_bytes_by_the_link():
    # 4 ranks on NVLink of 100 bytes/ns, half of it: 3/4 of 40 tokens of 128 bytes either way, 100 ns each to start
    site = deployment(data_parallel=4, expert_parallel=4)
    found = in_ns(roofline(site).breakdown(decode=[10] * 40))

    for what in ("dispatch", "combine"):
        assert found[what] == pytest.approx(100 + 0.75 * 40 * 128 / 50)


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row.ns], ids=lambda row: f"{row.what}-{row.ranks}")
def test_deepseek_on_h800_exchanges_as_published(row):
    site = Deployment(
        model=load_model("deepseek-v3"), accelerator=load_accelerator("h800-sxm-80gb"), node=load_node("hgx-h800"),
        parallelism=Parallelism(data_parallel=row.ranks, expert_parallel=row.ranks), experts=Experts())
    model = Roofline(Roofline.Parameters(), site, experts=pricing(site, row.backend))

    found = in_ns(model.breakdown(decode=[100] * (128 * row.ranks)))
    assert found[row.what] == pytest.approx(58 * row.ns, rel=0.05)      # layers with experts
    assert any("published times on H800" in told for told in model.warnings())
    assert H800.num_domains(row.ranks) == -(-row.ranks // 8)


@pytest.mark.parametrize(("tokens", "prompts"), [(32 * 8, 0), (31 * 8 + 7, 0), (512 * 8, 512 * 8), (511 * 8, 511 * 8)])
def test_two_batch_overlap_is_that_of_the_formula(tokens, prompts):
    dbo = Dbo(enabled=True)
    ways = {"data_parallel": 8, "expert_parallel": 8}
    plain, split = (roofline(deployment(experts=Experts(dbo=each), **ways), "deepep_low_latency")
                    for each in (Dbo(), dbo))
    batch = {"prefill": [(prompts, 0)]} if prompts else {"decode": [10] * tokens}
    half = {"prefill": [(prompts // 2, 0)]} if prompts else {"decode": [10] * (tokens // 2)}
    outside = "head", "sampler"

    if not is_split(tokens // 8, bool(prompts), dbo):
        assert split.predict(**batch) == plain.predict(**batch)
        return
    whole, halves = in_ns(plain.breakdown(**batch)), in_ns(plain.breakdown(**half))
    attention = "prefill_attention", "decode_attention", "state"
    exchange_ns = halves["dispatch"] + halves["combine"]
    compute_ns = sum(halves[name] for name in halves if name not in (*outside, *attention, "dispatch", "combine"))
    compute_ns += sum(whole[name] for name in attention) / 2
    expected = overlapped_ns(compute_ns, exchange_ns, 2, dbo) + sum(whole[name] for name in outside)
    assert split.predict(**batch) * 1e9 == pytest.approx(expected)
    assert sum(split.breakdown(**batch).values()) == pytest.approx(split.predict(**batch))
    assert "overlap" in split.breakdown(**batch)


def test_what_is_assumed_is_told():
    site = deployment(experts=Experts(dbo=Dbo(enabled=True)), data_parallel=4, expert_parallel=4)
    model = roofline(site, "deepep_low_latency")
    told = " ".join(model.warnings())

    for words in ("formula of our own", "two-batch overlap", "published times on H800", "nearest number of ranks"):
        assert words in told
    assert model.provenance()["experts"] == {
        "all2all_backend": "deepep_low_latency", "imbalance_at_start": 1.0, "dbo": True}


# ---- the other backends

def test_operators_look_experts_up_at_tokens_times_imbalance(loads, tmp_path):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 4)), nccl=nccl_rows(("alltoall",), ranks=4))
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"))
    experts = Experts(popularity=loads, placement="round_robin")
    site = deployment(MIXTURE, experts, tensor_parallel=4, expert_parallel=4)
    load = pricing(site).load
    plain = Operators(parameters, replace(site, experts=None))
    model = Operators(parameters, site, experts=pricing(site))

    for count in (1, 8, 100):
        found, even = model.breakdown(decode=[10] * count), plain.tables.tokens_ns["experts"]
        busiest = np.interp(count * load.imbalance[count], np.arange(len(even)), even)
        assert found["experts"] * 1e9 == pytest.approx(even[count])
        assert (found["experts"] + found["imbalance"]) * 1e9 == pytest.approx(busiest)
        assert sum(found.values()) == pytest.approx(model.predict(decode=[10] * count))
    assert model.provenance()["experts"]["imbalance_at_start"] == pytest.approx(load.expected, abs=1e-6)
    assert any("no axis of tables" in told for told in model.warnings())


SITE = "node_num,hidden_size,num_token,num_topk,num_experts,dispatch_avg_t_us,combine_avg_t_us"


@pytest.mark.parametrize("sequences", [8 * 8, 8 * 8 - 1, 8 * 31])
def test_operators_overlap_halves(sequences, tmp_path):
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 8)), nccl=nccl_rows(("alltoall",), ranks=4))
    write_table(folder, "wideep_deepep_ll", SITE, [f"1,64,{n},2,8,{10 + n},{20 + 2 * n}" for n in (1, 2, 4, 1024)])
    parameters = Operators.Parameters(
        path=str(folder), cache_directory=str(tmp_path / "cache"), all2all_backend="deepep_low_latency")
    dbo = Dbo(enabled=True, decode_token_threshold=8)
    plain, split = (Operators(parameters, site, experts=pricing(site, "deepep_low_latency")) for site in (
        deployment(MIXTURE, Experts(dbo=each), data_parallel=8, expert_parallel=8) for each in (Dbo(), dbo)))
    batch = {"decode": [16] * sequences}
    if sequences // 8 < 8:
        assert split.predict(**batch) == plain.predict(**batch)
        return

    half = (-(-sequences // 8) + 1) // 2
    tables = plain.tables.tokens_ns
    exchange_ns = sum(tables[name][half] for name in ("expert_dispatch", "expert_combine"))
    whole = in_ns(plain.breakdown(**batch))
    compute_ns = sum(ns[half] for ns in tables.values()) - exchange_ns
    compute_ns += (whole["decode_attention"] + whole["state"]) / 2
    outside = sum(whole[name] for name in plain.tables.samples_ns)
    assert split.predict(**batch) * 1e9 == pytest.approx(outside + overlapped_ns(compute_ns, exchange_ns, 2, dbo))
    assert sum(split.breakdown(**batch).values()) == pytest.approx(split.predict(**batch))


def test_trained_physics_counts_the_busiest_rank(loads):
    beta = (2.0, 5.0, 11.0, 23.0, 13.0, 17.0, 19.0, 29.0, 3.0, 7.0, 31.0)
    site = deployment(experts=Experts(popularity=loads), tensor_parallel=4, expert_parallel=4)
    plain = TrainedPhysics(TrainedPhysics.Parameters(beta=beta), replace(site, experts=None))
    model = TrainedPhysics(TrainedPhysics.Parameters(beta=beta), site, experts=pricing(site))
    extra = pricing(site).load.imbalance[1000] - 1
    # one layer, one expert of 6,144 weights on 4 ranks, 2 FLOPs each at 1e9 FLOP/us
    token_us = 2 * 6144 / 4 / 1e9

    assert (model.predict(prefill=[(1000, 0)]) - plain.predict(prefill=[(1000, 0)])) * 1e6 == pytest.approx(
        2.0 * 1000 * token_us * extra, rel=1e-6)
    assert (model.predict(decode=[5] * 1000) - plain.predict(decode=[5] * 1000)) * 1e6 == pytest.approx(
        5.0 * 1000 * token_us * extra, rel=1e-6)
    assert model.predict(decode=[5] * 9) == pytest.approx(sum(model.breakdown(decode=[5] * 9).values()))
    assert any("counted twice" in told for told in model.warnings())


def test_aicb_stretches_what_it_measured_of_experts(loads, tmp_path):
    for phase in ("decode", "prefill"):
        for length in (100, 200):
            write(tmp_path, phase, 1, length, moe_layers(100, 50, 1000, 0), world_size=4, tensor_parallel=4,
                  expert_parallel=4)
    site = deployment(experts=Experts(popularity=loads), tensor_parallel=4, expert_parallel=4)
    parameters = Aicb.Parameters(tables=str(tmp_path))
    plain, model = Aicb(parameters, replace(site, experts=None)), Aicb(parameters, site, experts=pricing(site))

    for batch, tokens in (({"decode": [150]}, 1), ({"prefill": [(150, 0)]}, 150)):
        extra = pricing(site).load.imbalance[tokens] - 1
        assert model.predict(**batch) - plain.predict(**batch) == pytest.approx(1000e-9 * extra)
        assert model.breakdown(**batch)["imbalance"] == pytest.approx(1000e-9 * extra)
        assert sum(model.breakdown(**batch).values()) == pytest.approx(model.predict(**batch))
    with pytest.raises(ValueError, match="knows of no imbalance"):
        Aicb(Aicb.Parameters(tables=str(tmp_path), variant="upstream"), site, experts=pricing(site))


# ---- memory

def test_redundant_experts_take_memory():
    ways = {"tensor_parallel": 4, "expert_parallel": 4}
    plain = deployment(**ways)
    copied = deployment(experts=Experts(eplb=Eplb(num_redundant_experts=4)), **ways)

    # a copy more on each rank: 6,144 weights of 2 bytes
    assert rank_weights(copied).num_bytes - rank_weights(plain).num_bytes == 6144 * 2
    before, after = (plan(each, 16, 1000, 1000, 10, NO_RESERVE) for each in (plain, copied))
    assert before.kv_cache_bytes - after.kv_cache_bytes == 6144 * 2
