"""`weka`: traces of coding agents, one play a file; a directory of traces is read by file name.

Sources: callanjfox/kv-cache-tester, docs/trace_replay_tester.md and traces/ (AgentX's corpora); dependencies of
requests: ai-dynamo/aisimulate, crates/core/src/replay/loadgen/weka.rs. An id identifies block_size tokens and all
tokens before, within its file; tokens without ids are the request's own. A request does not come before its time `t`,
counted from the play's first request, and waits for

- the end of the request before it in its chain, and the recorded time between both;
- at a chain's beginning, the request after which it left another chain: its end, or its arrival if it still ran then;
- the last request before a subagent's marker, if it is the first of a subagent;
- the last request of a "completed" subagent, if it is the parent's first one that came at or after its end;
- in each other chain of the agent, the request that ended last before this one began.

Models and recorded times other than t and api_time are ignored.
"""
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, number_of
from simulator.workload.columns import Columns, Prompts
from simulator.workload.formats.agent_graphs import AgentGraphs, ns_of_s
from simulator.workload.formats.blocks import run_prompts
from simulator.workload.formats.dependency_cycles import rows_in_cycles
from simulator.workload.formats.mooncake import OutputTokens, PromptTokens
from simulator.workload.formats.weka_chains import EPSILON_S, Chain, Turn, chains_of
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text
from simulator.workload.reading.json_lines import numbered_lines, refuse

Seconds = Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 4e9)]
BLOCKING = {"completed": True, "async_launched": False}
NEEDED = "id, block_size, requests"
NO_API_TIME = "requests of the trace without api_time, which count as answered at once where it was recorded"
NO_REQUESTS = "subagents of the trace without requests, which are left out"


class Entry(msgspec.Struct, gc=False, rename={"prompt_tokens": "in", "output_tokens": "out"}):
    """One request, or the marker of a subagent with its requests."""

    t: Seconds
    type: Literal["n", "s", "subagent"]
    model: str = ""
    prompt_tokens: PromptTokens | None = None
    output_tokens: OutputTokens | None = None
    hash_ids: list[Annotated[int, Meta(ge=0, le=2**63 - 1)]] = []
    api_time: Seconds | None = None
    duration_ms: Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 4e6)] | None = None
    status: str = ""
    agent_id: str = ""
    requests: list["Entry"] = []


class Trace(msgspec.Struct, gc=False):
    """One play."""

    id: str
    requests: list[Entry]
    block_size: Annotated[int, Meta(ge=1, le=2**20)] = 64
    hash_id_scope: Literal["local"] = "local"


class Weka:
    """The reader of Weka's traces."""

    SUFFIXES = (".json", ".jsonl")

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, play by play.

        In .jsonl each line is one play.

        Raises
        ------
        InputErrors
            All faults of the file.
        """
        return self.read_files([(str(path), data)])

    def read_files(self, files: Iterable[tuple[str, bytes]]) -> Columns:
        """Return the requests of all files, play by play.

        files : pairs of path and content.
        """
        graphs, parts, counts, code = AgentGraphs(), [], Counter(), 0
        wrong, lines = [], {}
        for path, data in files:
            faults = Faults(path)
            for number, trace in _traces(path, data, faults):
                first, where = len(graphs), f"{path}:{number}" if number else path
                if lines.setdefault(trace.id, where) != where:
                    faults.add(number, f"id: expected one that {lines[trace.id]} does not have, "
                                       f"found {quoted(trace.id)}")
                ids = Lowering(graphs, trace, number, faults, counts).add()
                tokens = np.array(graphs.prompt_tokens[first:], np.int64)
                prompts, code = run_prompts(ids, trace.block_size, tokens, code)
                parts.append(_moved(prompts, first))
            try:
                faults.raise_if_any()
            except InputErrors as error:
                wrong += error.faults
        if wrong:
            raise InputErrors(wrong)
        if not len(graphs):
            raise InputErrors([f"{path}: there are no requests in it"])
        prompts = Prompts(*(np.concatenate([getattr(part, name) for part in parts])
                            for name in ("num_segments", "streams", "num_tokens")))
        return graphs.columns(prompts, notes=tuple(f"{what}: {count}" for what, count in sorted(counts.items())))


def _traces(path: str, data: bytes, faults: Faults) -> Iterable[tuple[int, Trace]]:
    check_text(path, data)
    decoder = msgspec.json.Decoder(Trace)
    in_lines = path.removesuffix(".gz").endswith(".jsonl")
    for number, text in numbered_lines(data) if in_lines else [(0, data.removeprefix(b"\xef\xbb\xbf"))]:
        try:
            yield number, decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            refuse(number, text, error, NEEDED, faults)


def _moved(prompts: Prompts, first: int) -> Prompts:
    """Return prompts renumbered for rows that count from `first`."""
    is_own = prompts.streams & 3 != 0
    return Prompts(prompts.num_segments, prompts.streams + (is_own * first << 2), prompts.num_tokens)


class Lowering:
    """Adds the requests of one trace, and their dependencies."""

    def __init__(self, graphs: AgentGraphs, trace: Trace, number: int, faults: Faults, counts: Counter):
        self._graphs, self._trace, self._number, self._faults, self._counts = graphs, trace, number, faults, counts
        self._play = graphs.plays[-1] + 1 if len(graphs) else 0
        self._first, self._first_edge = len(graphs), len(graphs.sources)
        self._ids = []

    def add(self) -> list[list[int]]:
        """Add the requests; return the ids of each."""
        starts_s = [entry.t for entry in self._trace.requests if entry.type != "subagent"]
        if not starts_s:
            self._faults.add(self._number, "requests: a trace needs one of its own, beside subagents")
            return []
        nested_s = [marker.t + entry.t for marker in self._trace.requests for entry in marker.requests]
        self._base_s = min(starts_s + nested_s)
        turns, markers = [], []
        for order, entry in enumerate(self._trace.requests):
            if entry.type != "subagent":
                turns.append(self._turn(entry, order, self._trace.id))
            elif self._is_sound(entry, turns):
                name = f"{self._trace.id}/{entry.agent_id or order}"
                inner = [self._turn(each, place, name, entry.t) for place, each in enumerate(entry.requests)]
                markers.append((order, entry, turns[-1], inner))
        chains = chains_of(turns)
        self._connect(chains)
        for marker in markers:
            self._call(*marker, chains)
        edges = slice(self._first_edge, None)
        if rows_in_cycles(len(self._graphs), self._graphs.sources[edges], self._graphs.targets[edges]):
            self._faults.add(self._number, "requests: some wait for themselves, by way of others; are they in order?")
        return self._ids

    def _turn(self, entry: Entry, order: int, session: str, since_s: float = 0.0) -> Turn:
        start_s = since_s + entry.t
        blocks = 0
        for key, value in (("in", entry.prompt_tokens), ("out", entry.output_tokens)):
            if value is None:
                self._faults.add(self._number, f"requests: the one at t = {entry.t:g} has no `{key}`")
        if entry.prompt_tokens is not None:
            blocks = entry.prompt_tokens // self._trace.block_size
            if len(entry.hash_ids) > -(-entry.prompt_tokens // self._trace.block_size):
                self._faults.add(self._number, (
                    f"hash_ids: expected {number_of(blocks, 'id')} at t = {entry.t:g}, blocks of "
                    f"{self._trace.block_size} tokens "
                    f"for in {entry.prompt_tokens}, found {len(entry.hash_ids)}"))
        if entry.api_time is None:
            self._counts[NO_API_TIME] += 1
        ids = entry.hash_ids[:blocks]
        self._ids.append(ids)
        self._graphs.sessions.append(session)
        self._graphs.request_ids.append(f"{session}/{order}")
        at_ns = ns_of_s(start_s - self._base_s)
        row = self._graphs.add(self._play, entry.prompt_tokens or 1, entry.output_tokens or 0, at_ns=at_ns,
                               not_before_ns=at_ns)
        return Turn(start_s, order, row, start_s + (entry.api_time or 0.0), entry.model, ids)

    def _is_sound(self, marker: Entry, turns: list[Turn]) -> bool:
        """Return whether a subagent has requests and a caller; add faults."""
        where = f"requests: subagent {quoted(marker.agent_id)}"
        if marker.status not in BLOCKING:
            self._faults.add(self._number, f'{where}: status: expected "completed" or "async_launched", '
                                           f"found {quoted(marker.status)}")
        if not turns:
            self._faults.add(self._number, f"{where}: no request comes before it, which could have called it")
        if any(entry.type == "subagent" for entry in marker.requests):
            self._faults.add(self._number, f"{where}: a subagent inside a subagent is not understood")
        if not marker.requests:
            self._counts[NO_REQUESTS] += 1
        return bool(turns) and bool(marker.requests)

    def _connect(self, chains: list[Chain]) -> None:
        """Add the dependencies between an agent's turns."""
        for chain in chains:
            for before, turn in zip(chain.turns, chain.turns[1:], strict=False):
                self._wait(before, turn)
            if chain is not chains[0] and chain.fork is not None:
                self._spawn(chain.fork.turn, chain.turns[0])
        if len(chains) == 1:
            return
        for chain in chains:
            for turn in chain.turns:
                for other in chains:
                    ended = [each for each in other.turns if each.start_s < turn.start_s
                             and each.end_s <= turn.start_s + EPSILON_S] if other is not chain else ()
                    if ended:
                        latest = max(ended, key=lambda each: (each.end_s, each.start_s, each.order))
                        self._graphs.wait(latest.row, turn.row, 0)

    def _call(self, order: int, marker: Entry, caller: Turn, inner: list[Turn], parents: list[Chain]) -> None:
        """Let a subagent wait for its caller, and the user of its result for its end."""
        chains = chains_of(inner)
        self._spawn(caller, chains[0].turns[0])
        self._connect(chains)
        if not BLOCKING.get(marker.status):
            return
        end_s = max(turn.end_s for turn in inner)
        if marker.duration_ms is not None:
            end_s = marker.t + marker.duration_ms / 1e3
        caller_chain = next(chain for chain in parents if caller in chain.turns)
        users = [turn for turn in caller_chain.turns if turn.order > order and turn.start_s + EPSILON_S >= end_s]
        if users:
            user = min(users, key=lambda turn: turn.order)
            for chain in chains:
                self._wait(chain.turns[-1], user)

    def _spawn(self, caller: Turn, first: Turn) -> None:
        if first.start_s < caller.end_s:
            self._graphs.wait(caller.row, first.row, ns_of_s(max(0.0, first.start_s - caller.start_s)), True)
        else:
            self._wait(caller, first)

    def _wait(self, source: Turn, target: Turn) -> None:
        self._graphs.wait(source.row, target.row, ns_of_s(max(0.0, target.start_s - source.end_s)))
