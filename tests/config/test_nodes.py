"""A replica larger than one fabric joins stands on a node type: a named one, the accelerator's usual one, or none."""
import pytest
import tomli

from simulator.assembly.site import Site
from simulator.config.load import load_experiment, resolved_toml
from simulator.domain.facts import load_accelerator, load_node, names
from simulator.errors import InputErrors
from simulator.latency.roofline.costs import link_bytes_per_s
from simulator.study.predict import predict

EXPERIMENT = """
model = {name = "llama-3.1-70b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 1
arrival = {process = "poisson", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 9}
output_tokens = {distribution = "constant", tokens = 9}
"""
OF_EXPERTS = {"model.name": "qwen3-30b-a3b", "topology.data_parallel": 16, "topology.expert_parallel": 16}


@pytest.fixture
def node_of(write):
    """Return the node type that stands in, with keys over those of EXPERIMENT; KeyError: none does."""
    def node_of(**keys):
        resolved = resolved_toml(load_experiment(write(EXPERIMENT), keys))
        return tomli.loads(resolved)["topology"].get("node")
    return node_of


def test_sixteen_ranks_are_priced_as_on_two_nodes_whether_these_are_named_or_not(write):
    def seconds(**keys):
        return predict(write(EXPERIMENT), [3000], overrides=keys).seconds

    unnamed = seconds(**{"topology.tensor_parallel": 16})

    assert unnamed == seconds(**{"topology.tensor_parallel": 16, "topology.node": "dgx-h100"})
    # 160 all-reduces of 3,000 x 8,192 x 2 bytes; 15/8 of them leave each rank, at 0.6 of 50 GB/s: 492 ms
    assert unnamed > 0.492 > 3 * seconds(**{"topology.tensor_parallel": 8})


def test_it_is_named_where_ranks_are_more_than_one_fabric_joins(node_of):
    assert node_of(**{"topology.tensor_parallel": 8}) is None
    assert node_of(**{"topology.tensor_parallel": 16}) == "dgx-h100"
    assert node_of(**{"topology.tensor_parallel": 8, "topology.pipeline_parallel": 2}) == "dgx-h100"
    assert node_of(**{"topology.tensor_parallel": 16, "hardware.name": "gb200"}) is None
    assert node_of(**OF_EXPERTS) == "dgx-h100"
    assert node_of(**OF_EXPERTS | {"hardware.name": "gb200"}) is None
    assert node_of(**{"topology.data_parallel": 16}) is None         # dense: such ranks tell each other nothing


def test_cards_with_bridges_are_joined_in_pairs_and_over_pcie_beyond(node_of, write):
    assert node_of(**{"topology.tensor_parallel": 2, "hardware.name": "a100-pcie-80gb"}) is None
    assert node_of(**{"topology.tensor_parallel": 8, "hardware.name": "l40s"}) is None

    four = Site(load_experiment(write(EXPERIMENT), {
        "topology.tensor_parallel": 4, "hardware.name": "a100-pcie-80gb"})).deployment

    assert link_bytes_per_s(four, 2) == 300e9 and link_bytes_per_s(four, 4) == 32e9


@pytest.mark.parametrize("name", names("hardware"))
def test_the_usual_node_holds_its_accelerator_and_is_no_faster_within(name):
    accelerator = load_accelerator(name)
    if accelerator.node:
        node = load_node(accelerator.node)
        assert node.accelerator == name
        if accelerator.scaleup_bytes_per_s:
            assert node.scaleup_bytes_per_s == accelerator.scaleup_bytes_per_s
        else:
            assert node.joined == node.num_accelerators


@pytest.mark.parametrize("name", names("hardware"))
def test_no_accelerator_prices_ten_thousand_ranks_as_one_fabric(write, name):
    keys = {"hardware.name": name, "topology.tensor_parallel": 128, "topology.pipeline_parallel": 80}
    if load_accelerator(name).node:
        assert load_experiment(write(EXPERIMENT), keys).topology.node == load_accelerator(name).node
        return
    with pytest.raises(InputErrors) as refused:
        load_experiment(write(EXPERIMENT), keys, "--set")
    assert refused.value.faults == (
        f"--set: topology.node: missing; a replica has 10240 accelerators, and {name}, without a known node "
        "type, is assumed to be in servers of 8: expected a name in hardware/nodes/ or a file of your own, with the "
        "links between nodes",)


def test_ranks_without_links_or_with_told_ones_need_no_node(node_of):
    alone = {"topology.tensor_parallel": 16, "hardware.name": "l4"}

    assert node_of(**alone | {"latency.backend": "linear"}) is None
    assert node_of(**alone | {"latency.collective": {"backend": "busbw", "nic_gb_per_s": 10.0}}) is None


def test_each_pool_stands_on_nodes_of_its_own(write):
    pools = """
    [kv_transfer]
    protocol = "nixl"
    [[pools]]
    name = "a"
    role = "prefill"
    topology = {tensor_parallel = 16}
    [[pools]]
    name = "b"
    role = "decode"
    hardware = {name = "b200-sxm-180gb"}
    topology = {tensor_parallel = 32}
    """
    found = load_experiment(write(EXPERIMENT + pools)).pools

    assert [pool.topology.node for pool in found] == ["dgx-h100", "dgx-b200"]


def test_what_is_written_reads_back_equal(write, tmp_path):
    first = load_experiment(write(EXPERIMENT), {"topology.tensor_parallel": 16})
    again = tmp_path / "b.toml"
    again.write_text(resolved_toml(first))

    assert load_experiment(again) == first
