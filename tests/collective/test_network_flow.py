"""Messages on a network: closed forms, laws of conservation, and what more bandwidth does."""
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.collective.flow import steps as decompose
from simulator.collective.flow.fabrics import TEMPLATES, Fabric, build_fabric
from simulator.collective.flow.network import FlowNetwork
from simulator.collective.flow.plan import LANE, Plan
from simulator.collective.flow.routes import Routes

MIB = 1 << 20
NVLINK, NIC = 360.0, 50.0           # bytes per ns of the default fabric: 2880 and 400 Gbit/s
FABRICS = st.builds(
    lambda design, servers, spines: build_fabric(
        Fabric(design=design, num_gpus=8 * servers, nics_per_switch=16 if "dcn" in design else 2,
               num_spine_switches=spines)),
    st.sampled_from(sorted(TEMPLATES)), st.integers(1, 4), st.sampled_from([2, 4]))
COLLECTIVES = {
    "all_reduce": lambda groups: decompose.ring(groups, 8, decompose.all_reduce_steps),
    "relayed_all_reduce": lambda groups: decompose.ring(groups, 8, decompose.all_reduce_steps, relays=True),
    "all_gather": lambda groups: decompose.ring(groups, 8, decompose.half_steps),
    "all_to_all": decompose.all_to_all,
    "send_receive": decompose.send_receive,
}


def wire(payload):
    """Return bytes with headers: 48 for each packet of 9000."""
    return payload + ceil(payload / 9000) * 48


def network(gpus=8, send_latency_ns=0.0, seed=0, **fabric):
    net = FlowNetwork(build_fabric(Fabric(num_gpus=gpus, **fabric)), send_latency_ns=send_latency_ns, seed=seed)
    net.checks = True
    return net


def lanes(*rows):
    """Return lanes of one message each, from (source, target, share)."""
    table = np.zeros(len(rows), LANE)
    table["source"], table["target"], table["share"] = zip(*rows, strict=True)
    table["num_steps"] = 1
    return table


# ---- theory

def test_one_message_takes_latency_and_bytes_over_bandwidth():
    # to the other server on the same rail: 2 hops of 500 ns there and back, one more packet time of 9048 B at 50 B/ns
    ns = network(16, send_latency_ns=3000.0).simulate(Plan(lanes((0, 8, 1.0))), MIB)

    assert ns == pytest.approx(3000 + wire(MIB) / NIC + 9048 / NIC + 4 * 500, rel=1e-12)


def test_a_message_within_a_server_goes_over_nvlink():
    ns = network(8).simulate(Plan(lanes((0, 5, 1.0))), MIB)

    assert ns == pytest.approx(wire(MIB) / NVLINK + 9048 / NVLINK + 4 * 25, rel=1e-12)


def test_the_slowest_link_sets_the_pace():
    # rail 0 to rail 1 through a PSW at 10 B/ns: its packet time counts once, in the transmission
    net = network(16, spine_gbps=80.0)

    ns = net.simulate(Plan(lanes((0, 9, 1.0))), MIB)

    assert ns == pytest.approx(wire(MIB) / 10.0 + 9048 * (2 / NIC + 1 / 10.0) + 8 * 500, rel=1e-12)


def test_a_message_shorter_than_a_packet_has_one_short_packet():
    ns = network(8).simulate(Plan(lanes((0, 1, 1.0))), 100)

    assert ns == pytest.approx(2 * 148 / NVLINK + 4 * 25, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_messages_through_one_link_share_it_equally(n):
    net = network(8)

    rows = net.record(Plan(lanes(*[(0, 1 + i, 1.0) for i in range(n)])), MIB)

    assert rows["left_ns"] == pytest.approx([n * wire(MIB) / NVLINK] * n, rel=1e-12)


def test_a_shorter_message_frees_its_share_when_it_ends():
    # both leave GPU 0; a quarter of the bytes is out after twice its own time, the rest then flows alone
    rows = network(8).record(Plan(lanes((0, 1, 0.25), (0, 2, 1.0))), MIB)

    short, long = wire(MIB / 4), wire(MIB)
    assert rows["left_ns"] == pytest.approx([2 * short / NVLINK, (short + long) / NVLINK], rel=1e-12)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_ring_all_reduce_is_its_closed_form(n):
    # 2 (n - 1) steps; n rings, each with chunks of 1 / n^2, share every GPU's link
    net = network(8, send_latency_ns=6000.0)
    chunk = MIB // n // n

    ns = net.simulate(decompose.ring([np.arange(n)], 8, decompose.all_reduce_steps), MIB)

    step = 6000 + n * wire(chunk) / NVLINK + min(wire(chunk), 9048) / NVLINK + 4 * 25
    assert ns == pytest.approx(2 * (n - 1) * step, rel=1e-12)


def test_nvls_all_reduce_is_five_parts_one_after_the_other():
    # four parts go up in turn, each when the one before has left; the last comes down when all have sent it
    net = network(8, send_latency_ns=12_000.0)
    switch = net.routes.path(0, 1)[1]
    part = wire(16 * MIB // 4) / NVLINK

    ns = net.simulate(decompose.nvls([np.arange(8)], [switch]), 16 * MIB)

    assert ns == pytest.approx(5 * (12_000 + part) + 2 * 2 * 25, rel=1e-12)


def test_all_to_all_fills_the_links_of_every_gpu():
    ns = network(8).simulate(decompose.all_to_all([np.arange(8)]), 8 * MIB)

    assert ns == pytest.approx(7 * wire(MIB) / NVLINK + 9048 / NVLINK + 4 * 25, rel=1e-12)


def test_a_connection_carries_one_message_at_a_time():
    # three messages of one lane, each begins when the one before has left, not when it is acknowledged
    table = lanes((0, 8, 1.0))
    table["num_steps"] = 3

    rows = network(16, send_latency_ns=100.0).record(Plan(table), MIB)

    assert np.diff(rows["left_ns"]) == pytest.approx([100 + wire(MIB) / NIC] * 2, rel=1e-9)


def test_a_message_waits_until_what_it_needs_is_acknowledged():
    plan = Plan(lanes((0, 8, 1.0), (9, 1, 1.0), (2, 3, 1.0)), [(0, 2, 0), (1, 2, 0)])

    rows = network(16, send_latency_ns=100.0).record(plan, MIB)

    assert rows["began_ns"][2] == pytest.approx(rows["done_ns"][:2].max() + 100)


def test_a_relay_carries_the_message_to_the_receivers_rail():
    plan = decompose.ring([np.arange(16)], 8, decompose.half_steps, relays=True)

    paths = {(int(lane["source"]), int(lane["target"])) for lane in plan.lane_table}

    assert all(a // 8 == b // 8 or a % 8 == b % 8 for a, b in paths)


# ---- laws

@settings(max_examples=40)
@given(FABRICS, st.sampled_from(sorted(COLLECTIVES)), st.integers(0, 3), st.sampled_from([0.0, 2000.0]))
def test_every_message_is_sent_once_and_no_link_carries_more_than_it_can(topology, kind, seed, latency):
    net = FlowNetwork(topology, send_latency_ns=latency, seed=seed)
    net.checks = True                                       # fairness is checked at every instant
    plan = COLLECTIVES[kind]([np.arange(topology.num_gpus)])

    rows = net.record(plan, MIB)

    assert sorted(zip(rows["lane"].tolist(), rows["step"].tolist(), strict=True)) == [
        (lane, step) for lane, row in enumerate(plan.lane_table) for step in range(row["num_steps"])]
    assert np.all(rows["began_ns"] >= latency) and np.all(rows["left_ns"] > rows["began_ns"])
    out = np.bincount(topology.links["source"], topology.links["bytes_per_ns"])[:topology.num_gpus]
    sent = np.bincount(plan.lane_table["source"][rows["lane"]], rows["wire_bytes"], minlength=topology.num_gpus)
    assert np.all(sent <= out * rows["left_ns"].max() * (1 + 1e-9))


@settings(max_examples=25)
@given(st.sampled_from(["all_reduce", "all_gather", "all_to_all"]), st.integers(1, 3), st.integers(1, 64))
def test_what_is_symmetric_ends_together(kind, servers, mib):
    net = network(8 * servers, num_spine_switches=1)        # one path for everybody
    groups = list(np.arange(8 * servers).reshape(servers, 8))

    rows = net.record(COLLECTIVES[kind](groups), mib * MIB)

    last = rows[rows["step"] == rows["step"].max()]
    assert last["done_ns"] == pytest.approx(last["done_ns"].max(), rel=1e-12)


@settings(max_examples=25)
@given(FABRICS, st.sampled_from(sorted(COLLECTIVES)), st.sampled_from([1.25, 2.0, 10.0]))
def test_faster_links_never_slow_a_collective(topology, kind, factor):
    plan = COLLECTIVES[kind]([np.arange(topology.num_gpus)])
    slow = FlowNetwork(topology).simulate(plan, MIB)
    topology.links["bytes_per_ns"] *= factor

    assert FlowNetwork(topology).simulate(plan, MIB) <= slow * (1 + 1e-9)


# Not so for rings that collide in the fabric: a faster link can let a message meet others that it would have missed,
# as more roads can slow traffic (Braess); a ring over four servers then takes up to 2.5 % longer.
@pytest.mark.parametrize("faster", ["nvlink_gbps", "nic_gbps", "spine_gbps"])
@pytest.mark.parametrize(("kind", "spans_rails"), [
    ("all_reduce", False), ("all_gather", False), ("relayed_all_reduce", True), ("all_to_all", True),
    ("send_receive", True)])
def test_faster_links_of_one_kind_never_slow_a_collective(kind, spans_rails, faster):
    gpus = np.arange(32)
    plan = COLLECTIVES[kind]([gpus] if spans_rails else list(gpus.reshape(4, 8).T))
    slow = {"nvlink_gbps": 2880.0, "nic_gbps": 400.0, "spine_gbps": 400.0, "num_spine_switches": 4}

    times = [network(32, **slow | {faster: slow[faster] * factor}).simulate(plan, 8 * MIB) for factor in (1, 2, 4)]

    assert times[1] <= times[0] * (1 + 1e-9) and times[2] <= times[1] * (1 + 1e-9)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_network_can_be_used_again(kind):
    net, plan = network(16), COLLECTIVES[kind]([np.arange(16)])

    assert len({net.simulate(plan, size) for size in (MIB, 8 * MIB) for _ in range(2)}) == 2


def test_another_seed_is_another_choice_of_paths():
    topology = build_fabric(Fabric(num_gpus=16, num_spine_switches=64))
    spines = {tuple(Routes(topology, seed).path(0, 9, port)[2] for port in range(20)) for seed in range(5)}

    assert len(spines) == 5


def test_ports_spread_messages_over_equal_paths():
    routes = Routes(build_fabric(Fabric(num_gpus=16, num_spine_switches=8)))

    chosen = np.bincount([routes.path(0, 9, port)[2] - 26 for port in range(8000)])

    assert len(chosen) == 8 and chosen.min() > 850          # 1000 each expected, standard deviation 30


# ---- what cannot be

def test_a_lane_without_a_way_is_refused():
    topology = build_fabric(Fabric(num_gpus=16))
    alone = type(topology)(**vars(topology) | {"links": topology.links[:16]})      # NVLinks only

    with pytest.raises(ValueError, match="no way from GPU 0 to GPU 8"):
        FlowNetwork(alone).simulate(Plan(lanes((0, 8, 1.0))), MIB)


@pytest.mark.parametrize("ends", [(16, 17), (16, 16), (0, 17), (17, 0)])     # NVSwitch 16 serves GPUs 0 to 7
def test_nvswitches_serve_their_own_gpus_only(ends):
    with pytest.raises(ValueError, match="no way from"):
        network(16).simulate(Plan(lanes((*ends, 1.0))), MIB)


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no GPUs 0 and 99"):
        network(8).check_routes(Plan(lanes((0, 99, 1.0))))


@pytest.mark.parametrize("edge", [(0, 1, 0), (0, 0, 2), (-1, 0, 0)])
def test_an_edge_that_leads_nowhere_is_refused(edge):
    with pytest.raises(ValueError, match="an edge joins two lanes"):
        Plan(lanes((0, 1, 1.0)), [edge])


@pytest.mark.parametrize("num_bytes", [-1.0, float("nan"), float("inf")])
def test_a_size_that_cannot_be_is_refused(num_bytes):
    with pytest.raises(ValueError, match="expected 0 to"):
        network(8).simulate(Plan(lanes((0, 1, 1.0))), num_bytes)


def test_what_was_checked_cannot_change():
    with pytest.raises(ValueError, match="read-only"):
        Plan(lanes((0, 1, 1.0))).lane_table["target"] = 99


def test_nothing_to_send_takes_no_time():
    assert network(8).simulate(decompose.all_to_all([[0]]), MIB) == 0.0
