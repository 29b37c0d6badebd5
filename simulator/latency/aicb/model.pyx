"""`aicb`: per-layer times measured by AICB, added up over layers and looked up by batch.

With c(B, S) and p(S) the tables of B decoding sequences of S context tokens each and of a prompt of S tokens, both
split into attention (A) and other work (R: MLP, experts and their exchange, all-reduces), an iteration takes

    decode      A_c(n, S) + R_c(m, S)
    prefill     sum over prompt chunks of A_p(chunk) + R_p(m)
    mixed       sum over prompt chunks of A_p(chunk) + A_c(n, S) + R_p(m)

with n decoding sequences, m all tokens computed, S the mean context before the iteration, and for a chunk of s tokens
after x others A_p(chunk) = max(A_p(s), A_p(x + s) - A_p(x), min(A_c(1, x + s), A_p(x + s))), so that the chunks of a
prompt add up to the prompt, and one new token behind a cached prefix is a decode.
Attention is by sequence, other work by token, and prompts and decodes of a batch share one pass over the weights.
Data-parallel ranks share a batch evenly; tables are of one rank, with equal work on all ranks. In lock step, with
unequal work, experts (the component moe) are looked up at the mean of the tokens that all ranks bring, other components
at the tokens of the rank. If ranks hold slices of all experts (ep 1), which tables do not cover, tokens of all ranks
are gathered and outputs scattered in each layer with experts: [latency.collective] or links.pyx price it.

Both lookups are linear in S and n between tables; beyond them the nearest table is used, and this is counted.

All-reduces (bytes of attention and MLP rows) and the hand-over between pipeline stages (tokens x hidden size) are
priced by [latency.collective], or else by links.pyx; the expert exchange (bytes of MoE rows) by the bandwidth of a
link or by the collective model. Stages hold the layers of `Parallelism.layers_of_stage`.

`variant = "upstream"` follows vidur-alibabacloud (aliyun/SimAI at cef83f9d), its unit fault removed: decodes are looked
up by the sum of their contexts instead of the mean, prompts of a batch as one of their total length, all-reduces are
free, experts exchange over RDMA in both phases, a Gbps is 2**30 bit/s, and each layer pays 1 us for each of attention,
mlp and moe that it lacks. Its look-up cache is not followed: in it a table once read is used for other lengths of its
batch size, also for lengths with tables of their own, so that times depend on the order of arrivals and on files left
by earlier runs. Here only the tables are used. Source of the rules: its execution time predictor and aicb helper, as
run.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

import numpy as np

from simulator.domain.batch cimport BatchShape, Chunk
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView
from simulator.latency.gathering cimport Gathered
from simulator.collective.base cimport ALL_GATHER, DATA, PIPELINE, REDUCE_SCATTER, SEND_RECV, CollectiveModel

from simulator.errors import InputErrors, KeyFault
from simulator.latency.aicb.links import AicbLinks
from simulator.latency.aicb.profile import Profile
from simulator.latency.aicb.rows import PARTS
from simulator.latency.aicb.rules import AicbParameters, gathers, grids


cdef enum:                      # part: PARTS in rows.py
    TOTAL                       # attention and others
    ATTENTION
    OTHERS                      # the sum of the following parts
    MLP
    MOE
    EXPERT_EXCHANGE
    ALL_REDUCE
    NUM_PARTS


cdef enum:                      # trust: origin of a prediction, worst last
    EXACT
    INTERPOLATED
    NEAREST
    NUM_TRUSTS


cdef enum:                      # phase
    PREFILL                     # or mixed
    DECODE
    NUM_PHASES


cdef struct Row:                # see rows.Row
    const double* lengths
    const double* parts_ns      # [length][slice][part]
    Py_ssize_t num_lengths
    Py_ssize_t recent           # index of the last lookup
    double low
    double high
    bint is_tabulated


cdef struct Place:              # between two nodes of a row
    const double* left          # [slice][part]
    const double* right
    double share                # weight of the right node
    int trust


cdef struct Places:             # lookups of an iteration, except prompt attention
    Place attention             # of decodes
    Place others
    Place experts               # part of `others`: routed experts, if they have a separate place
    bint has_experts
    int64_t tokens              # of all ranks
    int trust


cdef class _Grid:
    """Rows in C, and the arrays that hold their numbers."""

    cdef list _kept
    cdef Row* rows
    cdef Py_ssize_t num_rows

    def __init__(self, rows):
        self.num_rows = len(rows)
        self.rows = <Row*>calloc(self.num_rows, sizeof(Row))
        if self.rows == NULL:
            raise MemoryError()
        self._kept = []
        for i, row in enumerate(rows):
            self._fill(&self.rows[<Py_ssize_t>i], row)

    def __dealloc__(self):
        free(self.rows)

    cdef int _fill(self, Row* target, row) except -1:
        lengths = np.ascontiguousarray(row.lengths, dtype=np.float64)
        parts_ns = np.ascontiguousarray(row.parts_ns, dtype=np.float64).reshape(-1)
        cdef const double[::1] lengths_view = lengths
        cdef const double[::1] parts_view = parts_ns
        self._kept += [lengths, parts_ns]
        target.lengths, target.parts_ns = &lengths_view[0], &parts_view[0]
        target.num_lengths = lengths_view.shape[0]
        target.low, target.high, target.is_tabulated = row.low, row.high, row.is_tabulated
        return 0


cdef inline int64_t share_of(int64_t count, int64_t ranks) noexcept nogil:
    """Return the share of the busiest of `ranks` ranks."""
    return (count + ranks - 1) // ranks if ranks > 1 else count


cdef inline double value(const Place* place, Py_ssize_t slice, int part) noexcept nogil:
    cdef Py_ssize_t i = slice * NUM_PARTS + part
    return place.left[i] + place.share * (place.right[i] - place.left[i])


cdef Py_ssize_t segment(const Row* row, double length) noexcept nogil:
    """Return the last i with lengths[i] <= length, for a length within the row."""
    cdef Py_ssize_t low = 0, high = row.num_lengths, middle
    while high - low > 1:
        middle = (low + high) // 2
        if row.lengths[middle] <= length:
            low = middle
        else:
            high = middle
    return low


cdef inline Place locate(Row* row, double length, Py_ssize_t stride) noexcept nogil:
    """Look up a length; the segment of the last lookup is tried first."""
    cdef Place place
    cdef Py_ssize_t i = row.recent, last = row.num_lengths - 1
    place.trust = INTERPOLATED
    if not row.low <= length <= row.high:
        place.trust = NEAREST
        length = min(max(length, row.lengths[0]), row.lengths[last])
    if not (row.lengths[i] <= length and (i == last or length < row.lengths[i + 1])):
        i = row.recent = segment(row, length)
    place.left = place.right = row.parts_ns + i * stride
    place.share = 0.0
    if length > row.lengths[i]:
        place.right = place.left + stride
        place.share = (length - row.lengths[i]) / (row.lengths[i + 1] - row.lengths[i])
    elif row.is_tabulated and place.trust == INTERPOLATED:
        place.trust = EXACT
    return place


@cython.final
cdef class Aicb(LatencyModel):
    """Times of layers, from tables that AICB measured or `profile-layers` wrote."""

    Parameters = AicbParameters
    takes_collective = True
    takes_experts = ()
    prices_gathered = True
    Profile = Profile           # writes tables

    cdef readonly dict facts                    # phase -> file, version, sha256, measured
    cdef readonly tuple sources                 # sources of the numbers, as stated in the tables
    cdef _Grid _prefill, _decode
    cdef Py_ssize_t _num_slices, _stride
    cdef int _hops                              # hand-overs between stages in a pass
    cdef int64_t _data_ranks
    cdef object _experts                        # ExpertPricing; None: loads as measured
    cdef bint _has_experts
    cdef bint _is_plain                         # one slice, and loads of experts as measured
    cdef const double[::1] _imbalance           # by tokens of all ranks
    cdef object _deployment
    cdef double _handover_bytes                 # of one token
    cdef const double[::1] _gathers             # by slice: number of layers with gathers of all ranks' tokens
    cdef bint _has_gathers
    cdef bint _is_upstream, _is_strict
    cdef bint _is_pass                          # an iteration passes all stages, one after another
    cdef int64_t[NUM_PHASES][NUM_TRUSTS] _counts
    cdef double[NUM_PHASES][3] _outside         # of batches beyond the tables: max sequences, min and max length

    def __init__(self, parameters, deployment, CollectiveModel collective=None, experts=None):
        if experts is not None and parameters.is_upstream:
            raise ValueError('variant = "upstream" knows of no imbalance: expected no [engine.experts]')
        self._deployment = deployment
        if experts is not None:
            self._experts, self._has_experts, self._imbalance = experts, True, experts.load.imbalance
        if deployment is None:
            raise ValueError("aicb needs [model] and [hardware]")
        ways = deployment.parallelism
        self._is_upstream, self._is_strict = parameters.is_upstream, parameters.outside == "error"
        self.keeps_account = True
        self._collective = collective or AicbLinks(
            deployment, parameters.bytes_per_ns("nvlink"), parameters.bytes_per_ns("rdma"),
            parameters.collective_latency_us * 1e3)
        read = grids(parameters, deployment, self._collective)
        self._prefill, self._decode = _Grid([read.prefill]), _Grid(read.decode)
        self.sources, self.facts = read.sources, read.facts
        self._num_slices = read.prefill.parts_ns.shape[1]
        self._stride = self._num_slices * NUM_PARTS
        self._gathers = gathers(parameters, deployment)
        self._has_gathers = np.any(self._gathers)
        self._is_plain = self._num_slices == 1 and experts is None and not self._has_gathers
        self._hops = ways.pipeline_parallel - 1
        self._is_pass = parameters.pipeline == "pass"
        self._data_ranks = ways.data_parallel
        self._handover_bytes = deployment.model.hidden_size * deployment.activation_bytes

    # ---- lookup

    cdef inline Place _decode_place(self, int64_t sequences, double length) noexcept nogil:
        cdef Py_ssize_t last = self._decode.num_rows
        cdef Place place = locate(&self._decode.rows[min(sequences, last) - 1], length, self._stride)
        if sequences > last:
            place.trust = NEAREST
        return place

    cdef inline double _length(self, const BatchShape* shape) noexcept nogil:
        """Return the mean context of decoding sequences before the iteration; upstream, the sum on a rank."""
        cdef double tokens = <double>(shape.context_tokens - shape.decode_tokens)
        return tokens / (self._data_ranks if self._is_upstream else shape.num_decodes)

    cdef inline Places _places(self, const BatchShape* shape) noexcept nogil:
        cdef Places places
        cdef int64_t tokens = share_of(shape.prefill_tokens + shape.decode_tokens, self._data_ranks)
        cdef int64_t sequences = share_of(shape.num_decodes, self._data_ranks)
        places.trust = EXACT
        if shape.num_decodes:
            places.attention = self._decode_place(sequences, self._length(shape))
            places.trust = places.attention.trust
        if shape.num_chunks:
            places.others = locate(self._prefill.rows, <double>tokens, self._stride)
        elif tokens == sequences:
            places.others = places.attention
        else:                                       # speculative decoding: several tokens of each sequence
            places.others = self._decode_place(tokens, self._length(shape))
        places.trust = max(places.trust, places.others.trust)
        places.experts, places.has_experts = places.others, False
        places.tokens = shape.prefill_tokens + shape.decode_tokens
        return places

    cdef void _look_for_experts(self, Places* places, const BatchShape* shape, const Gathered* gathered,
                                int32_t num_ranks) noexcept nogil:
        """Look up experts at the mean tokens of all ranks, instead of the tokens of this rank."""
        cdef int64_t own = shape.prefill_tokens + shape.decode_tokens, mean
        places.tokens = gathered.prefill_tokens + gathered.decode_tokens
        mean = share_of(places.tokens, num_ranks)
        if mean == own and (gathered.prefill_tokens > 0) == (shape.num_chunks > 0):
            return
        if gathered.prefill_tokens > 0:
            places.experts = locate(self._prefill.rows, <double>mean, self._stride)
        else:
            places.experts = self._decode_place(mean, self._length(shape))
        places.has_experts = True
        places.trust = max(places.trust, places.experts.trust)

    cdef double _chunk_ns(self, const Chunk* chunk, Py_ssize_t slice, int* trust) noexcept nogil:
        """Return the attention of a prompt chunk: the increase for its prompt, at least its time alone."""
        cdef Place place = locate(self._prefill.rows, <double>chunk.tokens, self._stride)
        cdef double alone = value(&place, slice, ATTENTION), whole
        trust[0] = max(trust[0], place.trust)
        if chunk.context_tokens == 0:
            return alone
        place = locate(self._prefill.rows, <double>chunk.context_tokens + chunk.tokens, self._stride)
        trust[0] = max(trust[0], place.trust)
        whole = value(&place, slice, ATTENTION)
        place = locate(self._prefill.rows, <double>chunk.context_tokens, self._stride)
        alone = max(alone, whole - value(&place, slice, ATTENTION))
        if self._decode.num_rows == 0:
            return alone
        place = self._decode_place(1, <double>chunk.context_tokens + chunk.tokens - 1)
        trust[0] = max(trust[0], place.trust)
        return max(alone, min(whole, value(&place, slice, ATTENTION)))

    cdef double _prompts_ns(self, const BatchShape* shape, Places* places, Py_ssize_t slice) noexcept nogil:
        """Return the attention of all prompt chunks on one rank."""
        cdef double total = 0.0
        cdef int32_t i
        if self._is_upstream:
            return value(&places.others, slice, ATTENTION)
        for i in range(shape.num_chunks):
            total += self._chunk_ns(&shape.chunks[i], slice, &places.trust)
        return total / self._data_ranks

    cdef inline double _handover_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double tokens = <double>share_of(shape.prefill_tokens + shape.decode_tokens, self._data_ranks)
        return self._collective.time_ns(PIPELINE, SEND_RECV, tokens * self._handover_bytes)

    cdef inline double _extra_ns(self, const Places* places, Py_ssize_t slice) noexcept nogil:
        """Return the time of experts on the busiest rank beyond the tables' time."""
        cdef int64_t last = self._imbalance.shape[0] - 1
        return value(&places.experts, slice, MOE) * (
            self._imbalance[min(places.tokens, last)] - 1.0)

    cdef double _gather_ns(self, const Places* places, Py_ssize_t slice) noexcept nogil:
        """Return the time to gather tokens of all ranks for slices of experts, and to scatter the outputs."""
        cdef double num_bytes = <double>places.tokens * self._handover_bytes
        return self._gathers[slice] * (self._collective.time_ns(DATA, ALL_GATHER, num_bytes)
                                       + self._collective.time_ns(DATA, REDUCE_SCATTER, num_bytes))

    cdef double _slice_ns(self, const BatchShape* shape, Places* places, Py_ssize_t slice) noexcept nogil:
        cdef double total = value(&places.others, slice, OTHERS)
        if places.has_experts:
            total += value(&places.experts, slice, MOE) - value(&places.others, slice, MOE)
        if self._has_gathers:
            total += self._gather_ns(places, slice)
        if self._has_experts:
            total += self._extra_ns(places, slice)
        if shape.num_decodes:
            total += value(&places.attention, slice, ATTENTION)
        if shape.num_chunks:
            total += self._prompts_ns(shape, places, slice)
        return total

    # ---- composition

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef Places places = self._places(shape)
        cdef double handover_ns = self._handover_ns(shape) if self._hops else 0.0
        cdef Py_ssize_t i
        for i in range(self._num_slices):
            ns[i] = self._slice_ns(shape, &places, i) + (handover_ns if i < self._hops else 0.0)
        self._count(shape, PREFILL if shape.num_chunks else DECODE, places.trust)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef Place place
        if self._is_plain and shape.num_chunks == 0 and shape.decode_tokens == shape.num_decodes:       # steady
            place = self._decode_place(share_of(shape.num_decodes, self._data_ranks), self._length(shape))
            self._count(shape, DECODE, place.trust)
            return value(&place, 0, TOTAL)
        return self._composed_ns(shape, NULL, 1)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        # The tables are of ranks with equal batches: except experts, they hold for this rank.
        cdef int64_t ranks = self._data_ranks
        cdef double ns
        self._data_ranks = 1
        ns = self._composed_ns(shape, gathered, num_ranks)
        self._data_ranks = ranks
        return ns

    cdef double _composed_ns(self, const BatchShape* shape, const Gathered* gathered,
                             int32_t num_ranks) noexcept nogil:
        """Return the time of all stages; `gathered`: of ranks in lock step, else NULL."""
        cdef Places places = self._places(shape)
        cdef double handover_ns = self._handover_ns(shape) if self._hops else 0.0
        cdef double total = 0.0, slowest = 0.0, stage_ns
        cdef Py_ssize_t i
        if gathered != NULL:
            self._look_for_experts(&places, shape, gathered, num_ranks)
        for i in range(self._num_slices):
            stage_ns = self._slice_ns(shape, &places, i) + (handover_ns if i < self._hops else 0.0)
            total += stage_ns
            slowest = max(slowest, stage_ns)
        self._count(shape, PREFILL if shape.num_chunks else DECODE, places.trust)
        return total if self._is_pass else slowest

    cdef inline void _count(self, const BatchShape* shape, int phase, int trust) noexcept nogil:
        if trust == NEAREST:
            self._note(shape, phase)
        self._counts[phase][trust] += self.weight

    cdef void _note(self, const BatchShape* shape, int phase) noexcept nogil:
        """Record the size of a batch beyond the tables, if it executes; fail if `outside` is "error"."""
        cdef double length = <double>(shape.prefill_tokens + shape.decode_tokens), size = shape.num_chunks
        cdef double* outside = self._outside[phase]
        if phase == DECODE:
            length, size = self._length(shape), shape.num_decodes
        if self.is_ahead:
            self.failed |= self._is_strict or size > outside[0] or not outside[1] <= length <= outside[2]
        elif self.weight != 0 or self._is_strict:
            if outside[0] == 0.0:
                outside[1] = outside[2] = length
            outside[0], outside[1], outside[2] = max(outside[0], size), min(outside[1], length), max(outside[2], length)
            self._counts[phase][NEAREST] += 1 - self.weight     # what stops a run counts as one
            self.failed |= self._is_strict

    # ---- for people

    def set_stages(self, layers):
        """See the base class; the tables are already summed by stage."""
        if len(layers) != self._num_slices:
            raise ValueError(f"aicb: {self._num_slices} stages expected, found {len(layers)}")
        LatencyModel.set_stages(self, layers)

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each part, over all stages; arguments as in `predict`. The call is not counted.

        With `pipeline` = "pass" they sum to the result of `predict`.
        """
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef const BatchShape* shape = &batch.shape
        cdef Places places = self._places(shape)
        cdef Py_ssize_t i
        cdef double attention = 0.0, extra = 0.0, gather = 0.0
        totals = [0.0] * NUM_PARTS
        for i in range(self._num_slices):
            attention += self._slice_ns(shape, &places, i) - value(&places.others, i, OTHERS)
            extra += self._extra_ns(&places, i) if self._has_experts else 0.0
            gather += self._gather_ns(&places, i) if self._has_gathers else 0.0
            for part in range(MLP, NUM_PARTS):
                totals[part] += value(&places.others, i, part)
        totals[EXPERT_EXCHANGE] += gather
        parts_ns = {"attention": attention - extra - gather} | dict(zip(PARTS[MLP:], totals[MLP:]))
        if self._has_experts:
            parts_ns["imbalance"] = extra
        parts_ns["pipeline"] = self._hops * self._handover_ns(shape)
        return {name: ns * 1e-9 for name, ns in parts_ns.items()}

    def stage_seconds(self, prefill=(), decode=(), int tokens_per_decode=1) -> list:
        """Return the seconds of the layers of each stage, without hand-overs."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef Places places = self._places(&batch.shape)
        return [self._slice_ns(&batch.shape, &places, i) * 1e-9 for i in range(self._num_slices)]

    def provenance(self) -> dict:
        """Return the number of exact, interpolated and nearest-table predictions, and facts of the tables.

        Counts of a collective model are for the sizes in the tables, priced once, and hand-overs between stages.
        """
        counts = [sum(self._counts[phase][trust] for phase in range(NUM_PHASES)) for trust in range(NUM_TRUSTS)]
        experts = {} if self._experts is None else {"experts": self._experts.provenance()}
        return (dict(zip(("exact", "interpolated", "nearest"), counts))
                | {"sources": list(self.sources), "tables": self.facts} | experts | LatencyModel.provenance(self))

    def warnings(self) -> list:
        """Return notes for a reader of the results."""
        synthetic = [f"aicb: tables are {source}" for source in self.sources if source.startswith("synthetic")]
        outside = [self._outside_text(phase) for phase in range(NUM_PHASES) if self._counts[phase][NEAREST]]
        experts = [] if self._experts is None else [
            *self._experts.warnings(self._deployment, "aicb"),
            "aicb: experts: tables are taken to be of evenly loaded ones"]
        return synthetic + outside + experts + LatencyModel.warnings(self)

    def _outside_text(self, int phase) -> str:
        cdef Row* row = &self._decode.rows[self._decode.num_rows - 1] if phase == DECODE else self._prefill.rows
        count, least, most = self._outside[phase]
        length = f"{least:g} to {most:g}" if least < most else f"{most:g}"
        asked = sum(self._counts[phase][trust] for trust in range(NUM_TRUSTS))
        covered = f"lengths {row.low:.0f} to {row.high:.0f}"
        found = f"up to {count:.0f} prompt{'s' * (count > 1)}, {length} tokens"
        if phase == DECODE:
            covered = f"up to {self._decode.num_rows} sequences, of the most " + covered
            found = f"up to {count:.0f} sequence{'s' * (count > 1)} of length {length}"
        return (f"aicb: {self._counts[phase][NEAREST]} of {asked} {('prefill', 'decode')[phase]} iterations lie beyond "
                f"the tables ({covered}): {found}; the nearest table was taken")

    def raise_if_failed(self):
        """Raise InputErrors if a batch lay beyond the tables and `outside` is "error"."""
        if self.failed:
            self.failed = False
            if self._is_strict:
                faults = [KeyFault(f"latency.outside: {self._outside_text(phase)}") for phase in range(NUM_PHASES)
                          if self._counts[phase][NEAREST]]
                for phase in range(NUM_PHASES):             # such an iteration may never execute
                    self._counts[phase][NEAREST] = self._outside[phase][0] = 0
                raise InputErrors(faults)
        LatencyModel.raise_if_failed(self)
