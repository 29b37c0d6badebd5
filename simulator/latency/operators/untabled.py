"""Attention without a table: the roofline's FLOPs and bytes of each pass over the context, of one layer on one rank."""
import numpy as np

from simulator.latency.operators.curves import ROOFLINE, Times


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

    def decode(self, sequences: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return times and origins by sequences and tokens in the cache."""
        rate, ns = self._rate, np.zeros((len(sequences), len(contexts)))
        for local, attending in zip(self._local, self._attending, strict=True):
            token_ns = max(attending.decode_flops / rate.attention_flops, local.kv_bytes / rate.memory_bytes)
            ns += np.outer(sequences, _seen(local, contexts)) * token_ns
        return ns + rate.attention_ns + rate.kernel_ns, np.full(ns.shape, ROOFLINE, dtype=np.uint8)

    def prefill(self, prompts: int, lengths: np.ndarray) -> Times:
        """Return the times for `prompts` prompts of each length."""
        rate, ns = self._rate, np.zeros(len(lengths))
        for each in self._local:
            seen = _seen(each, lengths)
            pairs = seen * (seen + 1) / 2 + (lengths - seen) * seen
            ns += prompts * np.maximum(pairs * each.pair_flops / rate.attention_flops,
                                       lengths * (each.kv_bytes / rate.memory_bytes))
        return Times(ns + rate.attention_ns + rate.kernel_ns, np.full(len(lengths), ROOFLINE, dtype=np.uint8))


def _seen(each, contexts: np.ndarray) -> np.ndarray:
    return np.minimum(contexts, each.window) if each.window else contexts


class Untabled:
    """Equal layers of a kind without tables; methods as of `_Kind` in attention."""

    is_measurable, prefix_note = False, ""

    def __init__(self, composer, part, layers: int, window: int):
        self.name, self.layers, self._passes = part.kind, layers, Passes(composer, part, window)
        composer.note_untabled(part)

    def is_measured(self, phase: str) -> bool:
        """Return False."""
        return False

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
