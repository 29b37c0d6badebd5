"""Duration of a prefill iteration, learned during the run, and the progress since a status.

Source: llumnix-project/llumnix at 8a693b4, quadratic_predictor.go and predict_utils.go:predictNumComputedPrefillTokens.
"""
from libc.math cimport fabs, hypot, round
from libc.stdint cimport int32_t, int64_t
cimport cython

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

    # The face for tests.

    def learn(self, tokens, duration_ms):
        """Add one iteration."""
        self.add(tokens, duration_ms)

    def refit(self):
        """Fit if there are samples enough; say whether there is a fit."""
        self.fit()
        return self.is_fitted

    def duration_ms(self, tokens):
        """Return the predicted duration of an iteration."""
        return self.predict_ms(tokens)

    def progress(self, backlog, running, max_batched_tokens, age_ms):
        """Return the prefill tokens computed since a status."""
        return self.computed_tokens(backlog, running, max_batched_tokens, age_ms)
