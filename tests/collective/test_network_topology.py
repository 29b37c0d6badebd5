"""SimAI's topology files and the networks made by design."""
import numpy as np
import pytest

from simulator.collective.flow.fabrics import TEMPLATES, Fabric, build_fabric
from simulator.collective.flow.routes import Routes
from simulator.collective.flow.topology import read_topology
from simulator.errors import InputErrors
from support.goldens import GOLDENS

FOLDER = GOLDENS / "simai" / "topo"
# Two servers of one GPU: each with its NVSwitch, and one switch between them.
SMALL = """\
5 1 2 1 4 H100
2 3 4
0 2 2880Gbps 0.000025ms 0
0 4 400Gbps 0.0005ms 0
1 3 2880Gbps 0.000025ms 0
1 4 400Gbps 0.5us 0.0
"""
SHIPPED = GOLDENS.parent / "data" / "aicb" / "simai" / "topology"
MADE_BY_SIMAI = {   # file: the design and what was asked for
    "AlibabaHPN_64g_8gps_DualToR_DualPlane_200Gbps_H100":
        Fabric(design="alibaba_hpn_dual_plane", num_gpus=64, num_spine_switches=16),
    "AlibabaHPN_64g_8gps_DualToR_SinglePlane_200Gbps_H100":
        Fabric(design="alibaba_hpn_single_plane", num_gpus=64, num_spine_switches=16),
    "DCN+DualToR_128g_8gps_200Gbps_H100": Fabric(design="dcn_dual_tor", num_gpus=128),
    "DCN+SingleToR_64g_8gps_400Gbps_H100": Fabric(design="dcn_single_tor", num_gpus=64, num_spine_switches=4),
    "Rail_Opti_SingleToR_32g_8gps_400Gbps_H100": Fabric(design="rail_optimized", num_gpus=32, nvlink_gbps=1360),
    "Spectrum-X_128g_8gps_100Gbps_A100":
        Fabric(design="spectrum_x", num_gpus=128, gpu_type="A100", nvlink_gbps=2400, nic_gbps=100),
    "Spectrum-X_16g_8gps_400Gbps_H100": Fabric(design="spectrum_x", num_gpus=16, num_spine_switches=8),
    "Spectrum-X_8g_8gps_400Gbps_H100": Fabric(design="spectrum_x", num_gpus=8, num_spine_switches=1),
}


def written(tmp_path, text):
    path = tmp_path / "topo.txt"
    path.write_text(text)
    return path


def faults_of(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(InputErrors) as errors:
        read_topology(path)
    return [fault.removeprefix(f"{path}:") for fault in errors.value.faults]


def assert_same_links(ours, theirs):
    a, b = (np.sort(topology.links, order=["source", "target"]) for topology in (ours, theirs))
    assert a[["source", "target"]].tolist() == b[["source", "target"]].tolist()
    for field in ("bytes_per_ns", "latency_ns"):
        assert a[field] == pytest.approx(b[field], rel=1e-12)


def test_a_file_is_read_with_its_units(tmp_path):
    topology = read_topology(written(tmp_path, SMALL))

    assert (topology.num_gpus, topology.gpus_per_server, topology.num_nv_switches) == (2, 1, 2)
    assert (topology.num_switches, topology.gpu_type, topology.first_switch) == (1, "H100", 4)
    # 2880 Gbit/s = 360 bytes per ns; 0.0005 ms = 500 ns
    assert topology.links["bytes_per_ns"].tolist() == pytest.approx([360.0, 50.0, 360.0, 50.0])
    assert topology.links["latency_ns"].tolist() == pytest.approx([25.0, 500.0, 25.0, 500.0])


def test_what_is_written_reads_the_same(tmp_path):
    topology = build_fabric(Fabric(design="alibaba_hpn_dual_plane", num_gpus=32, num_spine_switches=4))

    again = read_topology(written(tmp_path, topology.text()))

    assert again.num_nodes == topology.num_nodes
    assert_same_links(again, topology)


@pytest.mark.parametrize(("old", "new", "fault"), [
    ("5 1 2 1 4 H100", "5 1 2 1 H100", '1: header: expected 6 fields: nodes gpus_per_server nv_switches other_switches '
                                       'links gpu_type, found "5 1 2 1 H100"'),
    ("5 1 2 1 4", "five 1 2 1 4", '1: nodes: expected an integer from 2 to 100000000, found "five"'),
    ("5 1 2 1 4", "5 1 2 3 4", '1: nodes: expected 1 to 1000000 GPUs besides 5 switches, found "5"'),
    ("5 1 2 1 4", "5 3 2 1 4", '1: gpus_per_server: expected a divisor of the 2 GPUs, found "3"'),
    ("5 1 2 1 4", "5 1 2 1 9", '1: links: expected 4, the number of lines after the second, found "9"'),
    ("2 3 4\n", "2 3\n", '2: switch ids: expected the 3 ids 2 to 4 in order, found "2 3"'),
    ("0 4 400Gbps", "0 5 400Gbps", '4: target: expected an integer from 0 to 4, found "5"'),
    ("0 4 400Gbps", "0 0 400Gbps", '4: target: expected another node than the source, found "0"'),
    ("0 4 400Gbps", "0 4 400GBps", '4: bandwidth: expected a number and one of bps, Kbps, Mbps, Gbps, Tbps, '
                                   'found "400GBps"'),
    ("0 4 400Gbps", "0 4 0Gbps", '4: bandwidth: expected more than 0, found "0Gbps"'),
    ("0.5us", "-1us", '6: latency: expected a number and one of ns, us, ms, s, found "-1us"'),
    ("0.5us 0.0", "0.5us 0.01", '6: error_rate: expected 0, as loss is not simulated, found "0.01"'),
    ("0.5us 0.0", "0.5us", '6: link: expected 5 fields: source target bandwidth latency error_rate, '
                           'found "1 4 400Gbps 0.5us"'),
    ("1 4 400Gbps", "4 0 400Gbps", '6: link: expected one link between two nodes, line 4 has it, '
                                   'found "4 0 400Gbps 0.5us 0.0"'),
])
def test_a_fault_is_told_by_line_and_field(tmp_path, old, new, fault):
    assert fault in faults_of(tmp_path, SMALL.replace(old, new))


def test_all_faults_are_told_at_once(tmp_path):
    faults = faults_of(tmp_path, SMALL.replace("Gbps", "bits"))

    assert [fault.split(":")[0] for fault in faults] == ["3", "4", "5", "6"]


def test_many_faults_are_counted(tmp_path):
    lines = ["100 1 0 50 49 H100", " ".join(map(str, range(50, 100))), *["0 60 1Gbps nothing 0"] * 49]

    assert faults_of(tmp_path, "\n".join(lines))[-1].endswith("more faults")


@pytest.mark.parametrize("text", ["", "\n", "\x00\x01", "1 2 3 4 5 6\n"])
def test_a_file_that_is_no_topology_is_refused(tmp_path, text):
    assert faults_of(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputErrors, match=r"nothing\.txt: cannot be read"):
        read_topology(tmp_path / "nothing.txt")


@pytest.mark.skipif(not FOLDER.exists(), reason=f"no recorded topologies in {FOLDER}")
@pytest.mark.parametrize("name", MADE_BY_SIMAI)
def test_designs_are_those_of_simais_generator(name):
    ours, theirs = build_fabric(MADE_BY_SIMAI[name]), read_topology(FOLDER / name)

    assert ours.gpus_per_server == theirs.gpus_per_server and ours.gpu_type == theirs.gpu_type
    assert_same_links(ours, theirs)


@pytest.mark.skipif(not FOLDER.exists(), reason=f"no recorded topologies in {FOLDER}")
def test_every_recorded_topology_is_compared():
    assert {path.name for path in FOLDER.iterdir()} == set(MADE_BY_SIMAI)


@pytest.mark.skipif(not SHIPPED.exists(), reason=f"no topologies in {SHIPPED}")
@pytest.mark.parametrize(("name", "num_gpus", "num_links"), [
    ("16g", 16, 96), ("64gpu", 8, 528), ("128gpu", 16, 544)])      # the last two have fewer GPUs than they say
def test_topologies_that_simai_ships_are_read(name, num_gpus, num_links):
    topology = read_topology(SHIPPED / f"Rail_Opti_SingleToR_{name}_8gps_200Gbps_H20.txt")

    assert (topology.num_gpus, topology.gpu_type, len(topology.links)) == (num_gpus, "H20", num_links)


@pytest.mark.parametrize("design", TEMPLATES)
def test_every_gpu_of_a_design_reaches_every_other_one(design):
    has_rails = TEMPLATES[design].has_rails         # two servers to a segment in either case
    topology = build_fabric(Fabric(design=design, num_gpus=48, nics_per_switch=2 if has_rails else 16,
                                   num_spine_switches=4))
    routes = Routes(topology)

    paths = {(a, b): routes.path(a, b) for a in range(48) for b in range(48) if a != b}

    assert all(path[0] == a and path[-1] == b for (a, b), path in paths.items())
    # NVSwitch inside a server; outside ASW, or ASW, PSW, ASW
    assert {len(path) for (a, b), path in paths.items() if a // 8 == b // 8} == {3}
    assert {len(path) for (a, b), path in paths.items() if a // 8 != b // 8} == {3, 5}


def test_planes_meet_nowhere():
    topology = build_fabric(Fabric(design="alibaba_hpn_dual_plane", num_gpus=16, num_spine_switches=4))
    first_psw = topology.num_nodes - 4
    up = topology.links[topology.links["target"] >= first_psw]

    # 2 sets of 8 ASWs: the first reach PSWs 0 and 1, the second 2 and 3
    assert {((asw - topology.first_switch) // 8, (psw - first_psw) // 2)
            for asw, psw in zip(up["source"], up["target"], strict=True)} == {(0, 0), (1, 1)}


def test_a_design_is_as_large_as_the_replica_needs():
    # 20 GPUs need three servers of 8
    assert build_fabric(Fabric(), 20).num_gpus == 24


@pytest.mark.parametrize(("fabric", "fault"), [
    (Fabric(num_gpus=12), "num_gpus: expected a multiple of gpus_per_server = 8, found 12"),
    (Fabric(design="alibaba_hpn_dual_plane", num_spine_switches=3), "num_spine_switches: expected an even number"),
])
def test_a_design_that_cannot_be_is_refused(fabric, fault):
    with pytest.raises(InputErrors, match=fault):
        build_fabric(fabric)


def test_network_too_large_to_simulate_is_refused_before_it_is_made():
    # each GPU has a link to its NVSwitch and one to an ASW; 19,532 segments of 512 GPUs have 8 ASWs of 64 links to PSWs
    with pytest.raises(InputErrors, match=r"^latency.collective: a network of 10000000 GPUs with 30000384 links"):
        build_fabric(Fabric(num_gpus=10_000_000))
