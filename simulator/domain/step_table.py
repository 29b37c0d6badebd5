"""steps.json: a residual that `calibrate` fitted to measured iterations, on top of a latency model."""
import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, OutputError

FORMAT = "simulator step residual 1"
AXES = ("prefill_tokens", "sequences", "kv_tokens")
US_TO_NS = 1e3

Knots = Annotated[tuple[float, ...], Meta(min_length=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Added = Annotated[float, Meta(ge=0)]


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time added to an iteration by one count: piecewise linear, never falling.

    knots : ascending counts. added_us : at each knot; beyond the last knot the last slope goes on.
    """

    knots: Knots
    added_us: Annotated[tuple[Added, ...], Meta(min_length=2)]


class Zone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weight of the measurements by the counts of an iteration.

    knots : of each axis, ascending. weights : of all knots, the last axis fastest; between knots it is trilinear.
    """

    knots: tuple[Knots, Knots, Knots]
    weights: tuple[Share, ...]


class StepTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A residual: how measured iterations differ from those of a latency model.

    scope : the measured time. iteration: of the engine, with host time beside kernels; forward: kernels alone.
    prior : dotted key -> value, of the latency model below it. scale : factor on the prior's time.
    curves : time added, by count of `AXES`. least_ratio, most_ratio : bounds of the time, over the prior's.
    fit : data, errors and notes of the fit, for readers.
    """

    format: Literal["simulator step residual 1"] = FORMAT
    scope: Literal["iteration", "forward"]
    prior: dict[str, Any]
    scale: Annotated[float, Meta(ge=0)]
    constant_us: Added
    curves: tuple[Curve, Curve, Curve]
    zone: Zone
    least_ratio: Annotated[float, Meta(gt=0, le=1)]
    most_ratio: Annotated[float, Meta(ge=1)]
    fit: dict[str, Any] = {}

    def predicted_us(self, prior_us: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the times of iterations, us.

        Parameters
        ----------
        prior_us : float64 (n,), of the latency model below. counts : float64 (n, 3), of `AXES`.
        """
        return prior_us + self.weights(counts) * (self.measured_us(prior_us, counts) - prior_us)

    def measured_us(self, prior_us: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the times as if all counts were measured, us; arguments as above."""
        found = self.scale * prior_us + self.constant_us
        for curve, axis in zip(self.curves, counts.T, strict=True):
            found = found + added_us(curve, axis)
        return np.clip(found, self.least_ratio * prior_us, self.most_ratio * prior_us)

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Return weights of the measurements, (n,); 1: measured, 0: the prior."""
        return interpolated(self.zone, counts)


def added_us(curve: Curve, counts: np.ndarray) -> np.ndarray:
    """Return the time that counts add, us."""
    knots, values = np.array(curve.knots), np.array(curve.added_us)
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    return np.interp(counts, knots, values) + slope * np.maximum(counts - knots[-1], 0.0)


def interpolated(zone: Zone, counts: np.ndarray) -> np.ndarray:
    """Return the weights between knots; constant beyond the last of an axis."""
    weights = np.array(zone.weights).reshape([len(each) for each in zone.knots])
    places = []
    for knots, axis in zip(map(np.array, zone.knots), counts.T, strict=True):
        left = np.clip(np.searchsorted(knots, axis, side="right") - 1, 0, len(knots) - 2)
        places.append((left, np.clip((axis - knots[left]) / (knots[left + 1] - knots[left]), 0.0, 1.0)))
    found = np.zeros(len(counts))
    for corner in np.ndindex(2, 2, 2):
        share = np.ones(len(counts))
        for end, (_, at) in zip(corner, places, strict=True):
            share = share * (at if end else 1.0 - at)
        found += share * weights[tuple(left + end for end, (left, _) in zip(corner, places, strict=True))]
    return found


def read_table(path: str) -> tuple[StepTable, str]:
    """Return the residual of a file, and the SHA-256 of the file.

    Raises
    ------
    InputErrors
        The file cannot be read, or is not what `calibrate` writes.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputErrors([f"{path}: {error.strerror}; `simulator calibrate` writes it, at level \"steps\""]) from None
    try:
        table = msgspec.json.decode(data, type=StepTable)
        check(table)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputErrors([f"{path}: not a residual of `simulator calibrate`: {error}"]) from None
    return table, hashlib.sha256(data).hexdigest()


def write_table(path: Path, table: StepTable) -> None:
    """Write a residual to a file, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(table), indent=1)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(text + b"\n")
        partial.replace(path)
    except OSError as error:
        raise OutputError(path, error) from error


def check(table: StepTable) -> None:
    """Make sure that times are finite, knots ascend and added times never fall.

    Raises
    ------
    ValueError
        They do not.
    """
    numbers = [table.scale, table.constant_us, table.least_ratio, table.most_ratio]
    for name, curve in zip(AXES, table.curves, strict=True):
        if len(curve.knots) != len(curve.added_us):
            raise ValueError(f"curve of {name}: {len(curve.knots)} knots, {len(curve.added_us)} times")
        if not _ascends(curve.knots) or (np.diff(curve.added_us) < 0).any():
            raise ValueError(f"curve of {name}: expected ascending knots, and times that never fall")
        numbers += [*curve.knots, *curve.added_us]
    expected = int(np.prod([len(each) for each in table.zone.knots]))
    if len(table.zone.weights) != expected or not all(map(_ascends, table.zone.knots)):
        raise ValueError(f"zone: expected ascending knots and {expected} weights, found {len(table.zone.weights)}")
    if not np.isfinite([*numbers, *(knot for knots in table.zone.knots for knot in knots)]).all():
        raise ValueError("expected finite numbers")


def _ascends(knots: tuple[float, ...]) -> bool:
    return bool((np.diff(knots) > 0).all())
