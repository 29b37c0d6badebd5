"""Recurrent layers: the tables `gdn`, `kda` and `mamba2`.

A row is one kernel of one layer: the convolution, or the recurrence of a prompt's chunk or of a decode, which costs the
same at any context. `gdn` has both kernels of both phases. `kda`, measured at Kimi-K3's widths, has two paths for
decodes: one fused kernel, which comes first, or a convolution and a recurrence. `mamba2` has the convolution alone; its
scan is priced by the bytes of its state.

vLLM's convolution of KDA prompts takes 0.76 ms at one token and longer on fewer heads: it was timed with the host's
work. Another framework's rows of the same kernel are used in place of rows that slow.
"""
from typing import ClassVar, NamedTuple

import numpy as np

from simulator.latency.operators.curves import Curve, Times
from simulator.latency.operators.rows import default

HOST_FLOOR_NS = 100_000.0       # a kernel that takes this long at its smallest size waits for the host
CONTEXT, GENERATION = "context", "generation"


class Lookup(NamedTuple):
    """The lookup of one kernel, in a phase and, of prompts, at a batch size."""

    table: str
    curves: dict[tuple, Curve]
    site: tuple


class Recurrences:
    """Kernels of a kind of recurrent layer: a table and the columns of its sites.

    columns : required values of columns, by attribute of the part.
    paths : by phase, alternatives, the first measured one is used; each a list of kernels, by a part of their name.
    """

    table: str
    paths: dict[str, tuple[tuple[tuple[str, ...], ...], ...]]

    def site(self, part) -> tuple:
        """Return the site of a part, as one rank holds it."""
        raise NotImplementedError

    def lookups(self, database, phase: str, batch: int, part) -> list[Lookup]:
        """Return the lookup of each kernel of a layer; empty: not measured."""
        for path in self.paths[phase]:
            curves = [self._curves(database, phase, batch, part, names) for names in path]
            if all(curves) and self._is_alike(curves, part):
                return [Lookup(self.table, each, self.site(part)) for each in curves]
        return []

    def _is_alike(self, curves: list[dict], part) -> bool:
        return True

    def times(self, database, phase: str, batch: int, part, lengths: np.ndarray) -> Times | None:
        """Return the times of a layer; None: not measured.

        part : as one rank holds it.
        lengths : context: tokens of each prompt. generation: not used, one token costs the same at any length.
        """
        sizes = lengths if phase == CONTEXT else np.array([float(batch)])
        found = [database.ask(each.table, each.curves, each.site, sizes, light)
                 for each in self.lookups(database, phase, batch, part)]
        if not found or None in found:
            return None
        ns, origins = sum(times.ns for times in found), np.max([times.origins for times in found], axis=0)
        return Times(*(np.broadcast_to(values, lengths.shape).copy() for values in (ns, origins)))

    def _curves(self, database, phase: str, batch: int, part, names: tuple[str, ...]) -> dict[tuple, Curve]:
        key = (self.table, phase, batch if phase == CONTEXT else 0, names, *self._fixed(part).items())
        return database.curves(key, lambda: self._read(database, phase, batch, part, names))

    def _fixed(self, part) -> dict[str, float]:
        """Return the values that columns must have, which may be missing."""
        raise NotImplementedError

    def _read(self, database, phase: str, batch: int, part, names: tuple[str, ...]) -> dict[tuple, Curve]:
        def of_kernel(columns):
            kept = (columns["phase"] == phase) & _is_any(columns["kernel_source"], names)
            for name, value in self._fixed(part).items():
                kept &= default(columns, name, value) == value
            return kept

        def is_sound(columns):
            kept = of_kernel(columns)
            return bool(kept.any()) and float(columns["latency_ms"][kept].min()) * 1e6 < HOST_FLOOR_NS

        alias = f"{self.table} {phase} {names[0]}"
        columns = database.columns(self.table, is_sound, alias)
        if columns is None:
            return {}
        kept = of_kernel(columns)
        if phase == CONTEXT:
            kept &= columns["batch_size"] == batch
        rows = database.pick(alias, columns, kept)
        return database.split(*self._sites(rows), "seq_len" if phase == CONTEXT else "batch_size")

    def _sites(self, rows: dict) -> tuple[dict, tuple[str, ...]]:
        """Return the rows and the names of the columns of a site."""
        return rows, ("num_k_heads", "num_v_heads")


class GatedDelta(Recurrences):
    """Gated delta rule: sites are key and value heads."""

    table = "gdn"
    paths: ClassVar = {CONTEXT: ((("conv",), ("rule",)),), GENERATION: ((("conv",), ("rule",)),)}

    def site(self, part) -> tuple:
        return float(part.num_key_heads), float(part.num_value_heads)

    def _fixed(self, part) -> dict[str, float]:
        return {"d_conv": part.conv_kernel, "head_k_dim": part.key_head_dim, "head_v_dim": part.value_head_dim}


class KimiDelta(Recurrences):
    """Kimi delta attention: sites are heads."""

    table = "kda"
    paths: ClassVar = {CONTEXT: ((("conv1d",), ("flashkda", "chunk_kda")),),
             GENERATION: ((("fused_kda_decode", "kda_fused_decode"),), (("conv1d",), ("recurrent_kda",)))}

    def site(self, part) -> tuple:
        return (float(part.num_heads),)

    def _is_alike(self, curves: list[dict], part) -> bool:
        """Return whether a kernel was measured for these heads, or the fused one for more than one number."""
        return all(self.site(part) in each or len(each) > 1 for each in curves)

    def _fixed(self, part) -> dict[str, float]:
        return {"d_conv": part.conv_kernel, "head_k_dim": part.head_dim, "head_v_dim": part.head_dim}

    def _sites(self, rows: dict) -> tuple[dict, tuple[str, ...]]:
        return rows, ("num_v_heads",)


class Mamba2Convolution(Recurrences):
    """The convolution of Mamba-2: sites are its channels."""

    table = "mamba2"
    paths: ClassVar = {CONTEXT: ((("conv1d",),),), GENERATION: ((("conv1d",),),)}

    def site(self, part) -> tuple:
        return (float(part.convolution[0]),)

    def _fixed(self, part) -> dict[str, float]:
        return {"d_conv": part.conv_kernel}

    def _sites(self, rows: dict) -> tuple[dict, tuple[str, ...]]:
        channels = rows["nheads"] * rows["head_dim"] + 2 * rows["n_groups"] * rows["d_state"]
        return dict(rows, channels=channels), ("channels",)


WHOLE = {"gated_delta_net": GatedDelta(), "kda": KimiDelta()}       # by price key: with their recurrence
KERNELS = {**WHOLE, "mamba2": Mamba2Convolution()}                  # or with the convolution alone


def is_measured(database, part) -> bool:
    """Return whether tables hold a rank's recurrent part in both phases."""
    return _has(database, WHOLE.get(part.price_key), part)


def has_convolution(database, part) -> bool:
    """Return whether tables hold the convolution of a part."""
    return _has(database, KERNELS.get(part.price_key), part)


def light(site: tuple, size: np.ndarray) -> np.ndarray:
    """Return a time in proportion to heads or channels, for comparison of sites."""
    return site[-1] * size


def _has(database, kernels: Recurrences | None, part) -> bool:
    one = np.ones(1)
    return kernels is not None and all(
        kernels.times(database, phase, 1, part, one) is not None for phase in (CONTEXT, GENERATION))


def _is_any(values: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    return np.any([np.char.find(values, name) >= 0 for name in names], axis=0)
