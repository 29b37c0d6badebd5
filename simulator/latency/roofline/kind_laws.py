"""Laws of attention without keys and values of all tokens, of recurrences and of towers, from hardware/efficiency/.

A law of attention has the shares of peak FLOPs and memory bandwidth that the passes of a kind reach (Pass in
domain/layers/mixers.py), and the time with hardly any work. A law of a recurrence has the share of the peak of a
prompt's tokens, and that of the bandwidth at which states are read and written. The numbers are derived from tables of
single operators by tools/derive_kinds.py, never from whole servers. Generations are those of laws.py.

The time of a prompt is joined to that of a decode: it is continuous from one token on, never below a decode with equal
context, and never falls with more tokens, new or cached. Of s new tokens behind p cached ones, c = p + s, the last is a
decode behind c - 1; the others attend to A = s p + s (s + 1) / 2 - c pairs:

    sum over passes of max(c x decode FLOPs / decode rate + (A + r x tile) x pair FLOPs / prompt rate,
                           c x bytes / bandwidth)
    + passes of a decode + (s - 1) x passes of a prompt + floor of a decode + r x floor of a prompt,

with r = min(1, (s - 1) / RAMP_TOKENS) and tile = tile_tokens x c in passes without a window, else 0. Prompts start more
kernels than decodes, so their floor is higher; times of launches by the host are left out.
"""
from functools import cache
from typing import Annotated, NamedTuple

import msgspec
import tomli
from msgspec import Meta

from simulator.domain.facts import folder, read_table

FILE = "efficiency/kinds.toml"
Share = Annotated[float, Meta(gt=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
TOWER = "tower"
RAMP_TOKENS = 16                # rows of a tile of matrix instructions (PTX ISA, mma.m16n8k16)
ANY = "any"                     # the generation of all systems
BY_SHARE, LEFT_OUT, ELSEWHERE, IN_USE = range(4)        # of a KindError
OF_TITLES = {"latent": "latent attention", "sparse_latent": "sparse latent attention", "csa": "compressed attention",
             "hca": "compressed attention", "msa": "block-sparse attention", "gated_delta_net": "linear attention",
             "kda": "Kimi delta attention", TOWER: "attention of towers"}


class PhaseLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a kind, of decodes.

    memory_frac : of the bandwidth at which caches and states are read. floor_us : of a layer, beyond the kernels that
    only move memory. passes : over queries and outputs, beyond the traffic that between_bytes_per_token counts.
    """

    compute_frac: Share
    memory_frac: Share
    floor_us: NotNegative
    passes: NotNegative


class PromptLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a kind, of the tokens of a prompt before its last.

    memory_frac : of towers alone, which have no decodes; others read their caches as decodes do. floor_us : beyond the
    floor of decodes; reached with RAMP_TOKENS tokens, in proportion to them below. tile_tokens : queries computed
    against all of the context beyond the prompt's own, ramped as the floor is.
    """

    compute_frac: Share
    floor_us: NotNegative = 0.0
    passes: NotNegative
    tile_tokens: NotNegative = 0.0
    memory_frac: Share | None = None


class KindLaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The laws of a kind.

    None: no better than one share of peak on accelerators left out, so not in use.
    """

    prefill: PromptLaw | None = None
    decode: PhaseLaw | None = None


class KindError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean relative errors over systems.

    By one share of peak; by laws of other systems of the generation, if there are any; by laws of other generations;
    by the laws in use.
    """

    prefill: tuple[float, float, float, float] | None = None
    decode: tuple[float, float, float, float] | None = None


class Kinds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file: laws by generation and kind; errors by kind."""

    source: str
    tables: dict[str, str]                      # file -> SHA-256
    errors: dict[str, KindError]
    generations: dict[str, dict[str, KindLaw]]


NONE = KindLaw()


def kind_of(part) -> str:
    """Return the name under which the file has laws for a mixer; it may have none."""
    if part.error_key == "multi_head_latent":
        return "sparse_latent" if part.indexer else "latent"
    if part.error_key == "csa_hca":
        return "csa" if part.indexer else "hca"
    return part.error_key


def kind_law(generation: str, kind: str) -> KindLaw:
    """Return the law of a kind in a generation, or else of all.

    generation : name, as generation_of returns it.
    """
    laws = kinds().generations
    return laws.get(generation, {}).get(kind) or laws[ANY].get(kind, NONE)


class LeftOut(NamedTuple):
    """The mean relative error of a law on systems left out, and its source."""

    mean: float
    how: str


def kind_error(kind: str, phase: str, generation: str) -> LeftOut | None:
    """Return the error of the law of a kind, in prefill or decode; None: it has none."""
    if getattr(kind_law(generation, kind), phase) is None:
        return None
    mean = getattr(kinds().errors[kind], phase)[_column(generation, kind)]
    return LeftOut(mean, f"roofline by laws, {kind} {phase}, the mean of systems left out")


def kind_note(part, generation: str) -> str | None:
    """Return the errors of a mixer's price as a sentence; None: no table holds it."""
    kind = kind_of(part)
    law, error = kind_law(generation, kind), kinds().errors.get(kind)
    if error is None:
        return None
    column = _column(generation, kind)
    texts = ", ".join(
        f"{name} {getattr(error, phase)[column if getattr(law, phase) else BY_SHARE]:.0%}"
        + (" by one share of peak" if law != NONE and getattr(law, phase) is None else "")
        for name, phase in (("prompts", "prefill"), ("decodes", "decode")) if getattr(error, phase))
    if law == NONE:
        return f"{OF_TITLES[kind]} takes one share of peak, mean errors by tables of single operators: {texts}"
    return f"{OF_TITLES[kind]} has laws of tables of single operators, mean errors on accelerators left out: {texts}"


def _column(generation: str, kind: str) -> int:
    """Return the column of the error of a kind's law: of its generation, or of others."""
    return LEFT_OUT if generation != ANY and kind in kinds().generations.get(generation, {}) else ELSEWHERE


@cache
def kinds() -> Kinds:
    """Return the laws, which are read once."""
    path = folder("hardware") / FILE
    return read_table(tomli.loads(path.read_text(encoding="utf-8")), Kinds, path)
