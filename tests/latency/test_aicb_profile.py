"""Per-layer tables written from the roofline, and the bytes in them against those AICB measured with."""
import os
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_model
from simulator.errors import InputErrors
from simulator.latency.aicb.model import Aicb
from simulator.latency.aicb.profile import exchange_bytes, reduce_bytes
from simulator.latency.aicb.tables import _files, read_table
from simulator.latency.roofline.model import Roofline
from support.goldens import GOLDENS
from support.small_models import DENSE, MIXTURE, NODE, RECURRENT, SLIDING, deploy

MEASURED = Path(os.environ.get("SIM_DATA", GOLDENS.parent / "data")) / "aicb" / "vidur_alibabacloud"
SYNTHETIC = GOLDENS / "vidurali" / "aicb_csv_synth"
MODELS = {"DeepSeek-671B": "deepseek-v3", "Qwen3-Moe-235B": "qwen3-235b-a22b", "Qwen3-Next-80B": "qwen3-next-80b-a3b"}
# The one table with commas and without layer_id.
NOT_A_TABLE = "vidur-DeepSeek-671B-world_size32-tp1-pp1-ep32-bs3-seq4096-decode.csv"


def recorded():
    return [found for folder in (MEASURED, SYNTHETIC) if folder.is_dir() for found in _files(folder)
            if found[-1].name != NOT_A_TABLE]


RECORDED = recorded()
needs_recordings = pytest.mark.skipif(not RECORDED, reason=f"neither {MEASURED} nor {SYNTHETIC} is here")


# ---- bytes

@needs_recordings
@pytest.mark.parametrize(("layout", "size", "length", "path"), RECORDED, ids=[path.name for *_, path in RECORDED])
def test_the_bytes_of_aicbs_tables_have_a_closed_form(layout, size, length, path):
    model, table = load_model(MODELS[layout.model]), read_table(path, size, length)
    tokens = size if layout.phase == "decode" else length       # of one prompt, whatever the batch size says
    reduced = reduce_bytes(tokens, model.hidden_size, layout.tensor_parallel)
    exchanged = exchange_bytes(tokens, model.hidden_size, model.moe.experts_per_token, layout.tensor_parallel)

    is_dense = np.array([kind == "dense" for kind in model.feed_forward_types])
    np.testing.assert_array_equal(table.comm_bytes[:, 0], reduced)
    np.testing.assert_array_equal(table.comm_bytes[:, 1], np.where(is_dense, reduced, np.nan))
    np.testing.assert_array_equal(table.comm_bytes[:, 2], np.where(is_dense, np.nan, exchanged))


@needs_recordings
def test_the_table_with_commas_is_refused():
    if not MEASURED.is_dir():
        pytest.skip(f"{MEASURED} is absent")
    with pytest.raises(InputErrors, match=rf"{NOT_A_TABLE}:1: expected 4 cells separated by tabs, found "):
        read_table(MEASURED / NOT_A_TABLE, 3, 4096)


def test_exchanged_bytes_are_a_dispatch_in_fp8_and_a_combine_in_16_bit():
    # DeepSeek, 1024 tokens: combine 2 x 1024 x 7168 x 8 / 8, dispatch (1 + 4/128) / 2 of it
    assert exchange_bytes(1024, 7168, 8, 8) == 14_680_064 + 7_569_408
    assert exchange_bytes(1024, 7168, 8, 2) == 88_997_888


# ---- times

def plain_seconds(deployment):
    """Return the roofline's predictions, communication left out."""
    model = Roofline(Roofline.Parameters(collective_latency_us=0.0), deployment)
    return lambda **batch: sum(s for name, s in model.breakdown(**batch).items() if name != "collectives")


def write(folder, deployment, **changes):
    profile = Aicb.Profile(deployment=deployment, build=plain_seconds, source="synthetic: roofline", table_model="M",
                           batch_sizes=(1, 8), sequence_lengths=(64, 256))
    return replace(profile, **changes).write(folder)


# 1e-5 of the small accelerator's speed: times of milliseconds, whose rounding to nanoseconds does not matter
def slow(model, **ways):
    deployment = deploy(model, node=NODE, **ways)
    return replace(deployment, accelerator=replace(deployment.accelerator, memory_bandwidth_bytes_per_s=1e7))


@pytest.mark.parametrize("model", [DENSE, MIXTURE, SLIDING, RECURRENT], ids=lambda model: model.name)
@pytest.mark.parametrize("batch", [{"decode": [257] * 8}, {"prefill": [(256, 0)]}], ids=["decode", "prefill"])
def test_layers_add_up_to_the_model_without_its_ends(tmp_path, model, batch):
    deployment = slow(model)
    write(tmp_path, deployment)
    found = Aicb(Aicb.Parameters(tables=str(tmp_path)), deployment).predict(**batch)

    # embedding, head and sampler: what is left when the layers are doubled and taken away twice
    doubled = replace(deployment, model=replace(
        model, num_layers=4, first_dense_layers=0, layer_pattern=model.layer_pattern,
        moe_layer_interval=2 if model.moe else 1))
    layers = plain_seconds(doubled)(**batch) - plain_seconds(deployment)(**batch)
    assert found == pytest.approx(layers, rel=1e-6)


def test_tables_are_of_one_data_parallel_rank(tmp_path):
    deployment = slow(MIXTURE, data_parallel=2, expert_parallel=2)
    paths = write(tmp_path, deployment, phases=("decode",))

    table = read_table(next(path for path in paths if "ep2-bs8-seq256" in path.name), 8, 256)

    # 16 sequences, half of them on each rank: 2 chosen experts of a hidden size of 64
    assert table.comm_bytes[1, 2] == exchange_bytes(8, 64, 2, 1) == 2 * 8 * 64 * 2 + 1056
    assert np.isnan(table.comm_bytes[0, 2])


def test_experts_split_by_width_are_followed_by_an_all_reduce(tmp_path):
    paths = write(tmp_path, slow(MIXTURE, tensor_parallel=2), phases=("decode",))

    table = read_table(next(path for path in paths if "bs8-seq64" in path.name), 8, 64)

    # 8 tokens x 64 x 2 bytes after attention, MLP and experts
    assert table.comm_bytes[1, 2] == table.comm_bytes[0, 1] == table.comm_bytes[0, 0] == 1024


def test_every_row_says_that_it_is_synthetic(tmp_path):
    paths = write(tmp_path, slow(MIXTURE))

    assert len(paths) == 6
    for path in paths:
        header, *rows = path.read_text().splitlines()
        assert header == "layer_id\tlayer_name\tcomp_time\tcomm_size\tsource"
        assert [row.split("\t")[1] for row in rows] == ["attention", "mlp", "attention", "moe"]
        assert all(row.endswith("\tsynthetic: roofline") for row in rows)


def test_what_is_there_already_is_left_alone(tmp_path):
    first, *_ = write(tmp_path, slow(DENSE))
    first.write_text("mine")

    with pytest.raises(InputErrors, match="exists already, as do 5 of 6 more"):
        write(tmp_path, slow(DENSE))
    assert first.read_text() == "mine"
