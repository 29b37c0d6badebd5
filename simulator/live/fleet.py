"""The cluster of an experiment, with requests that come while it runs: it has a clock, but does not wait for it."""
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from simulator.assembly.assemble import Prepared, build
from simulator.domain import records
from simulator.engine.hand_over.journeys import with_prefill_times
from simulator.engine.sources.fed import Fed
from simulator.live.actions import Actions, LosesLinks, with_upkeep
from simulator.live.labels import COLUMNS, labels_of
from simulator.live.supported import acts_live
from simulator.workload.base import Workload

BLANK_PROMPT_TOKENS = 2         # of requests while the cluster is built
SEGMENTS_EACH = 16              # room for so many pieces of prompts a request, on average


class LiveRequest(NamedTuple):
    """A request as its client sends it, with the answer that it will get.

    segments : its prompt, as `prompts.Texts.add` returns it; None: `prompt_tokens` of its own.
    door : index of the model that it names, among those of `LiveFleet`; -1: it names none.
    labels : names of its tenant, session, slo_class, adapter and grammar, by column; "": none.
    ids : tokens of prompt and answer, int32, for KV events; None: there are none. salt : of its KV cache.
    max_tokens : declared limit of the answer. output_tokens : true length of the answer, >= 1.
    """

    prompt_tokens: int
    max_tokens: int
    output_tokens: int
    segments: Sequence[tuple[int, int]] | None = None
    priority: int = 0
    door: int = -1
    labels: Mapping[str, str] = MappingProxyType({})
    ids: np.ndarray | None = None
    salt: str = ""


class Message(NamedTuple):
    """News for a client; in order of the time at which it is due.

    sequence : of the news, in order of their discovery. tokens : of the answer; 0: the request has ended.
    status : with which it ended, records.COMPLETED, ...; records.RUNNING: it goes on. cause : why it was refused, of
    records.CAUSE_NAMES; "": it was not, or the fleet keeps no causes.
    """

    time_ns: int
    sequence: int
    row: int
    tokens: int
    status: int
    cause: str = ""


class Full(Exception):
    """No room is left for a further request."""


class LiveFleet:
    """Replicas that serve requests given one by one.

    Results equal those of a run of the same requests.

    Each arrival and each cancellation has an instant of its own, later than all that was simulated before: so the
    recorded instants alone give the order of all inputs.

    prepared : an experiment that `refusals.check` lets pass.
    most_requests : number of requests until the end, >= 2.
    doors : names of models that requests may name; (): none.
    """

    def __init__(self, prepared: Prepared, most_requests: int, doors: Sequence[str] = ()):
        self.labels = labels_of(prepared.experiment, prepared.workload, most_requests)
        self.workload = _blank(most_requests)
        self.workload.labels = self.labels.names | ({"model": list(doors)} if doors else {})
        self.labels.declare(self.workload.demands)
        self.count = 0                          # requests so far
        self.reached_ns = -1                    # all that happens up to this instant has been simulated
        self.is_stopped = False                 # the engine cannot go on
        self.events = None                      # CacheEvents, before anything is simulated; None: no KV events
        self._last_input_ns = -1
        self._num_segments = 0
        self._open: set[int] = set()
        self._news: list[Message] = []
        self._sequence = 0
        prepared, why_not = with_upkeep(prepared)
        parts = [part for part in prepared.parts if acts_live(type(part))]
        if not why_not:
            parts.append(LosesLinks(prepared.experiment))
        prepared = msgspec.structs.replace(prepared, workload=self.workload, parts=tuple(parts))
        self.cluster = build(prepared, self, source=Fed)
        self.actions = Actions(prepared.experiment, self.cluster, self._free_instant, why_not)
        self._recorder, self._legs = self.cluster.fleet.recorder, self.cluster.fleet.workload
        self._leaves_a_token = self._legs.num_prefill_legs > 0 and bool(
            self._legs.requests["prompt_tokens"][most_requests] < BLANK_PROMPT_TOKENS)
        self.workload.demands["deadline_ns"] = records.NEVER_NS
        self.workload.demands["num_segments"] = 0
        self._pools = prepared.pools
        self._deliveries = [self.cluster.replicas[first].rank.delivery for first in _firsts(prepared.pools)]
        self._num_finished = 0
        self.cluster.begin()

    # ---- the engine's sink of tokens

    wants_iterations, wants_tokens = False, True
    streams: ClassVar[dict] = {}

    def tokens(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        for time_ns, row, tokens in rows.tolist():
            self._announce(time_ns, row, tokens, records.RUNNING)

    def append(self, name: str, rows: np.ndarray) -> None:
        """Take rows of a table that only results have."""

    # ---- input

    def submit(self, request: LiveRequest, now_ns: int) -> int:
        """Let a request arrive, now or at the next free instant; return its row.

        Raises
        ------
        Full
            As many requests have come as there is room for.
        """
        row, segments = self.count, request.segments or ()
        if row == len(self.workload) or self._num_segments + len(segments) > len(self.workload.segments):
            raise Full
        self._put_prompt(row, segments)
        shown, declared = self.workload.requests[row], self.workload.demands[row]
        shown["arrival_ns"], shown["prompt_tokens"] = self._free_instant(now_ns), request.prompt_tokens
        declared["max_tokens"], declared["priority"] = request.max_tokens, request.priority
        declared["model"] = request.door
        for column, code in self.labels.codes(request.labels).items():
            declared[column] = code
        self.workload.outcomes["output_tokens"][row] = request.output_tokens
        if self._legs.num_prefill_legs:
            self._put_prefill_leg(row)
        for pool, delivery in zip(self._pools, self._deliveries, strict=True):
            delivery.expect(row, self._target(pool, request))
        self.cluster.source.give()
        self.count += 1
        self._open.add(row)
        if self.events is not None:
            self.events.begin(row, request)
        return row

    def cancel(self, row: int, now_ns: int) -> None:
        """Let the client of a request leave, unless it has its whole answer."""
        if row in self._open and self.workload.demands["deadline_ns"][row] == records.NEVER_NS:
            self.cluster.cancel(row, self._free_instant(now_ns))

    def longest_answer(self, prompt_tokens: int) -> int:
        """Return the most tokens that each pool can answer to a prompt; < 1: none."""
        return min(self._room(pool, prompt_tokens) for pool in self._pools)

    # ---- time

    def advance(self, until_ns: int) -> None:
        """Simulate up to an instant, that instant included."""
        if self.events is not None:             # each instant by itself: KV events are those of a step
            while not self.is_stopped and (next_ns := self.cluster.next_ns()) is not None and next_ns < until_ns:
                self._reach(max(next_ns, self.reached_ns + 1))
        if until_ns > self.reached_ns and not self.is_stopped:
            self._reach(until_ns)

    def _reach(self, until_ns: int) -> None:
        self.reached_ns = until_ns
        self.is_stopped = not self.cluster.advance(until_ns)
        self._recorder.close()                  # it hands on the tokens that it holds
        if self.events is not None:
            self.events.collect(until_ns)
        if self._recorder.finished > self._num_finished:
            self._num_finished = self._recorder.finished
            self._note_ends()

    def next_ns(self) -> int | None:
        """Return when something is due next; None: nothing is before the next request."""
        known = [] if self.is_stopped or (next_ns := self.cluster.next_ns()) is None else [next_ns]
        return min([*known, *(message.time_ns for message in self._news[:1])], default=None)

    def due(self, now_ns: int) -> list[Message]:
        """Return the news that are due, in order."""
        found = []
        while self._news and self._news[0].time_ns <= now_ns:
            found.append(heappop(self._news))
        return found

    # ---- results

    @property
    def max_model_len(self) -> int:
        """Longest text that each pool takes, in tokens."""
        return min(pool.max_model_len for pool in self._pools)

    @property
    def adapter_room(self) -> list[int]:
        """Adapters that each replica can hold at once, ranks included; 0: none."""
        found = []
        for pool in self._pools:
            lora = getattr(pool.parameters, "lora", None)
            found += [getattr(lora, "max_loras", 0)] * pool.places
        return found

    def replicas_of(self, door: int) -> slice:
        """Return the numbers of a pool's replicas, ranks included; -1: of all pools."""
        if door < 0:
            return slice(None)
        first = _firsts(self._pools)[door]
        return slice(first, first + self._pools[door].places)

    @property
    def is_idle(self) -> bool:
        """Whether no client waits for anything."""
        return not self._open and not self._news

    @property
    def num_open(self) -> int:
        """Number of requests without a known end."""
        return len(self._open)

    def open_rows(self) -> list[int]:
        """Return the requests without a known end, in order."""
        return sorted(self._open)

    def served(self) -> Workload:
        """Return the requests so far, with their results."""
        made = self.workload.first(self.count)
        made.segments = self.workload.segments[:self._num_segments].copy()
        made.labels = made.labels | self.labels.used()
        transfers = self.cluster.fleet.shared.transfers
        if transfers is not None:
            legs = self._legs.requests[len(self.workload):]
            with_prefill_times(made.requests, legs[:self.count], transfers[:self.count])
        return made

    # ---- private

    def _free_instant(self, now_ns: int) -> int:
        self._last_input_ns = max(now_ns, self.reached_ns + 1, self._last_input_ns + 1)
        return self._last_input_ns

    def _put_prompt(self, row: int, segments: Sequence[tuple[int, int]]) -> None:
        declared, first = self.workload.demands[row], self._num_segments
        declared["segments_begin"], declared["num_segments"] = first, len(segments)
        if segments:
            self.workload.segments[first:first + len(segments)] = segments
            self._num_segments += len(segments)

    def _put_prefill_leg(self, row: int) -> None:
        """Write the row of a request's prefill leg, as `hand_over.build.with_prefill_legs` does before a run."""
        leg, first = self._legs.num_prefill_legs + row, self.workload.requests[row]
        shown, declared = self._legs.requests[leg], self._legs.demands[leg]
        shown["arrival_ns"] = first["arrival_ns"]
        shown["prompt_tokens"] = first["prompt_tokens"] - (self._leaves_a_token and first["prompt_tokens"] > 1)
        for name in ("priority", "model", "segments_begin", "num_segments", *COLUMNS):
            declared[name] = self.workload.demands[name][row]

    def _room(self, pool, prompt_tokens: int) -> int:
        """Return the longest answer of a pool to a prompt, as the engine's Delivery computes it."""
        limits = pool.scheduler.longest_answers(pool.parameters, pool, np.array([prompt_tokens]))
        return pool.max_model_len - prompt_tokens if limits is None else int(limits[0][0])

    def _target(self, pool, request: LiveRequest) -> int:
        return max(min(request.max_tokens, self._room(pool, request.prompt_tokens), request.output_tokens), 1)

    def _note_ends(self) -> None:
        rows = np.fromiter(self._open, np.int64, len(self._open))
        found = self.workload.requests[rows]
        has_ended = found["status"] > records.RUNNING
        for row, request in zip(rows[has_ended].tolist(), found[has_ended], strict=True):
            self._open.discard(row)
            if self.events is not None:
                self.events.end(row)
            is_complete = request["status"] == records.COMPLETED
            time_ns = int(request["completed_ns"]) if is_complete else self.reached_ns
            self._announce(time_ns, row, 0, int(request["status"]), self._cause(row))

    def _cause(self, row: int) -> str:
        journeys = self.cluster.fleet.shared.journeys
        return "" if journeys is None else records.CAUSE_NAMES[journeys["cause"][row]]

    def _announce(self, time_ns: int, row: int, tokens: int, status: int, cause: str = "") -> None:
        self._sequence += 1
        heappush(self._news, Message(time_ns, self._sequence, row, tokens, status, cause))


def _firsts(pools) -> list[int]:
    """Return the number of each pool's first replica."""
    return np.cumsum([0, *(pool.places for pool in pools[:-1])]).tolist()


def _blank(count: int) -> Workload:
    """Return rows for requests to come.

    While the cluster is built, each prompt is one of another row's tokens, and each request has a deadline: then the
    engine takes all texts for shared ones, and all requests for ones that may be cancelled.
    """
    requests, demands = np.zeros(count, records.REQUEST), np.zeros(count, records.DEMAND)
    for time in ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        requests[time] = records.NEVER_NS
    requests["replica"], requests["prompt_tokens"] = -1, BLANK_PROMPT_TOKENS
    demands["due_ns"] = demands["expected_tokens"] = -1
    for label in ("slo_class", "tenant", "session", "model", "adapter", "grammar"):
        demands[label] = -1
    rows = np.arange(count)
    demands["max_tokens"] = demands["num_segments"] = 1
    demands["segments_begin"] = demands["tie_rank"] = rows
    segments = np.zeros(count * SEGMENTS_EACH, records.SEGMENT)
    segments["stream"][:count] = records.own_stream((rows + 1) % count)
    segments["num_tokens"][:count] = BLANK_PROMPT_TOKENS
    outcomes = np.ones(count, records.OUTCOME)
    return Workload(requests=requests, demands=demands, outcomes=outcomes, segments=segments, request_ids=rows,
                    prompts_use_outputs=True)
