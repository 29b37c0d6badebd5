"""The workload as the engine takes it: parallel tables, one row a request in arrival order."""
import msgspec
import numpy as np


class Workload(msgspec.Struct):
    """Requests in arrival order (ties keep file order).

    requests : structured array (n,), `records.REQUEST`: arrival_ns and prompt_tokens filled in, times -1, replica -1.
    demands : structured array (n,), `records.DEMAND`: what clients declare.
    outcomes : structured array (n,), `records.OUTCOME`: true output lengths, seen by the engine only.
    segments : structured array (m,), `records.SEGMENT`: prompts as pieces of token streams; a request without pieces of
        its own (`num_segments` 0) shares nothing.
    request_ids : int64 array or list of str, (n,).
    labels : names behind the codes in `demands`, by column: slo_class, tenant, session, model, adapter.
    prompts_use_outputs : some prompt contains the output stream of another request.
    """

    requests: np.ndarray
    demands: np.ndarray
    outcomes: np.ndarray
    segments: np.ndarray
    request_ids: object
    labels: dict = {}
    prompts_use_outputs: bool = False

    def __len__(self):
        return len(self.requests)
