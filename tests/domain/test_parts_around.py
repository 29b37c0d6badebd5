"""Parts around layers and beside the embedding in a model, and experts in a width of their own: weights and work."""
import pytest
from msgspec.structs import replace

from simulator.collective.exchanges import exchanges
from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.embeddings import PerLayerEmbedding
from simulator.domain.layers.networks import Linear, Mlp, Moe
from simulator.domain.layers.residuals import HyperConnections
from simulator.domain.rank_weights import rank_weights
from simulator.latency.roofline.costs import between_bytes_per_token, distinct_experts
from support.small_models import DENSE, deploy

STREAMS = HyperConnections(streams=4)
MOE = Moe(num_experts=8, experts_per_token=2, intermediate_size=16)


def listed(*parts, **named):
    """Return a model with these named parts in both layers."""
    return replace(DENSE, parts={name: NamedPart(**part) for name, part in named.items()},
                   layer_kinds=(LayerParts(layers=(0, 1), parts=("attention", *parts)),),
                   moe=next((part["moe"] for part in named.values() if "moe" in part), None))


def test_streams_are_counted_in_each_layer_and_once_at_the_end():
    plain, model = listed("mlp"), listed("mlp", "streams", streams={"around": STREAMS})
    hidden, layer = model.hidden_size, STREAMS.num_parameters(model.hidden_size)

    assert model.num_parameters - plain.num_parameters == 2 * layer + STREAMS.head_parameters(hidden)
    more = rank_weights(deploy(model, tensor_parallel=2)).num_bytes - rank_weights(
        deploy(plain, tensor_parallel=2)).num_bytes
    assert more == 2 * (2 * layer + STREAMS.head_parameters(hidden))     # bytes; whole on each rank
    assert between_bytes_per_token(deploy(model)) - between_bytes_per_token(deploy(plain)) == 2 * 28 * hidden * 2


def test_a_table_for_all_layers_is_split_by_words():
    table = PerLayerEmbedding(vocab_size=100, width=8, num_layers=2)
    plain, model = listed("mlp"), replace(listed("mlp"), embeddings=(table,))
    hidden = model.hidden_size

    assert model.num_parameters - plain.num_parameters == 100 * 16 + 16 * hidden + 8
    more = rank_weights(deploy(model, tensor_parallel=2)).num_bytes - rank_weights(
        deploy(plain, tensor_parallel=2)).num_bytes
    assert more == 2 * (50 * 16 + 8 * hidden + 8)


def test_latent_experts_take_and_send_tokens_in_their_width():
    moe = replace(MOE, latent_size=DENSE.hidden_size // 4)
    model = listed("experts", experts={"moe": moe})
    hidden = model.hidden_size
    ways = {"data_parallel": 2, "expert_parallel": 2}

    wide, narrow = (exchanges(deploy(listed("experts", experts={"moe": each}), **ways))[0] for each in (MOE, moe))
    assert narrow.token_bytes == wide.token_bytes / 4
    assert model.num_parameters - listed("experts", experts={"moe": MOE}).num_parameters == (
        2 * (2 * hidden * hidden // 4 - 8 * 3 * 16 * (hidden - hidden // 4)))
    # on each of 2 ranks: half of the experts, the projections whole
    weights = rank_weights(deploy(model, tensor_parallel=2))
    assert weights.experts == 2 * 8 * 3 * 16 * hidden // 4 / 2


def test_experts_that_do_nothing_need_fewer_of_the_others():
    plain, idle = (deploy(listed("experts", experts={"moe": moe})) for moe in (MOE, replace(MOE, zero_experts=8)))

    assert distinct_experts(plain)[1] == pytest.approx(2)
    assert distinct_experts(idle)[1] == pytest.approx(1)


def test_a_projection_takes_the_place_of_a_network():
    model = listed("line", line={"linear": Linear()})

    assert model.num_parameters - listed("mlp").num_parameters == 2 * (
        model.hidden_size ** 2 - Mlp.num_parameters(model.mlp, model.hidden_size))


def test_a_named_part_is_one_part():
    with pytest.raises(ValueError, match="expected one of mixer, mlp, moe, linear and around"):
        NamedPart(around=STREAMS, linear=Linear())
