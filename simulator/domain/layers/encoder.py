"""Attention of encoders: every token attends to the whole text, and nothing is kept."""
from simulator.domain.layers.multi_head import MultiHeadAttention


class EncoderAttention(MultiHeadAttention, tag_field="kind", tag="encoder"):
    """Softmax attention in both directions, of BERT and its like.

    A prompt is computed whole, in one iteration: vLLM has no KV cache for it (EncoderOnlyAttentionSpec), no chunks and
    no prefixes. Of s tokens there are s x s pairs of query and key; s (s + 1) are counted, twice those of a decoder.
    Kernels: norm, qkv, output; positions are in the embedding. Source: vLLM 0.33, vllm/v1/attention/backend.py
    (AttentionType.ENCODER_ONLY), vllm/model_executor/models/bert.py.
    """

    title = "attention in both directions"
    is_causal = False
    kernels, launches, between_kernels = 3, 3, 1
    cached_widths = ()
    error_key = "multi_head"                    # the kernels are the same, without a mask

    small_operators = property(lambda self: [])
    flops_per_context_token = property(lambda self: 4 * self.num_heads * (self.head_dim + self.value_dim))
