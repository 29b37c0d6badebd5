"""Predicted output lengths for policies, drawn for each request before it comes."""
import numpy as np
from msgspec.structs import replace

from simulator.domain.traits import OutputKnowledge
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, nearest
from simulator.workload.limits import MAX_TOKENS, MISSING
from simulator.workload.own_draws import keys_of, normals, uniforms

UNKNOWN = -1
KEY = "workload.output_knowledge.predictor"


def with_knowledge(columns: Columns, given: OutputKnowledge, seed: int) -> Columns:
    """Return the requests with `expected_tokens`, by [workload.output_knowledge].

    Raises
    ------
    InputErrors
        The predictor reads a column which the workload does not have.
    """
    if given.predictor == "none":
        return columns
    declared = declared_tokens(columns)
    true = np.clip(columns.output_tokens, 1, declared)
    keys = keys_of(columns.request_ids, len(columns))
    if given.predictor == "column":
        return replace(columns, expected_tokens=_predicted(columns))
    if given.predictor == "declared":
        return replace(columns, expected_tokens=declared, notes=(*columns.notes, *_undeclared(columns)))
    if given.predictor == "mean":
        expected = _means(columns, true)
    elif given.predictor == "lognormal_error":
        expected = lognormal_error(true, given.error_sigma, given.bias, normals(seed, "output_knowledge", keys))
    elif given.predictor == "bucket":
        expected = bucket(true, declared, given, uniforms(seed, "output_knowledge", keys))
    else:
        expected = true
    return replace(columns, expected_tokens=expected)


def declared_tokens(columns: Columns) -> np.ndarray:
    """Return max_tokens of each request; where it is not given, the output length."""
    if columns.max_tokens is None:
        return np.maximum(columns.output_tokens, 1)
    return np.maximum(np.where(columns.max_tokens == MISSING, columns.output_tokens, columns.max_tokens), 1)


def lognormal_error(true: np.ndarray, sigma: float, bias: float, draws: np.ndarray) -> np.ndarray:
    """Return max(1, true * bias * exp(sigma * draw - sigma**2 / 2)), rounded.

    For standard normal draws the mean is true * bias.
    """
    factors = bias * np.exp(sigma * draws - sigma ** 2 / 2)
    return np.maximum(nearest(np.minimum(true * factors, MAX_TOKENS)), 1)


def bucket(true: np.ndarray, declared: np.ndarray, given: OutputKnowledge, draws: np.ndarray) -> np.ndarray:
    """Return the upper edge of each length's bucket.

    A length above the last edge gets the declared length.
    draws : uniform on [0, 1); below `wrong_bucket_share` a neighbouring bucket is taken: the shorter one in the lower
        half of that range; the first and the last bucket have only one neighbour.
    """
    last = len(given.buckets)
    places = np.searchsorted(given.buckets, true)
    is_wrong, goes_down = draws < given.wrong_bucket_share, draws < given.wrong_bucket_share / 2
    goes_down = (goes_down & (places > 0)) | (places == last)
    places = np.where(is_wrong, places + np.where(goes_down, -1, 1), places)
    return np.where(places == last, declared, np.array(given.buckets)[np.minimum(places, last - 1)])


def _means(columns: Columns, true: np.ndarray) -> np.ndarray:
    """Return the mean length of each request's SLO class, rounded; requests without a class form one class."""
    codes = columns.labels["slo_class"][0] + 1 if "slo_class" in columns.labels else np.zeros(len(true), np.int64)
    counts = np.maximum(np.bincount(codes), 1)
    return nearest(np.bincount(codes, weights=true) / counts)[codes]


def _predicted(columns: Columns) -> np.ndarray:
    if "predicted_tokens" not in columns.facts:
        raise InputErrors([KeyFault(
            f'{KEY}: "column" reads the column predicted_tokens of a native trace, which this workload does not have')])
    values = columns.facts["predicted_tokens"]
    return np.where(values == MISSING, UNKNOWN, values)


def _undeclared(columns: Columns) -> list[str]:
    """Return a note with the number of requests for which the true length replaces a declared one."""
    given = 0 if columns.max_tokens is None else int((columns.max_tokens != MISSING).sum())
    count = len(columns) - given
    return [f"{count} of {len(columns)} requests declare no max_tokens: policies, which expect what is declared, "
            "expect their true output length"] if count else []
