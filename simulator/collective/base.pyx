"""Base of all collective models: duration of collective operations among the accelerators of a replica."""


cdef class CollectiveModel:
    """Predict the duration of a collective.

    A model is built as `Model(parameters, deployment)`, with its own frozen `Parameters`, for the groups of a
    `simulator.domain.deployment.Deployment`.
    """

    def __cinit__(self, *_, **__):
        self.weight, self._repeated = 1, []

    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil:
        return 0.0

    cdef int settle(self) except -1:
        cdef Questions each
        for each in self._repeated:
            each.settle()
        return 0

    cdef int fail(self, object error) except -1:
        if self._error is None:
            self._error = error
        self.failed = True
        return 0

    def predict(self, str group, str kind, double num_bytes) -> float:
        """Return the seconds of one collective; `group` and `kind` as in collective.pxd, in lower case.

        Raises
        ------
        InputErrors
            The model has no time for such a collective.
        """
        groups = {"tensor": TENSOR, "expert": EXPERT, "data": DATA, "pipeline": PIPELINE}
        kinds = {"all_reduce": ALL_REDUCE, "all_gather": ALL_GATHER, "reduce_scatter": REDUCE_SCATTER,
                 "all_to_all": ALL_TO_ALL, "send_recv": SEND_RECV}
        cdef double ns = self.time_ns(groups[group], kinds[kind], num_bytes)
        self.raise_if_failed()
        return ns * 1e-9

    def provenance(self) -> dict:
        """Return the sources of the predictions made so far, for the results."""
        return {}

    def warnings(self) -> list:
        """Return warnings for readers of the results, a sentence each."""
        return []

    def raise_if_failed(self):
        """Raise the first reason why no time could be given, once."""
        if self.failed:
            error, self._error, self.failed = self._error, None, False
            raise error


cdef class Questions:
    """Predictions of a model that are made together and repeated."""

    def __init__(self, CollectiveModel model):
        self._model = model
        model._repeated.append(self)

    cdef void begin(self) noexcept nogil:
        cdef int i
        self.settle()
        self._weight, self._model.weight = self._model.weight, 1
        for i in range(NUM_ORIGINS):
            self._tally[i] = -self._model.tally[i]

    cdef void end(self) noexcept nogil:
        cdef int64_t* counted = self._model.tally
        cdef int i
        for i in range(NUM_ORIGINS):
            self._tally[i] += counted[i]
            counted[i] -= self._tally[i]
        self._model.weight = self._weight

    cdef void settle(self) noexcept nogil:
        cdef int64_t* counted = self._model.tally
        cdef int i
        for i in range(NUM_ORIGINS):
            counted[i] += self._times * self._tally[i]
        self._times = 0
