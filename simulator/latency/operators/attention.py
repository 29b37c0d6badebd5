"""Attention of a batch, from curves over the length of one size of batch.

Decodes: a row for each number of sequences, interpolated where not measured, a column for each
power of two tokens in the cache. Prompts: a row for each
power of two prompts, a column for each length. All attention layers of all stages are added up; layers with a window
that was not measured use the curve without a window, up to `window` tokens.
"""
from typing import NamedTuple

import numpy as np

from simulator.latency.operators import recurrences
from simulator.latency.operators.curves import INTERPOLATED, Times
from simulator.latency.operators.latent_attention import LatentTables
from simulator.latency.operators.prefixes import Behind, behind_of
from simulator.latency.operators.sparse_attention import SparseTables
from simulator.latency.operators.untabled import Passes, Untabled

CONTEXT_NODES = 2.0 ** np.arange(1, 21)         # tokens in the cache after the step: 2 to 1,048,576, as measured
MAX_DECODES = 2048
BATCHES = tuple(2 ** i for i in range(12))      # batch sizes of decodes in all databases
PROMPT_ROWS = 9                                 # 1 to 256 prompts
MAX_PROMPT_TOKENS = 131_072
EXPANSION = ("of prompts behind a cached prefix, the products that make keys and values of its latents anew are in no "
             "table: left out")
DIFFERENCE = ("prompts behind a cached prefix: compressed attention with an indexer is the difference of two prompts, "
              "behind 1,024 tokens or more 14 to 17 % off in the mean (docs/guide/operator_tables.md)")


class Decodes(NamedTuple):
    """Attention of decodes alone, of all layers of a kind.

    times : by sequences and CONTEXT_NODES.
    """

    kind: "_Kind"
    times: Times


def decodes_by_kind(composer) -> list[Decodes]:
    """Return the attention of decodes alone, by kind of layer.

    Of n = 0, 1, ... sequences at CONTEXT_NODES.

    composer : Composer
    """
    found = []
    for kind in _kinds(composer):
        layer, code, origin = _decodes(kind)
        composer.note_origin(f"{kind.name} decode", origin)
        composer.database.hear_attention("decode_attention", kind)
        ns = kind.layers * layer
        ns[0] = 0.0
        found.append(Decodes(kind, Times(ns, code.astype(np.uint8))))
    return found


def decode_table(by_kind: list[Decodes]) -> Times:
    """Return the attention of all layers."""
    ns = np.zeros((MAX_DECODES + 1, len(CONTEXT_NODES)))
    origins = np.zeros(ns.shape, dtype=np.uint8)
    for each in by_kind:
        ns += each.times.ns
        origins = np.maximum(origins, each.times.origins)
    return Times(ns, origins)


def _decodes(kind: "_Kind") -> tuple[np.ndarray, np.ndarray, str]:
    """Return times and origins of one layer, and the origin of the kind."""
    sequences = np.arange(MAX_DECODES + 1)
    rows = {batch: kind.times("generation", batch, CONTEXT_NODES) for batch in {*BATCHES, *kind.batches()}}
    batches = sorted(batch for batch, row in rows.items() if row is not None)
    if not batches:
        return *kind.roofline_decode(sequences, CONTEXT_NODES), (
            "measured" if kind.is_measured("generation") else "roofline")
    times = np.array([rows[batch].ns for batch in batches])
    codes = np.array([rows[batch].origins for batch in batches])
    layer = np.column_stack([np.interp(sequences, batches, column) for column in times.T])
    beyond = sequences > batches[-1]
    layer[beyond] *= (sequences[beyond] / batches[-1])[:, None]
    code = np.maximum(codes[np.searchsorted(batches, np.minimum(sequences, batches[-1]))],
                      np.where(np.isin(sequences, batches), 0, INTERPOLATED)[:, None])
    return layer, code, "measured" if kind.is_measured("generation") else "interpolated"


def prefill_table(composer) -> tuple[Times, Behind | None]:
    """Return the attention of 1, 2, 4, ... prompts of s = 0, 1, ... tokens each.

    By s; and those of kinds that were measured behind prefixes, None: there are none.
    """
    last = min(max(composer.deployment.model.max_position_embeddings, 2), MAX_PROMPT_TOKENS)
    lengths = np.arange(last + 1.0)
    kinds = _kinds(composer)
    rows = [[kind.times("context", 2 ** row, lengths) for row in range(PROMPT_ROWS)] for kind in kinds]
    counts = [next((i for i, row in enumerate(each) if row is None), PROMPT_ROWS) for each in rows]
    num_rows = min([count for count in counts if count] or [1])
    ns, measured_ns = np.zeros((2, num_rows, last + 1))
    chunks, origins = [], np.zeros(ns.shape, dtype=np.uint8)
    for kind, each, count in zip(kinds, rows, counts):
        behind = kind.behind_prefixes() if count else None
        chunks += [(kind.layers, behind)] if behind else []
        for i in range(num_rows):
            times = each[i] if count else kind.roofline_prefill(2 ** i, lengths)
            ns[i] += kind.layers * times.ns
            measured_ns[i] += kind.layers * times.ns if behind else 0.0
            origins[i] = np.maximum(origins[i], times.origins)
        composer.database.hear_attention("prefill_attention", kind)
        if kind.prefix_note and kind.prefix_note not in composer.database.notes:
            composer.database.notes.append(kind.prefix_note)
        composer.note_origin(f"{kind.name} prefill", "measured" if kind.is_measured("context") else (
            "interpolated" if count else "roofline"))
    ns[:, 0] = measured_ns[:, 0] = 0.0
    return Times(ns, origins), behind_of(chunks, measured_ns)


def _kinds(composer) -> list["_Kind"]:
    kinds = []
    for part, layers, window in composer.deployment.model.attentions:
        table = TABLES.get(part.price_key)
        name = "sliding_attention" if window else "attention"
        kinds.append(table(composer, name, part, layers, window) if table else Untabled(composer, part, layers, window))
    return kinds + [_Recurrence(composer, part, layers) for part, layers in measured_recurrences(composer)]


def measured_recurrences(composer) -> list[tuple]:
    """Return a rank's recurrent parts of which tables hold the convolution.

    Pairs of part and number of layers.
    """
    ranks = composer.deployment.parallelism.tensor_parallel
    parts = [(part.shard(ranks), layers) for part, layers in composer.deployment.model.mixers
             if part.backend == "state"]
    return [(part, layers) for part, layers in parts if recurrences.has_convolution(composer.database, part)]


class _Recurrence:
    """Measured layers of linear attention, or their convolutions alone.

    Their time for a chunk behind a prefix is a difference, as for attention.
    """

    name, is_measurable = "linear_attention", True
    prefix_note = ""            # on prompts behind a cached prefix
    joins_prompts = False

    def __init__(self, composer, part, layers: int):
        self.layers, self._database, self._part = layers, composer.database, part
        self._kernels = recurrences.KERNELS[part.price_key]

    def is_measured(self, phase: str) -> bool:
        """Return whether exactly these heads were measured."""
        return all(each.site in each.curves for each in self._lookups(phase))

    def behind_prefixes(self) -> None:
        """Return None: no prefixes were measured."""

    def batches(self) -> list[int]:
        """Return measured batch sizes of decodes: none, as `times` interpolates itself."""
        return []

    def lookups(self, phase: str) -> list[tuple]:
        """Return the lookup of each kernel.

        Table, curves by batch size, site, speed of light of a batch, whether square roots are interpolated.
        """
        return [(each.table, {1: each.curves}, each.site, lambda batch: recurrences.light, False)
                for each in self._lookups(phase)]

    def _lookups(self, phase: str) -> list:
        return self._kernels.lookups(self._database, phase, 1, self._part)

    def times(self, phase: str, batch: int, lengths: np.ndarray) -> Times | None:
        """Return the times of one layer for a batch size."""
        return self._kernels.times(self._database, phase, int(batch), self._part, lengths)


class _Kind:
    """Equal attention layers, on one rank; with decode context parallelism it has the heads of all sharing ranks.

    A kind with tables of its own defines `_site`, `_curves`, `_times`, `lookups` and `_missing_text`.
    """

    is_measurable, prefix_note = True, ""

    def __init__(self, composer, name: str, part, layers: int, window: int):
        self._composer, self._deployment, self._rate = composer, composer.deployment, composer.rate
        self._database = composer.database
        self.name, self.layers, self._window, self._passes = name, layers, window, Passes(composer, part, window)
        self.joins_prompts = part.price_key == "multi_head" and not part.sinks
        ways = self._deployment.parallelism
        self._parts = {"context": part.shard(ways.tensor_parallel), "generation": part.shard(ways.query_parallel)}
        self._kv_dtype = "fp8" if self._deployment.kv_cache_bytes == 1 else "bfloat16"

    def is_measured(self, phase: str) -> bool:
        """Return whether exactly these heads were measured."""
        return self._site(phase) in self._curves(phase).get(1, {})

    def behind_prefixes(self):
        """Return chunks measured behind prefixes; None: there are none."""
        return None

    def batches(self) -> list[int]:
        """Return the batch sizes of decodes that were measured with exactly these heads."""
        return [batch for batch, curves in self._curves("generation").items()
                if self._site("generation") in curves and batch <= MAX_DECODES]

    def lookups(self, phase: str) -> list[tuple]:
        """Return the lookup: one entry, or none.

        Table, curves by batch size, site, speed of light of a batch, whether square roots are interpolated.
        """
        window = self._window if self._measured(phase, 1, self._window, np.ones(1)) else 0
        curves = self._database.attention_curves(phase, self._kv_dtype, window)
        return [(f"{phase}_attention", curves, self._site(phase),
                 lambda batch: self._database.attention_light(phase, batch, self._kv_dtype, window),
                 phase == "context")]

    def _site(self, phase: str) -> tuple:
        part = self._parts[phase]
        return float(part.num_heads), float(part.num_kv_heads), float(part.head_dim)

    def _curves(self, phase: str) -> dict[int, dict]:
        return self._database.attention_curves(phase, self._kv_dtype, self._window)

    def decode_shape(self) -> tuple:
        """Return the part that a rank computes of decodes, and the window, in tokens."""
        return self._parts["generation"], self._window

    def prompt_rate(self, tokens: float) -> float:
        """Return the FLOPs per ns of a prompt without a window.

        By shares of peak where no table has it.
        """
        part = self._parts["context"]
        times = self._measured("context", 1, 0, np.array([tokens]))
        return self._rate.attention_flops if times is None else (
            2 * part.num_heads * part.head_dim * tokens * (tokens + 1) / float(times.ns[0]))

    def times(self, phase: str, batch: int, lengths: np.ndarray) -> Times | None:
        """Return the times of one layer for a batch size; None: not measured."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._times(phase, int(batch), lengths)

    def _times(self, phase: str, batch: int, lengths: np.ndarray) -> Times | None:
        times = self._measured(phase, batch, self._window, lengths)
        if times is None and self._window:
            whole = self._measured(phase, batch, 0, lengths)
            times = whole and self._windowed(phase, whole, lengths)
        return times

    def _measured(self, phase: str, batch: int, window: int, lengths: np.ndarray) -> Times | None:
        return self._database.attention(phase, batch, self._parts[phase], self._kv_dtype, window, lengths)

    def _windowed(self, phase: str, whole: Times, lengths: np.ndarray) -> Times:
        """Return the times of layers with a window: without window up to its length, then constant time per token."""
        seen = np.minimum(lengths, self._window)
        ns = np.interp(seen, lengths, whole.ns)
        if phase == "context" and lengths[-1] > self._window:
            edge = float(self._window)
            slope = np.interp(edge, lengths, whole.ns) - np.interp(edge - 1, lengths, whole.ns)
            ns = ns + np.maximum(lengths - edge, 0) * slope
        return Times(ns, np.maximum(whole.origins, INTERPOLATED))

    # ---- without a table: the roofline

    def roofline_decode(self, sequences: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return times and origins of one layer, by sequences and tokens in the cache."""
        self._composer.missing[f"{self.name} decode"] = self._missing_text(self._parts["generation"])
        return self._passes.decode(sequences, contexts)

    def roofline_prefill(self, prompts: int, lengths: np.ndarray) -> Times:
        """Return the times of one layer for `prompts` prompts of each length."""
        self._composer.missing[f"{self.name} prefill"] = self._missing_text(self._parts["context"])
        return self._passes.prefill(prompts, lengths)

    def _missing_text(self, part) -> str:
        return (f"no attention of {part.num_heads} heads, {part.num_kv_heads} KV heads, head_dim {part.head_dim}, "
                f"{self._kv_dtype} cache, nor one near it")


class _Tabled(_Kind):
    """Layers of a kind with tables of its own: by phase an object with `table`, `curves`, `times` and `light`."""

    _tables: dict

    def lookups(self, phase: str) -> list[tuple]:
        """Return the lookup, as other kinds do."""
        tables = self._tables[phase]
        return [(tables.table(phase), tables.curves(phase), self._site(phase), lambda batch: tables.light(phase, batch),
                 phase == "context")] if tables.curves(phase) else []

    def _site(self, phase: str) -> tuple:
        return (float(self._parts[phase].num_heads),)

    def _curves(self, phase: str) -> dict[int, dict]:
        return self._tables[phase].curves(phase)

    def _times(self, phase: str, batch: int, lengths: np.ndarray) -> Times | None:
        return self._tables[phase].times(phase, batch, lengths)


class _Latent(_Tabled):
    """Layers of latent attention."""

    def __init__(self, composer, name: str, part, layers: int, window: int):
        super().__init__(composer, name, part, layers, window)
        self.prefix_note = "" if part.indexer else EXPANSION
        self._tables = {phase: LatentTables(self._database, each, self._kv_dtype, composer.parameters.cuda_graph)
                        for phase, each in self._parts.items()}

    def _missing_text(self, part) -> str:
        return f"no latent attention of {part.num_heads} heads, {self._kv_dtype} cache, of these widths"


class _Sparse(_Tabled):
    """Layers of attention to compressed tokens, or to picked blocks of tokens."""

    def __init__(self, composer, name: str, part, layers: int, window: int):
        super().__init__(composer, name, part, layers, window)
        self._tables = {phase: SparseTables(self._database, each, self._kv_dtype)
                        for phase, each in self._parts.items()}
        self.name = self._tables["context"].name
        is_measured = self.name == "csa" and bool(self._tables["context"].curves("context"))
        is_difference = is_measured and self.behind_prefixes() is None
        self.prefix_note = DIFFERENCE if is_difference else ""

    def behind_prefixes(self):
        return self._tables["context"].behind_prefixes()

    def is_measured(self, phase: str) -> bool:
        """Return whether exactly these heads were measured, without scaling."""
        return super().is_measured(phase) and not self._tables[phase].is_scaled

    def _missing_text(self, part) -> str:
        return f"no {part.title} of {part.num_heads} heads, {self._kv_dtype} cache, of these widths"


TABLES = {"multi_head": _Kind, "multi_head_latent": _Latent, "csa_hca": _Sparse, "msa": _Sparse}       # by price key
