"""The kinds of token mixers: `kind` in the files of models -> the class, one file a kind in layers/."""
from functools import reduce
from importlib import import_module
from operator import or_

# Of [attention], which keep something of every token, and of [linear_attention], which keep a state of fixed size.
ATTENTION = {
    "multi_head": "simulator.domain.layers.multi_head:MultiHeadAttention",
    "multi_head_latent": "simulator.domain.layers.latent:LatentAttention",
    "msa": "simulator.domain.layers.msa:BlockSparseAttention",
    "csa_hca": "simulator.domain.layers.csa_hca:CompressedAttention",
    "encoder": "simulator.domain.layers.encoder:EncoderAttention",
}
LINEAR_ATTENTION = {
    "gated_delta_net": "simulator.domain.layers.gated_delta_net:GatedDeltaNet",
    "lightning": "simulator.domain.layers.lightning:LightningAttention",
    "mamba2": "simulator.domain.layers.mamba2:Mamba2",
    "mamba1": "simulator.domain.layers.mamba1:Mamba1",
    "kda": "simulator.domain.layers.kda:KimiDeltaAttention",
    "short_conv": "simulator.domain.layers.short_conv:ShortConvolution",
}

# Around the parts of a layer, in place of a plain residual; beside the embedding of tokens.
AROUND = {
    "hyper_connections": "simulator.domain.layers.residuals:HyperConnections",
    "attention_residuals": "simulator.domain.layers.residuals:AttentionResiduals",
    "alt_up": "simulator.domain.layers.residuals:AltUp",
    "per_layer_input": "simulator.domain.layers.residuals:PerLayerInput",
}
EMBEDDINGS = {
    "per_layer": "simulator.domain.layers.embeddings:PerLayerEmbedding",
    "ngram": "simulator.domain.layers.embeddings:NgramEmbedding",
}


def _any_of(kinds: dict[str, str]):
    """Return the union of the classes."""
    return reduce(or_, (getattr(import_module(module), name) for module, _, name in (
        path.partition(":") for path in kinds.values())))


Attention, LinearAttention = _any_of(ATTENTION), _any_of(LINEAR_ATTENTION)
Around, Embedding = _any_of(AROUND), _any_of(EMBEDDINGS)
