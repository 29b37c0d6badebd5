"""`external`: a user's own SimAI_analytical or SimAI_simulator, run once for each size; see program.py."""
cimport cython

from simulator.collective.base cimport SEND_RECV, CollectiveGroup, CollectiveKind
from simulator.collective.memo cimport EXACT, Origin, RememberingCollective

from simulator.errors import InputErrors, KeyFault
from simulator.collective.groups import GROUPS, KINDS, groups_of, node_size
from simulator.collective.external.program import LAYER, ExternalParameters, ExternalProgram

NAMES = {"all_reduce": "ALLREDUCE", "all_gather": "ALLGATHER", "reduce_scatter": "REDUCESCATTER",
         "all_to_all": "ALLTOALL"}


def workload_of(group, str name, str kind, num_bytes) -> tuple:
    """Write a training workload of one collective.

    Adjacent ranks form SimAI's tensor group, of any group here; ranks apart form its expert or data group, with as many
    tensor ranks as their distance.

    Returns
    -------
    text, number of GPUs, whether the collective is in the column of weight gradients
    """
    size, stride = group
    is_spread = stride > 1
    is_expert = is_spread and name == "expert"
    is_weight_gradient = is_spread and not is_expert
    tensor, expert = (stride if is_spread else size), (size if is_expert else 1)
    collective = f"{NAMES[kind]}{'_EP' if is_expert else ''}\t{round(num_bytes)}"
    forward, weights = ("NONE\t0", collective) if is_weight_gradient else (collective, "NONE\t0")
    text = (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tensor} ep: {expert} pp: 1 vpp: 1 ga: 1 "
        f"all_gpus: {size * stride} checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0\n1\n"
        f"{LAYER}\t-1\t1\t{forward}\t1\tNONE\t0\t1\t{weights}\t100\n")
    return text, size * stride, is_weight_gradient


@cython.final
cdef class External(RememberingCollective):
    """Times from a program of the user; see `ExternalParameters`."""

    Parameters = ExternalParameters

    cdef readonly object parameters
    cdef readonly object program            # ExternalProgram
    cdef dict _groups

    def __init__(self, parameters, deployment):
        if deployment is None:
            raise ValueError("collective external needs a deployment")
        self.parameters = parameters
        self._groups = groups_of(deployment.parallelism)
        if self._groups["pipeline"].size > 1 and parameters.send_recv_gb_per_s == 0.0:
            raise InputErrors([KeyFault(
                "latency.collective.send_recv_gb_per_s: missing; pipeline_parallel > 1 needs it")])
        self.program = ExternalProgram(parameters, node_size(deployment))

    cdef double compute_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes,
                           Origin* origin) noexcept nogil:
        origin[0] = EXACT
        if self.failed:                     # the caller is about to stop
            return 0.0
        with gil:
            return self._ask(group, kind, num_bytes)

    cdef double _ask(self, int group, int kind, double num_bytes) noexcept:
        try:
            name = GROUPS[group]
            if self._groups[name].size <= 1:
                return 0.0
            if kind == SEND_RECV:
                return self._message_ns(num_bytes)
            workload, num_gpus, is_weight_gradient = workload_of(self._groups[name], name, KINDS[kind], num_bytes)
            return self.program.time_us(workload, num_gpus, is_weight_gradient) * 1e3
        except BaseException as error:
            self.fail(error)
            return 0.0

    def _message_ns(self, num_bytes):
        if self.parameters.send_recv_gb_per_s == 0.0:
            raise InputErrors([KeyFault("latency.collective.send_recv_gb_per_s: missing, and a message is sent")])
        return num_bytes / self.parameters.send_recv_gb_per_s

    def provenance(self) -> dict:
        """Return how many predictions there were, runs of the program, and results found in the cache."""
        return {"predictions": sum(RememberingCollective.provenance(self).values()),
                "runs": self.program.num_runs, "cached": self.program.num_cached}
