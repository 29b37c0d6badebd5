"""Forecasts of a series by one step, as Dynamo's planner makes them: constant, Kalman filter, ARIMA, Prophet.

Source: ai-dynamo 1.6.1 (PyPI), dynamo/planner/core/load/predictors.py, its rules restated.
tests/parity/test_dynamo_planner.py compares recorded series.
"""
import importlib.util
import math
import warnings
from datetime import datetime, timedelta
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

FEWEST = 5                          # values that ARIMA and Prophet need; with fewer the forecast is the last value
PACKAGES = {"arima": "pmdarima", "prophet": "prophet"}
BEGIN = datetime(2024, 1, 1)        # of the times that Prophet gets

Variance = Annotated[float, Meta(gt=0, le=1e12, extra={"unit": "squared value"})]


class KalmanKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Variances of the Kalman filter."""

    level_variance: Annotated[Variance, Meta(description="variance of the level from step to step, of kalman")] = 1.0
    trend_variance: Annotated[Variance, Meta(description="variance of the trend from step to step, of kalman")] = 0.1
    noise_variance: Annotated[Variance, Meta(description="variance of a measured value, of kalman")] = 10.0
    min_points: Annotated[int, Meta(ge=1, le=10**6, description=(
        "values that kalman needs; with fewer the forecast is the last value"))] = 5


class Series:
    """Base of forecasts: the last value; leading zeros are no values.

    log1p : the forecast is made of ln(1 + value).
    """

    def __init__(self, *, log1p: bool):
        self.log1p = log1p
        self.values = []            # as given

    def add(self, value: float) -> None:
        """Add a value; one that is not finite counts as 0."""
        value = value if math.isfinite(value) else 0.0
        if value != 0 or self.values:
            self.values.append(value)
            self._take(value)

    def forecast(self) -> float:
        """Return the next value."""
        return self.values[-1] if self.values else 0.0

    def _take(self, value):
        pass

    def _inside(self, value):
        """Return a value as the model gets it."""
        return math.log1p(max(value, 0.0)) if self.log1p else value

    def _outside(self, value):
        return max(math.expm1(value), 0.0) if self.log1p else value


class Kalman(Series):
    """Kalman filter of a local linear trend.

    x = (level, trend), F = [[1, 1], [0, 1]], H = [1, 0], P0 = 1000 I, Q diagonal.
    The update is Joseph's: P = (I - K H) P (I - K H)^T + K R K^T.
    Source: R. Labbe, filterpy.kalman.KalmanFilter, which Dynamo uses.
    """

    def __init__(self, keys: KalmanKeys, *, log1p: bool):
        super().__init__(log1p=log1p)
        self._keys = keys
        self._level = self._trend = self._covariance = 0.0
        self._variances = [1000.0, 1000.0]      # of level and trend
        self._is_ahead = False                  # the state is predicted, its value not yet seen

    def _take(self, value):
        value = self._inside(value)
        if len(self.values) == 1:
            self._level = value
            return
        if not self._is_ahead:
            self._predict()
        self._is_ahead = False
        (level, trend), covariance, noise = self._variances, self._covariance, self._keys.noise_variance
        gain, trend_gain = level / (level + noise), covariance / (level + noise)
        kept, residual = 1 - gain, value - self._level
        self._level += gain * residual
        self._trend += trend_gain * residual
        self._variances = [kept * level * kept + gain * noise * gain,
                           trend - 2 * trend_gain * covariance + trend_gain * (level + noise) * trend_gain]
        self._covariance = kept * (covariance - trend_gain * level) + gain * noise * trend_gain

    def _predict(self):
        level, trend = self._variances
        self._level += self._trend
        self._variances = [level + 2 * self._covariance + trend + self._keys.level_variance,
                           trend + self._keys.trend_variance]
        self._covariance += trend

    def forecast(self):
        """See Series."""
        if len(self.values) < self._keys.min_points:
            return super().forecast()
        if not self._is_ahead:
            self._predict()
            self._is_ahead = True
        return self._outside(self._level)


class Arima(Series):
    """pmdarima's auto_arima, fitted once, then updated.

    Where it finds an order of (0, d, 0), it is fitted to ln(1 + value).
    """

    def __init__(self, *, log1p: bool):
        super().__init__(log1p=log1p)
        self._model, self._num_seen = None, 0

    def forecast(self):
        """See Series; the last value if the model fails."""
        if len(self.values) < FEWEST:
            return super().forecast()
        if len(set(self.values)) == 1:
            return self.values[0]
        fresh, self._num_seen = self.values[self._num_seen:], len(self.values)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if self._model is None:
                    self._fit()
                else:
                    self._model.update([self._inside(max(value, 0.0)) for value in fresh])
                return max(self._outside(float(self._model.predict(n_periods=1)[0])), 0.0)
        except Exception:                                       # any fault of the library, as in Dynamo
            return super().forecast()

    def _fit(self):
        from pmdarima import auto_arima  # an extra, and seconds of imports

        def fitted():
            return auto_arima([self._inside(max(value, 0.0)) for value in self.values], suppress_warnings=True,
                              error_action="ignore")

        self._model = fitted()
        order, _, average = self._model.order
        if (order, average) == (0, 0) and not self.log1p:
            self.log1p = True
            self._model = fitted()


class Prophet(Series):
    """Prophet, fitted anew each time.

    window : values that it is fitted to, the last ones.
    interval_s : time between two values.
    """

    def __init__(self, window: int, interval_s: float, *, log1p: bool):
        super().__init__(log1p=log1p)
        self._window, self._interval_s = window, interval_s

    def forecast(self):
        """See Series."""
        if min(len(self.values), self._window) < FEWEST:
            return super().forecast()
        import pandas as pd  # an extra, and seconds of imports
        from prophet import Prophet as Model

        first = max(len(self.values) - self._window, 0)
        model = Model()
        model.fit(pd.DataFrame({"ds": [self._time(step) for step in range(first, len(self.values))],
                                "y": [self._inside(value) for value in self.values[first:]]}))
        found = model.predict(pd.DataFrame({"ds": [self._time(len(self.values))]}))
        return max(self._outside(float(found["yhat"].iloc[0])), 0.0)

    def _time(self, step):
        return BEGIN + timedelta(seconds=step * self._interval_s)


class ForecastKeys(NamedTuple):
    """Choice of a forecast, with its keys."""

    kind: Literal["constant", "kalman", "arima", "prophet"]
    log1p: bool
    kalman: KalmanKeys
    prophet_window: int
    interval_s: float

    @property
    def fewest_values(self) -> int:
        """Values that the forecast needs."""
        return {"constant": 1, "kalman": self.kalman.min_points}.get(self.kind, FEWEST)

    def series(self) -> Series:
        """Return an empty series."""
        if self.kind == "kalman":
            return Kalman(self.kalman, log1p=self.log1p)
        if self.kind == "arima":
            return Arima(log1p=self.log1p)
        if self.kind == "prophet":
            return Prophet(self.prophet_window, self.interval_s, log1p=self.log1p)
        return Series(log1p=self.log1p)


def why_missing(kind: str) -> str:
    """Return why a forecast cannot be made here; "": it can."""
    package = PACKAGES.get(kind)
    if package is None or importlib.util.find_spec(package) is not None:
        return ""
    return f'"{kind}" needs {package}, which is not installed: pip install "simulator[forecast]"'
