"""Collectives between cards on PCIe: rates that pairs and servers reach, in every model of collectives."""
import msgspec
import pytest
from msgspec.structs import replace

from simulator.collective.busbw.model import Busbw
from simulator.collective.flow.model import Flow
from simulator.collective.flow.placement import network_of
from simulator.domain.efficiency import reached_pcie_bytes_per_s
from simulator.domain.facts import load_accelerator, load_node, names
from simulator.latency.roofline.costs import link_bytes_per_s
from support.small_models import DENSE, deploy

L40S, RTX_PRO, H100 = map(load_accelerator, ("l40s", "rtx-pro-6000-server", "h100-sxm-80gb"))
MIB = 1 << 20
BARE = {"size_ratios": False, "small_messages": False}


def placed(accelerator, ways=2, node=None):
    return deploy(DENSE, accelerator=accelerator, node=node and load_node(node), tensor_parallel=ways)


def reduced_s(model, parameters, deployment, num_bytes=512 * MIB):
    return model(msgspec.convert(parameters, model.Parameters), deployment).predict("tensor", "all_reduce", num_bytes)


@pytest.mark.parametrize(("ranks", "gb_per_s"), [(2, 20.1), (3, 5.16), (4, 5.16), (5, 1.45), (8, 1.45), (16, 1.45)])
def test_measured_rates_are_by_ranks(ranks, gb_per_s):
    assert reached_pcie_bytes_per_s(L40S, ranks) == gb_per_s * 1e9


@pytest.mark.parametrize("name", ["a10", "rtx-4090", "rtx-5090", "l4", "t4", "rtx-pro-6000-workstation"])
def test_other_cards_reach_a_share_of_the_link(name):
    card = load_accelerator(name)

    assert card.scaleup_bytes_per_s == 0
    assert reached_pcie_bytes_per_s(card, 2) == pytest.approx(0.6 * card.pcie_bytes_per_s)


def test_rates_of_cards_on_pcie_are_those_of_servers():
    cards = [card for card in map(load_accelerator, names("hardware"))
             if card.scaleup_bytes_per_s == 0 and card.pcie_bytes_per_s >= 32e9]

    assert len(cards) >= 8
    assert all(16e9 <= reached_pcie_bytes_per_s(card, 2) <= 39e9 for card in cards)


@pytest.mark.parametrize("node", [None, "l40s-8"])
@pytest.mark.parametrize("model", [Busbw, Flow])
def test_an_all_reduce_of_two_is_slower_than_over_nvlink_by_the_ratio_of_rates(model, node):
    nvlink = {Busbw: 370.8e9, Flow: 0.6 * 450e9}[model]        # that H100 reach, as each model takes it
    parameters = BARE if model is Busbw else {}
    slow, fast = (reduced_s(model, parameters, placed(card, node=where))
                  for card, where in ((L40S, node), (H100, node and "dgx-h100")))

    assert slow / fast == pytest.approx(nvlink / 20.1e9, rel=0.01)


def test_the_rooflines_links_have_this_ratio_too():
    assert link_bytes_per_s(placed(H100), 2) / link_bytes_per_s(placed(L40S), 2) == 450 / 32


@pytest.mark.parametrize(("ranks", "gb_per_s"), [(2, 38.6), (4, 26.4), (8, 24.7)])
@pytest.mark.parametrize("node", [None, "rtx-pro-6000-8"])
def test_bus_bandwidth_is_as_measured(ranks, gb_per_s, node):
    found = reduced_s(Busbw, BARE, placed(RTX_PRO, ranks, node))

    assert found == pytest.approx(512 * MIB * 2 * (ranks - 1) / ranks / (gb_per_s * 1e9))


def test_a_node_file_gives_the_network_between_nodes():
    superpod = placed(H100, 16, "dgx-h100-superpod")
    sparse = replace(superpod, node=replace(superpod.node, spine_bytes_per_s=0.0, num_spine_switches=1))
    flat = replace(superpod, node=replace(superpod.node, network="dcn_single_tor"))
    pods, thin, shared = (network_of(Flow.Parameters(), each) for each in (superpod, sparse, flat))

    # 2 servers: 16 links to NVSwitches, 16 cards on 8 rails, and each leaf to each of 16 spines
    assert len(pods.links) - len(thin.links) == 8 * 15
    assert pods.num_switches - shared.num_switches == 7
