"""Launching kernels one by one: how many there are, what that takes, and where nothing is known of it."""
from pathlib import Path

import pytest

from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config import describe
from simulator.config.load import load_experiment
from simulator.domain.facts import load_model, names
from simulator.latency.overheads.launches import LAUNCH_US, launching, num_launches
from support.small_models import DENSE, LATENT, MIXTURE, deploy

CASE = Path(__file__).parents[3] / "shared/data/cases/sim_08_eager_costs_nothing/input.toml"
EAGER, GRAPHS = {"engine.cuda_graphs.mode": "none"}, {"engine.cuda_graphs.mode": "full_and_piecewise"}
EXPERIMENT = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_model_len = 8192, cuda_graphs = {mode = "none"}}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 2
arrival = {process = "poisson", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 9}
output_tokens = {distribution = "constant", tokens = 9}
"""


@pytest.fixture
def model_of(tmp_path):
    def model_of(text=EXPERIMENT, **keys):
        path = tmp_path / "a.toml"
        path.write_text(text)
        pool = load_experiment(path, keys).all_pools()[0]
        return latency_model(Site(pool).check())
    return model_of


def test_kernels_are_counted_by_kind_of_layer():
    # two norms, attention 5, MLP 3, in 2 layers; 6 once; two all-reduces of 2 a layer with ranks
    assert num_launches(deploy(DENSE)) == 6 + 2 * (2 + 5 + 3)
    assert num_launches(deploy(DENSE, tensor_parallel=2)) == 6 + 2 * (2 + 5 + 3 + 4)
    # a dense layer, and one of 8 for experts and 4 for the shared one
    assert num_launches(deploy(MIXTURE)) == 6 + (2 + 5 + 3) + (2 + 5 + 8 + 4)
    assert num_launches(deploy(LATENT)) == 6 + LATENT.num_layers * (2 + 11 + 3)


def test_the_published_server_gives_the_price():
    # DeepSeek-V3 at TP 8: norms 2, latent attention 11 + 3 to quantise, reduces 4, MLP 3 + 2 or experts 8 + 2
    launches = 6 + 3 * (2 + 14 + 4 + 5) + 58 * (2 + 14 + 4 + 10)

    assert pytest.approx(82_640 / launches, abs=0.05) == LAUNCH_US


@pytest.mark.parametrize("backend", ["roofline", "operators"])
def test_a_mixture_over_eight_ranks_is_slower_by_a_multiple(tmp_path, backend):
    if backend == "operators":
        pytest.importorskip("aiconfigurator_core")
    if not CASE.exists():
        pytest.skip(f"{CASE} is not there")
    eager, graphs = (latency_model(Site(pool).check()) for pool in (
        load_experiment(CASE, {"latency.backend": backend} | mode).all_pools()[0] for mode in (EAGER, GRAPHS)))
    decodes = {"decode": [1536] * 32}

    assert eager.predict(**decodes) == pytest.approx(0.055, rel=0.25)       # 25 to 55 ms a reader was told, 55 measured
    assert eager.predict(**decodes) > 5 * graphs.predict(**decodes)
    assert eager.predict([(8192, 0)]) == graphs.predict([(8192, 0)])        # what takes longer hides its launches


def test_the_price_is_a_floor_and_said(model_of):
    model = model_of()

    # 32 layers of 10, 6 once; 14.8 ms are more than 16 GB of weights take
    assert model.predict(decode=[100]) == pytest.approx(326 * LAUNCH_US * 1e-6)
    assert any("at least 14.8 ms, 326 launches of 45.4 us" in note for note in model.warnings())


def test_a_price_that_is_given_wins(model_of):
    free = model_of(**{"engine.cuda_graphs.eager_us_per_layer": 0.0})

    assert free.predict(decode=[100]) < 0.01 and not any("launch" in note for note in free.warnings())
    assert model_of(**{"engine.cuda_graphs.eager_us_per_layer": 1000.0}).predict(decode=[100]) == pytest.approx(0.032)


def test_stages_launch_what_they_hold(model_of):
    whole = model_of(**{"topology.pipeline_parallel": 2})

    assert sum(whole.predict_stages_ns(decode=[100])) == pytest.approx(326 * LAUNCH_US * 1e3, rel=1e-6)


def test_times_of_whole_iterations_hold_their_launches(model_of):
    linear = {"latency": {"backend": "linear", "base_us": 5000.0}}

    assert model_of(**linear).predict(decode=[100]) < 0.0052 and model_of(**linear).warnings() == []


def test_compiled_batches_beyond_the_graphs_are_told(model_of):
    def told(**keys):
        return [note for note in model_of(**GRAPHS | keys).warnings() if note.startswith("cuda_graphs: ")]

    assert len(told()) == 1 and "with torch.compile, and not counted" in told()[0]
    assert told(**{"engine.cuda_graphs.eager_us_per_layer": 0.0}) == []
    assert told(**{"engine.max_num_batched_tokens": 512}) == []             # all batches have graphs


@pytest.mark.parametrize("name", names("model"))
def test_layers_whose_kernels_are_not_counted_are_told(name):
    found = launching(deploy(load_model(name)))

    assert found.us > 0
    assert len(found.notes) == 1 + len({mixer.title for mixer, _ in load_model(name).mixers if mixer.launches is None})


@pytest.mark.parametrize("name", ["enforce_eager", "--enforce-eager"])
def test_the_engines_flag_leads_to_the_key(name):
    text = describe.describe_text("key", name)

    assert text.startswith("engine.cuda_graphs.mode") and "enforce_eager" in text
