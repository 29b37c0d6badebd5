"""Towers priced by tables of products and of bidirectional attention: by hand."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.items import WORK, items_of
from simulator.domain.towers import Tower
from simulator.latency.operators.model import Operators
from simulator.latency.roofline.towers import tower_times
from support.operator_profiles import write_table, write_tables
from support.small_models import DENSE, deploy

# 4 blocks of width 64 with 4 heads of 16; patches of 4 pixels, 48 inputs; 4 patches a token; no window.
TOWER = Tower(kind="qwen2_vl", num_layers=4, width=64, intermediate_size=128, num_heads=4, patch_size=4, merge_size=2,
              projector=1000)
SEEN = replace(DENSE, vision=TOWER, vision_parameters=200_000)
# (n, k) of queries, keys and values; output; up; down; patches. 1 us and 1 ns for a thousand rows and outputs.
SITES = ((192, 64), (64, 64), (128, 64), (64, 128), (64, 48))
ATTENTION = "batch_size,isl,num_heads,head_dim,latency_ms"


@pytest.fixture
def folder(tmp_path):
    gemm = [f"bfloat16,{m},{n},{k},{1e-3 + m * n * 1e-9:.9g}" for n, k in SITES for m in (1, 64, 32768)]
    folder = write_tables(tmp_path / "tables", gemm=gemm)
    return write_table(folder, "encoder_attention", ATTENTION, [
        f"{b},{s},4,16,{b * s * s * 1e-6}" for b in (1, 2, 8) for s in (1, 16, 64, 256)])


def times(folder, tower=TOWER, **ways):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(folder / "cache"))
    return tower_times(deploy(replace(SEEN, vision=tower), **ways), Operators, parameters)


def item_ns(given, *work):
    tokens = np.array([patches // 4 for patches, _ in work])
    return given.item_ns(items_of(np.array([len(work)]), np.arange(len(work)), np.zeros(len(work)), tokens,
                                  np.array(list(work), WORK)))


def rest_ns(given, patches):
    """Return the law's price of activations and of the projector."""
    moved = given.tower.moved_elements(patches, patches // 4) * given.element_bytes / given.bytes_per_ns
    return moved + 2 * 1000 * (patches // 4) / given.product_rate


def test_an_image_takes_its_products_and_its_attention(folder):
    given = times(folder)

    # 64 patches: 4 blocks of four products and one of patches, 1 us each, 64 ns a thousand outputs; 64 x 64 ns a layer
    products = 4 * (4 * 1000 + 64 * (192 + 64 + 128 + 64) * 1e-3) + 1000 + 64 * 64 * 1e-3
    assert item_ns(given, (64, 64 * 64)) == pytest.approx([products + 4 * 64 * 64 + rest_ns(given, 64)])
    assert "tables price its products and attention" in given.notes[0]


def test_views_are_sequences_of_their_own(folder):
    whole, four, sixteen = item_ns(times(folder), (256, 256**2), (256, 4 * 64**2), (256, 16 * 16**2))

    # 4 sequences are between 2 and 8; 16 take twice as long as 8; in 4 layers
    assert whole - four == pytest.approx(4 * (256**2 - 4 * 64**2))
    assert four - sixteen == pytest.approx(4 * (4 * 64**2 - 16 * 16**2))


def test_windows_bound_the_patches_that_attend(folder):
    windowed = replace(TOWER, window=16, num_full_layers=1)

    # 3 of 4 layers: 4 sequences of 16 in place of one of 64
    found = item_ns(times(folder), (64, 64 * 64)) - item_ns(times(folder, windowed), (64, 64 * 64))
    assert found == pytest.approx([3 * (64 * 64 - 4 * 16 * 16)])
    small = item_ns(times(folder, windowed), (8, 8 * 8))
    assert small == pytest.approx(item_ns(times(folder), (8, 8 * 8)))


def test_ranks_divide_heads_where_they_divide_weights(folder):
    split = replace(TOWER, split_parameters=150_000)
    write_table(folder, "encoder_attention", ATTENTION, [
        f"1,{s},{heads},16,{heads * s * s * 1e-6}" for heads in (2, 4) for s in (1, 64)])

    whole, halves = (times(folder, tower, tensor_parallel=2) for tower in (TOWER, split))
    one = np.array([64.0])
    assert whole.tables.attention_ns(one, one**2) == pytest.approx(4 * 4 * 64 * 64)
    assert halves.tables.attention_ns(one, one**2) == pytest.approx(4 * 2 * 64 * 64)


def test_without_tables_the_law_prices_and_is_named(folder):
    law, shares = tower_times(deploy(SEEN)), times(folder)
    (folder / "encoder_attention_perf.csv").unlink()
    partly = times(folder)

    assert "it has prices of the roofline" in law.notes[0]
    assert "tables price its products;" in partly.notes[0]
    patches, pairs = np.array([64.0]), np.array([64.0 * 64])
    assert item_ns(shares, (64, 64 * 64)) - item_ns(partly, (64, 64 * 64)) == pytest.approx(
        shares.tables.attention_ns(patches, pairs) - TOWER.attention_flops(64, 64 * 64) / partly.attention_rate)
