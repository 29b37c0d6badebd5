"""How long an iteration takes: base class of every latency backend, and the host's share of the time."""
from libc.math cimport llround
from libc.stdint cimport int64_t

from simulator.latency.batch_view cimport BatchView

cdef class LatencyModel:
    """Predict the duration of an iteration from the sums of its batch.

    A backend is a subclass that overrides `batch_ns`. It is built as `Backend(parameters, deployment)`, with its own
    frozen `Parameters` and the `simulator.domain.deployment.Deployment` it runs on (None where it needs none).
    One that sets `takes_collective` also takes `collective=None`, a CollectiveModel, and keeps it in `_collective`.
    """

    takes_collective = False

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        return 1.0

    def set_host(self, double iteration_us, double resolution_us):
        """Set the host time per iteration and the resolution to which iterations are truncated (0: nearest ns)."""
        self._host_iteration_ns = iteration_us * 1e3
        self._resolution_ns = llround(resolution_us * 1e3)

    def predict(self, prefill=(), decode=(), int tokens_per_decode=1) -> float:
        """Return the accelerator seconds of one iteration, unrounded.

        Parameters
        ----------
        prefill : sequence of (tokens, context)
            Prompt tokens computed now, tokens of that request in the KV cache before. A third number, the tokens of its
            prompt, is needed only where this chunk does not end it.
        decode : sequence of int
            For each decoding sequence, the tokens in the KV cache after this iteration.
        tokens_per_decode : int
            1, or 1 + drafts under speculative decoding.

        Returns
        -------
        float
            Seconds, without [latency.host] and rounding.
        """
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef double ns = self.batch_ns(&batch.shape)
        self.raise_if_failed()
        return ns * 1e-9

    def predict_iteration_ns(self, prefill=(), decode=(), int tokens_per_decode=1) -> int:
        """Return what the engine sees: the same with host time, rounded to whole nanoseconds or `resolution_us`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef int64_t ns = self.iteration_ns(&batch.shape)
        self.raise_if_failed()
        return ns

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each part; arguments as `predict`, whose result is their sum. {}: there are none."""
        return {}

    def host_terms(self) -> dict:
        """Return what the backend knows of [latency.host]: its keys, in microseconds."""
        return {}

    def provenance(self) -> dict:
        """Return where the predictions made so far come from, as it is to stand in the results."""
        found = self._collective.provenance() if self._collective is not None else {}
        return {"collective": found} if found else {}

    def warnings(self) -> list:
        """Return what a reader of the results has to know, a sentence each."""
        return self._collective.warnings() if self._collective is not None else []

    def raise_if_failed(self):
        """Raise, once, why no time could be given: inside the event loop nothing can be raised."""
        if self._collective is not None:
            self._collective.raise_if_failed()
