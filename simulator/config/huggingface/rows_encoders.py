"""Families of encoders by the stem of their architectures; source of defaults and structure: see `families`.

A norm follows the embedding, and each part of a layer; none follows the last layer, in the place of which the first is
counted. Heads of classifiers, a row for each class, are left out.
"""
from simulator.config.huggingface import layers
from simulator.config.huggingface.attention import encoder
from simulator.config.huggingface.family import Family
from simulator.config.huggingface.keys import Key

BERT = Family(
    encoder, layout=layers.full, kv_heads=0, norm_bias=True, qkv_bias=True, output_bias=True, mlp_gated=False,
    mlp_bias=True, positions=0, token_types=Key("type_vocab_size", 2), has_pooler=True, has_head=False,
    refused=("is_decoder", "add_cross_attention"))
# Positions begin behind that of the padding token, which is 1.
ROBERTA = BERT._replace(reserved_positions=2)

ENCODERS = {"Bert": BERT, "Roberta": ROBERTA, "XLMRoberta": ROBERTA}
