"""Dispatch and combine of wide expert parallelism: by hand, and what the published tables count."""
import csv
import gzip
from importlib.util import find_spec

import pytest
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.latency.operators.model import Operators
from support.goldens import GOLDENS
from support.operator_profiles import moe_rows, nccl_rows, write_table, write_tables
from support.small_models import MIXTURE, NODE, deploy

TABLES = GOLDENS.parent / "data" / "profiles" / "aiconfigurator"
published = pytest.mark.skipif(not TABLES.is_dir(), reason="needs ../shared/data/profiles/aiconfigurator")
HAS_PACKAGE = find_spec("aiconfigurator_core") is not None and find_spec("pyarrow") is not None
package = pytest.mark.skipif(not HAS_PACKAGE, reason="needs the package aiconfigurator-core")

SITE = "node_num,hidden_size,num_token,num_topk,num_experts"
LOW = f"{SITE},dispatch_avg_t_us,combine_avg_t_us"
HIGH = (f"{SITE},dispatch_sms,dispatch_transmit_us,dispatch_notify_us,combine_sms,combine_transmit_us,"
        "combine_notify_us")


@pytest.fixture
def folder(tmp_path):
    """Return tables of 8 ranks: dispatch of 10 us + 1 a token, combine of 20 + 2; twice as much on 2 nodes."""
    folder = write_tables(tmp_path / "tables", moe=moe_rows(ways=(1, 8)), nccl=nccl_rows(("alltoall",), ranks=4))
    low, high = [], []
    for nodes in (1, 2):
        for tokens in (1, 2, 4, 1024):
            dispatch, combine = nodes * (10 + tokens), nodes * (20 + 2 * tokens)
            low.append(f"{nodes},64,{tokens},2,8,{dispatch},{combine}")
            high += [f"{nodes},64,{tokens},2,8,{sms},{factor * dispatch},0.5,{sms},{factor * combine},0.25"
                     for sms, factor in ((20, 3), (24, 1))]
    write_table(folder, "wideep_deepep_ll", LOW, low)
    return write_table(folder, "wideep_deepep_normal", HIGH, high)


def build(folder, mode, model=MIXTURE, **ways):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(folder / "cache"), all2all_backend=mode)
    return Operators(parameters, deploy(model, **ways))


def exchange_us(model, sequences):
    found = model.breakdown(decode=[4] * sequences)
    return found["expert_dispatch"] * 1e6, found["expert_combine"] * 1e6


def test_dispatch_and_combine_are_those_of_the_tokens_on_each_rank(folder):
    model = build(folder, "deepep_low_latency", data_parallel=8, expert_parallel=8)

    assert exchange_us(model, 32) == pytest.approx((14, 28))        # 4 on each; one layer of experts
    assert exchange_us(model, 24) == pytest.approx((13, 26))        # 3, between 2 and 4
    assert model.provenance()["operators"]["expert_dispatch"] == "measured"


def test_the_normal_mode_has_twenty_multiprocessors_and_a_notice(folder):
    model = build(folder, "deepep_high_throughput", data_parallel=8, expert_parallel=8)

    assert exchange_us(model, 32) == pytest.approx((3 * 14 + 0.5, 3 * 28 + 0.25))


def test_tensor_parallel_ranks_send_a_part_each(folder):
    model = build(folder, "deepep_low_latency", data_parallel=4, tensor_parallel=2, expert_parallel=8)

    assert exchange_us(model, 32) == pytest.approx((14, 28))        # 8 on two ranks


def test_two_nodes_have_rows_of_their_own(folder):
    many = replace(MIXTURE, moe=replace(MIXTURE.moe, num_experts=16))
    for name in ("wideep_deepep_ll", "wideep_deepep_normal"):
        path = folder / f"{name}_perf.csv"
        path.write_text(path.read_text().replace(",2,8,", ",2,16,"))

    model = build(folder, "deepep_low_latency", many, data_parallel=16, expert_parallel=16)

    assert exchange_us(model, 64) == pytest.approx((2 * 14, 2 * 28))


def test_more_ranks_of_one_link_domain_send_over_its_links(folder):
    many = replace(MIXTURE, moe=replace(MIXTURE.moe, num_experts=32))
    path = folder / "wideep_deepep_ll_perf.csv"
    path.write_text(path.read_text().replace(",2,8,", ",2,32,"))
    spread = {"data_parallel": 32, "expert_parallel": 32}

    # 8 ranks: 10 + t us and 20 + 2 t; of what comes on top of one token, 31/32 of the experts leave, not 7/8
    growth = (31 / 32) / (7 / 8)
    model = build(folder, "deepep_low_latency", many, **spread)
    assert exchange_us(model, 4 * 32) == pytest.approx((11 + 3 * growth, 22 + 6 * growth))
    assert exchange_us(model, 32) == pytest.approx((11, 22))
    assert not any("expert exchange" in told for told in model.warnings())
    across = build(folder, "deepep_low_latency", many, node=NODE, **spread)      # in domains of 4
    assert any("expert exchange: no deepep_low_latency of 32 ranks" in told for told in across.warnings())


def test_other_numbers_of_ranks_were_not_measured(folder):
    model = build(folder, "deepep_low_latency", data_parallel=4, expert_parallel=4)

    # 8 tokens on a rank, to 2 experts: 8 x 2 x 64 elements, 2 us and a ns each, of NCCL's all-to-all
    assert exchange_us(model, 32) == pytest.approx((3.024, 3.024))
    assert any("expert exchange: no deepep_low_latency of 4 ranks" in told for told in model.warnings())


def test_experts_must_be_spread_over_all_ranks(folder):
    with pytest.raises(InputErrors, match=r"needs topology\.expert_parallel = tensor_parallel x data_parallel = 8"):
        build(folder, "deepep_low_latency", data_parallel=8, expert_parallel=4)


def test_a_table_without_its_columns_is_named(folder):
    text = (folder / "wideep_deepep_ll_perf.csv").read_text().replace("num_topk", "topk_num")
    (folder / "wideep_deepep_ll_perf.csv").write_text(text)

    with pytest.raises(InputErrors, match=r"wideep_deepep_ll_perf\.csv:1: num_topk: no such column"):
        build(folder, "deepep_low_latency", data_parallel=8, expert_parallel=8)


# ---- the published tables

@published
@pytest.mark.parametrize("system", ["h100_sxm", "h200_sxm", "b200_sxm", "gb200"])
def test_the_low_latency_table_counts_the_tokens_of_one_rank(system):
    with gzip.open(TABLES / system / "wideep_deepep_ll_perf.csv.gz", "rt") as file:
        rows = [{name: cell if name == "device" else float(cell) for name, cell in row.items()}
                for row in csv.DictReader(file)]

    assert len(rows) > 100
    for row in rows:
        sent, hidden = row["num_token"] * row["num_topk"], row["hidden_size"]
        # fp8 with a float32 scale per 128 elements and 16 bytes of head; bfloat16 back
        assert row["dispatch_bandwidth_gbps"] * row["dispatch_avg_t_us"] * 1e3 == pytest.approx(
            sent * (hidden + hidden / 32 + 16), rel=0.05)
        assert row["combine_bandwidth_gbps"] * row["combine_avg_t_us"] * 1e3 == pytest.approx(
            sent * hidden * 2, rel=0.05)


@published
@pytest.mark.parametrize(("mode", "dispatch_us", "combine_us"), [
    ("deepep_high_throughput", 49.801142848267844, 84.81175543702379), ("deepep_low_latency", 35.119, 67.745)])
def test_deepseek_on_eight_h200_exchanges_as_measured(mode, dispatch_us, combine_us, tmp_path):
    model = Operators(
        Operators.Parameters(path=str(TABLES / "h200_sxm"), cache_directory=str(tmp_path), all2all_backend=mode),
        Deployment(model=load_model("deepseek-v3"), accelerator=load_accelerator("h200-sxm-141gb"),
                   parallelism=Parallelism(data_parallel=8, expert_parallel=8)))

    # 128 tokens on each rank, 58 layers with experts
    assert exchange_us(model, 8 * 128) == pytest.approx((58 * dispatch_us, 58 * combine_us))


@package
def test_more_nodes_take_an_older_version_of_the_tables(tmp_path):
    model = Operators(
        Operators.Parameters(cache_directory=str(tmp_path), all2all_backend="deepep_low_latency"),
        Deployment(model=load_model("deepseek-v3"), accelerator=load_accelerator("h200-sxm-141gb"),
                   parallelism=Parallelism(data_parallel=16, expert_parallel=16)))

    found = model.provenance()

    assert found["tables"]["wideep_deepep_ll"]["version"] == "0.5.6.post2"
    assert found["operators"]["expert_dispatch"] == "measured"
