"""SGLang leaves memory to images: the factor of mem_fraction_static in a file is that of a command line."""
import pytest

from simulator.config.load import load_experiment

EXPERIMENT = """
model = {{name = "{model}"}}
hardware = {{name = "h200-sxm-141gb"}}
topology = {{tensor_parallel = {ranks}}}
engine = {{scheduler = "sglang"{more}}}
workload = {{type = "trace", path = "t.csv"}}
"""


@pytest.fixture
def static(tmp_path):
    def static(model, ranks=1, more=""):
        file = tmp_path / "a.toml"
        file.write_text(EXPERIMENT.format(model=model, ranks=ranks, more=more))
        return load_experiment(file).engine.parameters.mem_fraction_static
    return static


@pytest.mark.parametrize(("model", "ranks", "reserved_mib", "layers", "width"), [
    ("qwen3-vl-8b", 1, 13_440, 27, 1152),           # without prefill graphs
    ("kimi-k2.5", 16, 17_408, 27, 1152),            # with them, latent attention
    ("qwen3.5-27b", 1, 13_904, 27, 1152), ("qwen2-vl-7b", 1, 13_440, 32, 1280)])
def test_images_take_a_factor_by_the_size_of_the_tower(static, model, ranks, reserved_mib, layers, width):
    whole = round((143_771 - reserved_mib) / 143_771, 3)
    factor = 0.95 * max(0.8, 1 - 0.1 * (layers * width**2 / (24 * 1024**2) - 1))
    assert static(model, ranks) == pytest.approx(whole * factor, rel=1e-9)


def test_a_family_that_is_served_as_text_has_none(static):
    assert static("gemma-3-27b") == round((143_771 - 13_904) / 143_771, 3) == static("qwen3-8b")


def test_a_given_share_is_taken_as_it_is(static):
    assert static("qwen3-vl-8b", more=", mem_fraction_static = 0.7") == 0.7
