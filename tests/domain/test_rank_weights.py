"""What one accelerator holds of a model."""
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_model, names
from simulator.domain.rank_weights import rank_weights
from support.small_models import DENSE, LATENT, MIXTURE, deploy


@pytest.mark.parametrize("name", names("model"))
def test_one_rank_holds_the_whole_model(name):
    # the vocabulary is padded to a multiple of 64 rows, at both ends of the model
    model = load_model(name)
    weights = rank_weights(deploy(model))

    padding = -model.vocab_size % 64 * model.hidden_size * (1 if model.tie_word_embeddings or not model.has_head else 2)
    head = 0 if weights.is_head_shared else weights.lm_head
    total = weights.matrices + weights.experts + weights.unquantized + weights.embedding + head
    # tables of experts by token are no weights of the model, 64-bit indices among weights of 16 bit
    tables = sum(layer.moe.table_bytes / 2 for layer in model.layers if layer.moe)
    assert total == model.num_parameters + padding + tables


def test_bytes_of_a_dense_model():
    # 2 x (12,288 + 24,576) + 5 norms of 64 + embedding and head of 1024 x 64: 205,120 weights of 2 bytes
    assert rank_weights(deploy()).num_bytes == 2 * 205_120


def test_a_tied_head_is_stored_once():
    # 205,120 less the head's 65,536
    assert rank_weights(deploy(replace(DENSE, tie_word_embeddings=True))).num_bytes == 2 * 139_584


def test_tensor_parallelism_splits_all_but_norms():
    # (73,728 + 131,072) / 2 + 320
    assert rank_weights(deploy(tensor_parallel=2)).num_bytes == 2 * 102_720


def test_latent_down_projections_are_whole_on_each_rank():
    # a layer: 64 x (48 + 32 + 8) = 5,632 whole; (4,608 + 4,096 + 4,096 + 24,576) / 2 split
    assert rank_weights(deploy(LATENT, tensor_parallel=2)).matrices == 2 * (5_632 + 18_688)


@pytest.mark.parametrize("ways", [
    {"tensor_parallel": 4}, {"tensor_parallel": 2, "data_parallel": 2},
    {"tensor_parallel": 2, "data_parallel": 2, "expert_parallel": 4}])
def test_experts_are_split_over_all_ranks_of_a_stage(ways):
    # 8 experts x 6,144 weights, a quarter each
    assert rank_weights(deploy(MIXTURE, **ways)).experts == 12_288


def test_quantisation_spares_embedding_head_norms_and_router():
    # mixture: 55,296 + 49,152 weights of 1 byte; router 512, norms 320, embedding and head 131,072 of 2 bytes
    assert rank_weights(deploy(MIXTURE, weight_dtype="fp8")).num_bytes == 104_448 + 2 * 131_904


def test_stages_hold_their_layers_and_the_ends_of_the_model():
    deployment = deploy(pipeline_parallel=2)
    first, last = (rank_weights(deployment, deployment.parallelism.layers_of_stage(DENSE, stage)) for stage in (0, 1))

    assert first.matrices == last.matrices == 36_864
    assert (first.embedding, first.lm_head) == (65_536, 0)
    assert (last.embedding, last.lm_head) == (0, 65_536)
    assert last.unquantized - first.unquantized == 64                         # the final norm


def test_a_head_tied_to_an_embedding_on_another_stage_is_stored_again():
    deployment = deploy(replace(DENSE, tie_word_embeddings=True), pipeline_parallel=2)

    last = rank_weights(deployment, deployment.parallelism.layers_of_stage(DENSE, 1))

    assert not last.is_head_shared
    assert last.lm_head == 65_536
