"""Measured curves: exact at their points, sensible between and beyond, refused where they cannot serve."""
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collective.table.curves import Choice, Place, read_curves
from simulator.collective.table.model import Table
from simulator.domain.facts import load_node
from simulator.errors import InputErrors
from support.goldens import GOLDENS
from support.small_models import deploy

PROFILES = GOLDENS.parent / "data" / "profiles"
HEAD = "collective,num_ranks,ranks_per_node,num_bytes,time_us\n"
# Times of 2 and 8 ranks in a node, 16 over two.
ROWS = ("all_reduce,2,2,1000,10\nall_reduce,2,2,2000,15\nall_reduce,2,2,4000,20\n"
        "all_reduce,8,8,1000,30\nall_reduce,8,8,4000,60\n"
        "all_reduce,16,8,1000,100\n"
        "send_recv,2,2,1000,5\nsend_recv,2,1,1000,7\n")
NODE = load_node("dgx-h100")

needs_profiles = pytest.mark.skipif(not PROFILES.exists(), reason=f"no measured tables in {PROFILES}")


@pytest.fixture
def curves(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text(HEAD + ROWS)
    return path


def table(*files, ways=None, **parameters):
    return Table(Table.Parameters(files=[str(file) for file in files], **parameters),
                 deploy(node=NODE, **(ways or {"tensor_parallel": 2})))


def in_us(model, num_bytes, group="tensor", kind="all_reduce"):
    return model.predict(group, kind, num_bytes) * 1e6


# ---- sizes

def test_measured_point_is_returned_as_it_is(curves):
    model = table(curves)

    assert [in_us(model, size) for size in (1000, 2000, 4000)] == pytest.approx([10, 15, 20], rel=1e-15)
    assert model.provenance() == {"exact": 3, "interpolated": 0, "extrapolated": 0}
    assert model.warnings() == []


def test_time_is_linear_between_points(curves):
    model = table(curves)

    assert [in_us(model, size) for size in (1200, 3000)] == pytest.approx([11, 17.5])
    assert model.provenance() == {"exact": 0, "interpolated": 2, "extrapolated": 0}


def test_beyond_the_points_least_time_and_last_bandwidth_hold(curves):
    model = table(curves)

    assert [in_us(model, size) for size in (1, 999, 40000)] == pytest.approx([10, 10, 200])
    assert model.provenance() == {"exact": 0, "interpolated": 0, "extrapolated": 3}
    assert model.warnings() == [f"3 of 3 collectives lie outside of what was measured in {curves}"]


def test_repeated_look_ups_count_each_time(curves):
    model = table(curves)

    assert in_us(model, 1200) == in_us(model, 1200) == in_us(model, 1200)
    assert model.provenance()["interpolated"] == 3


POINTS = st.lists(st.tuples(st.integers(1, 10**9), st.floats(0.1, 1e6)), min_size=1, max_size=30,
                  unique_by=lambda point: point[0])


@given(POINTS, st.floats(1, 2e9))
def test_time_lies_between_its_neighbours(tmp_path_factory, points, size):
    path = tmp_path_factory.getbasetemp() / "property.csv"
    path.write_text(HEAD + "".join(f"all_reduce,2,2,{num_bytes},{us!r}\n" for num_bytes, us in points))
    below = [us for num_bytes, us in sorted(points) if num_bytes <= size][-1:]
    above = [us for num_bytes, us in sorted(points) if num_bytes >= size][:1]

    found = in_us(table(path), size)

    if below and above:
        assert min(below + above) * (1 - 1e-12) <= found <= max(below + above) * (1 + 1e-12)
    else:
        assert found >= (below or above)[0] * (1 - 1e-12)


# ---- groups

def test_group_between_measured_ones_mixes_them_by_log_of_ranks(curves):
    model = table(curves, ways={"tensor_parallel": 4})

    # 4 is halfway from 2 to 8: (10 + 30) / 2 at 1000 bytes
    assert in_us(model, 1000) == pytest.approx(20)
    assert model.provenance()["interpolated"] == 1


def test_group_over_nodes_uses_curves_over_nodes(curves):
    model = table(curves, ways={"tensor_parallel": 32})

    # of 16 ranks: 100 us x (31/32) / (15/16)
    assert in_us(model, 1000) == pytest.approx(100 * 31 / 32 / (15 / 16))
    assert model.provenance()["extrapolated"] == 1


def test_group_spread_thinner_than_measured_counts_as_extrapolated(curves):
    model = table(curves, ways={"tensor_parallel": 4, "data_parallel": 16})

    # the data group has 16 ranks, 2 a node; measured: 8 a node
    assert in_us(model, 1000, "data") == pytest.approx(100)
    assert model.provenance()["extrapolated"] == 1


@pytest.mark.parametrize(("tensor", "us"), [(2, 5), (8, 7)])
def test_stages_send_within_a_node_or_between_nodes(curves, tensor, us):
    model = table(curves, ways={"tensor_parallel": tensor, "pipeline_parallel": 4})

    assert in_us(model, 1000, "pipeline", "send_recv") == pytest.approx(us)


def test_group_of_one_takes_no_time(curves):
    assert in_us(table(curves), 1000, "data") == 0.0


# ---- refusals

def test_files_must_hold_what_tensor_parallelism_needs(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text(HEAD + "send_recv,2,2,1000,5\n")

    with pytest.raises(InputErrors, match=r"latency\.collective\.files: no all_reduce of 8 ranks, 8 a node, nor one to "
                                          r"scale; measured: send_recv of 2, 2 a node"):
        table(path, ways={"tensor_parallel": 8})


def test_collective_that_was_not_measured_is_an_error_each_time(curves):
    model = table(curves)

    for _ in range(2):
        with pytest.raises(InputErrors, match="all_to_all of 1000 bytes over 2 ranks is not measured"):
            in_us(model, 1000, kind="all_to_all")


def test_extrapolation_is_an_error_for_who_says_so(curves):
    model = table(curves, outside="error")

    assert in_us(model, 1500) == pytest.approx(12.5)
    with pytest.raises(InputErrors, match="all_reduce of 8000 bytes over 2 ranks is outside of what was measured"):
        in_us(model, 8000)


@pytest.mark.parametrize(("text", "message"), [
    (HEAD + "all_reduce,2,2,1000,ten\n", r'curves.csv:2: time_us: expected a finite number >= 0, found "ten"'),
    (HEAD + "all_reduce,2,2,1000,0\n", r"expected at least 2 ranks, no more a node, and times above 0"),
    (HEAD + "all_reduce,2,4,1000,1\n", r"all_reduce of 2 ranks, 4 a node: expected"),
    (HEAD + "all_reduse,2,2,1000,1\n", r'no collective "all_reduse"; did you mean all_reduce'),
    (HEAD + "all_reduce,2,2,1000\n", r"curves.csv:2: expected 5 cells"),
    ("size,time\n1,2\n", r"curves.csv:1: no table of collectives: expected the columns of one of"),
])
def test_wrong_table_is_named(tmp_path, text, message):
    path = tmp_path / "curves.csv"
    path.write_text(text)

    with pytest.raises(InputErrors, match=message):
        table(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputErrors, match=r"gone\.csv: cannot be read"):
        table(tmp_path / "gone.csv")


# ---- formats, in the small and as published

def test_vidur_counts_bytes_and_milliseconds(tmp_path):
    path = tmp_path / "all_reduce.csv.gz"
    times = ",".join(f"time_stats.all_reduce.{name}" for name in ("min", "max", "mean", "median", "std"))
    path.write_bytes(gzip.compress((f",{times},rank,num_workers,size,collective,devices_per_node,max_devices_per_node\n"
                                    "0,0.1,0.9,0.4,0.3,0.1,0,4,2048,all_reduce,2,8\n").encode()))

    curves = read_curves(path)

    place = Place("all_reduce", 4, 2)
    assert (curves[place].num_bytes[0], curves[place].ns[0]) == pytest.approx((2048, 0.3e6))
    assert read_curves(path, Choice(statistic="mean"))[place].ns[0] == pytest.approx(0.4e6)


def test_nccl_tables_count_elements_of_the_chosen_type(tmp_path):
    path = tmp_path / "nccl_perf.csv"
    path.write_text("collective,nccl_dtype,num_gpus,message_size,latency_ms\n"
                    "alltoall,half,4,1000,0.02\nalltoall,int8,4,1000,0.01\n")

    for dtype, num_bytes, ns in (("half", 2000, 2e4), ("int8", 1000, 1e4)):
        curve = read_curves(path, Choice(dtype=dtype))[Place("all_to_all", 4, 4)]
        assert (curve.num_bytes[0], curve.ns[0]) == pytest.approx((num_bytes, ns))
    with pytest.raises(InputErrors, match="nccl_dtype: no row holds fp64"):
        read_curves(path, Choice(dtype="fp64"))


@needs_profiles
def test_custom_all_reduce_depends_on_cuda_graphs():
    path = PROFILES / "aiconfigurator/h100_sxm/custom_allreduce_perf.csv.gz"

    # 128 elements of 2 bytes on 2 GPUs: 4.29 us in a graph, 20.6 us launched
    for cuda_graph, us in ((True, 4.29152), (False, 20.6022)):
        assert in_us(table(path, cuda_graph=cuda_graph), 256) == pytest.approx(us)


@needs_profiles
def test_nccl_reaches_its_bus_bandwidth_on_h100():
    model = table(PROFILES / "aiconfigurator/h100_sxm/nccl_perf.csv.gz", ways={"tensor_parallel": 8})

    # 445 GB/s of NVLink's 450: sizes are elements of 2 bytes indeed
    assert 512e6 * 1.75 / model.predict("tensor", "all_reduce", 512e6) / 1e9 == pytest.approx(440, abs=15)


@needs_profiles
def test_first_file_counts():
    custom, nccl = (PROFILES / f"aiconfigurator/h100_sxm/{name}_perf.csv.gz" for name in ("custom_allreduce", "nccl"))

    assert in_us(table(custom, nccl), 256) == in_us(table(custom), 256) != in_us(table(nccl), 256)
    assert in_us(table(custom, nccl), 2048, kind="all_gather") == in_us(table(nccl), 2048, kind="all_gather")


@needs_profiles
@pytest.mark.parametrize("folder", ["a100_dgx", "a100_pairwise_nvlink", "h100_dgx", "h100_pairwise_nvlink"])
def test_every_network_of_vidur_is_read(folder):
    files = [PROFILES / "vidur/network" / folder / f"{name}.csv.gz" for name in ("all_reduce", "send_recv")]

    model = table(*files, ways={"tensor_parallel": 4, "pipeline_parallel": 2})

    assert 5.0 < in_us(model, 16384) < 100.0
    assert 2.0 < in_us(model, 16384, "pipeline", "send_recv") < 60.0


@needs_profiles
@pytest.mark.parametrize("gpu", ["H100-SXM-80GB", "H200-SXM-141GB"])
def test_every_table_of_apex_plus_is_read(gpu):
    files = sorted((PROFILES / "apex_plus/comm" / gpu).glob("*.csv"))

    model = table(*files, ways={"tensor_parallel": 8})

    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"):
        assert 100.0 < in_us(model, 128 * 2**20, kind=kind) < 1500.0


@needs_profiles
def test_points_left_out_are_predicted_from_their_neighbours():
    curves = read_curves(PROFILES / "aiconfigurator/h100_sxm/nccl_perf.csv.gz")
    misses = []
    for sizes, ns in curves.values():
        between = ns[:-2] + (ns[2:] - ns[:-2]) * (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
        misses.extend(abs(between / ns[1:-1] - 1))

    assert sum(misses) / len(misses) == pytest.approx(0.039, abs=0.001)
