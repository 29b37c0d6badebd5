"""Training of Vidur's sub-models with scikit-learn, and their predictions as dense tables.

Grids, folds and score as in microsoft/vidur @ 7d47513 (sklearn_execution_time_predictor.py and
random_forrest_execution_time_predictor.py, linear_regression_execution_time_predictor.py). One difference: in Vidur
forests draw from NumPy's global generator, so that a training depends on the number of earlier ones and of processes;
here each sub-model has its own stream, and a training is repeatable.
"""
import math
from collections.abc import Callable, Sequence

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, MissingExtra
from simulator.latency.forest.profiles import HOST_TIMES, ROUNDED_OPERATORS, Samples
from simulator.latency.forest.tables import ROUNDING, ForestTables, coverage

TOKEN_OPERATORS = (*ROUNDED_OPERATORS, "attn_kv_cache_save", "all_reduce", "send_recv")
SEEDS = 2**31                   # scikit-learn takes seeds of 32 bits
# Singular values below this share of the largest count as zero. scikit-learn 1.9 cuts at 1e-6, where features up to
# 1e12 leave little of a polynomial; 1.5, with which Vidur's results were recorded, cuts at this value.
RANK_TOLERANCE = float(np.finfo(float).eps)


def train(samples: dict[str, Samples], settings, progress: Callable[[str], None] = lambda name: None) -> ForestTables:
    """Return the tables of sub-models fitted to their samples.

    Parameters
    ----------
    samples : by sub-model, from `read_samples`.
    settings : ForestParameters, of which the keys of training and of the extent of tables are used.
    progress : called with the name of each sub-model before it is fitted.

    Raises
    ------
    InputErrors
        A sub-model has a single sample.
    MissingExtra
        scikit-learn is not installed.
    """
    axes = _axes(samples, settings)
    tables, covered, chosen = {}, {}, {}
    for name, measured in samples.items():
        progress(name)
        model, chosen[name] = _fit(measured, settings, name)
        tables[name] = _predict(model, axes[name])
        covered[name] = coverage(measured.features, axes[name])
    return ForestTables(
        kv_granularity=settings.kv_granularity_tokens,
        tokens={name: tables[name] for name in TOKEN_OPERATORS if name in tables},
        host={name: tables[name] for name in HOST_TIMES if name in tables},
        decode=tables["attn_decode"], prefill=tables["attn_prefill"], covered=covered, chosen=chosen)


def left_out(samples: dict[str, Samples], settings, chosen: dict[str, dict]) -> dict[str, np.ndarray]:
    """Return the errors of sub-models on folds of their samples that were left out.

    |ln(predicted / measured)| of each sample, float64, ascending; samples with a time of 0 are skipped.

    Parameters
    ----------
    chosen : parameters of the estimator, by sub-model.
    """
    from sklearn.model_selection import cross_val_predict  # an extra, and a second of imports

    found = {}
    for name, measured in samples.items():
        estimator, _ = _candidates(settings, _seed(settings, name))
        predicted = cross_val_predict(estimator.set_params(**chosen[name]), measured.features, measured.times_ms,
                                      cv=_folds(measured, settings), n_jobs=settings.num_training_jobs)
        is_positive = (measured.times_ms > 0) & (predicted > 0)
        found[name] = np.sort(np.abs(np.log(predicted[is_positive] / measured.times_ms[is_positive])))
    return found


def _axes(samples: dict[str, Samples], settings) -> dict[str, tuple[np.ndarray, ...]]:
    """Return the feature values at which each sub-model is tabulated; index 0 of a count means none."""
    prefill, decode = samples["attn_prefill"].features, samples["attn_decode"].features
    batch = np.arange(1 + (settings.max_batch_size or int(decode[:, 0].max())), dtype=float)
    granularity = settings.kv_granularity_tokens
    most_context = settings.max_kv_tokens or int(max(prefill[:, 0].max(), decode[:, 1].max()))
    context = np.arange(1 + math.ceil(most_context / granularity), dtype=float) * granularity
    chunk = np.arange(1 + (settings.max_chunk_tokens or round(math.sqrt(prefill[:, 1].max()))), dtype=float)
    most_tokens = settings.max_tokens or int(samples["attn_pre_proj"].features.max())
    tokens = np.arange(1 + math.ceil(most_tokens / ROUNDING) * ROUNDING, dtype=float)
    of = {name: (batch,) if name in HOST_TIMES else (tokens,) for name in samples}
    return of | {"attn_prefill": (context, chunk ** 2), "attn_decode": (batch, context)}


def _seed(settings, name: str) -> int:
    return int(RandomStreams(settings.training_seed).generator(f"forest.{name}").integers(SEEDS))


def _folds(samples: Samples, settings) -> int:
    return 2 if len(samples.times_ms) < settings.k_fold_cv_splits else settings.k_fold_cv_splits


def _fit(samples: Samples, settings, name: str) -> tuple[object, dict]:
    """Return the estimator that scores best over the folds, fitted to all samples, and its parameters."""
    try:
        from sklearn.model_selection import GridSearchCV  # an extra, and a second of imports
    except ImportError:
        raise MissingExtra(["training forests needs scikit-learn: install it with pip install 'simulator[forest]'"]
                           ) from None
    count = len(samples.times_ms)
    if count < 2:
        raise InputErrors([f"{name}: expected at least 2 samples in the profile, found {count}"])
    estimator, grid = _candidates(settings, _seed(settings, name))
    if math.prod(map(len, grid.values())) == 1:
        only = {key: values[0] for key, values in grid.items()}
        return estimator.set_params(**only).fit(samples.features, samples.times_ms), only
    search = GridSearchCV(estimator, grid, scoring=_score, cv=_folds(samples, settings),
                          n_jobs=settings.num_training_jobs).fit(samples.features, samples.times_ms)
    return search.best_estimator_, search.best_params_


def _candidates(settings, seed: int) -> tuple[object, dict[str, Sequence]]:
    """Return the estimator and the values of its parameters to choose from."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import PolynomialFeatures

    if settings.estimator == "random_forest":
        return RandomForestRegressor(random_state=seed), {
            "n_estimators": settings.num_estimators, "max_depth": settings.max_depth,
            "min_samples_split": settings.min_samples_split}
    return Pipeline([("polynomial", PolynomialFeatures()), ("linear", LinearRegression(tol=RANK_TOLERANCE))]), {
        "polynomial__degree": settings.polynomial_degree,
        "polynomial__include_bias": settings.polynomial_include_bias,
        "polynomial__interaction_only": settings.polynomial_interaction_only,
        "linear__fit_intercept": settings.fit_intercept}


def _score(model, features: np.ndarray, times_ms: np.ndarray) -> float:
    """Return the negative mean absolute percentage error; at a time of 0, an error is 100 %."""
    predicted = model.predict(features)
    is_zero = times_ms == 0
    errors = np.where(predicted == 0, 0.0, 100.0)
    errors[~is_zero] = np.abs((times_ms[~is_zero] - predicted[~is_zero]) / times_ms[~is_zero]) * 100
    return -float(errors.mean())


def _predict(model, axes: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return predictions at all combinations of feature values, float64, one dimension per axis."""
    cells = [_cells(model, feature, axis) for feature, axis in enumerate(axes)]
    grid = np.meshgrid(*[axis[firsts] for axis, (firsts, _) in zip(axes, cells)], indexing="ij")
    rows = np.column_stack([each.ravel() for each in grid])
    predicted = np.concatenate([model.predict(part) for part in np.array_split(rows, 1 + len(rows) // 100_000)])
    return np.ascontiguousarray(predicted.reshape(grid[0].shape)[np.ix_(*[cell for _, cell in cells])])


def _cells(model, feature: int, axis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split an axis where the model can change: first index of each piece, and the piece of each index.

    A forest is constant between the thresholds of its trees, so one prediction per piece is enough: 266,240 cells of
    attention over prompts fall into about ten thousand.
    """
    trees = getattr(model, "estimators_", None)
    if trees is None:
        return np.arange(len(axis)), np.arange(len(axis))
    thresholds = np.unique(np.concatenate([tree.tree_.threshold[tree.tree_.feature == feature] for tree in trees]))
    values = axis.astype(np.float32).astype(float)      # trees compare features in 32 bits
    _, firsts, piece = np.unique(np.searchsorted(thresholds, values), return_index=True, return_inverse=True)
    return firsts, piece
