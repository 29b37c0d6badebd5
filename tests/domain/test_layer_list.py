"""The layers of a model that lists the parts of each."""
import msgspec
import pytest
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, read_table
from simulator.domain.kv_layout import kv_layout
from simulator.domain.layer_groups import GroupRules
from simulator.domain.memory_plan import plan
from simulator.domain.model_spec import ModelSpec
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.errors import InputErrors

H200 = load_accelerator("h200-sxm-141gb")
TABLES = {"attention", "sliding_attention", "linear_attention"}
ATTENTION = {"kind": "multi_head", "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
WIDE = {"kind": "multi_head", "num_heads": 6, "num_kv_heads": 2, "head_dim": 16}
MAMBA = {"kind": "mamba2", "num_heads": 4, "head_dim": 16, "num_groups": 1, "state_size": 8, "conv_kernel": 4}
SHAPE = {"num_layers": 4, "hidden_size": 64, "vocab_size": 640, "max_position_embeddings": 4096, "dtype": "bfloat16",
         "attention": ATTENTION, "mlp": {"intermediate_size": 128}}


def listed(model: ModelSpec) -> ModelSpec:
    """Return the model with the parts of each layer listed in place of its pattern."""
    kinds = []
    for (mixer, network), numbers in _pairs(model).items():
        parts = [] if mixer == "feed_forward" else ["attention" if mixer == "full_attention" else mixer]
        parts += {"dense": ["mlp"], "moe": ["moe"], "both": ["mlp", "moe"], "none": []}[network]
        kinds.append({"layers": numbers, "parts": parts})
    table = msgspec.to_builtins(model) | {"layer_kinds": kinds, "layer_pattern": "F", "first_dense_layers": 0,
                                          "moe_layer_interval": 1, "dense_mlp_beside_moe": False}
    return msgspec.convert(table, ModelSpec)


def _pairs(model):
    found = {}
    for i, pair in enumerate(zip(model.layer_types, model.feed_forward_types, strict=True)):
        found.setdefault(pair, []).append(i)
    return found


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b",
                                  "gemma-3-27b", "mimo-v2-flash", "llama-4-maverick"])
def test_listed_layers_are_those_of_the_pattern(name):
    model = load_model(name)
    same, ways = listed(model), Parallelism(tensor_parallel=2, pipeline_parallel=2)

    assert same.layers == model.layers
    for get in ("num_parameters", "kv_elements_per_token", "layer_types", "feed_forward_types", "mixers"):
        assert getattr(same, get) == getattr(model, get)
    one, two = (Deployment(model=each, accelerator=H200, parallelism=ways) for each in (model, same))
    assert rank_weights(one, range(10)) == rank_weights(two, range(10))
    one, two = (Deployment(model=each, accelerator=H200, parallelism=Parallelism(tensor_parallel=8))
                for each in (model, same))
    assert repr(plan(one, 16, 4096, 8192, 64, None, GroupRules())) == repr(
        plan(two, 16, 4096, 8192, 64, None, GroupRules()))


def spec(**more) -> ModelSpec:
    return msgspec.convert(SHAPE | more, ModelSpec)


def test_windowed_layers_may_have_heads_and_networks_of_their_own():
    model = spec(parts={"local": {"mixer": WIDE, "window": 32}, "narrow": {"mlp": {"intermediate_size": 32}}},
                 layer_kinds=[{"layers": [0, 3], "parts": ["attention", "mlp"]},
                              {"layers": [1], "parts": ["local", "narrow"], "norms": 4},
                              {"layers": [2], "parts": [], "norms": 0}])

    # q and o 64 x 64, k and v 64 x 32, 3 x 64 x 128, 2 norms; q and o 64 x 96, 3 x 64 x 32, 4 norms; nothing
    full, local = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 128, 2 * 64 * 96 + 2 * 64 * 32 + 3 * 64 * 32 + 256
    assert [model.layer_parameters(i) for i in range(4)] == [full, local, 0, full]
    assert model.num_parameters == 2 * full + local + 2 * 640 * 64 + 64
    assert model.attentions[1][1:] == (1, 32)
    assert model.layer_types == ("full_attention", "sliding_attention", "feed_forward", "full_attention")
    assert rank_weights(Deployment(model=model, accelerator=H200), range(2, 3)).num_bytes == 0


def test_mixers_side_by_side_keep_both_caches_in_a_layer():
    model = spec(linear_attention=MAMBA,
                 layer_kinds=[{"layers": [0, 1, 2, 3], "parts": ["attention", "linear_attention", "mlp"]}])
    deployment = Deployment(model=model, accelerator=H200)

    # 2 KV heads of 16, key and value, 2 bytes, 4 layers; a state of 4 x 16 x 8 and 3 tokens of 64 + 16 channels
    assert kv_layout(deployment).bytes_per_token == 4 * 2 * 2 * 16 * 2
    assert kv_layout(deployment).state_bytes_per_sequence == 4 * (4 * 16 * 8 + 3 * 80) * 2
    assert (model.num_full_attention_layers, model.num_linear_attention_layers) == (4, 4)
    groups = plan(deployment, 16, 4096, 8192, 64, None, GroupRules()).groups
    assert groups.members == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert [group.kind for group in groups.layers.groups] == ["full_attention", "linear_attention"]


def test_two_sublayers_of_a_sort_count_twice():
    twice = spec(layer_kinds=[{"layers": [0, 1, 2, 3], "parts": ["attention", "mlp", "attention", "mlp"], "norms": 4}])
    once = spec(num_layers=8)

    assert twice.num_parameters == once.num_parameters
    assert twice.kv_elements_per_token == once.kv_elements_per_token


@pytest.mark.parametrize(("more", "message"), [
    ({"layer_kinds": [{"layers": [0, 1, 1, 7], "parts": ["attention"]}]},
     "layer_kinds: expected each layer from 0 to 3 once; twice: 1; absent: 2, 3; not there: 7"),
    ({"layer_kinds": [{"layers": [0, 1, 2, 3], "parts": ["attentoin", "mlp"]}]},
     'layer_kinds: no part "attentoin"; there are attention, mlp'),
    ({"layer_kinds": [{"layers": [0, 1, 2, 3], "parts": ["mlp"]}], "first_dense_layers": 1},
     "first_dense_layers: [[layer_kinds]] give the layers"),
    ({"parts": {"a": {"mlp": {"intermediate_size": 1}}}}, "[parts] are of [[layer_kinds]], which are missing"),
    ({"parts": {"a": {"window": 3, "mlp": {"intermediate_size": 1}}}}, "window = 3: only a mixer"),
    ({"parts": {"a": {}}}, "expected one of mixer, mlp, moe, linear and around"),
    ({"parts": {"a": {"mixer": MAMBA}}, "layer_kinds": [{"layers": [0, 1, 2, 3], "parts": ["a"]}]},
     "[linear_attention] is missing"),
    ({"attention": None}, "attention: required key is missing"),
])
def test_contradictions_are_named(more, message):
    with pytest.raises(InputErrors) as caught:
        read_table(SHAPE | more, ModelSpec, "m.toml")

    assert message in str(caught.value)


def test_a_changed_copy_has_layers_of_its_own():
    model = spec()

    assert len(model.layers) == 4
    assert len(replace(model, num_layers=6).layers) == 6
