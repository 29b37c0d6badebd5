"""Prompt chunks behind a cached prefix, where tables of whole blocks hold them: DeepSeek-V4's compressed attention.

Without measured chunks, s tokens behind p others take D(s, p) = max(R(s), R(p + s) - R(p)), R(n) the time of a prompt
of n tokens (model.pyx). `dsv4_csa_context_module` and `dsv4_hca_context_module` have the prefix as an axis: there a
chunk takes D times the measured share T / D, T the time of a block less its products.

- The share is linear between two prefixes of a curve, and between two lengths s; a measured chunk is verbatim.
- A batch size without a curve of s tokens, or without prefixes as long, has the share of half the batch.
- Beyond the last prefix of one prompt, T grows by the speed of light. SGLang's tables of H200 end at a million tokens:
  cut at 65,536, this gives 7 % less than measured at 131,072 and 21 % less at a million, for 1,024 tokens of CSA.

Shares interpolated come nearer than times: CSA on H100, prefixes of 1,024 tokens and more left out of their curves, is
7 (Flash) and 11 % (Pro) off in the mean, by times up to 20 %, by D alone 16 and 15 %.
"""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.latency.operators.blocks import FORMATS, Block, name_in
from simulator.latency.operators.curves import Curve
from simulator.latency.operators.rows import rows_where

FARTHER = np.array([1.0625, 1.25, 1.5, 2, 4, 8, 16])    # prefixes beyond the longest measured one, as its multiples
FARTHEST_TOKENS = 2**20
LEAST_POINTS = 3                        # of a curve: without a prefix, and two with one


class Behind(NamedTuple):
    """Times of the layers that were measured behind prefixes.

    whole : (log2 prompts + 1, tokens + 1), their part of the table of prompts, ns.
    shares : (log2 prompts + 1, prefixes, chunks), of the time by the difference of two prompts.
    prefixes, chunks : their tokens, increasing; the first prefix is 0.
    """

    whole: np.ndarray
    shares: np.ndarray
    prefixes: np.ndarray
    chunks: np.ndarray


def prefix_curves(database, table: str, block: Block, heads: int, kv_dtype: str) -> dict[int, dict[float, Curve]]:
    """Return the curve over prefixes by batch size and tokens of a chunk.

    Empty: not measured for these heads. The chunk without a prefix is the first point of each.
    """
    columns = database.columns(table, lambda each: name_in(each, block) is not None)
    if columns is None:
        return {}
    for gemm_type in FORMATS:
        kept = ((columns["model"] == name_in(columns, block)) & (columns["gemm_type"] == gemm_type)
                & (columns["kv_cache_dtype"] == kv_dtype) & (columns["num_heads"] == heads))
        found = {}
        for (batch, tokens), curve in database.split(rows_where(columns, kept), ("batch_size", "isl"), "step").items():
            if curve.sizes[0] == 0 and len(curve.sizes) >= LEAST_POINTS:
                found.setdefault(int(batch), {})[tokens] = curve
        if len(found.get(1, ())) > 1:
            return found
    return {}


def difference(whole: Callable, tokens, prefix):
    """Return the time of chunks by the difference of two prompts.

    whole : returns the time of prompts by their tokens.
    """
    return np.maximum(whole(tokens), whole(prefix + tokens) - whole(prefix))


class Chunks:
    """Chunks of equal layers behind prefixes.

    Parameters
    ----------
    curves : as `prefix_curves` returns them.
    whole : (prompts, lengths) -> time of equal prompts without prefix, ns.
    light : of one prompt of s tokens behind p others, speed of light in ns: light(s, p).
    """

    def __init__(self, curves: dict[int, dict[float, Curve]], whole: Callable, light: Callable):
        self._curves, self._whole, self._light = curves, whole, light
        self.chunks = np.array(sorted(curves[1]))
        measured = np.unique(np.concatenate([curve.sizes for curve in curves[1].values()]))
        farther = np.round(measured[-1] * FARTHER)
        self.prefixes = np.append(measured, farther[farther <= FARTHEST_TOKENS])

    def at(self, prompts: int, prefixes: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Return the times of equal chunks, by prefixes and tokens of a chunk.

        prompts : their number, a power of two.
        """
        shares = self.shares(prompts)
        shares = np.column_stack([np.interp(prefixes, self.prefixes, column) for column in shares.T])
        shares = np.array([np.interp(chunks, self.chunks, row) for row in shares])
        return shares * np.column_stack([difference(lambda n: self._whole(prompts, n), np.full(len(prefixes), tokens),
                                                    prefixes) for tokens in chunks])

    def shares(self, prompts: int) -> np.ndarray:
        """Return the shares by own prefixes and chunks."""
        half = self.shares(prompts // 2) if prompts > 1 else None
        return np.column_stack([self._of_chunk(prompts, i, None if half is None else half[:, i])
                                for i in range(len(self.chunks))])

    def _of_chunk(self, prompts: int, i: int, half: np.ndarray | None) -> np.ndarray:
        curve, tokens = self._curves.get(prompts, {}).get(self.chunks[i]), self.chunks[i]
        if curve is None:
            return half
        at_prefixes = [np.full(len(each), tokens) for each in (curve.sizes, self.prefixes)]
        known, everywhere = (difference(lambda n: self._whole(prompts, n), *each) for each in zip(
            at_prefixes, (curve.sizes, self.prefixes)))
        ns = np.maximum(known[0] + curve.ns - curve.ns[0], prompts * self._light(tokens, curve.sizes))
        shares, beyond = np.interp(self.prefixes, curve.sizes, ns / known), self.prefixes > curve.sizes[-1]
        if half is not None:
            shares[beyond] = half[beyond]
        else:
            more = self._light(tokens, self.prefixes[beyond]) - self._light(tokens, curve.sizes[-1])
            shares[beyond] = (ns[-1] + more) / everywhere[beyond]
        return shares


def left_out(curves: dict[float, Curve], whole: Callable) -> list[tuple[float, float, float, float]]:
    """Return chunks of one prompt, each predicted from others.

    Each is (prefix, along, across, measured ns).

    along : from the other prefixes of its curve. across : from the next shorter and longer chunks.

    whole : returns the time of prompts, like the curves, by their tokens.
    """
    lengths, found = sorted(curves), []
    shares = {tokens: curve.ns / difference(whole, np.full(len(curve.sizes), tokens), curve.sizes)
              for tokens, curve in curves.items()}
    for before, tokens, after in zip(lengths, lengths[1:], lengths[2:]):
        curve = curves[tokens]
        by_difference = difference(whole, np.full(len(curve.sizes), tokens), curve.sizes)
        for i in range(1, len(curve.sizes) - 1):
            others = np.delete(np.arange(len(curve.sizes)), i)
            along = np.interp(curve.sizes[i], curve.sizes[others], shares[tokens][others])
            sides = [np.interp(curve.sizes[i], curves[side].sizes, shares[side]) for side in (before, after)]
            across = np.interp(tokens, (before, after), sides)
            found.append((curve.sizes[i], along * by_difference[i], across * by_difference[i], curve.ns[i]))
    return found


def behind_of(measured: list[tuple], whole: np.ndarray) -> Behind | None:
    """Return the sum of some layers; None: there are none.

    At all prefixes and chunks that any has.

    measured : (layers, Chunks). whole : the times of their prompts.
    """
    if not measured:
        return None
    prefixes, chunks = (np.unique(np.concatenate([getattr(each, name) for _, each in measured]))
                        for name in ("prefixes", "chunks"))
    shares = np.array([
        sum(layers * each.at(2 ** row, prefixes, chunks) for layers, each in measured) / np.column_stack(
            [difference(lambda n, row=row: _prompts(whole[row], n), np.full(len(prefixes), tokens), prefixes)
             for tokens in chunks]) for row in range(len(whole))])
    return Behind(whole, shares, prefixes, chunks)


def _prompts(row: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return times of prompts as the backend looks them up: beyond the table, by the square of their length."""
    last = len(row) - 1
    return row[np.minimum(lengths, last).astype(int)] * np.maximum(lengths / last, 1.0) ** 2
