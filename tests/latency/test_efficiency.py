"""Which measured shares of peak an accelerator gets."""
import pytest
from msgspec.structs import replace

from simulator.domain.efficiency import compute_dtype, efficiency_of, matmul_efficiency
from simulator.domain.facts import load_accelerator, names
from simulator.domain.hardware_spec import DenseFlops
from simulator.errors import InputErrors
from support.small_models import ACCELERATOR

H100 = load_accelerator("h100-sxm-80gb").measured


def test_a_measured_accelerator_has_its_own_shares():
    h200 = load_accelerator("h200-sxm-141gb")

    assert efficiency_of(h200) is h200.measured
    assert (h200.measured.attention_frac, h200.measured.attention_us) == (0.537, 11.9)


def test_an_unmeasured_one_takes_its_generations():
    assert efficiency_of(load_accelerator("h20-96gb")) == H100
    assert efficiency_of(load_accelerator("rtx-4090")) == load_accelerator("l40s").measured


def test_a_file_of_ones_own_may_bring_its_measurements(tmp_path):
    file = tmp_path / "mine.toml"
    text = """memory_bytes = 80e9\nmemory_bandwidth_bytes_per_s = 3e12\ndense_flops_per_s.bfloat16 = 1e15\n[measured]
source = "a morning in the lab"\nmatmul_frac.%s = 0.5\nattention_frac = 0.25\nbandwidth_frac = 0.75\nattention_us = 9
"""
    file.write_text(text.replace("80e9", "80_000_000_000") % "bfloat16")
    assert efficiency_of(load_accelerator(file)).bandwidth_frac == 0.75

    file.write_text(text.replace("80e9", "80_000_000_000") % "fp8")
    with pytest.raises(InputErrors, match="matmul_frac: bfloat16 is missing; other formats without a share take its"):
        load_accelerator(file)


def test_another_makers_takes_the_median():
    # bfloat16: 0.5, 0.629, 0.686, 0.773, 0.796, 0.902; bandwidth: 0.733, 0.812, 0.817, 0.827, 0.854, 0.884
    found = efficiency_of(load_accelerator("mi300x"))

    assert found.matmul_frac["bfloat16"] == pytest.approx((0.686 + 0.773) / 2)
    assert found.bandwidth_frac == pytest.approx((0.817 + 0.827) / 2)


def test_every_measurement_names_its_source_and_no_architecture_has_two():
    accelerators = [load_accelerator(name) for name in names("hardware")]
    measured = [each.measured for each in accelerators if each.measured]
    stands_for = [architecture for each in measured for architecture in each.stands_for]

    assert all(each.source for each in measured)
    assert len(set(stands_for)) == len(stands_for)
    assert set(stands_for) <= {each.architecture for each in accelerators}


@pytest.mark.parametrize(("dtype", "share"), [
    ("bfloat16", 0.796), ("float16", 0.796), ("float32", 0.796), ("int4", 0.796), ("fp8", 0.579), ("int8", 0.579),
    ("fp4", 0.579)])
def test_a_format_that_was_not_measured_takes_a_similar_ones(dtype, share):
    assert matmul_efficiency(H100, dtype) == share


def test_no_fp8_units_means_16_bit_products():
    old = replace(ACCELERATOR, dense_flops_per_s=DenseFlops(bfloat16=1e15))

    assert compute_dtype(ACCELERATOR, "fp8") == "fp8"
    assert compute_dtype(old, "fp8") == compute_dtype(old, "int4") == "bfloat16"
