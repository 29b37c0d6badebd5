"""Laws for the time of one operator, with few numbers, read from hardware/efficiency/.

A law has the share of the peak that a large operator reaches, the work and traffic beyond the model's own (padded
tiles, partial sums, quantised activations), and a floor, the time with hardly any work. The numbers are derived from
tables of single operators by tools/derive_efficiency.py, never from whole servers.
Rates are per nanosecond, times in nanoseconds unless a name says otherwise.
"""
from functools import cache
from typing import Annotated

import msgspec
import numpy as np
import tomli
from msgspec import Meta

from simulator.domain.facts import folder, read_table
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.latency.roofline.kind_laws import kind_note

FILE = "efficiency/roofline.toml"
SHARES = "shares"               # instead of a generation: one share of peak for all sizes
LAWS = ("multi_head",)          # error keys of attention with laws `prefill` and `decode`; notes on others:
LAWLESS = dict.fromkeys(("multi_head_latent", "gated_delta_net", "lightning", "mamba2"),
                        "latent attention and recurrences have no laws: they take one share of peak")
ANY = "any"                     # the generation used for all accelerators without tables
# Share of the least measured FLOPs per byte down to which padding is known to hold. H200's fp8 products by the law of
# H100 alone, at 0.697, are 16 % off, and 30 % without idle rows: tools/derive_efficiency.py --leave-one-out.
PADDED_FROM = 0.69
# Note on an effect that attention prices omit if `splits_no_prompts`. Source of the numbers: LLMServingSim at 5daddb2,
# attention.csv, vLLM 0.19.0, Llama-3.1-8B: 369 and 520 us a layer for 16 tokens behind 16,384, 98 and 143 for 256
# behind 4,096.
UNSPLIT = ("few new tokens behind a long context were priced as if it were split among cores; FlashAttention 2, which "
           "vLLM runs on this accelerator, does not split it: 16 tokens behind 16,384 attended 6 to 7 times as long "
           "(RTX 4090, RTX PRO 6000), 256 behind 4,096 up to 1.3 times")
# Format with the law to use for a format without one: kernels of equal kind.
INSTEAD = {"float16": "bfloat16", "float32": "bfloat16", "int8": "fp8", "fp4": "fp8", "fp8": "bfloat16",
           "weight_only": "bfloat16"}

Share = Annotated[float, Meta(gt=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]


class Law(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of every operator's law."""

    compute_frac: Share             # share of the peak of the compute format
    memory_frac: Share              # share of memory bandwidth
    floor_us: NotNegative           # time with hardly any work


class PaddedLaw(Law):
    """Law of operators that compute padded tiles, beyond the model's arithmetic.

    Padding was fitted on accelerators with many FLOPs per byte of bandwidth, where memory traffic mostly hides it. Far
    below that ratio engines choose other tiles, and padding fades: idle rows with the square of the ratio, the rest in
    proportion to it, so that relative to memory time it is no longer than where it was measured.
    """

    least_flops_per_byte: NotNegative   # lowest peak / bandwidth of the measured accelerators

    def computed(self, peak, bandwidth, asked, padded, idle):
        """Return the effective FLOPs, at `peak`.

        asked : FLOPs of the model. padded : FLOPs with all padding. idle : part of `padded` for rows of padding.
        """
        least = PADDED_FROM * self.least_flops_per_byte * bandwidth
        known = min(1.0, peak / least) if least else 1.0
        if known == 1.0:
            return padded
        return asked + (padded - idle - asked) * known + idle * known ** 2


class ProductLaw(PaddedLaw):
    """A matrix product (rows, k) x (k, n)."""

    # Padding beyond the actual rows, columns (n) and depth (k). If the left matrix is quantised first, by a kernel with
    # a time proportional to its elements, that time is included in the columns.
    pad_rows: NotNegative
    pad_columns: NotNegative
    pad_depth: NotNegative

    def ns(self, peak, bandwidth, rows, n, k, weight_bytes):
        """Return nanoseconds; arithmetic and traffic overlap.

        peak : FLOPs per ns. bandwidth : bytes per ns. weight_bytes : bytes of one weight.
        """
        padded = 2 * (rows + self.pad_rows) * (n + self.pad_columns) * (k + self.pad_depth)
        idle = 2 * self.pad_rows * (n + self.pad_columns) * (k + self.pad_depth)
        compute = self.computed(peak, bandwidth, 2 * rows * n * k, padded, idle)
        moved = n * k * weight_bytes + 2 * rows * (n + k)
        both = overlapped(compute / (peak * self.compute_frac), moved / (bandwidth * self.memory_frac))
        return both + self.floor_us * 1e3


class ExpertLaw(PaddedLaw):
    """The routed experts of a layer on one rank."""

    pad_rows: NotNegative           # padding for each needed expert, beyond its rows
    activation_passes: NotNegative  # number of passes over the bytes of activations between the products

    def ns(self, peak, bandwidth, rows, needed, weights, weight_bytes, between):
        """Return nanoseconds.

        rows : pairs of a token and a chosen expert on this rank. needed : its experts with at least one row.
        weights : number of weights of an expert on this rank. between : bytes, see moved_between.
        """
        idle = 2 * needed * self.pad_rows * weights
        compute = self.computed(peak, bandwidth, 2 * rows * weights, 2 * (rows + needed * self.pad_rows) * weights,
                                idle)
        moved = needed * weights * weight_bytes
        both = overlapped(compute / (peak * self.compute_frac), moved / (bandwidth * self.memory_frac))
        return both + between * (self.activation_passes / bandwidth) + self.floor_us * 1e3


class PrefillLaw(Law):
    """Attention of prompts."""

    # Queries computed beyond a chunk's own, against the chunk's own keys: small prompts do not fill the accelerator.
    # The tables hold no prompt with a context; for its price see model.pyx.
    tile_tokens: NotNegative

    def ns(self, peak, bandwidth, pairs, seen, pair_flops, moved):
        """Return nanoseconds; the longer of arithmetic and traffic.

        pairs : (query, key) pairs. seen : mean number of keys of its own chunk that a query sees, summed over chunks.
        """
        compute = (pairs + self.tile_tokens * seen) * pair_flops / (peak * self.compute_frac)
        return np.maximum(compute, moved / (bandwidth * self.memory_frac)) + self.floor_us * 1e3


class DecodeLaw(Law):
    """Attention of decodes."""

    head_ns: NotNegative            # per work item, a sequence and KV head

    def ns(self, peak, bandwidth, items, flops, moved):
        """Return nanoseconds. items : sequences x KV heads."""
        both = np.maximum(flops / (peak * self.compute_frac), moved / (bandwidth * self.memory_frac))
        return both + items * self.head_ns + self.floor_us * 1e3


class ReduceLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All-reduces in a CUDA graph, over 2, 4, 8 ranks; between, the next larger."""

    floor_us: list[float]
    link_frac: list[Share]          # share of link bandwidth, at ring volume 2 (1 - 1/n)

    def of(self, ranks: int) -> tuple[float, float]:
        """Return (ns, share of link bandwidth), for at most the measured ranks."""
        i = min(max(int(np.ceil(np.log2(ranks))) - 1, 0), len(self.floor_us) - 1)
        return self.floor_us[i] * 1e3, self.link_frac[i]


class Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The laws of accelerators of one kind; laws by format."""

    stands_for: tuple[str, ...] = ()            # architectures with these laws
    accelerators: tuple[str, ...] = ()          # single accelerators with these laws, which take precedence
    products: dict[str, ProductLaw]
    experts: dict[str, ExpertLaw]
    prefill: dict[str, PrefillLaw]              # by format of the KV cache
    decode: dict[str, DecodeLaw]
    all_reduce: dict[str, ReduceLaw]            # by link: scaleup, pcie


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of laws."""

    source: str
    tables: dict[str, str]                      # file -> SHA-256
    generations: dict[str, Generation]


def moved_between(tokens, rows, hidden, outputs):
    """Return the bytes of 16-bit activations that experts read and write.

    Tokens read and summed, rows copied, computed and written. outputs : width of the first products and activations.
    """
    return 2 * (2 * tokens * hidden + rows * (3 * hidden + outputs))


def overlapped(compute, memory):
    """Return the time of two overlapping activities; 1.26 times either if equal."""
    return np.cbrt(compute ** 3 + memory ** 3)


def generation_of(accelerator: AcceleratorSpec) -> tuple[str, Generation]:
    """Return (name, generation) of an accelerator; `any` if it has no laws of its own."""
    known = efficiency().generations
    for name, each in known.items():
        if accelerator.name in each.accelerators:
            return name, each
    for name, each in known.items():
        if accelerator.architecture in each.stands_for:
            return name, each
    return ANY, known[ANY]


def law_notes(deployment, efficiency: str) -> list[str]:
    """Return notes for people on the laws of a deployment, a sentence each.

    efficiency : "shares" of peak, or the name of the generation of the laws.
    """
    model, notes = deployment.model, []
    if efficiency == ANY:
        notes.append(f"no table holds operators of {deployment.accelerator.name} nor of its generation: joint laws of "
                     f"other generations are used; on a left-out generation they were often no better than one share "
                     f"of peak")
    if efficiency != SHARES:
        notes += dict.fromkeys(
            kind_note(mixer, efficiency)
            or LAWLESS.get(mixer.error_key, f"{mixer.title} has no law: its FLOPs and bytes take one share of peak, "
                           "and no measurement of its kernels is behind that")
            for mixer, _ in model.mixers if mixer.error_key not in LAWS)
        notes += dict.fromkeys(f"{mixer.title} is taken to reach the share of peak that causal attention does"
                               for mixer, _ in model.mixers if not mixer.is_causal)
    return notes + around_notes(model)


def around_notes(model) -> list[str]:
    """Return notes on parts around those of layers, and on further embeddings."""
    notes = [f"{part.title} take the time of the bytes that they move; no measurement of their kernels is behind that"
             for part in dict.fromkeys(part for layer in model.kinds for part in layer.around)]
    notes += [f"{each.title} is left out of the price of an iteration" for each in model.embeddings]
    return list(dict.fromkeys(notes))


def few_tokens_notes(deployment) -> list[str]:
    """Return notes on few new tokens behind a long context, a sentence each."""
    notes = [UNSPLIT] if splits_no_prompts(deployment.accelerator) else []
    if deployment.model.attention.expand_flops_per_context_token:
        notes.append("few new tokens behind a long context were taken to attend to its latents, where that is less "
                     "arithmetic than to expand them; vLLM expands them from two tokens on")
    return notes


def splits_no_prompts(accelerator: AcceleratorSpec) -> bool:
    """Return whether vLLM computes prompts with FlashAttention 2.

    FlashAttention 2 splits only the context of decodes among cores. It runs on Ampere, Ada, and Blackwell workstation
    cards, without NVLink; other accelerators run FlashAttention 3 or FlashInfer.
    """
    return accelerator.architecture in ("Ampere", "Ada") or (
        accelerator.architecture == "Blackwell" and not accelerator.scaleup_bytes_per_s)


def law_of(generation: Generation, operator: str, name: str) -> Law:
    """Return the law of an operator (field of Generation) and format.

    If it has none: the law of the substitute format (INSTEAD); else the law of generation `any`.
    """
    for laws in (getattr(generation, operator), getattr(efficiency().generations[ANY], operator)):
        format = name
        while format not in laws and format in INSTEAD:
            format = INSTEAD[format]
        if format in laws:
            return laws[format]
    raise ValueError(f"no law of {operator} in {name}")


def reduces_of(generation: Generation) -> dict[str, ReduceLaw]:
    """Return the laws of all-reduces by link; missing links have those of `any`."""
    return efficiency().generations[ANY].all_reduce | generation.all_reduce


@cache
def efficiency() -> Efficiency:
    """Return the laws, which are read once."""
    path = folder("hardware") / FILE
    return read_table(tomli.loads(path.read_text(encoding="utf-8")), Efficiency, path)
