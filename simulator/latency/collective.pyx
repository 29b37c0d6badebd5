"""How long the accelerators of a replica take to exchange data: base of all collective models."""


cdef class CollectiveModel:
    """Predict the duration of a collective.

    A model is built as `Model(parameters, deployment)`, with its own frozen `Parameters` and the
    `simulator.domain.deployment.Deployment` whose groups it serves.
    """

    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil:
        return 0.0

    def predict(self, str group, str kind, double num_bytes) -> float:
        """Return the seconds of one collective; `group` and `kind` as in collective.pxd, in lower case."""
        groups = {"tensor": TENSOR, "expert": EXPERT, "data": DATA, "pipeline": PIPELINE}
        kinds = {"all_reduce": ALL_REDUCE, "all_gather": ALL_GATHER, "reduce_scatter": REDUCE_SCATTER,
                 "all_to_all": ALL_TO_ALL, "send_recv": SEND_RECV}
        return self.time_ns(groups[group], kinds[kind], num_bytes) * 1e-9
