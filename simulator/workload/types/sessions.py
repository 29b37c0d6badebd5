"""`sessions`: conversations whose next turn waits for the last one, with histories that grow."""
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Seconds, TimeChoice
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Prompts, Waits, first_rows, nearest, reordered
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.drawing.timing import Arrival, RateChoice, Timing
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.wanted import WANTED, Wanted

MAX_SESSIONS = 10**8
MAX_TURNS = 2**31 - 1


class Sessions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session is, [workload.sessions].

    A prompt is what came before in its session, with the outputs as long as they really were, and new tokens.
    """

    rounds: Annotated[LengthChoice, Meta(description="turns of a session")]
    new_tokens: Annotated[LengthChoice, Meta(description="that each turn adds to the prompt")]
    first_tokens: Annotated[LengthChoice | None, Meta(description=(
        "those of the first turn; absent: as new_tokens"))] = None
    output_tokens: Annotated[LengthChoice, Meta(description="output lengths")]
    think_time_s: Annotated[Seconds | TimeChoice, Meta(description="from an answer to the next turn")] = 0.0
    prefix_groups: Annotated[int, Meta(ge=0, le=2**24, description=(
        "system prompts, of which each session begins with one; 0: with none"))] = 0
    prefix_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS, description="length of each")] = 0
    accumulate: Annotated[bool, Meta(description="a turn's prompt holds all before it")] = True
    on_reject: Annotated[Literal["continue", "end"], Meta(description=(
        "a turn that was refused: the next is due after the think time, or is not sent"))] = "end"
    on_overflow: Annotated[Literal["end", "error", "slide"], Meta(description=(
        "a turn whose prompt and a token do not fit max_model_len: the session ends before it; the experiment is "
        "refused; the oldest turns behind the system prompt are left out"))] = "end"

    def __post_init__(self):
        if (self.prefix_groups > 0) != (self.prefix_tokens > 0):
            raise ValueError("prefix_groups and prefix_tokens go together")


class SessionsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drawn conversations: so many, all that begin in time, or what both allow."""

    num_sessions: Annotated[Annotated[int, Meta(ge=1, le=MAX_SESSIONS)] | None, Meta(description=(
        "how many sessions"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "no turn comes at or after this time"))] = None
    arrival: Annotated[Arrival | None, Meta(description=(
        "when sessions begin; absent where [workload.load] says so"))] = None
    rate: Annotated[RateChoice | None, Meta(description=(
        "a rate of sessions that changes, at which the process of [workload.arrival], or poisson, draws"))] = None
    sessions: Annotated[Sessions, Meta(description="what a session is")]


class SessionsWorkload:
    """Drawn conversations. Each property has its own random stream."""

    Parameters = SessionsParameters

    def __init__(self, parameters: SessionsParameters):
        self.parameters = parameters
        self.timing = Timing(parameters.arrival, parameters.rate, "session")

    def columns(self, streams: RandomStreams, wanted: Wanted = WANTED) -> Columns:
        """Return the turns, session by session.

        Raises
        ------
        InputErrors
            No session, or a prompt that is empty or too long.
        """
        given = self.parameters.sessions
        start_ns = self._starts(streams, wanted)
        rounds = np.maximum(_lengths(given.rounds, streams, "rounds", len(start_ns)), 1)
        if rounds.sum() > MAX_TURNS:
            raise InputErrors([KeyFault(f"workload.sessions: {rounds.sum()} turns, at most {MAX_TURNS} are possible")])
        session = np.repeat(np.arange(len(rounds)), rounds)
        turn = np.arange(len(session)) - np.repeat(np.cumsum(rounds) - rounds, rounds)
        new = _lengths(given.new_tokens, streams, "new_tokens", len(session))
        if given.first_tokens is not None:
            new = np.where(turn == 0, _lengths(given.first_tokens, streams, "first_tokens", len(rounds))[session], new)
        if new.min() < 1:
            raise InputErrors([KeyFault("workload.sessions: draws a turn of 0 new tokens; raise min to 1 or more")])
        output = _lengths(given.output_tokens, streams, "output_tokens", len(session))
        group = streams.generator("prefix_groups").integers(0, max(given.prefix_groups, 1), len(rounds))
        history = _Histories(given, session, turn, new, output, wanted.longest_text)
        columns = Columns(
            start_ns[session], history.prompt_tokens, output, labels={"session": (session, _names(len(rounds)))},
            prompts=history.prompts(group), waits=_waits(given, session, turn, streams))
        return _without(columns, history.ends_before(turn))

    def _starts(self, streams: RandomStreams, wanted: Wanted) -> np.ndarray:
        """Return when each session begins, in ns."""
        given = self.parameters
        is_bounded = given.num_sessions or given.duration_s or wanted.num_requests
        if not (is_bounded or (wanted.arrivals and self.timing.ends_by_itself)):
            raise InputErrors([KeyFault("workload: give num_sessions, duration_s, or both")])
        if wanted.arrivals:
            return self.timing.arrivals_ns(streams.generator("arrivals"), streams, given.num_sessions, given.duration_s)
        if given.rate is not None:
            raise InputErrors([KeyFault("workload.rate: [workload.load] says when sessions begin; leave it out")])
        return np.zeros(wanted.num_requests or given.num_sessions, np.int64)


class _Histories:
    """What the prompt of each turn holds.

    prompt_tokens : int64 (n,).
    """

    def __init__(self, given: Sessions, session, turn, new, output, longest_text):
        self._given, self._session, self._turn, self._new, self._output = given, session, turn, new, output
        self._first = np.arange(len(turn)) - turn                   # row of the session's first turn
        ends = np.cumsum(new + output)                              # of each turn's tokens in all texts
        self._before = ends - (new + output)
        self._oldest = self._first.copy() if given.accumulate else np.arange(len(turn))
        self._prefix = given.prefix_tokens if given.prefix_groups else 0
        self.is_too_long = np.zeros(len(turn), bool)
        self.prompt_tokens = self._lengths()
        if longest_text is not None:
            self._fit(longest_text() - 1)
        if self.prompt_tokens.max() > MAX_TOKENS:
            raise InputErrors([KeyFault(f"workload.sessions: a prompt of {self.prompt_tokens.max()} tokens, at most "
                                        f"{MAX_TOKENS} are possible")])

    def _lengths(self) -> np.ndarray:
        return self._prefix + self._before - self._before[self._oldest] + self._new

    def _fit(self, longest: int) -> None:
        """Do what `on_overflow` says with turns whose prompt is longer than this."""
        while self._given.on_overflow == "slide":
            slides = (self._lengths() > longest) & (self._oldest < np.arange(len(self._turn)))
            if not slides.any():
                break
            self._oldest += slides
        self.prompt_tokens = self._lengths()
        self.is_too_long = self.prompt_tokens > longest
        if self._given.on_overflow == "error" and self.is_too_long.any():
            row = int(np.argmax(self.is_too_long))
            raise InputErrors([KeyFault(
                f"workload.sessions.on_overflow: turn {self._turn[row]} of session {self._session[row]} has a prompt "
                f"of {self.prompt_tokens[row]} tokens, at most {longest} leave room for an answer")])

    def ends_before(self, turn: np.ndarray) -> np.ndarray:
        """Return which turns are left out: those that are too long, and all after them."""
        too_long = np.where(self.is_too_long, turn, np.iinfo(np.int64).max)
        first = np.full(int(self._session[-1]) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, self._session, too_long)
        return turn >= first[self._session]

    def prompts(self, group: np.ndarray) -> Prompts:
        """Return the prompts: system prompt, then by turn its new tokens and output."""
        has_prefix = int(self._prefix > 0)
        rows = np.arange(len(self._turn))
        counts = has_prefix + 2 * (rows - self._oldest) + 1
        owner = np.repeat(rows, counts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) - has_prefix
        source = self._oldest[owner] + np.maximum(place, 0) // 2
        is_output = place % 2 == 1
        streams = np.where(is_output, records.output_stream(source), records.own_stream(source))
        num_tokens = np.where(is_output, self._output[source], self._new[source])
        if has_prefix:
            streams = np.where(place < 0, records.named_stream(group[self._session[owner]]), streams)
            num_tokens = np.where(place < 0, self._prefix, num_tokens)
        kept = num_tokens > 0                                       # an output of nothing is no segment
        return Prompts(np.bincount(owner[kept], minlength=len(rows)), streams[kept], num_tokens[kept])


def _lengths(choice: LengthChoice, streams: RandomStreams, name: str, count: int) -> np.ndarray:
    distribution = registry.load("length_distribution", choice.distribution)(choice.parameters)
    return distribution.draw(streams.generator(f"session {name}"), count)


def _names(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _waits(given: Sessions, session: np.ndarray, turn: np.ndarray, streams: RandomStreams) -> Waits:
    targets = np.flatnonzero(turn > 0)
    if isinstance(given.think_time_s, float):
        think_s = np.full(len(session), given.think_time_s)
    else:
        chosen = given.think_time_s
        distribution = registry.load("time_distribution", chosen.distribution)(chosen.parameters)
        think_s = distribution.draw(streams.generator("session think_time_s"), len(session))
    return Waits(session, targets - 1, targets, nearest(think_s[targets] * 1e9), np.zeros(len(targets), bool))


def _without(columns: Columns, is_left_out: np.ndarray) -> Columns:
    """Return the turns but for some at the ends of sessions."""
    if not is_left_out.any():
        return columns
    rows = np.concatenate([np.flatnonzero(~is_left_out), np.flatnonzero(is_left_out)])
    kept = first_rows(replace(reordered(columns, rows), most=int(np.sum(~is_left_out))))
    plays = np.unique(kept.waits.plays, return_inverse=True)[1]
    note = (f"{is_left_out.sum()} turns of {len(np.unique(columns.waits.plays[is_left_out]))} sessions were left out: "
            "their prompts would be longer than max_model_len (workload.sessions.on_overflow)")
    return replace(kept, waits=replace(kept.waits, plays=plays), notes=(*kept.notes, note))
