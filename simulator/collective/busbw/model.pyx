"""`busbw`: a collective takes its bytes over a bus bandwidth, given or worked out; rates.py has the formulas."""
cimport cython
from libc.math cimport floor, frexp, isinf

from simulator.collective.base cimport CollectiveGroup, CollectiveKind
from simulator.collective.memo cimport EXACT, Origin, RememberingCollective

from simulator.collective.busbw.facts import FIRST_BYTES
from simulator.collective.busbw.facts import NUM_SIZES as _NUM_SIZES
from simulator.collective.busbw.links import links_of
from simulator.collective.busbw.rates import FREE, BusbwParameters, Rates, bus_factor, single
from simulator.collective.groups import GROUPS, KINDS, Group, groups_of

cdef enum:
    NUM_GROUPS = 5              # those of CollectiveGroup, and in training the ranks that share an expert
    NUM_KINDS = 5
    NUM_SIZES = 11

cdef double FIRST_SIZE = FIRST_BYTES
cdef double GIBI = 2.0**-30             # exact, so that the product is
TRAINING_GROUPS = (*GROUPS, "data_expert")
assert (len(TRAINING_GROUPS), len(KINDS), _NUM_SIZES) == (NUM_GROUPS, NUM_KINDS, NUM_SIZES)


cdef struct Price:              # see rates.Rate
    double ns_per_byte
    double small_ns
    double small_bytes          # 0: small_ns is a floor
    double gib_per_s            # a float32; 0: ns_per_byte
    double numerator
    double denominator
    bint has_ratios
    double ratios[NUM_SIZES]


cdef inline double share_of_peak(const double* ratios, double num_bytes) noexcept nogil:
    """Interpolate between sizes that double from FIRST_SIZE; hold the ends."""
    cdef int exponent
    cdef double fraction = 2.0 * frexp(num_bytes / FIRST_SIZE, &exponent) - 1.0     # first x 2^i x (1 + fraction)
    cdef int i = exponent - 1
    if i < 0:
        return ratios[0]
    if i >= NUM_SIZES - 1:
        return ratios[NUM_SIZES - 1]
    return ratios[i] + (ratios[i + 1] - ratios[i]) * fraction


cdef inline double simai_ns(const Price* price, double num_bytes) noexcept nogil:
    """Return the time in the order, and with the float32 of SimAI's program, before it is cut to nanoseconds."""
    cdef double gib_per_s = price.gib_per_s
    if price.has_ratios:
        gib_per_s = <float>share_of_peak(price.ratios, num_bytes) * <float>gib_per_s
    return num_bytes * GIBI / gib_per_s * 1e9 * price.numerator / price.denominator


@cython.final
cdef class Busbw(RememberingCollective):
    """Bytes over bus bandwidth, after SimAI's analytical model; see rates.py."""

    Parameters = BusbwParameters

    cdef readonly object parameters
    cdef readonly object links              # rates.Links
    cdef readonly dict groups               # name -> collective.groups.Group
    cdef Price _prices[NUM_GROUPS][NUM_KINDS]
    cdef double _exposed[NUM_GROUPS]        # share of the time that nothing hides
    cdef bint _is_simai

    def __init__(self, parameters, deployment):
        if deployment is None:
            raise ValueError("collective busbw needs a deployment")
        ways = deployment.parallelism
        self._set(parameters, links_of(parameters, deployment), groups_of(ways), ways.num_accelerators)

    @staticmethod
    def for_training(parameters, int tensor, int expert, int pipeline, int num_gpus):
        """Return the model of a training job of `num_gpus`, laid out as SimAI does; there is no deployment."""
        cdef Busbw model = Busbw.__new__(Busbw)
        cdef int data = max(num_gpus // (tensor * pipeline), 1)
        groups = {
            "tensor": Group(tensor, 1), "expert": Group(expert, tensor), "data": Group(data, tensor),
            "pipeline": Group(pipeline, tensor * data), "data_expert": Group(data // expert, tensor * expert)}
        model._set(parameters, links_of(parameters), groups, num_gpus)
        return model

    cdef int _set(self, object parameters, object links, dict groups, int num_accelerators) except -1:
        self.parameters, self.links, self.groups = parameters, links, groups
        self._is_simai = parameters.convention == "simai"
        rates = Rates(parameters, links, groups, num_accelerators)
        for g, group in enumerate(TRAINING_GROUPS):
            overlap = getattr(parameters, f"{group.split('_')[0]}_overlap")
            self._exposed[g] = single(1.0 - single(overlap)) if self._is_simai else 1.0 - overlap
            for k, kind in enumerate(KINDS):
                self._set_price(&self._prices[g][k], rates.rate(group, kind) if group in groups else FREE)
        return 0

    cdef int _set_price(self, Price* price, object rate) except -1:
        price.ns_per_byte = rate.ns_per_byte
        price.small_ns = rate.small_ns
        price.small_bytes = rate.small_bytes
        price.gib_per_s = rate.gib_per_s
        price.numerator, price.denominator = rate.numerator, rate.denominator
        price.has_ratios = rate.ratios is not None
        for i, ratio in enumerate(rate.ratios or ()):
            price.ratios[i] = ratio
        return 0

    cdef double _whole_ns(self, int group, int kind, double num_bytes) noexcept nogil:
        """Return the time with nothing hidden."""
        cdef const Price* price = &self._prices[group][kind]
        cdef double ns
        if 1.0 < num_bytes < price.small_bytes:
            return price.small_ns
        if price.gib_per_s > 0.0:
            return floor(simai_ns(price, num_bytes))
        ns = num_bytes * price.ns_per_byte
        if price.has_ratios:
            ns /= share_of_peak(price.ratios, num_bytes)
        if self._is_simai:
            return floor(ns)
        return ns if ns > price.small_ns else price.small_ns

    cdef double compute_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes,
                           Origin* origin) noexcept nogil:
        origin[0] = EXACT
        cdef double whole_ns = self._whole_ns(group, kind, num_bytes)
        if self._is_simai:      # a product of float32, cut to nanoseconds
            return floor(<double>(<float>whole_ns * <float>self._exposed[<int>group]))
        return self._exposed[<int>group] * whole_ns

    def whole_ns(self, str group, str kind, double num_bytes) -> float:
        """Return the nanoseconds of one collective with nothing hidden; `group` may also be "data_expert"."""
        if not 0.0 < num_bytes or isinf(num_bytes):
            return 0.0
        return self._whole_ns(TRAINING_GROUPS.index(group), KINDS.index(kind), num_bytes)

    def bus_factor(self, str group, str kind) -> float:
        """Return the bus bandwidth of a collective over its algorithm bandwidth."""
        return bus_factor(kind, max(self.groups[group].size, 1))
