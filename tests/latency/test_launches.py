"""Launching kernels one by one: how many there are, what that takes, and where nothing is known of it."""
from pathlib import Path

import pytest

from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config import describe
from simulator.config.load import load_experiment
from simulator.domain.facts import load_model, names
from simulator.latency.overheads.launches import HOSTS, launching, num_launches
from support.small_models import DENSE, LATENT, MIXTURE, deploy

LAUNCH_US = HOSTS["vllm"].launch_us
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


def test_gated_delta_nets_launch_the_chunked_rule_for_prompts_alone():
    # Qwen3-Next, 36 of 48 layers: norms 2, 15 or 7; 12 of attention: norms 2, 7; each experts 8 and a shared one 4
    for is_decode, net in ((False, 15), (True, 7)):
        assert num_launches(deploy(load_model("qwen3-next-80b-a3b")), is_decode) == (
            6 + 36 * (2 + net + 12) + 12 * (2 + 7 + 12))
    found = launching(deploy(load_model("qwen3-next-80b-a3b")), HOSTS["vllm"])
    assert found.us - found.decode_us == pytest.approx(36 * 8 * 32.5)
    assert "1,302 launches of 32.5 us, 1,014 of decodes alone by the host" in found.notes[0]


def test_the_published_servers_give_the_prices():
    # DeepSeek-V3 at TP 8: norms 2, latent attention 11 + 3 to quantise, reduces 4, MLP 3 + 2 or experts 8 + 2
    deepseek = 6 + 3 * (2 + 14 + 4 + 5) + 58 * (2 + 14 + 4 + 10)
    assert HOSTS["sglang"].launch_us == pytest.approx(82_640 / deepseek, abs=0.05)
    # Qwen3-30B-A3B at TP 4: norms 2, attention with its own norms 7, reduces 4, experts 8. TPOT in ms; in the 1,499
    # tokens of an answer, seven others have their prompts computed: 346 ms each, without graphs as well as with
    qwen = num_launches(deploy(load_model("qwen3-30b-a3b"), tensor_parallel=4))
    assert qwen == 6 + 48 * (2 + 7 + 4 + 8)
    for tpot_ms in (33.92, 35.20, 34.4):        # eager and compiled on RTX 4090 D; compiled on L20
        assert HOSTS["vllm"].launch_us == pytest.approx((tpot_ms - 7 * 346 / 1499) * 1e3 / qwen, rel=0.03)


@pytest.mark.parametrize("backend", ["roofline", "operators"])
def test_a_mixture_over_eight_ranks_is_slower_by_a_multiple(tmp_path, backend):
    if backend == "operators":
        pytest.importorskip("aiconfigurator_core")
    if not CASE.exists():
        pytest.skip(f"{CASE} is not there")
    eager, graphs = (latency_model(Site(pool).check()) for pool in (
        load_experiment(CASE, {"latency.backend": backend} | mode).all_pools()[0] for mode in (EAGER, GRAPHS)))
    decodes = {"decode": [1536] * 32}

    assert 0.025 < eager.predict(**decodes) < 0.055         # a reader was told 25 to 55 ms; that host took 55
    assert eager.predict(**decodes) > 3 * graphs.predict(**decodes)
    assert eager.predict([(8192, 0)]) == graphs.predict([(8192, 0)])        # what takes longer hides its launches


def test_the_price_is_a_floor_and_said(model_of):
    model = model_of()

    # 32 layers of 10, 6 once; 10.6 ms are more than 16 GB of weights take
    assert model.predict(decode=[100]) == pytest.approx(326 * LAUNCH_US * 1e-6)
    assert any("at least 10.6 ms, 326 launches of 32.5 us" in note for note in model.warnings())


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


def test_compiled_batches_beyond_the_graphs_have_the_price_too(model_of):
    def told(**keys):
        return [note for note in model_of(**GRAPHS | keys).warnings() if note.startswith("cuda_graphs: ")]

    assert len(told()) == 1 and "at least 10.6 ms" in told()[0]
    assert told(**{"engine.cuda_graphs.eager_us_per_layer": 0.0}) == []
    assert told(**{"engine.max_num_batched_tokens": 512}) == []             # all batches have graphs
    # 513 tokens have no graph, 512 have; with graphs of decodes alone no prompt has
    assert model_of(**GRAPHS).predict([(513, 0)]) >= 326 * LAUNCH_US * 1e-6
    pieces, decodes = (model_of(**{"engine.cuda_graphs.mode": mode, "engine.max_num_batched_tokens": 512})
                       for mode in ("full_and_piecewise", "full_decode_only"))
    assert pieces.predict([(16, 0)]) < decodes.predict([(16, 0)]) == pytest.approx(326 * LAUNCH_US * 1e-6)


OTHERS = EXPERIMENT.replace("roofline", "operators").replace(
    'max_model_len = 8192, cuda_graphs = {mode = "none"}', "%s")


@pytest.mark.parametrize(("engine", "eager", "us"), [
    ('scheduler = "sglang", max_model_len = 8192', {"engine.cuda_graph_backend_prefill": "disabled"}, 45.4),
    ('scheduler = "tensorrt_llm", max_model_len = 8192', {}, 35.0)])
def test_other_engines_launch_the_kernels_of_prompts_one_by_one(model_of, engine, eager, us):
    pytest.importorskip("aiconfigurator_core")
    plain = model_of(OTHERS % engine, **eager)
    free = model_of(OTHERS % engine, **eager | {"engine.eager_us_per_layer": 0.0})

    assert plain.predict([(9, 0)]) == pytest.approx(326 * us * 1e-6) and free.predict([(9, 0)]) < 0.01
    assert plain.predict(decode=[100]) == free.predict(decode=[100])        # a graph
    assert any(f"326 launches of {us} us" in note for note in plain.warnings())
    given = model_of(OTHERS % engine, **eager | {"engine.eager_us_per_layer": 1e3})
    assert given.predict([(9, 0)]) == pytest.approx(0.032)


@pytest.mark.parametrize(("engine", "off"), [
    ('scheduler = "sglang", max_model_len = 8192', {"engine.cuda_graph_backend_decode": "disabled"}),
    ('scheduler = "tensorrt_llm", max_model_len = 8192', {"engine.cuda_graph_max_batch_size": 0})])
def test_decodes_of_other_engines_have_graphs_unless_switched_off(model_of, engine, off):
    pytest.importorskip("aiconfigurator_core")
    graphs, eager = model_of(OTHERS % engine), model_of(OTHERS % engine, **off)

    assert eager.predict(decode=[100]) > 326 * 35e-6 - 1e-9 > graphs.predict(decode=[100])


def test_graphs_of_sglang_hide_the_launches_of_prompts(model_of):
    pytest.importorskip("aiconfigurator_core")
    assert model_of(OTHERS % 'scheduler = "sglang", max_model_len = 8192').predict([(9, 0)]) < 0.01


@pytest.mark.parametrize("name", names("model"))
def test_layers_whose_kernels_are_not_counted_are_told(name):
    found = launching(deploy(load_model(name)), HOSTS["vllm"])

    assert found.us > 0
    assert len(found.notes) == 1 + len({mixer.title for mixer, _ in load_model(name).mixers if mixer.launches is None})


@pytest.mark.parametrize("name", ["enforce_eager", "--enforce-eager"])
def test_the_engines_flag_leads_to_the_key(name):
    text = describe.describe_text("key", name)

    assert text.startswith("engine.cuda_graphs.mode") and "enforce_eager" in text
