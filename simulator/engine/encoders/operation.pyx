"""Encoding of prompt items on replicas of their own, before the requests are routed.

An admitted request waits until all its items have been encoded and sent on; then it is routed. Each item is a job
of its own, and the jobs of a request are encoded in parallel. vLLM's proxy for encoder replicas does the same
(examples/online_serving/disaggregated_encoder, disagg_epd_proxy.py: a request for each item, without the text; the
whole one when all have been answered), with the encoders as ECConnector producers and the prefill replica as the
consumer.
"""
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.debug cimport SIM_DEBUG
from simulator.core.event_queue cimport Event
from simulator.core.index_list cimport IndexLinks
from simulator.domain.request cimport COMPLETED
from simulator.engine.fleet.events cimport ENCODE, ENCODERS

from itertools import product

import numpy as np

from simulator.domain.encoding import Encoding
from simulator.domain.items import items_of
from simulator.engine.encoders.jobs import as_requests, jobs_of, one_by_one

cdef enum:
    BATCH = -1                  # payload of an event that concerns no job: a batch ends
    CHECKED = 100               # batches of a replica after which its state is checked, in debug builds


@cython.final
cdef class Encoders(Operation):
    """The encode pools of a cluster.

    settings : EncodePlan. fleet : the other replicas. gateways : one for each model, which admit requests.
    plan : ClusterPlan.
    """

    def __init__(self, settings, Fleet fleet, gateways, plan):
        cdef EncodeJob[::1] jobs
        cdef const int64_t[::1] begins
        cdef int64_t[::1] encoded = fleet.shared.encoded_tokens
        workload = fleet.shared.workload
        items = workload.items or _no_items(len(workload))
        self.kinds = (ENCODE, ENCODERS)
        self._fleet, self._plan, self._requests = fleet, settings, fleet.requests
        self.table, self._latency_ns = jobs_of(items), settings.latency_ns
        jobs, begins = self.table, items.begins
        self._jobs, self._begins = &jobs[0] if len(jobs) else NULL, &begins[0]
        self._encoded_of = &encoded[0] if len(encoded) else NULL
        self._owners = (items.begins, fleet.shared.encoded_tokens)
        self._left = <int32_t*>malloc((len(workload) + 1) * sizeof(int32_t))
        if self._left == NULL:
            raise MemoryError()
        for row in range(len(workload)):
            self._left[<int64_t>row] = NOT_COME
        self._add_stations(items)
        self._add_groups(gateways, plan, as_requests(items))

    def __dealloc__(self):
        free(self._left)
        free(self._stations)
        free(self._group_of)

    def _add_stations(self, items):
        cdef Station station
        cdef IndexLinks links = IndexLinks()
        cdef int32_t i
        links.grow(len(items.table))
        single = one_by_one(items)
        self.stations = [Station(single, pool, self._plan.bytes_per_s, self.table, links)
                         for pool in self._plan.pools for _ in range(pool.replicas)]
        self._stations = <void**>malloc(len(self.stations) * sizeof(void*))
        if self._stations == NULL:
            raise MemoryError()
        for i, station in enumerate(self.stations):
            self._stations[i] = <void*>station

    def _add_groups(self, gateways, plan, requests):
        cdef Group group
        models = [pool.model for pool in self._plan.pools for _ in range(pool.replicas)]
        self.groups = []
        self._group_of = <void**>malloc(len(models) * sizeof(void*))
        if self._group_of == NULL:
            raise MemoryError()
        regions = [pool.region for pool in self._plan.pools for _ in range(pool.replicas)]
        for (model, gateway), region in product(zip(plan.models, gateways, strict=False), sorted({*regions})):
            own = [i for i, each in enumerate(zip(models, regions, strict=True)) if each == (model, region)]
            if own:
                stream = "encode routing" if len(plan.models) == 1 else f"encode routing {model}"
                stream += f" of region {region}" if region else ""
                group = Group(gateway, region, own, len(models), self._plan, requests, (plan.seed, stream))
                self.groups.append(group)
                for i in own:
                    self._group_of[<int32_t>i] = <void*>group

    cdef bint begin(self, int32_t row, Group group, int64_t now_ns) except -1 nogil:
        cdef int32_t job, replica
        if self._left[row] != NOT_COME:
            return self._left[row] > 0
        self._left[row] = <int32_t>(self._begins[row + 1] - self._begins[row])
        for job in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            replica = self._jobs[job].replica = group.send(job, self._jobs[job].embeddings, now_ns)
            (<Station>self._stations[replica]).put(job, now_ns)
            self._call(<Station>self._stations[replica], replica, now_ns)
        return self._left[row] > 0

    cdef int _call(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil:
        """Have a replica look at its queue after all arrivals of this instant."""
        if station.is_busy or station.is_called or station.num_waiting() == 0:
            return 0
        station.is_called = True
        return self._fleet.events.push(now_ns, ENCODERS, ENCODERS, replica, BATCH)

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int32_t replica = event.replica
        if event.kind == ENCODERS:
            return self._begin_batch(<Station>self._stations[replica], replica, event.time_ns)
        if event.payload == BATCH:
            return self._end_batch(<Station>self._stations[replica], replica, event.time_ns)
        return self._come(<int32_t>event.payload, <Group>self._group_of[replica], event.time_ns)

    cdef int _begin_batch(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int64_t end_ns
        station.is_called = False
        end_ns = station.begin(now_ns)
        return self._fleet.events.push(end_ns, ENCODE, ENCODE, replica, BATCH) if end_ns >= 0 else 0

    cdef int _end_batch(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t i, job, row
        station.end(now_ns)
        for i in range(station.batch.size):
            job = station.batch.rows[i]
            row = self._jobs[job].request
            if not self._jobs[job].hit:
                self._encoded_of[row] += self._jobs[job].embeddings
            if self._requests[row].status >= COMPLETED:         # its request has ended
                (<Group>self._group_of[replica]).left(job, replica, self._jobs[job].embeddings, now_ns)
            else:
                self._fleet.events.push(
                    station.send(job, now_ns) + self._latency_ns, ENCODE, ENCODE, replica, job)
        if SIM_DEBUG and station.batches % CHECKED == 0:
            with gil:
                self.check()
        return self._call(station, replica, now_ns)

    cdef int _come(self, int32_t job, Group group, int64_t now_ns) except -1 nogil:
        """The embeddings of a job have arrived: the request goes on if they are the last."""
        cdef int32_t row = self._jobs[job].request
        self._jobs[job].transferred_ns = now_ns
        group.left(job, self._jobs[job].replica, self._jobs[job].embeddings, now_ns)
        self._left[row] -= 1
        if self._left[row] == 0 and self._requests[row].status < COMPLETED:
            return group.gateway.go_on(row, now_ns)
        return 0

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef int32_t job, replica
        if self._left[row] <= 0:
            return 0
        for job in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            replica = self._jobs[job].replica
            if (<Station>self._stations[replica]).withdraw(job):
                (<Group>self._group_of[replica]).left(job, replica, self._jobs[job].embeddings, now_ns)
                self._call(<Station>self._stations[replica], replica, now_ns)       # the next in its queue may fit now
        return 0

    def report(self, run):
        """Add the jobs encoded, and busy time and batches of each replica."""
        run.tables["encode_jobs"] = jobs = self.table[self.table["queued_ns"] >= 0]
        run.records["encode"] = Encoding(
            jobs,
            np.array([station.busy_ns for station in self.stations], np.int64),
            np.array([station.batches for station in self.stations], np.int64), self._plan.pools)
        largest = int(self.table["embeddings"].max(initial=0))
        for pool in self._plan.pools:
            for key, given in (("cache_tokens", pool.cache_embeddings),
                               ("max_num_encoder_input_tokens", pool.max_embeddings)):
                if given < largest:
                    run.diagnosis.append(
                        f'pool "{pool.name}": the largest item has {largest:,} embeddings, more than {key} = '
                        f"{given:,}, which counts as that many, as in vLLM")

    # ---- the face for tests and exploration

    def check(self):
        """Raise RuntimeError unless queues and batches agree with the table."""
        jobs = self.table
        for i, station in enumerate(self.stations):
            own = (jobs["replica"] == i) & (jobs["start_ns"] >= 0)
            computed = np.flatnonzero(own & (jobs["end_ns"] < 0)).tolist()
            station.check(computed)
            if station.is_busy != bool(computed):
                raise RuntimeError(f"encode replica {i} is busy: {station.is_busy}, with jobs {computed}")


def _no_items(num_requests):
    """Return a count of zero items for each request."""
    none = np.zeros(0, np.int64)
    return items_of(np.zeros(num_requests, np.int64), none, none, none)
