"""How long one operator takes: laws with few numbers, read from hardware/efficiency/.

A law says which share of the peak an operator reaches once it is large, what it computes and moves beyond what the
model asks for (padded tiles, partial sums, quantised activations), and what remains when there is next to nothing to
do. The numbers are derived from tables of single operators by tools/derive_efficiency.py, never from whole servers.
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
from simulator.domain.layer_spec import LatentAttention

FILE = "efficiency/roofline.toml"
SHARES = "shares"               # in place of a generation: one share of peak for all sizes
ANY = "any"                     # the generation that stands for all that nobody measured
# Of the least arithmetic for each byte that was measured: so far down padding is known to hold. H200's fp8 products by
# the law of H100 alone, at 0.697, are 16 % off, and 30 % without idle rows: tools/derive_efficiency.py --leave-one-out.
PADDED_FROM = 0.69
# The law that stands in for a format without one: kernels of the same kind.
INSTEAD = {"float16": "bfloat16", "float32": "bfloat16", "int8": "fp8", "fp4": "fp8", "fp8": "bfloat16",
           "weight_only": "bfloat16"}

Share = Annotated[float, Meta(gt=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]


class Law(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers that every operator has."""

    compute_frac: Share             # of the peak of the format it computes in
    memory_frac: Share              # of memory bandwidth
    floor_us: NotNegative           # with next to nothing to do


class PaddedLaw(Law):
    """Of operators that compute more than the model asks for: padded tiles.

    Padding was fitted where arithmetic is strong beside memory, and mostly hides behind it. Far below that engines
    choose other tiles, and padding fades: idle rows with the square, all else in proportion, so that beside memory it
    takes no more than where it was measured.
    """

    least_flops_per_byte: NotNegative   # peak over bandwidth of the measured accelerator that has least

    def computed(self, peak, bandwidth, asked, padded, idle):
        """Return the FLOPs that count, at `peak`.

        asked : by the model. padded : with all padding. idle : of these, of rows that the model does not have.
        """
        least = PADDED_FROM * self.least_flops_per_byte * bandwidth
        known = min(1.0, peak / least) if least else 1.0
        if known == 1.0:
            return padded
        return asked + (padded - idle - asked) * known + idle * known ** 2


class ProductLaw(PaddedLaw):
    """A matrix product (rows, k) x (k, n)."""

    # Computed beyond the rows, columns (n) and depth (k) there are. Where the left matrix is quantised first, by a
    # kernel whose time grows with its elements, that is among the columns.
    pad_rows: NotNegative
    pad_columns: NotNegative
    pad_depth: NotNegative

    def ns(self, peak, bandwidth, rows, n, k, weight_bytes):
        """Return nanoseconds; arithmetic and traffic overlap.

        peak : FLOPs per ns. bandwidth : bytes per ns. weight_bytes : of one weight.
        """
        padded = 2 * (rows + self.pad_rows) * (n + self.pad_columns) * (k + self.pad_depth)
        idle = 2 * self.pad_rows * (n + self.pad_columns) * (k + self.pad_depth)
        compute = self.computed(peak, bandwidth, 2 * rows * n * k, padded, idle)
        moved = n * k * weight_bytes + 2 * rows * (n + k)
        both = overlapped(compute / (peak * self.compute_frac), moved / (bandwidth * self.memory_frac))
        return both + self.floor_us * 1e3


class ExpertLaw(PaddedLaw):
    """The routed experts of a layer on one rank."""

    pad_rows: NotNegative           # computed for each expert that is needed, beyond the rows it has
    activation_passes: NotNegative  # over the bytes that tokens move between the products

    def ns(self, peak, bandwidth, rows, needed, weights, weight_bytes, between):
        """Return nanoseconds.

        rows : pairs of a token and a chosen expert on this rank. needed : of its experts, at least one row each.
        weights : of an expert on this rank. between : bytes, see moved_between.
        """
        idle = 2 * needed * self.pad_rows * weights
        compute = self.computed(peak, bandwidth, 2 * rows * weights, 2 * (rows + needed * self.pad_rows) * weights,
                                idle)
        moved = needed * weights * weight_bytes
        both = overlapped(compute / (peak * self.compute_frac), moved / (bandwidth * self.memory_frac))
        return both + between * (self.activation_passes / bandwidth) + self.floor_us * 1e3


class PrefillLaw(Law):
    """Attention of prompts."""

    # Queries computed beyond those of a chunk, against the chunk's own keys: how small prompts fail to fill the
    # accelerator. The tables hold no prompt with a context; model.pyx says how that is priced.
    tile_tokens: NotNegative

    def ns(self, peak, bandwidth, pairs, seen, pair_flops, moved):
        """Return nanoseconds; the longer of arithmetic and traffic.

        pairs : of query and key. seen : of its own chunk, keys that a query sees in the mean, summed over chunks.
        """
        compute = (pairs + self.tile_tokens * seen) * pair_flops / (peak * self.compute_frac)
        return np.maximum(compute, moved / (bandwidth * self.memory_frac)) + self.floor_us * 1e3


class DecodeLaw(Law):
    """Attention of decodes."""

    head_ns: NotNegative            # for each sequence and KV head: one work item

    def ns(self, peak, bandwidth, items, flops, moved):
        """Return nanoseconds. items : sequences x KV heads."""
        both = np.maximum(flops / (peak * self.compute_frac), moved / (bandwidth * self.memory_frac))
        return both + items * self.head_ns + self.floor_us * 1e3


class ReduceLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All-reduces in a CUDA graph, by ranks: 2, 4, 8; between, the next larger."""

    floor_us: list[float]
    link_frac: list[Share]          # of link bandwidth, ring volume 2 (1 - 1/n)

    def of(self, ranks: int) -> tuple[float, float]:
        """Return (ns, share of link bandwidth); beyond the ranks measured, as over most."""
        i = min(max(int(np.ceil(np.log2(ranks))) - 1, 0), len(self.floor_us) - 1)
        return self.floor_us[i] * 1e3, self.link_frac[i]


class Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The laws of accelerators of one kind; laws by format."""

    stands_for: tuple[str, ...] = ()            # architectures
    accelerators: tuple[str, ...] = ()          # and single ones, before those
    products: dict[str, ProductLaw]
    experts: dict[str, ExpertLaw]
    prefill: dict[str, PrefillLaw]              # by format of the KV cache
    decode: dict[str, DecodeLaw]
    all_reduce: dict[str, ReduceLaw]            # by link: scaleup, pcie


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    source: str
    tables: dict[str, str]                      # file -> SHA-256
    generations: dict[str, Generation]


def moved_between(tokens, rows, hidden, outputs):
    """Return the bytes of 16-bit activations that experts read and write.

    Tokens read and summed, rows copied, computed and written. outputs : of the first products and their activation.
    """
    return 2 * (2 * tokens * hidden + rows * (3 * hidden + outputs))


def overlapped(compute, memory):
    """Return the time of two things that overlap; 1.26 times either if alike."""
    return np.cbrt(compute ** 3 + memory ** 3)


def generation_of(accelerator: AcceleratorSpec) -> tuple[str, Generation]:
    """Return the generation of an accelerator, its name before it; else `any`."""
    known = efficiency().generations
    for name, each in known.items():
        if accelerator.name in each.accelerators:
            return name, each
    for name, each in known.items():
        if accelerator.architecture in each.stands_for:
            return name, each
    return ANY, known[ANY]


def law_notes(deployment, efficiency: str) -> list[str]:
    """Return what people should know of the laws of a deployment, a sentence each.

    efficiency : "shares" of peak, or the generation whose laws are taken.
    """
    model, notes = deployment.model, []
    if efficiency == ANY:
        notes.append(f"no table holds operators of {deployment.accelerator.name} nor of its generation: laws of all "
                     f"others stand in; on a generation that was left out they were often no better than one share of "
                     f"peak")
    if efficiency != SHARES and (isinstance(model.attention, LatentAttention) or model.num_linear_attention_layers):
        notes.append("latent attention and recurrences have no laws: they take one share of peak")
    return notes


def law_of(generation: Generation, operator: str, name: str) -> Law:
    """Return the law of an operator (field of Generation) and format.

    Without one, that of the format that stands in; else that of any generation.
    """
    for laws in (getattr(generation, operator), getattr(efficiency().generations[ANY], operator)):
        wanted = name
        while wanted not in laws and wanted in INSTEAD:
            wanted = INSTEAD[wanted]
        if wanted in laws:
            return laws[wanted]
    raise ValueError(f"no law of {operator} in {name}")


def reduces_of(generation: Generation) -> dict[str, ReduceLaw]:
    """Return the laws of all-reduces by link; of links it lacks, any generation's."""
    return efficiency().generations[ANY].all_reduce | generation.all_reduce


@cache
def efficiency() -> Efficiency:
    """Return the derived laws, read once."""
    path = folder("hardware") / FILE
    return read_table(tomli.loads(path.read_text(encoding="utf-8")), Efficiency, path)
