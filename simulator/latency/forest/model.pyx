"""`forest`: Vidur's random forests (or polynomials), trained on profiles of single operators, as lookup tables.

An iteration of n tokens, r = n rounded up to a multiple of 8, over L layers takes L times

    attn_pre_proj[r] + attn_rope[r] + attn_kv_cache_save[n] + attn_post_proj[r] + input_layernorm[r]
    + mlp_up_proj[r] + mlp_act[r] + mlp_down_proj[r] + post_attention_layernorm[r] + add[r]
    + 2 (all_reduce[r] + launch + skew TP^1.25), with tensor parallelism
    + attn_decode[b, a], b decoding sequences with the mean context a
    + attn_prefill[k, c], chunks with the contexts k_i and the tokens c_i: k = sum of k_i, c = sqrt(sum of c_i^2)

with a and each k_i rounded up to the granularity of the tables, c to the nearest integer; plus send_recv[r] between
pipeline stages, and host times by number of sequences, once per stage. Models with grouped KV heads pay 10 % more for
attention over more than one sequence. Source: microsoft/vidur @ 7d47513 and arXiv 2405.05465, section 4.

Beyond the last entry of a table, times grow with the work: with tokens, with b x a, with pairs of query and key. A
forest alone would be flat there. [latency.collective] replaces all_reduce and send_recv, for any number of tokens;
launch and skew are host times, and are added to its all-reduces, as in vidur-alibabacloud under SimAI. Embedding,
output head and sampling are not in the profiles, nor in Vidur.
"""
cimport cython
from libc.math cimport rint, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t

from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView
from simulator.collective.base cimport CollectiveModel
from simulator.collective.per_iteration cimport IterationCollectives

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault
from simulator.collective.exchanges import exchanges
from simulator.latency.forest.cache import tables_of
from simulator.latency.forest.composition import compose, is_launched, launch_us
from simulator.latency.forest.errors import operator_errors, varied
from simulator.latency.forest.measured import measured_ranges, profile_facts
from simulator.latency.forest.profiles import FILES, files_needed, refuse_idle_files, subject_of, sources_of
from simulator.latency.forest.synthetic import SyntheticProfiles
from simulator.latency.forest.tables import ROUNDING

Profile = Annotated[str | None, Meta(extra={"path": True})]
Count = Annotated[int, Meta(ge=1, le=2**20)]
Fraction = Annotated[float, Meta(ge=0, le=10)]
Microseconds = Annotated[float, Meta(ge=0)]


class ForestParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Profiles in Vidur's format, and the training on them; defaults are Vidur's."""

    compute_file: Annotated[Profile, Meta(description="path of mlp.csv, plain or .gz")] = None
    attention_file: Annotated[Profile, Meta(description="path of attention.csv")] = None
    all_reduce_file: Annotated[Profile, Meta(description=(
        "path of all_reduce.csv; required with tensor parallelism"))] = None
    send_recv_file: Annotated[Profile, Meta(description=(
        "path of send_recv.csv; required with pipeline parallelism"))] = None
    cpu_overhead_file: Annotated[Profile, Meta(description="path of cpu_overheads.csv; default: no host time")] = None
    cpu_overhead_model: Annotated[str, Meta(description=(
        "model_name in cpu_overheads.csv; default: the model's hf_id"))] = ""
    profile_block_size: Annotated[Count, Meta(description="tokens of a KV block in the attention profile")] = 16

    estimator: Annotated[Literal["random_forest", "linear_regression"], Meta(description=(
        "kind of the trained models"))] = "random_forest"
    num_estimators: Annotated[tuple[Count, ...], Meta(min_length=1, description=(
        "random_forest: numbers of trees, chosen from by cross-validation"))] = (250, 500, 750)
    max_depth: Annotated[tuple[Count, ...], Meta(min_length=1, description=(
        "random_forest: depths of a tree, chosen from by cross-validation"))] = (8, 16, 32)
    min_samples_split: Annotated[tuple[Annotated[int, Meta(ge=2, le=2**31 - 1)], ...], Meta(min_length=1, description=(
        "random_forest: minimum samples of a split node, chosen from by cross-validation"))] = (2, 5, 10)
    polynomial_degree: Annotated[tuple[Annotated[int, Meta(ge=1, le=10)], ...], Meta(min_length=1, description=(
        "linear_regression: degrees of the polynomial, chosen from by cross-validation"))] = (1, 2, 3, 4, 5)
    polynomial_include_bias: Annotated[tuple[bool, ...], Meta(min_length=1, description=(
        "linear_regression: whether a constant is a feature, chosen by cross-validation"))] = (True, False)
    polynomial_interaction_only: Annotated[tuple[bool, ...], Meta(min_length=1, description=(
        "linear_regression: whether to multiply distinct features only, chosen by cross-validation"))] = (True, False)
    fit_intercept: Annotated[tuple[bool, ...], Meta(min_length=1, description=(
        "linear_regression: whether to fit an intercept, chosen by cross-validation"))] = (True, False)
    k_fold_cv_splits: Annotated[int, Meta(ge=2, le=2**31 - 1, description=(
        "folds of cross-validation; 2 if there are fewer samples"))] = 10
    training_seed: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "seed of random forests; each sub-model has its own stream"))] = 42
    num_training_jobs: Annotated[int, Meta(ge=-1, le=2**15, description=(
        "processes of cross-validation; -1: one per core; does not change the result"))] = -1
    cache_directory: Annotated[Profile, Meta(description=(
        "folder for trained tables; default: $XDG_CACHE_HOME/simulator"))] = None

    kv_granularity_tokens: Annotated[Count, Meta(description="contexts are rounded up to a multiple of this")] = 64
    max_tokens: Annotated[Count | None, Meta(description=(
        "largest number of tokens of an iteration in the tables; default: the profile's; Vidur: 4096"))] = None
    max_batch_size: Annotated[Count | None, Meta(description=(
        "largest number of decoding sequences in the tables; default: the profile's; Vidur: 128"))] = None
    max_kv_tokens: Annotated[Count | None, Meta(description=(
        "longest context in the tables; default: the profile's; Vidur: 4096"))] = None
    max_chunk_tokens: Annotated[Count | None, Meta(description=(
        "largest chunk of a prompt in the tables; default: the profile's; Vidur: 4096"))] = None
    outside: Annotated[Literal["extrapolate", "error"], Meta(description=(
        "extrapolate: count iterations outside the profiles and warn; error: stop at the first one"))] = "extrapolate"

    attention_decode_batching_overhead_fraction: Annotated[Fraction, Meta(description=(
        "share of time added with grouped KV heads and more than one decoding sequence"))] = 0.1
    attention_prefill_batching_overhead_fraction: Annotated[Fraction, Meta(description=(
        "share of time added with grouped KV heads and more than one chunk"))] = 0.1
    nccl_cpu_launch_overhead_us: Annotated[Microseconds, Meta(description=(
        "host time added to each all-reduce, also of [latency.collective]"))] = 20.0
    nccl_cpu_skew_overhead_us: Annotated[Microseconds, Meta(description=(
        "host time added to each all-reduce, times tensor_parallel^1.25"))] = 0.0


class Reading(NamedTuple):
    """Trained tables.

    tables : ForestTables.
    cache_file : path of their cache file; None if they were given.
    notes : notes for people on the cache file.
    synthetic : sources of the profiles that are not measured.
    profiles : key of [latency] -> file and SHA-256; empty if tables were given.
    launch_us : host time that is added to each all-reduce.
    """

    tables: Any
    cache_file: str | None = None
    notes: list = []
    synthetic: list = []
    profiles: dict = {}
    launch_us: float = 0.0


cdef enum Table:
    TOKENS, DECODE, PREFILL, HOST

cdef enum Covered:              # codes of tables.py, best first
    MEASURED, INTERPOLATED, EXTRAPOLATED


cdef struct Place:              # a position in a table
    Py_ssize_t row
    Py_ssize_t column
    double factor               # factor on the entry
    Covered covered


cdef struct Steady:             # the last iteration of decodes alone; valid while the mean context keeps its entry
    int64_t sequences
    int64_t tokens
    int64_t context_from        # first sum of contexts for which it is valid
    int64_t context_end         # end of the sums, exclusive
    double ns
    Covered covered


cdef inline Place place(Py_ssize_t row, Py_ssize_t column) noexcept nogil:
    return Place(row, column, 1.0, MEASURED)

cdef inline double pairs(double context, double tokens) noexcept nogil:
    """Return twice the (query, key) pairs of a chunk."""
    return tokens * (2.0 * context + tokens + 1.0)


cdef inline double grown(const double[::1] table, Py_ssize_t i) noexcept nogil:
    """Return entry i; beyond the last entry, grown linearly."""
    cdef Py_ssize_t last = table.shape[0] - 1
    return table[i] if i <= last else table[last] * (<double>i / max(last, 1))


@cython.final
cdef class Forest(LatencyModel):
    """Predictions of Vidur's forests, trained on operator profiles, kept as tables."""

    Parameters = ForestParameters
    Profiles = SyntheticProfiles            # writes profiles without measurements
    takes_collective = True
    reads_files = knows_errors = True

    cdef readonly object tables             # ForestTables
    cdef readonly object terms              # IterationTables: times of whole iterations, by operator
    cdef readonly str cache_file            # path of the cache file; None if tables were given
    cdef object _deployment
    cdef object _sources                    # paths of the profiles
    cdef object _profiles                   # paths of the profiles with their digests
    cdef list _notes                        # notes for people on the cache file
    cdef object _synthetic                  # sources of profiles that are not measured
    cdef list _exchanges                    # exchanges priced by a collective model; None: the tables price them
    cdef IterationCollectives _collectives
    cdef double _launch_ns, _launches_ns    # host time of one all-reduce, and of all in an iteration
    cdef bint _refuses                      # iterations outside the profiles
    cdef Py_ssize_t _granularity, _rounding
    cdef double _prefill_batching
    cdef const double[::1] _tokens_ns, _host_ns
    cdef const double[::1] _handover_ns     # part of _tokens_ns: one hand-over between stages
    cdef const double[:, ::1] _decode_ns, _prefill_ns
    cdef const uint8_t[::1] _tokens_covered, _host_covered
    cdef const uint8_t[:, ::1] _decode_covered, _prefill_covered
    cdef Steady _steady
    cdef int64_t _counts[3]                 # number of predictions by their worst coverage
    cdef int64_t _outside[4]                # reads outside the measurements, by Table
    cdef int64_t _largest[4][2]             # by Table: tokens; sequences, context; context, tokens; sequences

    def __init__(self, parameters, deployment, CollectiveModel collective=None, reading=None):
        """Use given tables, or train them unless they are cached.

        Parameters
        ----------
        parameters : ForestParameters
        deployment : Deployment
        collective : CollectiveModel
            Times all-reduce and send-recv; None: forests trained on their profiles.
        reading : Reading
            The tables of this deployment; None: they are read now.
        """
        reading = reading or self.read(parameters, deployment, collective)
        subject_of(parameters, deployment)      # refuses deployments that profiles cannot describe
        tables, self.cache_file, self._notes, self._synthetic, self._profiles, _ = reading
        self.tables, self._deployment = tables, deployment
        self.terms = compose(tables, parameters, deployment, with_network=collective is None)
        if collective is not None:
            self._launch_ns = 1e3 * launch_us(parameters, deployment)
            self._collective, self._exchanges = collective, exchanges(deployment)
            self._launches_ns = sum(each.count * self._launch_ns for each in self._exchanges if is_launched(each))
            self._collectives = IterationCollectives(collective, self._exchanges)
        self._refuses, self.keeps_account = parameters.outside == "error", True
        self._granularity, self._rounding = tables.kv_granularity, ROUNDING
        self._sources = [path for path in (getattr(parameters, key) for key in FILES) if path is not None]
        self._share_tables()

    @staticmethod
    def read(parameters, deployment, collective=None) -> Reading:
        """Return the tables, from the cache or newly trained; parameters as for the class."""
        if deployment is None:
            raise ValueError("forest needs [model] and [hardware]")
        with_network, notes = collective is None, []
        refuse_idle_files(parameters, with_network)
        tables, path = tables_of(parameters, deployment, with_network, notes=notes)
        files = files_needed(parameters, subject_of(parameters, deployment), with_network)
        return Reading(tables, str(path), notes, sources_of(files.values()),
                       profile_facts(files, parameters.cache_directory), launch_us(parameters, deployment))

    @staticmethod
    def errors(parameters, deployment, collective=None) -> tuple:
        """Return OperatorError by operator, and the profile of each; see errors.py."""
        return operator_errors(parameters, deployment, collective)

    @staticmethod
    def varied(given, errors, factors) -> dict:
        """Return the arguments `given` with factors on the times of operators; see errors.py."""
        reading = given["reading"]
        return given | {"reading": reading._replace(
            tables=varied(reading.tables, errors, factors, reading.launch_us * 1e-3))}

    @staticmethod
    def train(parameters, deployment, with_network=True, progress=None) -> str:
        """Train the tables of a deployment unless they are cached; return the cache file.

        with_network : also train all-reduce and send-recv; False if a collective model times them.
        progress : called with the name of each sub-model before it is trained.
        """
        return str(tables_of(parameters, deployment, with_network, progress)[1])

    cdef int _share_tables(self) except -1:
        terms = self.terms
        self._prefill_batching = terms.prefill_batching
        self._tokens_ns = sum(terms.tokens_ns.values())
        hops = max(self._deployment.parallelism.pipeline_parallel - 1, 1)
        self._handover_ns = terms.tokens_ns.get("send_recv", np.zeros(1)) / hops
        self._host_ns = sum(terms.host_ns.values(), np.zeros(len(terms.host_covered)))
        self._decode_ns, self._prefill_ns = terms.decode_ns, terms.prefill_ns
        self._tokens_covered, self._host_covered = terms.tokens_covered, terms.host_covered
        self._decode_covered, self._prefill_covered = terms.decode_covered, terms.prefill_covered
        return 0

    cdef Place _tokens_place(self, const BatchShape* shape) noexcept nogil:
        cdef Py_ssize_t last = self._tokens_ns.shape[0] - 1
        cdef Py_ssize_t tokens = shape.prefill_tokens + shape.decode_tokens
        cdef Place at = place(tokens, 0)
        if tokens > last:
            at.row, at.factor = last, <double>tokens / last
        at.covered = <Covered>self._tokens_covered[at.row] if tokens <= last else EXTRAPOLATED
        if at.covered == EXTRAPOLATED:
            self._note(TOKENS, tokens, 0)
        return at

    cdef Place _decode_place(self, const BatchShape* shape) noexcept nogil:
        cdef Py_ssize_t sequences = shape.num_decodes, granularity = self._granularity
        cdef Py_ssize_t last = self._decode_ns.shape[0] - 1, last_context = self._decode_ns.shape[1] - 1
        # ceil(floor(sum / n) / g) = floor((sum + n (g - 1)) / (n g)): Vidur truncates the mean, then rounds up
        cdef Py_ssize_t context = (shape.context_tokens + sequences * (granularity - 1)) // (sequences * granularity)
        cdef Place at = place(sequences, context)
        if sequences > last or context > last_context:
            at.row, at.column = min(sequences, last), min(context, last_context)
            at.factor = (<double>sequences / at.row) * (<double>context / max(at.column, 1))
            at.covered = EXTRAPOLATED
        else:
            at.covered = <Covered>self._decode_covered[sequences, context]
        if at.covered == EXTRAPOLATED:
            self._note(DECODE, sequences, shape.context_tokens // sequences)
        return at

    cdef Place _prefill_place(self, const BatchShape* shape) noexcept nogil:
        cdef Py_ssize_t last_context = self._prefill_ns.shape[0] - 1, last = self._prefill_ns.shape[1] - 1
        cdef Py_ssize_t context = 0, tokens, i, granularity = self._granularity
        cdef double squares = 0.0
        cdef Place at
        for i in range(shape.num_chunks):
            context += (shape.chunks[i].context_tokens + granularity - 1) // granularity
            squares += <double>shape.chunks[i].tokens * shape.chunks[i].tokens
        tokens = <Py_ssize_t>rint(sqrt(squares))
        at = place(min(context, last_context), min(tokens, last))
        at.covered = <Covered>self._prefill_covered[at.row, at.column]
        if context > last_context or tokens > last:
            at.factor = pairs(context * granularity, tokens) / pairs(at.row * granularity, at.column)
            at.covered = EXTRAPOLATED
        if at.covered == EXTRAPOLATED:
            self._note(PREFILL, context * granularity, tokens)
        if shape.num_chunks > 1:
            at.factor *= self._prefill_batching
        return at

    cdef Place _host_place(self, const BatchShape* shape) noexcept nogil:
        cdef Py_ssize_t last = self._host_ns.shape[0] - 1, sequences = shape.num_sequences
        cdef Place at = place(min(sequences, last), 0)
        at.covered = <Covered>self._host_covered[at.row] if sequences <= last else EXTRAPOLATED
        if sequences > last:
            at.factor = <double>sequences / last
        if at.covered == EXTRAPOLATED:
            self._note(HOST, sequences, 0)
        return at

    cdef inline int64_t _rounded_tokens(self, const BatchShape* shape) noexcept nogil:
        cdef int64_t tokens = shape.prefill_tokens + shape.decode_tokens
        return (tokens + self._rounding - 1) // self._rounding * self._rounding

    cdef void _note(self, Table table, int64_t first, int64_t second) noexcept nogil:
        cdef int64_t* largest = self._largest[<int>table]
        self._outside[<int>table] += 1 if self._refuses and not self.is_ahead else self.weight
        if self._refuses or (self.is_ahead and (first > largest[0] or second > largest[1])):
            self.failed = True
        if not self.is_ahead and (self.weight != 0 or self._refuses):
            largest[0], largest[1] = max(largest[0], first), max(largest[1], second)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef const Steady* last = &self._steady
        if (shape.num_chunks == 0 and shape.num_decodes == last.sequences and shape.decode_tokens == last.tokens
                and last.context_from <= shape.context_tokens < last.context_end):
            self._counts[<int>last.covered] += self.weight
            if self._collectives is not None:
                self._collectives.ns(self._rounded_tokens(shape))       # they count, too
            return last.ns
        return self._look_up(shape)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef double total_ns = self.batch_ns(shape), host_ns = 0.0      # per stage
        cdef double handover_ns = grown(self._handover_ns, shape.prefill_tokens + shape.decode_tokens)
        cdef int32_t i
        if self._collectives is not None:
            handover_ns = self._collectives.handover_ns(self._rounded_tokens(shape))
        if self._host_ns.shape[0] > 0:
            host_ns = grown(self._host_ns, shape.num_sequences) / self.num_stages
        self.spread(total_ns - self.num_stages * host_ns - (self.num_stages - 1) * handover_ns, handover_ns, 0.0, ns)
        for i in range(self.num_stages):
            ns[i] += host_ns

    cdef double _look_up(self, const BatchShape* shape) noexcept nogil:
        cdef Place at = self._tokens_place(shape)
        cdef double ns = self._tokens_ns[at.row] * at.factor
        cdef Covered worst = at.covered
        cdef Py_ssize_t context = 0
        if shape.num_decodes > 0:
            at = self._decode_place(shape)
            ns += self._decode_ns[at.row, at.column] * at.factor
            worst, context = max(worst, at.covered), at.column
        if shape.num_chunks > 0:
            at = self._prefill_place(shape)
            ns += self._prefill_ns[at.row, at.column] * at.factor
            worst = max(worst, at.covered)
        if self._host_ns.shape[0] > 0:
            at = self._host_place(shape)
            ns += self._host_ns[at.row] * at.factor
            worst = max(worst, at.covered)
        if self._collectives is not None:
            ns += self._collectives.ns(self._rounded_tokens(shape)) + self._launches_ns
        self._counts[<int>worst] += self.weight
        if shape.num_chunks == 0 and worst != EXTRAPOLATED and not self.has_failed():   # outsiders: noted each time
            self._remember(shape, context, ns, worst)
        return ns

    cdef void _remember(self, const BatchShape* shape, int64_t context, double ns, Covered covered) noexcept nogil:
        cdef int64_t sequences = shape.num_decodes, granularity = self._granularity
        self._steady = Steady(sequences, shape.decode_tokens, sequences * ((context - 1) * granularity + 1),
                              sequences * (context * granularity + 1), ns, covered)

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each operator, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef Place at = self._tokens_place(&batch.shape)
        terms_ns = {name: table[at.row] * at.factor for name, table in self.terms.tokens_ns.items()}
        if batch.shape.num_decodes > 0:
            at = self._decode_place(&batch.shape)
            terms_ns["attn_decode"] = self._decode_ns[at.row, at.column] * at.factor
        if batch.shape.num_chunks > 0:
            at = self._prefill_place(&batch.shape)
            terms_ns["attn_prefill"] = self._prefill_ns[at.row, at.column] * at.factor
        if self.terms.host_ns:
            at = self._host_place(&batch.shape)
            terms_ns |= {name: table[at.row] * at.factor for name, table in self.terms.host_ns.items()}
        if self._collectives is not None:
            seconds = self._collectives.seconds(self._rounded_tokens(&batch.shape))
            terms_ns |= {each.kind: 1e9 * taken + is_launched(each) * each.count * self._launch_ns
                         for each, taken in zip(self._exchanges, seconds)}
        self.raise_if_failed()
        return {name: float(ns) * 1e-9 for name, ns in terms_ns.items()}

    def stage_times(self, prefill=(), decode=(), int tokens_per_decode=1) -> list:
        """Return the seconds of each pipeline stage, send-recv included, which sum to the result of `predict`."""
        terms = self.breakdown(prefill, decode, tokens_per_decode)
        model, ways = self._deployment.model, self._deployment.parallelism
        stages = ways.pipeline_parallel
        send_recv = terms.pop("send_recv", 0.0) / max(stages - 1, 1)
        host = sum(terms.pop(name, 0.0) for name in self.terms.host_ns) / stages
        layer = sum(terms.values()) / model.num_layers
        return [layer * len(ways.layers_of_stage(model, stage)) + host + send_recv * (stage < stages - 1)
                for stage in range(stages)]

    def provenance(self) -> dict:
        """Return the number of predictions at measured points, between and outside them; and the profiles.

        A prediction counts by its worst read. Exact means a measured point: a forest predicts its neighbourhood.
        """
        return {"exact": self._counts[<int>MEASURED], "interpolated": self._counts[<int>INTERPOLATED],
                "extrapolated": self._counts[<int>EXTRAPOLATED], "sources": list(self._sources),
                **({"tables": self._profiles, "measured": measured_ranges(self.tables)} if self._profiles else {}),
                **LatencyModel.provenance(self)}

    def warnings(self) -> list:
        """Return notes for the user on the predictions made so far, a sentence each."""
        notes = [f"forest: {note}" for note in self._notes]
        notes += [f"forest: profiles are {source}" for source in self._synthetic]
        if self._deployment.matrix_bytes != 2:
            notes.append(f"forest: profiles are of 16-bit weights, the model's are {self._deployment.matrix_dtype}")
        made = self._counts[0] + self._counts[1] + self._counts[2]
        if self._counts[<int>EXTRAPOLATED]:
            share = self._counts[<int>EXTRAPOLATED] / made
            notes.append(f"forest: {share:.1%} of {made} predictions lie outside the profiles: {self._outsiders()}")
        return notes + LatencyModel.warnings(self)

    def raise_if_failed(self):
        """Raise if an iteration lay outside the profiles and that is refused."""
        if self.failed:
            outsiders, self.failed = self._outsiders(), False
            if self._refuses:
                for table in range(4):                      # such an iteration may never execute
                    self._outside[table] = self._largest[table][0] = self._largest[table][1] = 0
                raise InputErrors([KeyFault(
                    f'latency.outside: "error", and an iteration lies outside the profiles: {outsiders}')])
        LatencyModel.raise_if_failed(self)

    def _outsiders(self):
        shapes = {TOKENS: "iterations of {} tokens", DECODE: "decode attention of {} sequences, mean context {}",
                  PREFILL: "prefill attention over contexts of {} tokens, chunks of {}", HOST: "{} sequences"}
        return "; ".join(
            f"{self._outside[table]} x up to " + shape.format(*self._largest[table])
            for table, shape in shapes.items() if self._outside[table])
