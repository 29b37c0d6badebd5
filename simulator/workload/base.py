"""The workload in the engine's form: parallel tables, one row a request in arrival order."""
import msgspec
import numpy as np
from msgspec.structs import replace

from simulator.domain.items import Items
from simulator.workload.own_draws import keys_of, log_gammas
from simulator.workload.script import Script


class Workload(msgspec.Struct):
    """Requests in arrival order (ties keep file order).

    requests : structured array (n,), `records.REQUEST`: arrival_ns and prompt_tokens filled in, times -1, replica -1.
    demands : structured array (n,), `records.DEMAND`: requirements that clients declare.
    outcomes : structured array (n,), `records.OUTCOME`: true output lengths, seen by the engine only.
    segments : structured array (m,), `records.SEGMENT`: prompts as pieces of token streams; a request without pieces of
        its own (`num_segments` 0) shares nothing.
    items : images and other parts of prompts that encoders compute; None: there are none.
    request_ids : int64 array or list of str, (n,).
    labels : names behind the codes in `demands`, by column: slo_class, tenant, session, model, adapter,
        grammar.
    facts : properties that only some workloads have, int64 (n,), limits.MISSING: not known; reasoning_tokens,
        num_images, image_tokens.
    prompts_use_outputs : some prompt contains the output stream of another request.
    script : releases requests, which have `arrival_ns` -1 until then; None: `arrival_ns` is given.
    notes : data that was left out or replaced, a sentence each.
    chunks : `chunks.RequestChunks`, rows are drawn and given up while the run goes on; None: all rows are there.
    num_warmups : requests at the end of the table that were sent to warm up, and are not measured.
    num_prefill_legs : rows at the end of the table without a waiting client: with disaggregated prefill, the engine
        adds one row for the prompt of each other row, in row order.
    measured : bool (n,), once a run has ended: which requests count in the summary; None: all do.
    pool_cuts : bool (n,), once a run has ended: requests with an output bounded by the KV pool of their replica,
        before max_model_len; None: there are none.
    scheduled_ns : int64 (n,), with a script: when each was due, before it had to wait for a slot; -1: never.
    """

    requests: np.ndarray
    demands: np.ndarray
    outcomes: np.ndarray
    segments: np.ndarray
    request_ids: object
    labels: dict = {}
    facts: dict = {}
    prompts_use_outputs: bool = False
    script: Script | None = None
    scheduled_ns: np.ndarray | None = None
    num_warmups: int = 0
    num_prefill_legs: int = 0
    measured: np.ndarray | None = None
    pool_cuts: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    items: Items | None = None
    chunks: object = None

    def __len__(self):
        return len(self.requests)

    @property
    def is_open_ended(self) -> bool:
        """Return whether some group of the script may have too few requests, or too many."""
        return self.script is not None and any(group.is_open_ended for group in self.script.groups)

    def numbers(self) -> np.ndarray:
        """Return the key of each request's random numbers, uint64 (n,)."""
        return keys_of(self.request_ids, len(self))

    def log_gammas(self, seed: int, purpose: str, shape: float) -> np.ndarray:
        """Return the logarithm of a gamma distributed number for each request.

        As `own_draws.log_gammas` does, float64 (n,).
        """
        return log_gammas(seed, purpose, self.numbers(), shape)

    def untouched(self) -> "Workload":
        """Return this workload with copies of the tables that a run writes to."""
        scheduled_ns = None if self.scheduled_ns is None else self.scheduled_ns.copy()
        return replace(self, requests=self.requests.copy(), demands=self.demands.copy(), scheduled_ns=scheduled_ns)

    def first(self, count: int) -> "Workload":
        """Return the first requests, untouched.

        For workloads without a script and without requests that warm up.
        """
        part = slice(count)
        return replace(
            self.untouched(), requests=self.requests[part].copy(), demands=self.demands[part].copy(),
            outcomes=self.outcomes[part], request_ids=self.request_ids[part],
            facts={name: values[part] for name, values in self.facts.items()},
            items=None if self.items is None else self.items.first(count))
