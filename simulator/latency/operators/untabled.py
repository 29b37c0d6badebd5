"""Attention without a table: the roofline's FLOPs and bytes of each pass over the context, of one layer on one rank.

They take the laws of their kind, where other accelerators have tables of it, or one share of peak.
"""
import numpy as np

from simulator.latency.operators.curves import ROOFLINE, Times
from simulator.latency.roofline.kind_laws import NONE, RAMP_TOKENS, PromptLaw, kind_law, kind_of
from simulator.latency.roofline.laws import LAWS, generation_of


class Passes:
    """The passes of equal layers.

    Parameters
    ----------
    composer : Composer
    part : Mixer
    window : of the layers, tokens; 0: none.
    """

    def __init__(self, composer, part, window: int):
        ways, element = composer.deployment.parallelism, composer.deployment.kv_cache_bytes
        self._rate = composer.rate
        self._local = part.shard(ways.tensor_parallel).passes(element, window)
        self._attending = part.shard(ways.query_parallel).passes(element, window)
        accelerator, held = composer.deployment.accelerator, part.shard(ways.tensor_parallel)
        self._peak = accelerator.flops_per_s(composer.deployment.activation_dtype) * 1e-9
        self._bandwidth = accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self._law = NONE if part.error_key in LAWS else kind_law(generation_of(accelerator)[0], kind_of(part))
        queries = held.num_heads * (held.head_dim + held.value_dim) * composer.deployment.activation_bytes
        self._queries_ns = queries / self._bandwidth        # of a token: one pass over queries and outputs

    def _decode_rates(self) -> tuple[float, float, float, float]:
        """Return FLOPs and bytes per ns, ns of a token, and ns of a layer, by law or by shares of peak."""
        rate, law = self._rate, self._law.decode
        if law is None:
            return rate.attention_flops, rate.memory_bytes, 0.0, rate.attention_ns + rate.kernel_ns
        return (self._peak * law.compute_frac, self._bandwidth * law.memory_frac, law.passes * self._queries_ns,
                law.floor_us * 1e3 + rate.kernel_ns)

    def decode(self, sequences: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return times and origins by sequences and tokens in the cache."""
        flops, num_bytes, query_ns, layer_ns = self._decode_rates()
        ns = np.zeros((len(sequences), len(contexts)))
        for local, attending in zip(self._local, self._attending, strict=True):
            token_ns = max(attending.decode_flops / flops, local.kv_bytes / num_bytes)
            ns += np.outer(sequences, _seen(local, contexts)) * token_ns
        ns += sequences[:, None] * query_ns
        return ns + layer_ns, np.full(ns.shape, ROOFLINE, dtype=np.uint8)

    def prefill(self, prompts: int, lengths: np.ndarray) -> Times:
        """Return the times for `prompts` prompts of each length."""
        ns = self._by_shares(prompts, lengths) if self._law == NONE else self._by_law(prompts, lengths)
        return Times(ns, np.full(len(lengths), ROOFLINE, dtype=np.uint8))

    def _by_shares(self, prompts: int, lengths: np.ndarray) -> np.ndarray:
        flops, num_bytes, _, layer_ns = self._decode_rates()
        ns = np.zeros(len(lengths))
        for each in self._local:
            ns += prompts * np.maximum(_pairs(each, lengths) * each.pair_flops / flops,
                                       lengths * (each.kv_bytes / num_bytes))
        return ns + layer_ns

    def _by_law(self, prompts: int, lengths: np.ndarray) -> np.ndarray:
        """Return the times of prompts, with the last token as a decode: roofline/kind_laws.py."""
        flops, num_bytes, query_ns, layer_ns = self._decode_rates()
        law, others = self._law.prefill or BY_SHARE, prompts * np.maximum(lengths - 1, 0.0)
        rate = self._peak * law.compute_frac if self._law.prefill else self._rate.attention_flops
        ramp = np.minimum(others / RAMP_TOKENS, 1.0)
        ns = prompts * query_ns + others * law.passes * self._queries_ns + ramp * law.floor_us * 1e3
        for local, attending in zip(self._local, self._attending, strict=True):
            seen = _seen(local, lengths)
            pairs = _pairs(local, lengths) - seen + (0.0 if local.window else ramp * law.tile_tokens * seen)
            ns += prompts * np.maximum(seen * attending.decode_flops / flops + pairs * local.pair_flops / rate,
                                       seen * local.kv_bytes / num_bytes)
        return ns + layer_ns


BY_SHARE = PromptLaw(compute_frac=1.0, passes=0.0)      # of a kind with a law of decodes alone


def _pairs(each, lengths: np.ndarray) -> np.ndarray:
    seen = _seen(each, lengths)
    return seen * (seen + 1) / 2 + (lengths - seen) * seen


def _seen(each, contexts: np.ndarray) -> np.ndarray:
    return np.minimum(contexts, each.window) if each.window else contexts


class Untabled:
    """Equal layers of a kind without tables; methods as of `_Kind` in attention."""

    is_measurable, prefix_note, joins_prompts = False, "", False

    def __init__(self, composer, part, layers: int, window: int):
        self.name, self.layers, self._passes = part.kind, layers, Passes(composer, part, window)
        composer.note_untabled(part)

    def is_measured(self, phase: str) -> bool:
        """Return False."""
        return False

    def behind_prefixes(self) -> None:
        """Return None: no prefixes were measured."""

    def batches(self) -> list[int]:
        """Return measured batch sizes of decodes: none."""
        return []

    def lookups(self, phase: str) -> list[tuple]:
        """Return no lookups."""
        return []

    def times(self, phase: str, batch: int, lengths: np.ndarray) -> None:
        """Return None: nothing was measured."""

    def roofline_decode(self, sequences: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return times and origins of one layer, by sequences and tokens in the cache."""
        return self._passes.decode(sequences, contexts)

    def roofline_prefill(self, prompts: int, lengths: np.ndarray) -> Times:
        """Return the times of one layer for `prompts` prompts of each length."""
        return self._passes.prefill(prompts, lengths)
