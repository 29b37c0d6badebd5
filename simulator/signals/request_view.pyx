"""The fields of a request that a policy written in Python may read: those declared by its client, no outcomes."""


cdef class RequestView:
    """One request, read-only; valid during the call that receives it: copy values."""

    def __init__(self, workload):
        cdef const Request[::1] requests = workload.requests
        cdef const Demand[::1] demands = workload.demands
        self._owners, self._labels = workload, workload.labels
        if len(requests):
            self._requests, self._demands = &requests[0], &demands[0]

    @property
    def arrival_ns(self) -> int:
        """When it arrived."""
        return self._requests[self.row].arrival_ns

    @property
    def prompt_tokens(self) -> int:
        """Length of its prompt."""
        return self._requests[self.row].prompt_tokens

    @property
    def max_tokens(self) -> int:
        """Output tokens that the client allows at most."""
        return self._demands[self.row].max_tokens

    @property
    def priority(self) -> int:
        """Lower is served first."""
        return self._demands[self.row].priority

    @property
    def deadline_ns(self) -> int:
        """When the client gives up; -1: never."""
        return self._demands[self.row].deadline_ns

    @property
    def due_ns(self) -> int:
        """Time by which the client wants the whole answer; -1: none given."""
        return self._demands[self.row].due_ns

    @property
    def expected_tokens(self) -> int:
        """Output tokens predicted by [workload.output_knowledge]; -1: no prediction."""
        return self._demands[self.row].expected_tokens

    @property
    def slo_class(self):
        """Name of its SLO class, or None; as for the other labels."""
        return self._label("slo_class", self._demands[self.row].slo_class)

    @property
    def tenant(self):
        """Name of its tenant, or None."""
        return self._label("tenant", self._demands[self.row].tenant)

    @property
    def session(self):
        """Name of its session, or None."""
        return self._label("session", self._demands[self.row].session)

    @property
    def model(self):
        """Name of its model, or None."""
        return self._label("model", self._demands[self.row].model)

    @property
    def adapter(self):
        """Name of its LoRA adapter, or None."""
        return self._label("adapter", self._demands[self.row].adapter)

    def _label(self, column, code):
        if code < 0:
            return None
        return self._labels[column][code] if column in self._labels else code
