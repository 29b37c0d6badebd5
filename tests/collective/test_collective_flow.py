"""`network.flow` as a collective model: placement, memory, interpolation, and what it refuses."""
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.collective.flow.fabrics import Fabric, build_fabric
from simulator.collective.flow.model import Flow
from simulator.collective.flow.placement import members_of
from simulator.domain.facts import load_accelerator, load_node
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.registry import load
from support.small_models import deploy

MIB = 1 << 20
DGX = {"node": load_node("dgx-h100"), "accelerator": load_accelerator("h100-sxm-80gb")}
GROUPS = ("tensor", "expert", "data", "pipeline")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def flow(ways=None, deployment=DGX, **parameters):
    """Return a model; parameters as in TOML."""
    return Flow(msgspec.convert(parameters, Flow.Parameters), deploy(**deployment, **ways or {"tensor_parallel": 8}))


def test_flow_is_registered():
    assert load("collective", "flow") is Flow


def test_an_all_reduce_in_a_server_is_the_ring_of_the_theory():
    # 14 steps of 6 us, 8 rings with chunks of 16 KiB (2 packets) over 360 B/ns, one packet more, 4 x 25 ns
    step = 6000 + 8 * (16384 + 96) / 360 + 9048 / 360 + 100

    assert flow(fabric={}).predict("tensor", "all_reduce", MIB) * 1e9 == pytest.approx(14 * step, rel=1e-12)


def test_links_are_the_nodes_own_at_the_share_that_collectives_reach():
    # 450 GB/s x 0.6 = 270 B/ns: 7 messages of 1 MiB in 117 packets leave each GPU
    expected = 6000 + 7 * (MIB + 117 * 48) / 270 + 9048 / 270 + 100

    assert flow().predict("tensor", "all_to_all", 8 * MIB) * 1e9 == pytest.approx(expected, rel=1e-9)


def test_nvls_takes_less_than_a_ring():
    ring, nvls = (flow(fabric={}, nvls=each).predict("tensor", "all_reduce", MIB) for each in (False, True))

    # 5 parts of 256 KiB in 30 packets with 6 us each, and both ways of one link
    assert nvls * 1e9 == pytest.approx(5 * (6000 + (MIB / 4 + 30 * 48) / 360) + 100, rel=1e-12)
    assert nvls < ring


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_collective_of_every_group_takes_time(group, kind):
    ways = {"tensor_parallel": 2, "data_parallel": 4, "pipeline_parallel": 2}
    model = flow(ways, fabric={"nics_per_switch": 8, "num_spine_switches": 4})

    expected_alone = group == "expert"      # expert_parallel = 1

    assert (model.predict(group, kind, MIB) == 0.0) == expected_alone


def test_groups_of_a_kind_lie_where_their_ranks_are():
    members = members_of(Parallelism(tensor_parallel=2, data_parallel=2, pipeline_parallel=2, expert_parallel=4), 8)

    assert {name: np.array(rows).tolist() for name, rows in members.items()} == {
        "tensor": [[8, 9], [10, 11], [12, 13], [14, 15]],
        "expert": [[8, 9, 10, 11], [12, 13, 14, 15]],
        "data": [[8, 10], [9, 11], [12, 14], [13, 15]],
        "pipeline": [[8, 12], [9, 13], [10, 14], [11, 15]],
    }


def test_a_size_is_simulated_once():
    model = flow(fabric={})
    times = [model.predict("tensor", kind, size) for _ in range(3) for kind in KINDS for size in (MIB, 2 * MIB)]

    assert model.num_simulations == 10
    assert times[:10] == times[10:20] == times[20:]
    assert model.provenance() == {"exact": 30, "interpolated": 0, "extrapolated": 0}


def test_sizes_are_remembered_beyond_what_the_fast_memory_holds():
    model = flow({"tensor_parallel": 2}, fabric={})
    first = [model.predict("tensor", "all_reduce", 1000.0 * i) for i in range(1, 3001)]

    assert [model.predict("tensor", "all_reduce", 1000.0 * i) for i in range(1, 3001)] == first
    assert model.num_simulations == 3000


def test_interpolated_sizes_are_close_and_counted():
    exact, between = flow(fabric={}), flow(fabric={}, sizes_per_octave=8)
    sizes = [3e5, 1e6, 7e6, 9.9e7, 1 << 20]

    ours = [between.predict("tensor", "all_reduce", size) for size in sizes]

    assert ours == pytest.approx([exact.predict("tensor", "all_reduce", size) for size in sizes], rel=2e-3)
    assert between.provenance() == {"exact": 1, "interpolated": 4, "extrapolated": 0}
    assert between.num_simulations == 8             # 2^20 bounds 1e6 too


def test_a_topology_file_is_used(tmp_path):
    path = tmp_path / "topo.txt"
    path.write_text(build_fabric(Fabric(num_gpus=8, nvlink_gbps=1440)).text())

    from_file = flow(topology=str(path)).predict("tensor", "all_reduce", MIB)

    assert from_file == flow(fabric={"nvlink_gbps": 1440}).predict("tensor", "all_reduce", MIB)


def test_a_replica_may_begin_at_another_gpu():
    far = flow({"tensor_parallel": 2}, fabric={"num_gpus": 16, "num_spine_switches": 2}, first_gpu=7)
    near = flow({"tensor_parallel": 2}, fabric={"num_gpus": 16, "num_spine_switches": 2})

    # GPUs 7 and 8 are in two servers
    assert far.predict("tensor", "all_reduce", MIB) > near.predict("tensor", "all_reduce", MIB)


@pytest.mark.parametrize(("parameters", "fault"), [
    ({"topology": "a.txt", "fabric": {}}, "latency.collective: topology and fabric exclude each other"),
    ({"fabric": {"num_gpus": 8}, "first_gpu": 4}, "latency.collective: the network has 8 GPUs, the replica needs 12"),
    ({"topology": "nothing.txt"}, r"nothing\.txt: cannot be read"),
])
def test_what_cannot_be_simulated_is_refused(parameters, fault):
    with pytest.raises(InputErrors, match=fault):
        flow(**parameters)


def test_a_network_in_pieces_is_refused(tmp_path):
    topology = build_fabric(Fabric(num_gpus=16, num_spine_switches=1))
    text = type(topology)(**vars(topology) | {"links": topology.links[:16]}).text()
    path = tmp_path / "topo.txt"
    path.write_text(text)

    with pytest.raises(InputErrors, match="no way from GPU 0 to GPU 8"):
        flow({"tensor_parallel": 16}, topology=str(path))


def test_an_accelerator_without_links_needs_a_network():
    with pytest.raises(InputErrors, match="no link inside a server is known for l4"):
        flow({"tensor_parallel": 2}, deployment={"accelerator": replace(load_accelerator("l4"), pcie_bytes_per_s=0.0)})
