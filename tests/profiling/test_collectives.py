"""Collectives on the processor, two processes and Gloo; what cannot be had, and a process that ends."""
import os
import signal
from types import SimpleNamespace

import pytest

from simulator.latency.operators.model import Operators
from simulator.profiling import collectives as module
from simulator.profiling import plan
from simulator.profiling.collectives import Collectives
from simulator.profiling.journal import Journal
from simulator.profiling.plan import COLLECTIVES, Plan, Point
from simulator.profiling.session import Bench, NotMeasured, measure_plan
from simulator.profiling.timing import Effort
from support.small_models import DENSE, deploy

EFFORT = Effort(repeats=3, min_repeats=2, point_s=0.05, max_calls=4)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")


def point(kind="all_reduce", ranks=2, elements=1024):
    return Point("nccl", (kind, "half", ranks, elements))


@pytest.mark.slow
def test_all_kinds_are_measured_kept_and_read_by_operators(torch, tmp_path):
    points = [point(kind, elements=elements) for kind in COLLECTIVES.values() for elements in (128, 65536)]
    with Journal(tmp_path / "profile") as journal, Collectives(torch, "cpu", EFFORT) as measure:
        bench = Bench(torch, None, None, None, lambda: 1 << 30, measure)

        assert measure_plan(Plan(points, {}, {}), journal, bench, lambda: "") == len(points)
        assert measure_plan(Plan(points, {}, {}), journal, bench, lambda: "") == 0

        rows = list(journal.rows.values())
    assert {row["kernel_source"] for row in rows} == {f"gloo of torch {torch.__version__}"}
    assert {row["timing"] for row in rows} == {"perf_counter"}
    assert all(2 <= int(row["repeats"]) <= 3 and float(row["latency_ms"]) > 0 for row in rows)
    model = Operators(Operators.Parameters(path=str(tmp_path / "profile"), cache_directory=str(tmp_path / "cache")),
                      deploy(DENSE, tensor_parallel=2))
    assert model.origins["all_reduce"] in ("measured", "interpolated")
    assert model.origins["logits_all_gather"] in ("measured", "interpolated")


@pytest.mark.slow
def test_a_process_that_ends_is_told_of_and_the_next_point_has_new_ones(torch):
    with Collectives(torch, "cpu", EFFORT) as measure:
        measure(point())
        os.kill(measure.processes[1].pid, signal.SIGKILL)

        with pytest.raises(NotMeasured, match="collectives of 2 ranks: rank"):
            measure(point())
        assert measure(point())[1].latency_ms > 0


@pytest.mark.slow
def test_processes_that_do_not_start_are_not_asked_again(torch, monkeypatch):
    monkeypatch.setattr(module, "START_S", 0.01)
    with Collectives(torch, "cpu", EFFORT) as measure:
        for _ in range(2):
            with pytest.raises(NotMeasured, match=r"collectives of 2 ranks: rank 0: no answer in 0\.01 s"):
                measure(point())
            assert measure.processes == []


def test_more_ranks_than_gpus_are_refused():
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 1))

    with Collectives(torch, "cuda", EFFORT) as measure, pytest.raises(
            NotMeasured, match="2 ranks need as many GPUs, this machine has 1"):
        measure(point())


def test_operands_that_do_not_fit_are_not_tried():
    asked = []
    bench = Bench(None, None, None, None, lambda: 1000, asked.append)

    # two buffers of 1024 elements of two bytes
    with pytest.raises(NotMeasured, match="out of memory"):
        bench(point())
    assert asked == []


def test_ranks_are_those_of_the_model_and_those_asked_for():
    found = plan.make_plan(DENSE, [Operators.asked(deploy(DENSE, tensor_parallel=2))], ("nccl",), plan.QUICK,
                           ranks=(4, 2))

    kinds = ["all_reduce", "all_gather", "reduce_scatter", "alltoall"]
    assert list(dict.fromkeys((each.cells[2], each.cells[0]) for each in found.points)) == [
        (ranks, kind) for ranks in (2, 4) for kind in kinds]
    assert {each.cells[1] for each in found.points} == {"half"}         # as tables of NCCL name two bytes
    assert [each.cells[3] for each in found.points[:3]] == [256, 1024, 4096]
