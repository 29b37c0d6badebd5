"""Durations of iterations: learned during the run, or profiled on a grid and interpolated bilinearly.

Source: llumnix-project/llumnix at 8a693b4, quadratic_predictor.go and predict_utils.go:predictNumComputedPrefillTokens.
Files of profiles hold {"metadata": .., "results": [row, ..]}; the p50 of each row is used.
"""
from libc.math cimport NAN, fabs, hypot, round
cimport cython

import json
import math

import numpy as np

from simulator.errors import InputErrors


cdef enum:
    SHORTEST_US = 1             # durations outside these limits are ignored, as upstream has it
    LONGEST_MS = 1000000


@cython.final
cdef class OnlinePredictor:
    """Least squares of a quadratic; of a lower degree where samples do not suffice.

    Rows are added to R and Q'y by Givens rotations as they arrive (Golub and Van Loan, Matrix Computations, 4th ed.,
    5.2.6 and 6.5.3), so samples are not kept.

    num_warmup : samples before the first fit.
    max_condition : a column is left out where it is dependent on those before it up to this factor.
    """

    def __init__(self, int32_t num_warmup, double max_condition=1e8):
        self._num_warmup, self._max_condition = num_warmup, max_condition

    cdef void add(self, double tokens, double duration_ms) noexcept nogil:
        cdef double[4] row
        cdef double length, cosine, sine, upper
        cdef int32_t k, j
        row[0], row[1], row[2], row[3] = 1, tokens, tokens * tokens, duration_ms
        for k in range(3):
            length = hypot(self._r[k][k], row[k])
            if length == 0:
                continue
            cosine, sine = self._r[k][k] / length, row[k] / length
            for j in range(k, 4):
                upper = self._r[k][j]
                self._r[k][j] = cosine * upper + sine * row[j]
                row[j] = cosine * row[j] - sine * upper
        self.num_samples += 1
        self.is_fitted = False

    cdef void fit(self) noexcept nogil:
        cdef int32_t degree = 0, k, j
        cdef double norm
        if self.is_fitted or self.num_samples < max(1, self._num_warmup):
            return
        # Column k of R has the length of column k of the data; its diagonal is the part independent of earlier columns.
        while degree < min(2, self.num_samples - 1):
            norm = 0
            for j in range(degree + 2):
                norm = hypot(norm, self._r[j][degree + 1])
            if fabs(self._r[degree + 1][degree + 1]) * self._max_condition <= norm:
                break
            degree += 1
        for k in range(2, -1, -1):
            self._coefficients[k] = self._r[k][3] if k <= degree else 0
            for j in range(k + 1, degree + 1):
                self._coefficients[k] -= self._r[k][j] * self._coefficients[j]
            if k <= degree:
                self._coefficients[k] /= self._r[k][k]
        self.is_fitted = True

    cdef double predict_ms(self, double tokens) noexcept nogil:
        return self._coefficients[0] + tokens * (self._coefficients[1] + tokens * self._coefficients[2])

    cdef int64_t computed_tokens(self, int64_t backlog, int64_t running, int64_t max_batched_tokens,
                                 double age_ms) noexcept nogil:
        cdef int64_t left = backlog, computed = 0, batch
        cdef double duration_ms
        while age_ms > 0 and left > 0:
            batch = running if 0 < running < max_batched_tokens else min(left, max_batched_tokens)
            if 0 < running < max_batched_tokens:
                running = 0
            duration_ms = self.predict_ms(<double>batch)
            if not SHORTEST_US * 1e-3 <= duration_ms <= LONGEST_MS:
                return 0
            if age_ms < duration_ms:
                computed += <int64_t>round(<double>batch * age_ms / duration_ms)
                break
            computed += batch
            age_ms -= duration_ms
            left -= batch
        return min(computed, backlog)


@cython.final
cdef class ProfileTable:
    """A function of two numbers, known on a grid.

    samples : sequence of (row, column, value); of several at one place the last counts.
    """

    def __init__(self, samples):
        cdef double[::1] rows, columns
        cdef double[:, ::1] values
        table = np.asarray([tuple(each) for each in samples], float).reshape(-1, 3)
        row_array, row_of = np.unique(table[:, 0], return_inverse=True)
        column_array, column_of = np.unique(table[:, 1], return_inverse=True)
        value_array = np.full((len(row_array), len(column_array)), np.nan)
        for row, column, value in zip(row_of, column_of, table[:, 2], strict=True):
            value_array[row, column] = value
        self._owners = (row_array, column_array, value_array)
        self._num_rows, self._num_columns = value_array.shape
        if len(table):
            rows, columns, values = row_array, column_array, value_array
            self._rows, self._columns, self._values = &rows[0], &columns[0], &values[0, 0]

    cdef double predict(self, double row, double column) noexcept nogil:
        cdef int32_t low, high, left, right
        cdef double below, above
        if row == 0 and column == 0:
            return 0
        low, left = last_up_to(self._rows, self._num_rows, row), last_up_to(self._columns, self._num_columns, column)
        if low < 0 or left < 0:
            return NAN
        high = low if self._rows[low] == row else low + 1
        right = left if self._columns[left] == column else left + 1
        if high == self._num_rows or right == self._num_columns:
            return NAN
        below = between(self._values + <int64_t>low * self._num_columns, self._columns, left, right, column)
        if low == high:
            return below
        above = between(self._values + <int64_t>high * self._num_columns, self._columns, left, right, column)
        return below + (above - below) * (row - self._rows[low]) / (self._rows[high] - self._rows[low])


cdef int32_t last_up_to(const double* grid, int32_t count, double x) noexcept nogil:
    """Return the index of the last grid point <= x; -1: none."""
    cdef int32_t low = -1, high = count, middle
    while high - low > 1:
        middle = (low + high) // 2
        if grid[middle] <= x:
            low = middle
        else:
            high = middle
    return low


cdef inline double between(const double* row, const double* columns, int32_t left, int32_t right,
                           double column) noexcept nogil:
    if left == right:
        return row[left]
    return row[left] + (row[right] - row[left]) * (column - columns[left]) / (columns[right] - columns[left])


cdef double decode_ms(ProfileTable tpot, int64_t sequences, int64_t tokens) noexcept nogil:
    # predict_utils.go:predictTpotLatency; 8 tokens per sequence are the least that is profiled
    if sequences <= 0 or tokens <= 0:
        return 0
    return tpot.predict(<double>sequences, max(8.0, <double>tokens / <double>sequences))


cdef double chunked_prefill_ms(ProfileTable ttft, int64_t tokens, int64_t max_batched_tokens,
                               double decode_iteration_ms) noexcept nogil:
    # predict_utils.go:predictTtftLatencyByChunkPrefill; the cost of a chunk does not depend on its position
    cdef int64_t whole, rest
    cdef double total_ms = decode_iteration_ms * 0      # NaN stays NaN
    if tokens <= 0:
        return total_ms
    whole = tokens // max_batched_tokens if max_batched_tokens > 0 else 0
    rest = tokens - whole * max_batched_tokens
    if whole > 0:
        total_ms += <double>whole * (ttft.predict(<double>max_batched_tokens, 0) + decode_iteration_ms)
    if rest > 0:
        total_ms += ttft.predict(<double>rest, 0) + decode_iteration_ms
    return total_ms


# ---- files of profiled durations

TTFT_COLUMNS = ("tokens_num",)
TPOT_COLUMNS = ("batch_size", "tokens_per_request")
# The keys of the tables that a metric needs; a prefill shares its iterations with decodes.
_KEYS_OF = {"predicted_ttft": ("ttft_profiling_data_path", "tpot_profiling_data_path"),
            "predicted_tpot": ("tpot_profiling_data_path",)}


def missing_tables(parameters, metrics):
    """Return a fault for each key without which a metric cannot be computed."""
    needs = {key: name for name in metrics for key in _KEYS_OF.get(name, ()) if not getattr(parameters, key)}
    return [f"{key}: missing; {name} needs it" for key, name in needs.items()]


def read_tables(parameters):
    """Return the tables of prefills and of decodes; None: the key is empty.

    Raises
    ------
    InputErrors
        A file that cannot be read or holds something else.
    """
    return tuple(ProfileTable(read_profile(path, columns)) if path else None for path, columns in (
        (parameters.ttft_profiling_data_path, TTFT_COLUMNS), (parameters.tpot_profiling_data_path, TPOT_COLUMNS)))


def read_profile(path, columns):
    """Return (row, column, median in ms) of each result; column 0 if there is none.

    Raises
    ------
    InputErrors
        Every fault of the file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)["results"]
        rows = list(results) if isinstance(results, list) else None
    except OSError as error:
        raise InputErrors([f"{path}: cannot be read: {error.strerror}"]) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputErrors([f"{path}: expected a JSON object with a list \"results\": {error}"]) from None
    if not rows:
        raise InputErrors([f"{path}: results: expected a list with at least one row"])
    faults, samples = [], []
    for i, row in enumerate(rows):
        values = [row.get(name) if isinstance(row, dict) else None for name in (*columns, "p50")]
        faults += [f"{path}: results[{i}].{name}: expected a number >= 0, found {json.dumps(value)}"
                   for name, value in zip((*columns, "p50"), values, strict=True) if not _is_amount(value)]
        samples.append((values[0], values[1] if len(columns) > 1 else 0, values[len(columns)]))
    if faults:
        raise InputErrors(faults)
    return samples


def _is_amount(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
