"""Encoders priced by the tower of the model: by hand, and through an experiment file."""
import numpy as np
import pytest

import simulator
from simulator.domain.deployment import Deployment
from simulator.domain.efficiency import efficiency_of
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.items import WORK, items_of
from simulator.domain.parallelism import Parallelism
from simulator.latency.roofline.kind_laws import TOWER, kind_law
from simulator.latency.roofline.towers import tower_times
from support.encoders import EXPERIMENT, prompts_in

QWEN = {"model.name": "qwen3.5-27b", "hardware.name": "h100-sxm-80gb", "topology.tensor_parallel": 2}


def times(model="qwen3.5-27b", ranks=1):
    return tower_times(Deployment(model=load_model(model), accelerator=load_accelerator("h100-sxm-80gb"),
                                  parallelism=Parallelism(tensor_parallel=ranks)))


def items(*tokens, work=None):
    count = len(tokens)
    return items_of(np.array([count]), np.arange(count), np.zeros(count), np.array(tokens), work)


def test_an_item_takes_the_time_of_its_operations_at_the_measured_shares_of_the_peak():
    card = load_accelerator("h100-sxm-80gb")
    shares, peak = efficiency_of(card), card.dense_flops_per_s.bfloat16 * 1e-9
    block, projector = 4 * 1152**2 + 2 * 1152 * 4304, 4608 * 4608 + 4608 * 5120
    law = kind_law("hopper", TOWER).prefill
    products = 2 * 4096 * (27 * block + 3 * 2 * 256 * 1152) + 2 * 1024 * projector
    attention = 4 * 27 * 4096**2 * 1152

    found = times().item_ns(items(1024))

    assert found[0] == pytest.approx(
        products / (peak * shares.matmul_frac["bfloat16"]) + attention / (peak * law.compute_frac))


def test_views_of_an_item_attend_to_themselves():
    whole, parts = times().item_ns(items(1024, 1024, work=np.array([(4096, 4096**2), (4096, 4 * 1024**2)], WORK)))
    attention_ns = 4 * 27 * 4096**2 * 1152 / times().attention_rate

    assert whole - parts == pytest.approx(0.75 * attention_ns)
    assert whole == times().item_ns(items(1024))[0]


def test_ranks_divide_the_part_that_they_split():
    alone, four, gemma = times().item_ns(items(256)), times(ranks=4).item_ns(items(256)), times("gemma-4-26b-a4b")
    split = 456_111_216 / 460_730_096

    assert four / alone == pytest.approx([1 - 0.75 * split])
    assert times("gemma-4-26b-a4b", 4).item_ns(items(256)) == gemma.item_ns(items(256))


def test_a_batch_reads_the_weights_at_least_once():
    card = load_accelerator("h100-sxm-80gb")

    assert times().least_ns == pytest.approx(
        2 * 460_730_096 / (card.memory_bandwidth_bytes_per_s * 1e-9 * efficiency_of(card).bandwidth_frac))


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-8b"])
def test_models_without_tower_have_no_prices(name):
    assert times(name) is None


def run(folder, prompts, overrides):
    prompts_in(folder, prompts)
    (folder / "experiment.toml").write_text(EXPERIMENT % "encoder = {}")
    return simulator.run(folder / "experiment.toml", QWEN | overrides)


def test_a_step_takes_the_time_of_its_items_beside(tmp_path):
    # two images in one step: the sum of their own times, not that of one image with all the patches
    result = run(tmp_path, ["t:50/a.img:1024", "t:50/b.img:4096"], {})
    small, large = times(ranks=2).item_ns(items(1024, 4096))

    assert result.iterations["duration_ns"].tolist() == [10_000_000 + round(small + large)]
    assert any(note.startswith("encoder: the tower of qwen3.5-27b: it has prices of the roofline")
               for note in result.summary["diagnosis"])


def test_a_small_item_takes_the_time_of_reading_the_weights(tmp_path):
    result = run(tmp_path, ["t:50/a.img:4"], {})

    assert result.iterations["duration_ns"].tolist() == [10_000_000 + round(times(ranks=2).least_ns)]


def test_a_price_of_an_embedding_counts_in_place_of_the_tower(tmp_path):
    free = run(tmp_path, ["t:50/a.img:1024"], {"engine.encoder.us_per_embedding": 0.0})
    priced = run(tmp_path, ["t:50/a.img:1024"], {"engine.encoder.us_per_embedding": 1.0})

    assert free.iterations["duration_ns"].tolist() == [10_000_000]
    assert priced.iterations["duration_ns"].tolist() == [10_000_000 + 1024 * 1000]


def test_encode_pools_take_the_time_of_each_item(tmp_path):
    result = run(tmp_path, ["t:50/a.img:1024", "t:50/b.img:4096"], {
        "embeddings": {"bandwidth_gb_per_s": 25.0}, "engine.encoder": None,
        "pools": [{"name": "e", "role": "encode", "engine": {"encoder": {}}}, {"name": "pd"}]})
    small, large = times(ranks=2).item_ns(items(1024, 4096))

    durations = result.encode_jobs["end_ns"] - result.encode_jobs["start_ns"]
    assert durations.tolist() == [round(small + large)] * 2         # of one batch
    assert any(note.startswith("encoder: the tower of qwen3.5-27b") for note in result.summary["diagnosis"])


def test_encode_pools_of_models_without_tower_need_a_price(tmp_path):
    with pytest.raises(simulator.errors.InputErrors, match="us_per_embedding: missing"):
        run(tmp_path, ["t:50/a.img:1024"], {
            "model.name": "qwen3-8b", "embeddings": {"bandwidth_gb_per_s": 25.0}, "engine.encoder": None,
            "pools": [{"name": "e", "role": "encode", "engine": {"encoder": {}}}, {"name": "pd"}]})
