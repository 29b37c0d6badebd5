"""How to read the configurations of one architecture: a family names what differs from the standard keys."""
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from simulator.config.huggingface import layers
from simulator.config.huggingface.attention import multi_head
from simulator.config.huggingface.keys import CONTEXT, HEADS, KV_NAMES, MLP_SIZE, VOCABULARY, Key, Keys
from simulator.config.huggingface.networks import Experts

Flag = Key | bool
Number = Key | int
BIAS = Key("attention_bias", False)
MTP = Key("num_nextn_predict_layers|mtp_num_hidden_layers|num_mtp_modules", 0, least=0)


class Family(NamedTuple):
    """How to read the configurations of one architecture."""

    attention: Callable[[Keys, "Family"], dict] = multi_head
    layout: layers.Layout = layers.standard
    vocab: Key = VOCABULARY
    context: Key = CONTEXT
    scales_context: bool = True                 # a rope scaling factor lengthens the context
    tie: Flag = Key("tie_word_embeddings", False)
    norms_per_layer: int | Callable[[Keys], int] = 2
    norm_bias: Flag = False
    embedding_norm: bool = False
    positions: int | None = None                # learned positions are weights, this many beyond the context
    reserved_positions: int = 0                 # of the stated context, that no token has
    token_types: Number = 0                     # learned rows beside positions, of kinds of text
    has_pooler: bool = False                    # a dense layer behind the last one
    lm_head_bias: Flag = False
    has_head: bool = True                       # False: a pooler in its place
    heads: Number = HEADS
    kv_heads: Number = Key(KV_NAMES, 0)         # 0: equal to the number of query heads
    head_dim: int | None = None                 # if the key is absent; None: hidden_size / heads
    qkv_bias: Flag = False
    output_bias: Flag = False
    qk_norm: str = "none"
    qk_norm_key: Flag = True                    # whether the model has the norm
    output_gate: Flag = False
    head_gate: Flag = False
    sinks: bool = False
    mlp_size: Key = Key(MLP_SIZE)               # 0: mlp_ratio x hidden_size
    mlp_ratio: Number = 4
    mlp_divisor: int = 1                        # number of matrices that share the stated width
    mlp_gated: Flag = True
    mlp_bias: Flag = False
    activation_weights: int = 0                 # learned numbers of the activation, as of xIELU
    experts: Experts | None = None
    num_mtp_layers: Number = MTP
    mtp_layer: str = "last"                     # as in ModelSpec
    modules: Mapping[str, tuple[str, ...]] = MappingProxyType({})   # of parts, where names of several families mislead
    refused: tuple[str, ...] = ()               # keys of unsupported structures, refused unless 0, false or null
