"""Experts of ranks that were measured with more than their share of the tokens; by hand."""
import numpy as np
import pytest

from simulator.latency.operators.expert_shares import holds_share
from simulator.latency.operators.model import Operators
from support.operator_profiles import MOE, write_tables
from support.small_models import MIXTURE, deploy

HEADER = MOE.replace("latency_ms", "kernel_source,latency_ms")


def rows_of(kernel, ways, ms, load="balanced", tokens=(1, 1024, 2048)):
    return [f"bfloat16,{count},64,32,2,8,1,{ways},{load},{kernel},{at}" for count, at in zip(tokens, ms, strict=True)]


@pytest.fixture
def experts_us(tmp_path):
    """Return the microseconds of the experts of a prompt on two ranks, and the notes."""
    def of(*parts, tokens=1024, **parameters):
        folder = write_tables(tmp_path / "t", moe=None)
        (folder / "moe_perf.csv").write_text("\n".join([HEADER, *(row for part in parts for row in part)]) + "\n")
        chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"), **parameters)
        model = Operators(chosen, deploy(MIXTURE, tensor_parallel=2, expert_parallel=2))
        return model.breakdown(prefill=[(tokens, 0)])["experts"] * 1e6, model.warnings()
    return of


ONE = rows_of("grouped", 1, (0.010, 1.010, 2.010))
WHOLE = rows_of("grouped", 2, (0.010, 1.000, 2.000))
SHARE = rows_of("sound", 1, (0.020, 1.2, 2.4)) + rows_of("sound", 2, (0.020, 0.7, 1.4))


def test_two_ranks_that_take_as_long_as_one_lend_nothing(experts_us):
    found, notes = experts_us(ONE, WHOLE)

    assert found == pytest.approx(505, rel=0.01)        # half of the 1 ms beyond launches of 10 us
    assert any("2 ranks" in note and "grouped" in note for note in notes)


def test_they_count_as_measured_if_asked_for(experts_us):
    assert experts_us(ONE, WHOLE, without=("expert_shares",))[0] == pytest.approx(1000)


def test_two_ranks_that_take_less_count_as_measured(experts_us):
    found, notes = experts_us(SHARE)

    assert found == pytest.approx(700)
    assert not any("share of the tokens" in note for note in notes)


def test_the_faster_kernel_serves_where_one_of_two_was_measured_so(experts_us):
    assert experts_us(ONE, WHOLE, SHARE)[0] == pytest.approx(505, rel=0.01)
    slow = rows_of("grouped", 1, (0.010, 1.810, 3.610)) + rows_of("grouped", 2, (0.010, 1.800, 3.600))
    assert experts_us(slow, SHARE)[0] == pytest.approx(700)


def test_skewed_loads_are_judged_by_even_ones_of_their_kernel():
    kinds = {"moe_dtype": np.array(["fp8"] * 6), "kernel_source": np.array(["a", "a", "a", "b", "b", "b"])}
    one = {name: np.ones(6) for name in ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")}
    loads = np.array(["balanced", "balanced", "power_law_1.01"] * 2)
    found = holds_share(kinds | one | {
        "num_tokens": np.full(6, 4096.0), "moe_ep_size": np.array([1.0, 2.0, 8.0] * 2), "distribution": loads,
        "latency_ms": np.array([1.0, 0.76, 0.1, 1.0, 0.74, 0.1])})

    assert found.tolist() == [True, False, False, True, True, True]


def test_few_tokens_say_nothing_of_the_load(experts_us):
    few = (rows_of("grouped", ways, (0.010, 0.011), tokens=(1, 512)) for ways in (1, 2))

    assert experts_us(*few, tokens=512)[0] == pytest.approx(11)
