"""Leave-one-out errors of interpolation in operator tables: each point is predicted from the others.

Errors are |ln(predicted / measured)|. The points left out correspond to the lookups of an iteration:

- a curve that was measured: each inner point of it (which doubles the gaps that are interpolated in use);
- attention of decodes: each inner point together with its batch size, predicted from the two neighbouring batch sizes,
  with their points of that length left out, too;
- a site that was not measured: whole curves of the sites nearest to it;
- beyond the end of a curve: each point of its longer half, from those before it;
- beyond all sites: sites on the border, from the sites that are smaller in that direction.
"""
from collections.abc import Callable

import numpy as np

from simulator.latency.operators.curves import Curve, LightSpeed, along, at_site

NUM_SITES = 16                  # number of nearest sites left out


def along_sizes(curve: Curve, light_ns: Callable, is_root: bool = False) -> np.ndarray:
    """Return the errors at the inner points of a curve."""
    inner = range(1, len(curve.sizes) - 1)
    return _sizes([(along(_without(curve, i), curve.sizes[i:i + 1], light_ns, is_root).ns[0], curve.ns[i])
                   for i in inner])


def edge_sizes(curve: Curve, light_ns: Callable, is_root: bool = False) -> np.ndarray:
    """Return the errors of a curve's longer half, predicted from shorter points."""
    beyond = range(max(1, (len(curve.sizes) + 1) // 2), len(curve.sizes))
    return _sizes([(along(Curve(curve.sizes[:i], curve.ns[:i]), curve.sizes[i:i + 1], light_ns, is_root).ns[0],
                    curve.ns[i]) for i in beyond])


def site_sizes(curves: dict[tuple, Curve], site: tuple, light_ns: LightSpeed, is_root: bool = False,
               has_launches: bool = False) -> np.ndarray:
    """Return the errors of whole curves, of the sites nearest to one.

    Sites without another one near them are skipped.
    """
    return _curves_left_out(curves, _nearest(curves, site), light_ns, is_root, has_launches,
                            lambda left: {other: curve for other, curve in curves.items() if other != left})


def border_sizes(curves: dict[tuple, Curve], site: tuple, light_ns: LightSpeed, is_root: bool = False,
                 has_launches: bool = False) -> np.ndarray:
    """Return the errors of the largest sites, for each dimension of sites."""
    greatest, found = np.max(list(curves), axis=0), []
    for axis, most in enumerate(greatest):
        border = {other: curve for other, curve in curves.items() if other[axis] == most}
        smaller = {other: curve for other, curve in curves.items() if other[axis] < most}
        if smaller:
            found.append(_curves_left_out(curves, _nearest(border, site), light_ns, is_root, has_launches,
                                          lambda left, smaller=smaller: smaller))
    return np.concatenate(found) if found else np.zeros(0)


def grid_sizes(by_batch: dict[int, dict], site: tuple, light_of: Callable) -> np.ndarray:
    """Return the errors of decodes with inner batch sizes and lengths left out.

    light_of : returns the speed of light of a batch size.
    """
    batches, found = sorted(batch for batch, curves in by_batch.items() if site in curves), []
    for low, middle, high in zip(batches, batches[1:], batches[2:]):
        curve, share = by_batch[middle][site], (middle - low) / (high - low)
        for i in range(1, len(curve.sizes) - 1):
            sides = [_beside(by_batch[batch][site], curve.sizes[i], lambda at, batch=batch: light_of(batch)(site, at))
                     for batch in (low, high)]
            found.append((sides[0] + share * (sides[1] - sides[0]), curve.ns[i]))
    return _sizes(found)


def _beside(curve: Curve, size: float, light_ns: Callable) -> float:
    """Return the time of a curve at a size, without its point there."""
    at = np.flatnonzero(curve.sizes == size)
    rest = _without(curve, at[0]) if len(at) and len(curve.sizes) > 1 else curve
    return along(rest, np.array([size]), light_ns).ns[0]


def _curves_left_out(curves, chosen, light_ns, is_root, has_launches, others_of: Callable) -> np.ndarray:
    found = []
    for left in chosen:
        with np.errstate(divide="ignore", invalid="ignore"):
            times = at_site(others_of(left), left, curves[left].sizes, light_ns, is_root, True, has_launches)
        if times is not None:
            found.append(np.abs(np.log(times.ns / curves[left].ns)))
    return np.concatenate(found) if found else np.zeros(0)


def _nearest(sites, site: tuple) -> list[tuple]:
    """Return the sites nearest to one in octaves, except itself."""
    others = sorted(other for other in sites if other != site)
    if not others:
        return []
    octaves = np.sum((np.log2(np.array(others, dtype=float)) - np.log2(site)) ** 2, axis=1)
    return [others[i] for i in np.argsort(octaves, kind="stable")[:NUM_SITES]]


def _without(curve: Curve, i: int) -> Curve:
    return Curve(np.delete(curve.sizes, i), np.delete(curve.ns, i))


def _sizes(pairs: list[tuple[float, float]]) -> np.ndarray:
    """Return the absolute errors of pairs (predicted, measured)."""
    return np.array([abs(np.log(predicted / measured)) for predicted, measured in pairs])
