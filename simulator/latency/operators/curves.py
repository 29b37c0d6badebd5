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
- a site far larger than all measured ones, if the caller allows it: as the nearest site on their border;
- another site of an operator of several launches: the time of launches, which is that of the smallest size beyond the
  speed of light, is the mean of the neighbours', and the utilisation is that of the rest. Whole mixtures of experts
  left out of tables of H100, H200 and B200 are 4 to 16 % off up to 64 tokens by this, 12 to 43 % by utilisation alone.
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
            is_root: bool = False, is_held: bool = False, has_launches: bool = False) -> Times | None:
    """Return the times of any site at `sizes`; None: no site near it was measured.

    is_root : see `along`.
    is_held : far beyond the largest sites, hold the utilisation of their border.
    has_launches : hold the time of launches, too.
    """
    if site in curves:
        return along(curves[site], sizes, lambda at: light_ns(site, at), is_root)
    nearest, found = neighbours(curves, site), INTERPOLATED
    border = _greatest(curves, site) if is_held and curves and not nearest else None
    if border is not None:
        nearest, found = [(border, 1.0)] if border in curves else neighbours(curves, border), EXTRAPOLATED
    weights, launches, origins = 0.0, 0.0, np.full(len(sizes), found, dtype=np.uint8)
    efforts = np.zeros(len(sizes))
    for other, distance in nearest:
        times = along(curves[other], sizes, lambda at, other=other: light_ns(other, at), is_root)
        fastest_ns = light_ns(other, sizes)
        launch_ns = _launch_ns(curves[other], lambda at, other=other: light_ns(other, at)) if has_launches else 0.0
        efforts += fastest_ns / (np.maximum(times.ns - launch_ns, fastest_ns) if has_launches else times.ns) / distance
        launches += launch_ns / distance
        weights += 1 / distance
        origins = np.maximum(origins, times.origins)
    if weights == 0.0:
        return None
    return Times(light_ns(site, sizes) * weights / efforts + launches / weights, origins)


def _launch_ns(curve: Curve, light_ns: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the time of the smallest size beyond the speed of light."""
    return max(float(curve.ns[0] - light_ns(curve.sizes[:1])[0]), 0.0)


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
