"""Curves of measured times, with interpolation and extrapolation.

A site identifies the subject of one curve: the n and k of a matrix product, the heads of attention, the shape of a
mixture. Speed of light is the time that arithmetic or memory traffic takes at peak rates, whichever is longer; the
measured time is longer by 1 / utilisation.

- a measured point: verbatim;
- between two: linear in time, or in its square root (prompt attention, quadratic in the length: points left
  out of H100 tables are 4.5 % off in the mean, linear in time 6.4 %);
- beyond the ends of a curve: its utilisation at the end is held;
- another site: utilisation is the mean of the nearest sites', weighted by inverse distance in log2 of the site's sizes,
  none farther than two octaves. Without a site that near there is no result, and the caller decides;
- a site far larger than all measured ones, if the caller allows it: as the nearest site on their border.
"""
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

EXACT, INTERPOLATED, EXTRAPOLATED, ROOFLINE = range(4)      # origin of a time, best first
ORIGINS = ("exact", "interpolated", "extrapolated", "roofline")
MAX_OCTAVES = 2.0
# More work cannot take a third of the time: a point this many times slower than the next larger one is a measurement
# error. aiconfigurator's latent attention has points of 1.5 ms among neighbours of 0.02 ms.
SPIKE = 3.0
NUM_NEIGHBOURS = 4
LONG_PRODUCT, LONGEST_PRODUCT = 4096, 16384             # tokens, see `sustained`

LightSpeed = Callable[[tuple, np.ndarray], np.ndarray]      # (site, sizes) -> ns at peak rates


class Times(NamedTuple):
    """Times at some sizes, and their origins."""

    ns: np.ndarray          # float64
    origins: np.ndarray     # uint8


class Curve(NamedTuple):
    """Measured times of one site."""

    sizes: np.ndarray       # float64 (points,), increasing
    ns: np.ndarray          # float64 (points,)


def curves_by_site(columns: dict[str, np.ndarray], site: Iterable[str], size: str,
                   spikes: list[tuple] | None = None, spike: float = SPIKE) -> dict[tuple, Curve]:
    """Split rows into curves of latency_ms over column `size`.

    If a point was measured twice, keep the faster: kernels compete, and an engine chooses the faster one. Points above
    `spike` times the next are left out, and added to `spikes` as (site, size).
    """
    keys = [np.asarray(columns[name]) for name in site]
    order = np.lexsort([columns["latency_ms"], columns[size], *reversed(keys)])
    keys = [key[order] for key in keys]
    sizes, ns = columns[size][order], columns["latency_ms"][order] * 1e6
    is_new_site = np.zeros(len(order), dtype=bool)
    is_new_site[:1] = True
    for key in keys:
        is_new_site[1:] |= key[1:] != key[:-1]
    is_kept = is_new_site.copy()
    is_kept[1:] |= sizes[1:] != sizes[:-1]
    starts = np.flatnonzero(is_new_site)
    found = {}
    for start, end in zip(starts, [*starts[1:], len(order)]):
        kept = np.flatnonzero(is_kept[start:end]) + start
        with np.errstate(invalid="ignore"):     # an infinite `spike` times 0
            is_spike = np.append(ns[kept[:-1]] > spike * ns[kept[1:]], False)
        place = tuple(key[start].item() for key in keys)
        found[place] = Curve(sizes[kept[~is_spike]], ns[kept[~is_spike]])
        if spikes is not None:
            spikes += [(place, float(at)) for at in sizes[kept[is_spike]]]
    return found


def along(curve: Curve, sizes: np.ndarray, light_ns: Callable[[np.ndarray], np.ndarray],
          is_root: bool = False) -> Times:
    """Return the times of one site at `sizes`.

    Parameters
    ----------
    light_ns : speed of light of this site by sizes; used beyond the curve.
    is_root : interpolate the square root of time instead of time.
    """
    known = np.sqrt(curve.ns) if is_root else curve.ns
    ns = np.interp(sizes, curve.sizes, known)
    ns = ns * ns if is_root else ns
    nearest = np.minimum(np.searchsorted(curve.sizes, sizes), len(curve.sizes) - 1)
    is_measured = curve.sizes[nearest] == sizes
    origins = np.where(is_measured, EXACT, INTERPOLATED)
    ns[is_measured] = curve.ns[nearest[is_measured]]
    for is_beyond, end in ((sizes < curve.sizes[0], 0), (sizes > curve.sizes[-1], -1)):
        if is_beyond.any():
            utilisation = light_ns(curve.sizes[[end]])[0] / curve.ns[end]
            ns[is_beyond] = light_ns(sizes[is_beyond]) / utilisation
            origins = np.where(is_beyond, EXTRAPOLATED, origins)
    return Times(ns, origins.astype(np.uint8))


def at_site(curves: dict[tuple, Curve], site: tuple, sizes: np.ndarray, light_ns: LightSpeed,
            is_root: bool = False, is_held: bool = False) -> Times | None:
    """Return the times of any site at `sizes`; None: no site near it was measured.

    is_root : see `along`.
    is_held : far beyond the largest sites, hold the utilisation of their border.
    """
    if site in curves:
        return along(curves[site], sizes, lambda at: light_ns(site, at), is_root)
    nearest, found = neighbours(curves, site), INTERPOLATED
    border = _greatest(curves, site) if is_held and curves and not nearest else None
    if border is not None:
        nearest, found = [(border, 1.0)] if border in curves else neighbours(curves, border), EXTRAPOLATED
    weights, efforts, origins = 0.0, np.zeros(len(sizes)), np.full(len(sizes), found, dtype=np.uint8)
    for other, distance in nearest:
        times = along(curves[other], sizes, lambda at, other=other: light_ns(other, at), is_root)
        efforts += light_ns(other, sizes) / times.ns / distance
        weights += 1 / distance
        origins = np.maximum(origins, times.origins)
    if weights == 0.0:
        return None
    return Times(light_ns(site, sizes) * weights / efforts, origins)


def _greatest(sites: Iterable[tuple], site: tuple) -> tuple | None:
    """Return the nearest point within the range of all sites; None: `site` is below it, where launches dominate."""
    known = np.array(list(sites), dtype=float)
    return None if (known.min(axis=0) > site).any() else tuple(np.minimum(site, known.max(axis=0)).tolist())


def neighbours(sites: Iterable[tuple], site: tuple) -> list[tuple[tuple, float]]:
    """Return the nearest other sites and their distances in octaves, in order."""
    others = [other for other in sites if other != site]
    if not others:
        return []
    distances = np.sqrt(np.sum((np.log2(np.array(others, dtype=float)) - np.log2(site)) ** 2, axis=1))
    nearest = np.argsort(distances, kind="stable")[:NUM_NEIGHBOURS]
    return [(others[i], float(distances[i])) for i in nearest if distances[i] <= MAX_OCTAVES]


def sustained(curve: Curve) -> Curve:
    """Return a product's curve with long products at the sustained rate.

    Within milliseconds of full load an accelerator falls to the clocks that its power limit allows. Rows of a few
    thousand tokens were measured in less (B200, fp8: 2,610 TFLOP/s at 2,048 tokens, 2,220 at 32,768; H100, fp8: 1,400
    at 8,192, 1,100 at 16,384), and an iteration of prompts lasts longer than that. So from LONG_PRODUCT tokens on, the
    time per token is at least the mean over products of LONGEST_PRODUCT tokens and more.
    """
    is_longest, is_long = curve.sizes >= LONGEST_PRODUCT, curve.sizes >= LONG_PRODUCT
    if not is_longest.any():
        return curve
    token_ns = float(np.mean(curve.ns[is_longest] / curve.sizes[is_longest]))
    return Curve(curve.sizes, np.where(is_long & ~is_longest, np.maximum(curve.ns, curve.sizes * token_ns), curve.ns))
