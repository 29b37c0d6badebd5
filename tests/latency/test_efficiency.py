"""Which measured shares of peak an accelerator gets."""
import pytest
from msgspec.structs import replace

from simulator.domain.efficiency import GENERATION, MEASURED, compute_dtype, efficiency_of, matmul_efficiency
from simulator.domain.facts import load_accelerator, names
from simulator.domain.hardware_spec import DenseFlops
from support.small_models import ACCELERATOR


def test_a_measured_accelerator_has_its_own_shares():
    assert efficiency_of(load_accelerator("h200-sxm-141gb")) is MEASURED["h200-sxm-141gb"]


def test_an_unmeasured_one_takes_its_generations():
    assert efficiency_of(load_accelerator("h20-96gb")) is MEASURED["h100-sxm-80gb"]
    assert efficiency_of(load_accelerator("rtx-4090")) is MEASURED["l40s"]


def test_another_makers_takes_the_median():
    # bfloat16: 0.5, 0.629, 0.686, 0.773, 0.796, 0.902; bandwidth: 0.733, 0.812, 0.817, 0.827, 0.854, 0.884
    found = efficiency_of(load_accelerator("mi300x"))

    assert found.matmul["bfloat16"] == pytest.approx((0.686 + 0.773) / 2)
    assert found.bandwidth == pytest.approx((0.817 + 0.827) / 2)


def test_measured_names_are_names_of_facts():
    assert set(MEASURED) <= set(names("hardware"))
    assert set(GENERATION.values()) <= set(MEASURED)
    assert set(GENERATION) <= {load_accelerator(name).architecture for name in names("hardware")}


@pytest.mark.parametrize(("dtype", "share"), [
    ("bfloat16", 0.796), ("float16", 0.796), ("float32", 0.796), ("int4", 0.796), ("fp8", 0.579), ("int8", 0.579),
    ("fp4", 0.579)])
def test_a_format_that_was_not_measured_takes_a_similar_ones(dtype, share):
    assert matmul_efficiency(MEASURED["h100-sxm-80gb"], dtype) == share


def test_no_fp8_units_means_16_bit_products():
    old = replace(ACCELERATOR, dense_flops_per_s=DenseFlops(bfloat16=1e15))

    assert compute_dtype(ACCELERATOR, "fp8") == "fp8"
    assert compute_dtype(old, "fp8") == compute_dtype(old, "int4") == "bfloat16"
