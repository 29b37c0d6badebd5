"""Bus bandwidth, given and worked out, in the convention of this project; SimAI's is tested in parity/."""
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collective.busbw.facts import TABLES, ratios
from simulator.collective.busbw.links import links_of
from simulator.collective.busbw.model import Busbw
from simulator.collective.groups import KINDS, Group, groups_of
from simulator.collective.table.curves import Place, read_curves
from simulator.domain.facts import load_accelerator, load_node
from simulator.errors import InputErrors
from support.goldens import GOLDENS
from support.small_models import DENSE, deploy

MIB, GIB = 1 << 20, 1 << 30
DGX = {"node": load_node("dgx-h100"), "accelerator": load_accelerator("h100-sxm-80gb")}
MEASURED = GOLDENS.parent / "data/profiles/aiconfigurator/h100_sxm/nccl_perf.csv.gz"
BARE = {"size_ratios": False, "small_messages": False}


def busbw(deployment=DGX, ways=None, **parameters):
    """Return a model; parameters as in TOML."""
    ways = ways or {"tensor_parallel": 8}
    return Busbw(msgspec.convert(parameters, Busbw.Parameters), deploy(**deployment, **ways))


def in_us(model, group, kind, num_bytes):
    return model.predict(group, kind, num_bytes) * 1e6


# ---- given bandwidths: S k / busbw, a GB is 1e9 bytes

@pytest.mark.parametrize(("kind", "us"), [
    ("all_reduce", 1750.0),         # 300e6 bytes x 2 x 7/8 / 300 GB/s
    ("all_gather", 937.5),          # 300e6 x 7/8 / 280
    ("reduce_scatter", 1050.0),     # 300e6 x 7/8 / 250
    ("all_to_all", 1312.5),         # 300e6 x 7/8 / 200
])
def test_given_bandwidth_times_a_collective(kind, us):
    model = busbw(tensor={"all_reduce": 300, "all_gather": 280, "reduce_scatter": 250, "all_to_all": 200})

    assert in_us(model, "tensor", kind, 300e6) == pytest.approx(us)


def test_simai_counts_bytes_in_gibi_and_whole_nanoseconds():
    ours, theirs = (busbw(tensor={"all_reduce": 300}, convention=each) for each in ("decimal", "simai"))

    # 64 MiB x 1.75 / 300: 391,468.4 ns of 1e9 bytes a GB, 364,583.3 of 2^30
    assert in_us(ours, "tensor", "all_reduce", 64 * MIB) == pytest.approx(391.4684, rel=1e-6)
    assert in_us(theirs, "tensor", "all_reduce", 64 * MIB) == pytest.approx(364.583, abs=1e-9)


def test_message_between_stages_takes_its_bytes_over_the_pipeline_bandwidth():
    model = busbw(ways={"pipeline_parallel": 2}, pipeline_gb_per_s=47.5)

    assert in_us(model, "pipeline", "send_recv", 4.75e6) == pytest.approx(100.0)


def test_overlap_hides_its_share():
    model = busbw(tensor={"all_reduce": 300}, tensor_overlap=0.75)

    assert in_us(model, "tensor", "all_reduce", 300e6) == pytest.approx(0.25 * 1750.0)
    assert model.whole_ns("tensor", "all_reduce", 300e6) == pytest.approx(1750e3)


def test_simai_cuts_what_is_exposed_to_whole_nanoseconds():
    model = busbw(tensor={"all_reduce": 300}, tensor_overlap=0.3, convention="simai")

    # 364,583 ns in whole; 0.7 of them are 255,208.1
    assert in_us(model, "tensor", "all_reduce", 64 * MIB) == pytest.approx(255.208, abs=1e-9)


@pytest.mark.parametrize("num_bytes", [2, MIB - 1])
def test_simai_charges_small_messages_by_group_size_also_where_no_card_is_left_for_a_rank(num_bytes):
    model = busbw(ways={"tensor_parallel": 8, "data_parallel": 2}, nics_per_node=4, convention="simai")

    # 4 cards of 8 ranks: SimAI works with half a card, rounded to none, from 1 MiB up only
    assert in_us(model, "data", "all_reduce", num_bytes) == 10.0


# ---- small messages

def test_small_collective_takes_at_least_the_time_of_its_group():
    model = busbw()

    # 8 ranks: 15 us; 16 MiB x 1.75 / 370.8 GB/s = 79.18 us is above it
    assert in_us(model, "tensor", "all_reduce", 1) == in_us(model, "tensor", "all_reduce", MIB) == 15.0
    assert in_us(model, "tensor", "all_reduce", 16 * MIB) == pytest.approx(79.18, abs=0.01)


def test_group_size_that_is_not_tabled_takes_the_floor_of_the_next_larger():
    assert in_us(busbw(ways={"tensor_parallel": 3}), "tensor", "all_reduce", 1) == 12.0


def test_group_of_one_and_nothing_to_send_take_no_time():
    model = busbw()

    assert in_us(model, "expert", "all_to_all", GIB) == 0.0
    assert in_us(model, "tensor", "all_reduce", 0) == in_us(model, "tensor", "all_reduce", float("nan")) == 0.0


@given(st.sampled_from(KINDS[:4]), st.sampled_from([2, 3, 4, 8, 16, 48]),
       st.floats(1, 64 * GIB), st.floats(1, 1.5))
def test_more_bytes_never_take_less_time(kind, ranks, num_bytes, more):
    model = busbw(ways={"tensor_parallel": ranks})

    assert model.predict("tensor", kind, num_bytes) <= model.predict("tensor", kind, num_bytes * more) * (1 + 1e-12)


# ---- bandwidth worked out: DGX H100, NVLink 370.8 GB/s, 8 cards of 48.5

@pytest.mark.parametrize(("ways", "group", "kind", "gb_per_s"), [
    ({"tensor_parallel": 8}, "tensor", "all_reduce", 370.8),
    # 8 cards make 388 GB/s, above NVLink: then at most 370.8 x 8/7 = 423.8, so the cards limit
    ({"tensor_parallel": 16}, "tensor", "all_reduce", 388.0),
    # stride 8: one rank a node, 8/8 = 1 card
    ({"tensor_parallel": 8, "data_parallel": 4}, "data", "all_reduce", 48.5),
    # stride 4: two ranks a node that share 8/4 cards
    ({"tensor_parallel": 4, "data_parallel": 4}, "data", "all_reduce", 97.0),
    # stride 2 and 4 ranks: one node
    ({"tensor_parallel": 2, "data_parallel": 4}, "data", "all_reduce", 370.8),
    # 16 experts side by side over 2 nodes: 48.5 a GPU, of 15 parts 8 leave the node
    ({"data_parallel": 16, "expert_parallel": 16}, "expert", "all_to_all", 48.5 * 15 / 8),
    # stages of 8 in nodes of their own, a card a GPU; stages of 2 side by side
    ({"tensor_parallel": 8, "pipeline_parallel": 2}, "pipeline", "send_recv", 48.5),
    ({"tensor_parallel": 2, "pipeline_parallel": 2}, "pipeline", "send_recv", 370.8),
])
def test_bandwidth_follows_from_links_and_layout(ways, group, kind, gb_per_s):
    model = busbw(ways=ways, **BARE)
    size = groups_of(deploy(**DGX, **ways).parallelism)[group].size
    factor = 1 if kind == "send_recv" else (2 if kind == "all_reduce" else 1) * (size - 1) / size

    seconds = model.predict(group, kind, GIB)

    assert GIB * factor / seconds / 1e9 == pytest.approx(gb_per_s)


def test_fewer_cards_than_groups_that_share_them_still_carry_something():
    model = busbw(ways={"tensor_parallel": 8, "data_parallel": 2}, nics_per_node=4, **BARE)

    # half a card: 24.25 GB/s; k = 1
    assert model.predict("data", "all_reduce", 24.25e9) == pytest.approx(1.0)


def test_size_takes_its_share_of_the_bandwidth():
    ratio = {"size_ratios": True, "small_messages": False}

    # one node at 16 MiB 0.45 of 0.81; halfway to 32 MiB 0.50; all-reduce always reaches its peak
    full, shared = busbw(**BARE), busbw(**ratio)
    for size, share in ((16 * MIB, .45 / .81), (24 * MIB, .50 / .81), (MIB, .45 / .81), (16 * GIB, 1), (32 * GIB, 1)):
        assert (full.predict("tensor", "all_gather", size)
                == pytest.approx(shared.predict("tensor", "all_gather", size) * share))
    assert full.predict("tensor", "all_reduce", MIB) == shared.predict("tensor", "all_reduce", MIB)


def test_links_come_from_the_node_where_simai_knows_none():
    links = links_of(Busbw.Parameters(), deploy(node=load_node("gb200-nvl72"), accelerator=load_accelerator("gb200")))

    # 900 GB/s x 0.824; one card of 50 GB/s a GPU; 72 GPUs on one fabric
    assert (links.nvlink, links.nic, links.node_size, links.num_nics) == pytest.approx((741.6, 48.5, 72, 72))


def test_missing_link_is_named():
    accelerator = msgspec.structs.replace(DGX["accelerator"], name="lonely", scaleup_bytes_per_s=0, pcie_bytes_per_s=0)

    with pytest.raises(InputErrors, match=r"latency\.collective\.nvlink_gb_per_s: missing, and lonely has no rate"):
        busbw({"accelerator": accelerator})


@pytest.mark.skipif(not MEASURED.exists(), reason=f"no {MEASURED}")
@pytest.mark.parametrize(("from_bytes", "below_bytes", "lowest", "highest"), [
    (64 * MIB, 2 * GIB, -0.17, 0.20), (MIB, 64 * MIB, -0.62, 0.06), (0, MIB, -0.24, 1.09)])
def test_distance_from_measured_nccl_is_what_the_page_says(from_bytes, below_bytes, lowest, highest):
    curves = read_curves(MEASURED)
    misses = [
        model.predict("tensor", kind, size) * 1e9 / ns - 1
        for ranks in (4, 8) for model in [busbw(ways={"tensor_parallel": ranks})] for kind in KINDS[:4]
        for size, ns in zip(*curves[Place(kind, ranks, ranks)], strict=True) if from_bytes <= size < below_bytes]

    assert (min(misses), max(misses)) == pytest.approx((lowest, highest), abs=0.02)


# ---- tables, groups, memory

def test_ratio_tables_rise_with_size_up_to_noise_and_end_at_one():
    for table, columns in TABLES.items():
        for nodes in columns:
            column = ratios(table, nodes)
            assert column[-1] == 1.0
            assert all(after >= before - 0.02 for before, after in pairwise(column))


def test_node_counts_between_columns_take_the_smaller_one():
    assert ratios("nic", 3) == ratios("nic", 2)
    assert ratios("nvlink", 64) == ratios("nvlink", 16) != ratios("nvlink", 64, exactly=True)


def test_groups_lie_tensor_first_then_data_then_stages():
    groups = groups_of(deploy(DENSE, tensor_parallel=4, data_parallel=4, expert_parallel=8,
                              pipeline_parallel=2).parallelism)

    assert groups == {
        "tensor": Group(4, 1), "expert": Group(8, 2), "data": Group(4, 4), "pipeline": Group(2, 16)}
    assert [groups[name].per_node(8) for name in groups] == [4, 4, 2, 1]


def test_what_is_remembered_is_what_would_be_computed():
    model, fresh = busbw(), busbw()
    sizes = [float(tokens * 16384) for tokens in range(1, 4000)]

    first = [model.predict("tensor", "all_gather", size) for size in sizes]
    again = [model.predict("tensor", "all_gather", size) for size in sizes]

    assert first == again == [fresh.whole_ns("tensor", "all_gather", size) * 1e-9 for size in sizes]
    assert model.provenance() == {"exact": 2 * len(sizes), "interpolated": 0, "extrapolated": 0}


def test_memory_tells_groups_and_kinds_apart():
    model = busbw(ways={"tensor_parallel": 4, "data_parallel": 2}, **BARE)

    times = [model.predict(group, kind, GIB) for group in ("tensor", "data") for kind in ("all_reduce", "all_gather")]

    assert times == [model.predict(group, kind, GIB) for group in ("tensor", "data")
                     for kind in ("all_reduce", "all_gather")]
    assert len(set(times)) == 4
