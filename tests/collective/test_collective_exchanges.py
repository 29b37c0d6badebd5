"""What the ranks of a replica send one another, worked out on models of two layers."""
import pytest
from msgspec.structs import replace

from simulator.collective.exchanges import exchanges
from simulator.domain.facts import load_model
from support.small_models import DENSE, MIXTURE, deploy

TOKEN_BYTES = 64 * 2        # hidden size, 16 bit


def test_a_single_accelerator_exchanges_nothing():
    assert exchanges(deploy()) == []
    assert exchanges(deploy(MIXTURE)) == []


def test_tensor_parallel_ranks_reduce_twice_a_layer():
    # ring: 2 x 3/4 of the bytes leave a rank
    assert exchanges(deploy(tensor_parallel=4)) == [("tensor", "all_reduce", 4, TOKEN_BYTES, 1.5 * TOKEN_BYTES, 4)]


def test_layers_without_a_network_reduce_once():
    # 52 layers, each of them a token mixer or a network
    [found] = exchanges(deploy(load_model("nemotron-3-nano-30b-a3b"), tensor_parallel=2))

    assert found.count == 52


def test_stages_hand_over_once_between_each_two():
    assert exchanges(deploy(pipeline_parallel=2)) == [("pipeline", "send_recv", 1, TOKEN_BYTES, TOKEN_BYTES, 2)]


def test_experts_are_sent_their_tokens_and_send_them_back():
    # one layer of experts, 2 chosen; a data-parallel rank has half of the tokens, each of its two tensor-parallel ranks
    # sends half of these, three quarters of them to others
    [_, found] = exchanges(deploy(MIXTURE, tensor_parallel=2, data_parallel=2, expert_parallel=4))

    assert found == ("expert", "all_to_all", 2, TOKEN_BYTES / 2, 0.75 * TOKEN_BYTES / 2, 4)


def test_slices_of_all_experts_see_the_tokens_of_all_ranks():
    found = exchanges(deploy(MIXTURE, data_parallel=4))

    # gathered: all tokens; a rank lacks those of three others
    assert found == [("data", kind, 1, TOKEN_BYTES, 0.75 * TOKEN_BYTES, 4) for kind in ("all_gather", "reduce_scatter")]


def test_dense_data_parallel_ranks_exchange_nothing():
    assert exchanges(deploy(data_parallel=2)) == []


@pytest.mark.parametrize(("ways", "count"), [({"tensor_parallel": 2}, 8), ({"pipeline_parallel": 2}, 1)])
def test_layers_multiply_reductions_but_not_hand_overs(ways, count):
    [found] = exchanges(deploy(replace(DENSE, num_layers=4), **ways))

    assert found.count == count
