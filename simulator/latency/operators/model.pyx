"""`operators`: measured times of single kernels, composed into iterations.

With T tokens computed, S rows sampled, n decoding sequences of the mean context c, and q prompt chunks of s_i tokens
after p_i others, an iteration takes

    tokens[T] + samples[S] + decode[n, c] + sum over chunks of max(prefill[q, s_i], prefill[q, p_i + s_i]
    - prefill[q, p_i], min(decode[q, p_i + s_i], prefill[q, p_i + s_i])) / q

Layers of kinds that were measured behind prefixes take a measured share of the difference: prefixes.py.
The last term applies only behind a prefix: few new tokens read the keys and values of all tokens before them, as
decodes do, and no chunk takes less time than that. One new token is a decode. composition.py fills tokens and samples,
for every T and S; attention.py the other tables. Between the columns of decode, contexts of a power of two, time is
linear in c; between the rows of prefill, a power of two prompts, in q. So an iteration of decodes alone is a line in
the sum of contexts between two columns. Beyond the tables time grows with tokens, with n c, or with the square of a
prompt. Data-parallel ranks share a batch evenly.

Beside prompts of more than one token decodes use a separate table, mixed[n, c], see mixed_attention.py. For the choice
of the experts' kernel and its valid rows see expert_tables.py. Under speculation the queries of a sequence share one
pass over its KV cache. Decodes of unequal contexts take longer than at their mean, if a profile has measured it and no
drafts are verified: unequal_contexts.py.

The time of vLLM's host and front end is added by [latency.host]: domain/host_defaults.py.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from simulator.domain.batch cimport BatchShape, Chunk, rows_of
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView
from simulator.latency.few_tokens cimport is_few_behind_many
from simulator.latency.gathering cimport Gathered

from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain.experts import All2All
from simulator.errors import InputErrors, KeyFault
from simulator.latency.operators import prices
from simulator.latency.operators.asked import Asked
from simulator.latency.operators.composed import Reading, kept
from simulator.latency.operators.composition import OF_ALL_RANKS, Composer
from simulator.latency.operators.curves import ORIGINS, SPIKE
from simulator.latency.operators.database import Database
from simulator.latency.operators.errors import Watched, error_of_missing, varied
from simulator.latency.operators.exchanges import NvLink
from simulator.latency.operators.experts import NOTE, exchange_of, unevenly_loaded
from simulator.latency.operators.towers import TowerTables
from simulator.latency.operators.unequal_contexts import SHARES
from simulator.latency.operators.versions import TableVersion, Version, is_vllm
from simulator.latency.roofline.model import Roofline
from simulator.latency.roofline.costs import rates
from simulator.latency.roofline.laws import UNSPLIT, splits_no_prompts

Path = Annotated[str | None, Meta(extra={"path": True})]
MUCH = 0.01                     # share of predictions beyond the tables that gives a warning


class OperatorsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database of operator times, and the handling of operators without times."""

    path: Annotated[Path, Meta(description=(
        "folder: `systems` of aiconfigurator or a copy; or tables of one system, .parquet, .csv or .csv.gz; or a "
        "profile of this model, LLMServingSim's folder tp<N> or Frontier's; default: the installed package "
        "aiconfigurator-core"))] = None
    system: Annotated[str | None, Meta(description=(
        "name of the system in the database, e.g. h100_sxm; default: the accelerator's"))] = None
    framework: Annotated[Literal["vllm", "sglang", "trtllm"] | None, Meta(description=(
        "framework of the kernels; default: of [engine] scheduler, else vllm"))] = None
    engine_version: Annotated[Version | None, Meta(description=(
        "version of the framework, e.g. 0.18.0, which decides what kernels serve; default: vllm_version of [engine], "
        "else the newest"))] = None
    table_version: TableVersion = "newest"
    expert_load: Annotated[Literal["balanced", "power_law_1.01", "power_law_1.2"] | None, Meta(description=(
        "distribution of tokens over experts; default: power_law_1.01, aiconfigurator's, or the measured one if there "
        "are no such rows"))] = None
    expert_kernel: Annotated[Literal["auto", "marlin", "triton", "flashinfer", "trtllm", "w4a8"], Meta(description=(
        "kernel of routed experts; auto: for mxfp4 the kernel that vLLM runs on the accelerator, else any measured "
        "one; trtllm: TensorRT-LLM's generated kernels, moe_config backend TRTLLM, in FlashInfer, too; w4a8: mxfp4 "
        "weights, mxfp8 activations"))] = "auto"
    all2all_backend: Annotated[All2All | NvLink | None, Meta(description=(
        "exchange of tokens for experts between data-parallel ranks; DeepEP and FlashInfer's NVLink kernels: all ranks "
        "are expert-parallel; default: as in [engine.experts], or allgather_reducescatter"))] = None
    cuda_graph: Annotated[bool, Meta(description=(
        "time decodes and all-reduces as inside a CUDA graph; false: as launched by the host"))] = True
    memory_efficiency: Annotated[float, Meta(gt=0, le=1, description=(
        "share of memory bandwidth of operators without a table: norms, activations, sampling"))] = 0.8
    kernel_latency_us: Annotated[float, Meta(ge=0, le=1e6, description=(
        "added time of each operator without a table"))] = 3.0
    outside: Annotated[Literal["extrapolate", "error"], Meta(description=(
        "extrapolate: count iterations beyond the tables and warn; error: stop at the first one"))] = "extrapolate"
    missing: Annotated[Literal["roofline", "error"], Meta(description=(
        "pricing of an operator if neither it nor a similar one was measured"))] = "roofline"
    without: prices.Without = ()
    cache_directory: Annotated[Path, Meta(description=(
        "folder for converted and composed tables; default: $XDG_CACHE_HOME/simulator"))] = None


cdef enum Origin:               # as in curves.py, best first
    EXACT, INTERPOLATED, EXTRAPOLATED, FALLBACK
    NUM_ORIGINS


cdef struct Line:               # decodes alone: ns of n sequences while the sum of their contexts is in [begin, end)
    int64_t sequences
    int64_t tokens
    int64_t samples
    int64_t begin
    int64_t end
    double ns                   # at `begin`
    double slope                # ns a token of context
    double rest_ns              # part of `ns` that is not attention
    Origin node                 # origin at `begin`
    Origin between


cdef struct Overlap:            # of two batches; see simulator/experts/README.md
    bint is_enabled
    int64_t decode_tokens       # minimum, on the rank with fewest
    int64_t prefill_tokens
    double slowdown             # of computation
    double layers


cdef inline int64_t share_of(int64_t count, int64_t ranks) noexcept nogil:
    """Return the share of the busiest of `ranks` ranks."""
    return (count + ranks - 1) // ranks if ranks > 1 else count


cdef inline bint is_beside_prompts(const BatchShape* shape) noexcept nogil:
    """Return whether a prompt computes more tokens than each decode does.

    A prompt with all tokens but the last cached is computed like a decode.
    """
    cdef int32_t i
    for i in range(shape.num_chunks):
        if <int64_t>shape.chunks[i].tokens * shape.num_decodes > shape.decode_tokens:
            return True
    return False


cdef inline int log2_floor(int64_t value) noexcept nogil:
    """Return the index of the highest bit of a positive number."""
    cdef int place = -1
    while value:
        value >>= 1
        place += 1
    return place


cdef inline double along(const double[:, ::1] table, int row, double share, int64_t column) noexcept nogil:
    """Return an entry of a table, interpolated at `share` between two rows."""
    cdef double ns = table[row, column]
    return ns + (table[row + 1, column] - ns) * share if share > 0.0 else ns


cdef inline Py_ssize_t place_in(const double[::1] nodes, double value) noexcept nogil:
    """Return the index of the last node at or below a value, but not of the last one."""
    cdef Py_ssize_t low = 0, high = nodes.shape[0] - 1, middle
    while high - low > 1:
        middle = (low + high) // 2
        if nodes[middle] <= value:
            low = middle
        else:
            high = middle
    return low


cdef inline double part_between(const double[::1] nodes, Py_ssize_t i, double value) noexcept nogil:
    """Return the place of a value between two nodes, from 0 to 1."""
    return min(max((value - nodes[i]) / (nodes[i + 1] - nodes[i]), 0.0), 1.0)


cdef inline double blended(const double[:, :, ::1] table, int row, Py_ssize_t i, Py_ssize_t j, double down,
                           double right) noexcept nogil:
    """Return a value between four entries of a table."""
    cdef double near = table[row, i, j] + (table[row, i, j + 1] - table[row, i, j]) * right
    cdef double far = table[row, i + 1, j] + (table[row, i + 1, j + 1] - table[row, i + 1, j]) * right
    return near + (far - near) * down


@cython.final
cdef class Operators(LatencyModel):
    """Measured times of kernels on current GPUs, composed into iterations."""

    Parameters = OperatorsParameters
    left_out = prices.LEFT_OUT
    takes_padding = knows_kernels = True
    takes_collective = True
    reads_files = knows_errors = True
    takes_experts = ("all2all_backend", "dbo")
    prices_gathered = prices_context_parallel = prices_any_model = True

    cdef readonly object tables             # IterationTables
    cdef readonly dict origins              # operator -> measured, interpolated, extrapolated, roofline, formula
    cdef readonly dict sources              # table -> file, version, sha256
    cdef dict _missing
    cdef list _notes
    cdef Py_ssize_t _num_spikes             # measured points that were left out
    cdef dict _cached                       # table -> (points faster than memory, number of points)
    cdef bint _refuses                      # iterations beyond the tables
    cdef int64_t _ranks                     # ranks that share a batch
    cdef int64_t _sharers                   # ranks that share the context of decodes; their table has all heads
    cdef int64_t _hops                      # hand-overs between stages
    cdef double _state_sequence_ns, _state_token_ns
    cdef const double[::1] _tokens_ns, _samples_ns
    cdef const double[::1] _own_ns, _gathered_ns    # parts of _tokens_ns, by tokens of a rank and of all ranks
    cdef const double[::1] _handover_ns     # part of _tokens_ns: one hand-over between stages
    cdef const uint8_t[::1] _tokens_origins, _samples_origins
    # _mixed_ns: decodes beside prompts. _read_ns: context of a prompt's new tokens, read as for decodes.
    cdef const double[:, ::1] _decode_ns, _prefill_ns, _mixed_ns, _read_ns
    cdef const uint8_t[:, ::1] _decode_origins, _prefill_origins, _mixed_origins, _read_origins
    cdef bint _has_behind                   # see prefixes.py; _behind_ns: a part of _prefill_ns
    cdef const double[:, ::1] _behind_ns
    cdef const double[:, :, ::1] _of_difference
    cdef const double[::1] _prefixes, _chunks
    cdef const double[::1] _shares          # bounds of its last axis
    cdef const double[:, :, ::1] _unequal   # see unequal_contexts.py; only if it `prices_spread`
    cdef bint _is_unsplit                   # see roofline/laws.py, splits_no_prompts
    cdef bint _had_few
    cdef int64_t _num_drafting              # predictions with drafts, to which _unequal does not apply
    cdef Line _line                         # of the last iteration of decodes alone
    cdef object _experts                    # ExpertPricing; None: loaded evenly
    cdef object _deployment
    cdef const double[::1] _exchange_ns     # of _tokens_ns; only with overlap
    cdef Overlap _overlap
    cdef int64_t _counts[<int>NUM_ORIGINS]  # number of predictions by their worst origin

    def __init__(self, parameters, deployment, collective=None, reading=None, experts=None):
        """Use given tables, or read and compose them.

        Parameters
        ----------
        parameters : OperatorsParameters
        deployment : Deployment
        collective : CollectiveModel
            Times all communication; None: the tables time it.
        reading : Reading
            The tables of this deployment; None: they are read now.
        experts : ExpertPricing
            The loads of experts; None: evenly loaded.
        """
        reading = reading or self.read(parameters, deployment, collective)
        self._collective, self._experts, self._deployment = collective, experts, deployment
        self.tables, self.sources = reading.tables, reading.sources
        if experts is not None:
            self.tables = unevenly_loaded(reading.tables, experts, deployment.parallelism.token_ranks)
            self._take_overlap(experts.dbo)
        self.origins, self._missing, self._notes = self.tables.origins, reading.missing, reading.notes
        self._num_spikes, self._cached = reading.num_spikes, reading.cached
        self._refuses, self.keeps_account = parameters.outside == "error", True
        self._is_unsplit = is_vllm(parameters) and splits_no_prompts(deployment.accelerator)
        self._ranks, self._hops = deployment.parallelism.token_ranks, deployment.parallelism.pipeline_parallel - 1
        self._sharers = deployment.parallelism.decode_context_parallel
        self._share_tables()

    @staticmethod
    def read(parameters, deployment, collective=None) -> Reading:
        """Return composed tables, cached or newly read and composed; parameters as for the class."""
        if deployment is None:
            raise ValueError("operators needs [model] and [hardware]")

        def compose(collective):
            database = Database(parameters, deployment.accelerator, deployment)
            if parameters.without:
                database.notes.append(f"prices left out: {', '.join(parameters.without)}")
            composer = Composer(database, parameters, deployment, rates(Roofline.Parameters(), deployment), collective)
            return Reading(composer.compose(), database.used, composer.missing, database.notes, len(database.spikes),
                           database.cached), database.opened, database.remade
        return kept(parameters, deployment, collective, compose)

    @staticmethod
    def errors(parameters, deployment, collective=None) -> tuple:
        """Return OperatorError by operator, and the tables used, in the form of `sources`."""
        database = Watched(parameters, deployment)
        composer = Composer(database, parameters, deployment, rates(Roofline.Parameters(), deployment), collective)
        return database.errors(composer.compose()), database.used

    @staticmethod
    def varied(given, errors, factors) -> dict:
        """Return the arguments `given` with factors on the times of operators; see errors.py."""
        reading = given["reading"]
        return given | {"reading": reading._replace(tables=varied(reading.tables, errors, factors))}

    @staticmethod
    def tower_tables(parameters, deployment) -> TowerTables:
        """Return the times of the parts of the model's tower; see towers.py."""
        return TowerTables(parameters, deployment)

    @staticmethod
    def asked(deployment) -> Asked:
        """Return the lookups that a deployment makes in tables, which a profile of it must contain."""
        parameters = OperatorsParameters()
        asked = Asked(parameters, deployment.accelerator)
        Composer(asked, parameters, deployment, rates(Roofline.Parameters(), deployment)).compose()
        return asked

    cdef int _share_tables(self) except -1:
        tables = self.tables
        self._tokens_ns, self._samples_ns = sum(tables.tokens_ns.values()), sum(tables.samples_ns.values())
        gathered = np.zeros(len(self._tokens_ns))
        for name in OF_ALL_RANKS:
            gathered += tables.tokens_ns.get(name, 0.0)
        self._own_ns, self._gathered_ns = self._tokens_ns - gathered, gathered
        if self._hops:
            self._handover_ns = tables.tokens_ns["send_recv"] / self._hops
        self._tokens_origins, self._samples_origins = tables.tokens_origins, tables.samples_origins
        self._decode_ns, self._decode_origins = tables.decode
        self._mixed_ns, self._mixed_origins = tables.mixed
        self._read_ns, self._read_origins = tables.reading or tables.decode
        self._prefill_ns, self._prefill_origins = tables.prefill
        if tables.behind is not None:
            self._has_behind = True
            self._behind_ns, self._of_difference, self._prefixes, self._chunks = tables.behind
        self._state_sequence_ns, self._state_token_ns = tables.state_sequence_ns, tables.state_token_ns
        self._line.sequences = -1
        if tables.unequal is not None:
            self._unequal, self._shares, self.prices_spread = tables.unequal, np.array(SHARES), True
        return 0

    cdef int _take_overlap(self, dbo) except -1:
        self._overlap = Overlap(dbo.enabled, dbo.decode_token_threshold, dbo.prefill_token_threshold,
                                dbo.num_sms / (dbo.num_sms - dbo.comm_sms), self._deployment.model.num_layers)
        self._exchange_ns = exchange_of(self.tables)
        return 0

    # ---- lookups; each raises `origin` to its own origin if that is worse

    cdef double _tokens(self, const BatchShape* shape, Origin* origin) noexcept nogil:
        return self._vector(self._tokens_ns, self._tokens_origins,
                            share_of(rows_of(shape), self._ranks), origin)

    cdef double _samples(self, const BatchShape* shape, Origin* origin) noexcept nogil:
        return self._vector(self._samples_ns, self._samples_origins, share_of(shape.num_samples, self._ranks), origin)

    cdef double _vector(self, const double[::1] ns, const uint8_t[::1] origins, int64_t i,
                        Origin* origin) noexcept nogil:
        cdef int64_t last = ns.shape[0] - 1
        origin[0] = max(origin[0], <Origin>origins[min(i, last)])
        if i > last:
            origin[0] = max(origin[0], EXTRAPOLATED)
            return ns[last] * (<double>i / last)
        return ns[i]

    cdef Line _line_in(self, const double[:, ::1] table, const uint8_t[:, ::1] origins, int64_t sequences,
                       int64_t context_tokens) noexcept nogil:
        """Return the attention of decodes between the two columns around their mean context."""
        cdef int64_t n = share_of(sequences, self._ranks), last = table.shape[0] - 1
        cdef int64_t row = min(n, last)
        cdef int last_column = <int>table.shape[1] - 2
        cdef int column = min(max(log2_floor(context_tokens // sequences) - 1, 0), last_column)     # the first is 2
        cdef double left = table[row, column], right = table[row, column + 1]
        cdef double factor = <double>n / row
        cdef Line line
        line.sequences, line.tokens, line.samples = sequences, 0, 0     # set by the caller
        line.begin = sequences << (column + 1)
        line.end = sequences << (column + 2)
        line.ns, line.rest_ns = left * factor, 0.0
        line.slope = (right - left) * factor / <double>line.begin       # the next column is at twice `begin`
        line.node = <Origin>origins[row, column]
        line.between = max(max(line.node, <Origin>origins[row, column + 1]), INTERPOLATED)
        if n > last or context_tokens >= line.end:
            line.node = line.between = max(line.between, EXTRAPOLATED)
            line.end = context_tokens + 1
        if context_tokens < line.begin:                                 # one token of context: no prompt before
            line.begin, line.end = context_tokens, context_tokens + 1
        return line

    cdef double _decode(self, const BatchShape* shape, Origin* origin) noexcept nogil:
        cdef Line line
        if is_beside_prompts(shape):
            line = self._line_in(self._mixed_ns, self._mixed_origins, shape.num_decodes, shape.context_tokens)
        else:
            line = self._line_in(self._decode_ns, self._decode_origins, shape.num_decodes, shape.context_tokens)
        origin[0] = max(origin[0], line.node if shape.context_tokens == line.begin else line.between)
        return self._spread_ns(shape, line.ns + line.slope * <double>(shape.context_tokens - line.begin))

    cdef inline double _spread_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        """Return the attention of decodes, given its time `ns` with all contexts at their mean."""
        if not self.prices_spread:
            return ns
        if shape.decode_tokens > shape.num_decodes:
            self._num_drafting += self.weight
        return ns + self._unequal_ns(shape, ns) if shape.below_longest_tokens > 0 else ns

    cdef double _unequal_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        cdef int64_t tokens = shape.context_tokens + shape.below_longest_tokens, decodes
        cdef double share = <double>shape.above_shortest_tokens / (
            shape.above_shortest_tokens + shape.below_longest_tokens)
        cdef bint is_beside = is_beside_prompts(shape)
        cdef int row, place = 0
        cdef Line line
        if is_beside:
            line = self._line_in(self._mixed_ns, self._mixed_origins, shape.num_decodes, tokens)
        else:
            line = self._line_in(self._decode_ns, self._decode_origins, shape.num_decodes, tokens)
        decodes = share_of(shape.num_decodes, self._ranks)
        row = log2_floor(decodes)
        if decodes * decodes > <int64_t>1 << (2 * row + 1):     # nearer to the next power of two
            row += 1
        row = min(max(row - 1, 0), <int>self._unequal.shape[1] - 1)
        while share > self._shares[place]:
            place += 1
        return self._unequal[is_beside, row, place] * max(
            line.ns + line.slope * <double>(tokens - line.begin) - ns, 0.0)

    cdef double _behind_of(self, int row, double share, int64_t tokens) noexcept nogil:
        """Return the part of `_prompts_of` of layers that were measured behind prefixes."""
        cdef int64_t last = self._behind_ns.shape[1] - 1
        cdef double ns = along(self._behind_ns, row, share, min(tokens, last))
        return ns * (<double>tokens / last) * (<double>tokens / last) if tokens > last else ns

    cdef double _share_behind(self, int row, double share, const Chunk* chunk) noexcept nogil:
        """Return the measured share of the difference, linear between prefixes and chunks; held beyond them."""
        cdef Py_ssize_t i = place_in(self._prefixes, chunk.context_tokens), j = place_in(self._chunks, chunk.tokens)
        cdef double down = part_between(self._prefixes, i, chunk.context_tokens)
        cdef double right = part_between(self._chunks, j, chunk.tokens)
        cdef double found = blended(self._of_difference, row, i, j, down, right)
        if share > 0.0:
            found += (blended(self._of_difference, row + 1, i, j, down, right) - found) * share
        return found

    cdef double _prompts_of(self, int row, double share, int64_t tokens, Origin* origin) noexcept nogil:
        """Return the attention of prompts of `tokens` tokens, interpolated at `share` between two rows."""
        cdef int64_t last = self._prefill_ns.shape[1] - 1
        cdef int64_t column = min(tokens, last)
        cdef double ns = along(self._prefill_ns, row, share, column)
        origin[0] = max(origin[0], <Origin>self._prefill_origins[row, column])
        if share > 0.0:
            origin[0] = max(origin[0], max(<Origin>self._prefill_origins[row + 1, column], INTERPOLATED))
        if tokens > last:
            origin[0] = max(origin[0], EXTRAPOLATED)
            ns *= (<double>tokens / last) * (<double>tokens / last)
        return ns

    cdef double _behind_prefix(self, int row, double share, const Chunk* chunk, double own, double whole,
                               Origin* origin) noexcept nogil:
        """Return the attention of chunks behind a prefix, `own` without it, `whole` with it as one prompt."""
        cdef int64_t before = chunk.context_tokens
        cdef double difference = whole - self._prompts_of(row, share, before, origin), measured, growth
        if not self._has_behind:
            return max(own, difference)
        measured = self._behind_of(row, share, chunk.tokens)
        growth = self._behind_of(row, share, before + chunk.tokens) - self._behind_of(row, share, before)
        difference -= growth
        return max(own - measured, difference) + self._share_behind(row, share, chunk) * max(measured, growth)

    cdef double _reading_ns(self, int64_t prompts, const Chunk* chunk, Origin* origin) noexcept nogil:
        """Return the attention of `prompts` decodes, each with the context of a chunk."""
        cdef int64_t tokens = prompts * share_of(<int64_t>chunk.context_tokens + chunk.tokens, self._sharers)
        cdef Line line = self._line_in(self._read_ns, self._read_origins, prompts, tokens)
        origin[0] = max(origin[0], line.node if tokens == line.begin else line.between)
        return line.ns + line.slope * <double>(tokens - line.begin)

    cdef double _prefill(self, const BatchShape* shape, Origin* origin) noexcept nogil:
        cdef int64_t prompts = share_of(shape.num_chunks, self._ranks)
        cdef int last_row = <int>self._prefill_ns.shape[0] - 1
        cdef int row = min(log2_floor(prompts), last_row), i
        cdef int64_t in_row = <int64_t>1 << row
        cdef double share = <double>(prompts - in_row) / in_row if row < last_row else 0.0
        cdef double in_all = in_row * (1.0 + share), total = 0.0, ns, whole
        cdef const Chunk* chunk
        self._had_few |= self._is_unsplit and is_few_behind_many(shape)
        for i in range(shape.num_chunks):
            chunk = &shape.chunks[i]
            ns = self._prompts_of(row, share, chunk.tokens, origin)
            if chunk.context_tokens:
                whole = self._prompts_of(row, share, <int64_t>chunk.context_tokens + chunk.tokens, origin)
                ns = self._behind_prefix(row, share, chunk, ns, whole, origin)
                ns = max(ns, min(whole, self._reading_ns(shape.num_chunks, chunk, origin)))
                origin[0] = max(origin[0], INTERPOLATED)        # the cost of this prefix was not measured
            total += ns / in_all
        if prompts > in_row and row == last_row:
            origin[0] = max(origin[0], EXTRAPOLATED)
        return total / self._ranks

    cdef double _state(self, const BatchShape* shape) noexcept nogil:
        return (self._state_sequence_ns * shape.num_sequences
                + self._state_token_ns * <double>shape.prefill_tokens)

    # ---- composition

    cdef inline bint _is_split(self, const BatchShape* shape) noexcept nogil:
        cdef int64_t fewest = (shape.prefill_tokens + shape.decode_tokens) // self._ranks
        return self._overlap.is_enabled and fewest >= (
            self._overlap.prefill_tokens if shape.num_chunks > 0 else self._overlap.decode_tokens)

    cdef double _halves_ns(self, const BatchShape* shape) noexcept nogil:
        """Return the time of an iteration of alternating halves; a half has half of the attention time."""
        cdef Origin origin = EXACT
        cdef int64_t tokens = (share_of(rows_of(shape), self._ranks) + 1) // 2
        cdef double exchange_ns = self._vector(self._exchange_ns, self._tokens_origins, tokens, &origin)
        cdef double compute_ns = self._vector(self._tokens_ns, self._tokens_origins, tokens, &origin) - exchange_ns
        cdef double rest_ns = self._samples(shape, &origin)
        compute_ns += 0.5 * self._state(shape)
        if shape.num_decodes > 0:
            compute_ns += 0.5 * self._decode(shape, &origin)
        if shape.num_chunks > 0:
            compute_ns += 0.5 * self._prefill(shape, &origin)
        self._count(origin)
        return rest_ns + (2.0 * max(compute_ns * self._overlap.slowdown, exchange_ns)
                          + (compute_ns + exchange_ns) / self._overlap.layers)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        cdef int64_t ranks = self._ranks, tokens = gathered.prefill_tokens + gathered.decode_tokens
        cdef Origin origin = EXACT
        cdef double ns = self._state(shape) * ranks
        self._ranks = 1                 # the batch is of one rank
        if self._is_split(shape):       # as if all ranks had this batch
            ns = self._halves_ns(shape)
            self._ranks = ranks
            return ns
        ns += self._vector(self._own_ns, self._tokens_origins, rows_of(shape), &origin)
        ns += self._samples(shape, &origin)
        if shape.num_decodes > 0:
            ns += self._decode(shape, &origin)
        if shape.num_chunks > 0:
            ns += self._prefill(shape, &origin)
        self._ranks = ranks
        ns += self._vector(self._gathered_ns, self._tokens_origins, share_of(tokens, num_ranks), &origin)
        self._count(origin)
        return ns

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef const Line* line = &self._line
        if self._overlap.is_enabled and self._is_split(shape):
            return self._halves_ns(shape)
        if (shape.num_chunks == 0 and shape.num_decodes == line.sequences and rows_of(shape) == line.tokens
                and shape.num_samples == line.samples and line.begin <= shape.context_tokens < line.end):
            self._counts[<int>(line.node if shape.context_tokens == line.begin else line.between)] += self.weight
            return self._on_line(line, shape)
        if shape.num_chunks == 0 and shape.num_decodes > 0:
            return self._new_line_ns(shape)
        return self._composed_ns(shape)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        """Return the times of the stages: head and sampler in the last one, embedding and last norm as the layers."""
        cdef Origin origin = EXACT
        cdef int64_t tokens = share_of(rows_of(shape), self._ranks)
        cdef double handover_ns = 0.0
        cdef double last_ns = self._samples(shape, &origin)
        if self._hops:
            handover_ns = self._vector(self._handover_ns, self._tokens_origins, tokens, &origin)
        self.spread(self.batch_ns(shape) - last_ns - (self.num_stages - 1) * handover_ns, handover_ns, last_ns, ns)

    cdef double _new_line_ns(self, const BatchShape* shape) noexcept nogil:
        cdef Line line = self._line_in(self._decode_ns, self._decode_origins, shape.num_decodes, shape.context_tokens)
        cdef Origin origin = EXACT
        line.tokens, line.samples = rows_of(shape), shape.num_samples
        line.rest_ns = self._tokens(shape, &origin) + self._samples(shape, &origin) + self._state(shape)
        line.ns += line.rest_ns
        line.node, line.between = max(line.node, origin), max(line.between, origin)
        self._line = line
        origin = line.node if shape.context_tokens == line.begin else line.between
        self._count(origin)
        if line.between == EXTRAPOLATED and self._refuses:
            self._line.sequences = -1
        return self._on_line(&line, shape)

    cdef inline double _on_line(self, const Line* line, const BatchShape* shape) noexcept nogil:
        cdef double ns = line.ns + line.slope * <double>(shape.context_tokens - line.begin)
        if not self.prices_spread:
            return ns
        return line.rest_ns + self._spread_ns(shape, ns - line.rest_ns)

    cdef double _composed_ns(self, const BatchShape* shape) noexcept nogil:
        cdef Origin origin = EXACT
        cdef double ns = self._tokens(shape, &origin) + self._samples(shape, &origin) + self._state(shape)
        if shape.num_decodes > 0:
            ns += self._decode(shape, &origin)
        if shape.num_chunks > 0:
            ns += self._prefill(shape, &origin)
        self._count(origin)
        return ns

    cdef inline void _count(self, Origin origin) noexcept nogil:
        self._counts[<int>origin] += self.weight
        if origin == EXTRAPOLATED and self._refuses:
            self.failed = True

    # ---- for people

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each operator, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef const BatchShape* shape = &batch.shape
        cdef Origin origin = EXACT
        terms_ns = self._terms(self.tables.tokens_ns, share_of(rows_of(shape), self._ranks))
        terms_ns |= self._terms(self.tables.samples_ns, share_of(shape.num_samples, self._ranks))
        terms_ns["prefill_attention"] = self._prefill(shape, &origin) if shape.num_chunks else 0.0
        terms_ns["decode_attention"] = self._decode(shape, &origin) if shape.num_decodes else 0.0
        terms_ns["state"] = self._state(shape)
        if self._is_split(shape):
            terms_ns["overlap"] = self._halves_ns(shape) - sum(terms_ns.values())
        return {name: float(ns) * 1e-9 for name, ns in terms_ns.items()}

    def _terms(self, tables, i):
        last = len(next(iter(tables.values()))) - 1
        return {name: table[min(i, last)] * max(1.0, i / last) for name, table in tables.items()}

    def provenance(self) -> dict:
        """Return the number of exact, interpolated, extrapolated and fallback predictions, and their tables.

        A prediction counts by its worst operator. Operators priced by formula, without a table, do not count.
        """
        counts = {name: self._counts[i] for i, name in enumerate(ORIGINS)}
        found = {"operators": dict(self.origins), "tables": dict(self.sources)}
        if self._experts is not None:
            found["experts"] = self._experts.provenance()
        return counts | found | LatencyModel.provenance(self)

    def warnings(self) -> list:
        """Return notes for the user on the predictions made so far, a sentence each."""
        notes = [*self._notes, *self._deployment.checkpoint_notes()]
        texts = LatencyModel.warnings(self) + [f"operators: {note}" for note in notes]
        texts += [f"operators: {UNSPLIT}"] if self._had_few else []
        if self._experts is not None:
            texts += [*self._experts.warnings(self._deployment, "operators"), f"operators: {NOTE}"]
        if self._num_spikes:
            texts.append(f"operators: {self._num_spikes} measured points take over {SPIKE:g} times as long as the next "
                         f"larger size: they are taken as measurement errors, and left out")
        texts += [f"operators: {count} of {total} measured points of {what} are faster than memory: they ran from a "
                  f"cache, and are raised to its bandwidth"
                  for what, (count, total) in self._cached.items() if count > MUCH * total]
        texts += [f"operators: {name}: {what}: priced by the roofline, {error_of_missing(name, self._deployment)}"
                  for name, what in self._missing.items()]
        if self._num_drafting:
            texts.append(f"operators: {self._num_drafting} iterations verified drafts: contexts of unlike lengths "
                         f"as long as their mean there")
        made = sum(self._counts[i] for i in range(<int>NUM_ORIGINS))
        beyond = self._counts[<int>EXTRAPOLATED]
        if made and beyond > MUCH * made:
            texts.append(f"operators: {beyond / made:.1%} of {made} predictions lie beyond the tables")
        return texts

    def raise_if_failed(self):
        """Raise if an iteration lay beyond the tables and that is refused."""
        if self.failed:
            self.failed = False
            raise InputErrors([KeyFault('latency.outside: "error", and an iteration lies beyond the operator tables')])
