"""`aiperf_dag`: JSON Lines of AIPerf's sessions that call each other, one session a line.

Source: ai-dynamo/aiperf, docs/benchmark-modes/dag.md: session_id; turns with max_tokens, delay (ms, before the turn),
forks and spawns. An additional key is `input_tokens`, the length of a turn's whole prompt, since there is no tokenizer.
Sessions called by a turn begin when it ends. A forked child continues its parent's text, and unless it runs in the
background the parent ends there; a spawned child begins anew, and turn `join_at` (from 0; default: the next) waits for
its end. Each session without a caller is the root of a play. The file has no start times of plays.
"""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import (
    AgentGraphs,
    components,
    extended,
    length_of,
    ns_of_ms,
    output_of,
    own_of,
)
from simulator.workload.formats.json_lines import JsonLines
from simulator.workload.formats.mooncake import Milliseconds, OutputTokens, PromptTokens
from simulator.workload.reading.faults import Faults, quoted


class Fork(msgspec.Struct):
    """A child that continues the text of its parent."""

    child: str
    background: bool = False


class Spawn(msgspec.Struct):
    """Children that begin anew."""

    children: list[str]
    join_at: Annotated[int, Meta(ge=0)] | None = None


class Turn(msgspec.Struct):
    """One request."""

    max_tokens: OutputTokens | None = None
    input_tokens: PromptTokens | None = None
    delay: Milliseconds | None = None
    forks: list[str | Fork] = []
    spawns: list[str | Spawn] = []


class Line(msgspec.Struct):
    """One session."""

    session_id: str
    turns: Annotated[list[Turn], Meta(min_length=1)]
    pre_session_spawns: object = None
    orchestrator: object = None
    rounds: object = None


class AiperfDag(JsonLines):
    """The reader of AIPerf's graphs of sessions."""

    kind, needed, things = Line, "session_id, turns", "sessions"

    def check(self, number: int, line: Line, faults: Faults) -> None:
        for key in ("pre_session_spawns", "orchestrator", "rounds"):
            if getattr(line, key) is not None:
                faults.add(number, f"{key}: is not understood; write its sessions out, with spawns")
        for place, turn in enumerate(line.turns):
            if turn.max_tokens is None:
                faults.add(number, f"turns[{place}].max_tokens: says how long the output is, and is missing")
            if turn.input_tokens is None:
                faults.add(number, f"turns[{place}].input_tokens: is missing; there is no tokenizer here: count the "
                                   "tokens of the whole prompt with the model's own and write their number there")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        return Graph(lines, faults).columns()


class Graph:
    """Sessions, and the turns that call them."""

    def __init__(self, lines: list[tuple[int, Line]], faults: Faults):
        self._lines, self._faults, self._graphs = lines, faults, AgentGraphs()
        self._index, self._first_row, num_rows = {}, [], 0
        for index, (number, line) in enumerate(lines):
            if self._index.setdefault(line.session_id, index) != index:
                faults.add(number, f"session_id: expected one that no other line has, found {quoted(line.session_id)}")
            self._first_row.append(num_rows)
            num_rows += len(line.turns)
        self._callers = {}              # session -> (row of the calling turn, whether it continues that turn's text)

    def columns(self) -> Columns:
        """Return the requests; raise InputErrors with all faults."""
        for _, line in self._lines:
            for place, turn in enumerate(line.turns):
                row = self._graphs.add(0, turn.input_tokens, turn.max_tokens)
                self._graphs.sessions.append(line.session_id)
                self._graphs.request_ids.append(f"{line.session_id}.{place}")
                if place:
                    self._graphs.wait(row - 1, row, ns_of_ms(turn.delay or 0.0))
        for index, (_, line) in enumerate(self._lines):
            for place, turn in enumerate(line.turns):
                self._fork(index, place, turn.forks)
                for spawn in turn.spawns:
                    self._spawn(index, place, Spawn([spawn]) if isinstance(spawn, str) else spawn)
        for index, (number, line) in enumerate(self._lines):
            if index not in self._callers and line.turns[0].delay:
                self._faults.add(number, "turns[0].delay: nobody calls the session, so there is nothing to wait for")
        for row in self._graphs.rows_in_cycles():
            self._faults.add(self._lines[self._session_at(row)][0], f"turn {self._graphs.request_ids[row]} waits for "
                                                                    "itself, by way of others")
        self._faults.raise_if_any()
        self._graphs.plays = components(len(self._graphs), self._graphs.sources, self._graphs.targets)
        self._write_prompts()
        self._faults.raise_if_any()
        return self._graphs.columns(has_times=False)

    def _session_at(self, row: int) -> int:
        return self._index[self._graphs.sessions[row]]

    def _fork(self, index: int, place: int, forks: list) -> None:
        number, line = self._lines[index]
        for fork in forks:
            fork = Fork(fork) if isinstance(fork, str) else fork
            self._call(index, place, fork.child, inherits=True)
            if not fork.background and place + 1 < len(line.turns):
                self._faults.add(number, f"turns[{place}].forks: the session ends with the fork "
                                         f"{quoted(fork.child)}, but more turns follow; is it a background one?")

    def _spawn(self, index: int, place: int, spawn: Spawn) -> None:
        number, line = self._lines[index]
        join_at = place + 1 if spawn.join_at is None else spawn.join_at
        if spawn.join_at is not None and not place < spawn.join_at < len(line.turns):
            self._faults.add(number, f"turns[{place}].spawns: join_at: expected a later turn, {place + 1} to "
                                     f"{len(line.turns) - 1}, found {spawn.join_at}")
            return
        for name in spawn.children:
            child = self._call(index, place, name, inherits=False)
            if child is not None and join_at < len(line.turns):
                last = self._first_row[child] + len(self._lines[child][1].turns) - 1
                self._graphs.wait(last, self._first_row[index] + join_at, 0)

    def _call(self, index: int, place: int, name: str, inherits: bool) -> int | None:
        number = self._lines[index][0]
        child = self._index.get(name)
        if child is None:
            self._faults.add(number, f"turns[{place}]: expected the session_id of a line, found {quoted(name)}")
        elif child in self._callers:
            self._faults.add(number, f"turns[{place}]: session {quoted(name)} is called twice; write it out twice")
        else:
            caller = self._first_row[index] + place
            self._callers[child] = caller, inherits
            delay_ms = self._lines[child][1].turns[0].delay or 0.0
            self._graphs.wait(caller, self._first_row[child], ns_of_ms(delay_ms))
        return child

    def _write_prompts(self) -> None:
        """Write the prompt of each turn: the text that it continues, and tokens of its own."""
        histories = [None] * len(self._graphs)
        pending = [index for index in range(len(self._lines)) if index not in self._callers]
        children = {}
        for child, (caller, _) in self._callers.items():
            children.setdefault(caller, []).append(child)
        while pending:
            index = pending.pop()
            caller, inherits = self._callers.get(index, (None, False))
            before = caller if inherits else None
            for row in range(self._first_row[index], self._first_row[index] + len(self._lines[index][1].turns)):
                histories[row] = self._prompt(row, before, histories)
                pending += children.get(row, ())
                before = row
        self._graphs.histories = histories

    def _prompt(self, row: int, before: int | None, histories: list) -> list[tuple]:
        history = []
        if before is not None:
            history = extended(histories[before], output_of(before, self._graphs.output_tokens[before]))
        new_tokens = self._graphs.prompt_tokens[row] - length_of(history)
        if new_tokens < 0:
            self._faults.add(self._lines[self._session_at(row)][0], (
                f"input_tokens: expected {length_of(history)} at least in turn {self._graphs.request_ids[row]}, the "
                f"prompt and output of the turn before it, found {self._graphs.prompt_tokens[row]}"))
        return extended(history, own_of(row, new_tokens))
