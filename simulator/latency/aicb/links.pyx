"""The two links of Vidur-AICB as a collective model: NVLink inside a node, RDMA between nodes."""
cimport cython

from simulator.collective.base cimport (
    ALL_REDUCE,
    EXPERT,
    PIPELINE,
    SEND_RECV,
    TENSOR,
    CollectiveGroup,
    CollectiveKind,
    CollectiveModel,
)


@cython.final
cdef class AicbLinks(CollectiveModel):
    """Ring collectives at the bandwidth of one link, each with a latency.

    With n ranks, a rank sends (n-1)/n of the bytes in an all-gather, reduce-scatter or all-to-all, twice that in an
    all-reduce (arXiv 1909.08053, section 3), and all bytes to the next stage. Tensor-parallel ranks are joined by
    NVLink, all others by RDMA; stages by NVLink if the whole replica fits one scale-up domain of its node.
    """

    cdef double _nvlink_ns_per_byte, _rdma_ns_per_byte, _latency_ns
    cdef int _tensor_ranks, _expert_ranks, _data_ranks, _stages
    cdef bint _stages_share_nvlink

    def __init__(self, deployment, double nvlink_bytes_per_ns, double rdma_bytes_per_ns, double latency_ns):
        ways, node = deployment.parallelism, deployment.node
        self._nvlink_ns_per_byte = 1.0 / nvlink_bytes_per_ns
        self._rdma_ns_per_byte = 1.0 / rdma_bytes_per_ns
        self._latency_ns = latency_ns
        self._tensor_ranks = ways.tensor_parallel
        self._expert_ranks = ways.expert_parallel
        self._data_ranks = ways.data_parallel
        self._stages = ways.pipeline_parallel
        self._stages_share_nvlink = node is not None and ways.num_accelerators <= node.scaleup_domain_size

    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil:
        cdef double ns_per_byte = self._rdma_ns_per_byte
        cdef int ranks = self._data_ranks
        if group == TENSOR:
            ranks, ns_per_byte = self._tensor_ranks, self._nvlink_ns_per_byte
        elif group == EXPERT:
            ranks = self._expert_ranks
        elif group == PIPELINE:
            ranks = self._stages
            if self._stages_share_nvlink:
                ns_per_byte = self._nvlink_ns_per_byte
        if ranks == 1:
            return 0.0
        if kind != SEND_RECV:
            num_bytes *= (2.0 if kind == ALL_REDUCE else 1.0) * (ranks - 1) / ranks
        return self._latency_ns + num_bytes * ns_per_byte
