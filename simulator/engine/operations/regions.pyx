"""Regions: gateways forward requests to other regions, and see these with delay."""
from libc.math cimport INFINITY
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.memory cimport resize
from simulator.domain.request cimport COMPLETED
from simulator.engine.fleet.events cimport FORWARD, ROUTE
from simulator.engine.gateway.gateway cimport Gateway

import numpy as np


@cython.final
cdef class RegionStage(Stage):
    """The choice of a region for the requests of a gateway with instances in each.

    fleet, gateway : of the cluster.
    assignment : of requests to instances, a group for each region: their home, then the region that serves them.
    region_of : region of each replica, as numbered in the gateway's view.
    latency_ns : int64 (regions, regions), one way.
    settings : (spill_at, whether the nearest region is preferred to that of the lowest load).
    """

    def __init__(self, Fleet fleet, Gateway gateway, Assignment assignment, homes, region_of, latency_ns, settings):
        rows = fleet.num_clients
        self._fleet, self._gateway, self._assignment = fleet, <void*>gateway, assignment
        self._count, self._region_of = len(latency_ns), region_of
        self._spill_at, self._prefers_near = settings
        self._sights = <Sight*>calloc(self._count * self._count, sizeof(Sight))
        self._first = <int32_t*>calloc(self._count, sizeof(int32_t))
        self._last = <int32_t*>calloc(self._count, sizeof(int32_t))
        if self._sights == NULL or self._first == NULL or self._last == NULL:
            raise MemoryError()
        for home in range(self._count):
            self._first[<int32_t>home] = self._last[<int32_t>home] = -1
            for region in range(self._count):
                self._begin(&self._sights[<int32_t>(home * self._count + region)], latency_ns[home, region])
        assignment.groups[:] = homes
        found = {"homes": homes.copy(), "is_away": np.zeros(rows, np.int8), "regions": assignment.groups}
        self._homes, self._is_away, self._is_in = found["homes"], found["is_away"], np.zeros(rows, np.int8)
        self.arrays = found

    def heed_second(self, Gateway second, region_of):
        """Heed the replicas for decode legs, too; `region_of` : region of each replica of its view, int32."""
        self._second, self._second_of = <void*>second, region_of
        firsts = (<Gateway>self._gateway).view.account_array["replica"]
        self._does_both = np.isin(second.view.account_array["replica"], firsts).astype(np.int8)

    cdef void _begin(self, Sight* sight, int64_t latency_ns) noexcept:
        sight.latency_ns = latency_ns
        sight.last = sight.first_sent = -1

    def __dealloc__(self):
        free(self._sights)
        free(self._first)
        free(self._last)
        free(self._changes)
        free(self._sendings)

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t home = self._homes[row], region
        region = self._choose(home, now_ns)
        if region == home:
            self._note(home, row, 1, now_ns)
            return False
        self._assignment.send(row, region)
        self._is_away[row] = 1
        self._note_sent(&self._sights[home * self._count + region], now_ns)
        self._fleet.events.push(now_ns + self._sights[home * self._count + region].latency_ns, ROUTE, FORWARD,
                                (<Gateway>self._gateway).index, row)
        return True

    cdef int reach(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._fleet.requests[row].status >= COMPLETED:
            return 0
        self._note(self._assignment.group_of(row), row, 1, now_ns)
        return (<Gateway>self._gateway).return_to_gateway(row, now_ns)

    cdef int leave(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._is_in[row] == 1:
            self._note(self._assignment.group_of(row), row, -1, now_ns)
        return 0

    cdef void renew(self, int32_t row) noexcept nogil:
        self._assignment.send(row, self._homes[row])
        self._is_in[row] = self._is_away[row] = 0

    cdef int _note(self, int32_t region, int32_t row, int32_t delta, int64_t now_ns) except -1 nogil:
        """Record that a request enters a region, or leaves it."""
        cdef int32_t i = self._num_changes, room = 2 * self._room + 16
        if i == self._room:
            resize(&self._changes, room * sizeof(Change))
            self._room = room
        self._is_in[row] = 1 if delta > 0 else 2
        self._changes[i].time_ns, self._changes[i].following, self._changes[i].delta = now_ns, -1, delta
        if self._last[region] < 0:
            self._first[region] = i
        else:
            self._changes[self._last[region]].following = i
        self._last[region] = i
        self._num_changes += 1
        return 0

    cdef int _note_sent(self, Sight* sight, int64_t now_ns) except -1 nogil:
        """Record that a request is forwarded from a home to a region."""
        cdef int32_t i = self._num_sendings, room = 2 * self._sendings_room + 16
        if i == self._sendings_room:
            resize(&self._sendings, room * sizeof(Sending))
            self._sendings_room = room
        self._sendings[i].time_ns, self._sendings[i].following = now_ns, -1
        if sight.first_sent < 0:
            sight.first_sent = i
        else:
            self._sendings[sight.last_sent].following = i
        sight.last_sent = i
        sight.num_sent += 1
        self._num_sendings += 1
        return 0

    cdef int64_t _requests(self, int32_t home, int32_t region, int64_t now_ns) noexcept nogil:
        """Return the requests of a region as far as the gateway of a home knows."""
        cdef Sight* sight = &self._sights[home * self._count + region]
        cdef int32_t following = self._first[region] if sight.last < 0 else self._changes[sight.last].following
        while following >= 0 and self._changes[following].time_ns + sight.latency_ns <= now_ns:
            sight.known += self._changes[following].delta
            sight.last = following
            following = self._changes[following].following
        while sight.first_sent >= 0 and self._sendings[sight.first_sent].time_ns + 2 * sight.latency_ns <= now_ns:
            sight.first_sent = self._sendings[sight.first_sent].following
            sight.num_sent -= 1
        return sight.known + sight.num_sent

    cdef double _load(self, int32_t home, int32_t region, int64_t now_ns) noexcept nogil:
        """Return requests per routable replica of a region; INFINITY: it has no such replica, or none for a leg."""
        cdef int32_t count = 0, for_decodes = 0, i
        for i in range((<Gateway>self._gateway).view.num_replicas):
            if self._region_of[i] == region:
                count += (<Gateway>self._gateway).view.accounts[i].is_routable
        if self._second != NULL and count > 0:
            for i in range((<Gateway>self._second).view.num_replicas):
                if self._second_of[i] == region and (<Gateway>self._second).view.accounts[i].is_routable:
                    for_decodes += 1
                    count += not self._does_both[i]
            count = count if for_decodes > 0 else 0
        return INFINITY if count == 0 else <double>self._requests(home, region, now_ns) / count

    cdef int32_t _choose(self, int32_t home, int64_t now_ns) noexcept nogil:
        """Return the region for a request that arrives at the gateway of its home."""
        cdef double load = self._load(home, home, now_ns)
        cdef int32_t best
        if load < self._spill_at:
            return home
        best = self._best(home, self._spill_at, now_ns)
        return best if best != home or load < INFINITY else self._best(home, INFINITY, now_ns)

    cdef int32_t _best(self, int32_t home, double limit, int64_t now_ns) noexcept nogil:
        """Return the best other region with a load below a limit; the home: there is none."""
        cdef double load, lowest = INFINITY
        cdef int64_t latency_ns, nearest_ns = 0
        cdef int32_t region, best = home
        for region in range(self._count):
            load = self._load(home, region, now_ns)
            if region == home or load >= limit:
                continue
            latency_ns = self._sights[home * self._count + region].latency_ns
            if best == home or self._is_better(latency_ns, load, nearest_ns, lowest):
                best, nearest_ns, lowest = region, latency_ns, load
        return best

    cdef bint _is_better(self, int64_t latency_ns, double load, int64_t nearest_ns, double lowest) noexcept nogil:
        """Return whether a region precedes the best one so far; among equals the first remains."""
        if self._prefers_near and latency_ns != nearest_ns:
            return latency_ns < nearest_ns
        return load < lowest if load != lowest else latency_ns < nearest_ns


@cython.final
cdef class RegionForwarding(Operation):
    """The regions of all gateways.

    fleet, gateways : of the cluster.
    firsts : of each gateway where requests arrive, its Assignment, and the index of the gateway of its decode legs; -1:
        it has none. homes : int32 (requests,), home region of each request.
    regions_of : of each gateway, region of each replica of its view, int32.
    latency_ns, settings : as `RegionStage` takes them.
    """

    def __init__(self, Fleet fleet, gateways, firsts, homes, regions_of, latency_ns, settings):
        cdef Gateway gateway
        self.kinds, self.stages, self._num_gateways = (FORWARD,), [], len(gateways)
        self._latency_ns = latency_ns
        self._stages = <void**>calloc(self._num_gateways, sizeof(void*))
        if self._stages == NULL:
            raise MemoryError()
        for i, (assignment, second) in enumerate(firsts):
            gateway = gateways[i]
            stage = RegionStage(fleet, gateway, assignment, homes, regions_of[i], latency_ns, settings)
            if second >= 0:
                stage.heed_second(gateways[second], regions_of[second])
            gateway.put_in_front(stage)
            self._stages[<int32_t>i] = <void*>stage
            self.stages.append(stage)

    def __dealloc__(self):
        free(self._stages)

    cdef int handle(self, const Event* event) except -1 nogil:
        return (<RegionStage>self._stages[event.replica]).reach(<int32_t>event.payload, event.time_ns)

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self._num_gateways):
            if self._stages[i] != NULL:                         # a gateway of decode legs has none
                (<RegionStage>self._stages[i]).leave(row, now_ns)
        return 0

    def regions(self):
        """Return the region that serves each request, or would, as numbered in names, int32 (requests,)."""
        found = [stage.arrays for stage in self.stages]
        regions = found[0]["regions"]
        for arrays in found[1:]:
            regions = np.where(arrays["is_away"] > 0, arrays["regions"], regions)
        return regions

    def back_ns(self, rows=slice(None)):
        """Return the time that answers to some requests take to their clients, int64 ns."""
        return self._latency_ns[self.regions()[rows], self.stages[0].arrays["homes"][rows]]

    def report(self, run):
        """See Operation: home and region of each request, as numbered in names."""
        run.columns["home_region"], run.columns["region"] = self.stages[0].arrays["homes"], self.regions().copy()
