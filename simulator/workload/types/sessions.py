"""`sessions`: conversations in which each turn waits for the turn before, with histories that grow."""
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Seconds, TimeChoice
from simulator.domain.sessions import Histories
from simulator.errors import InputErrors, KeyFault
from simulator.workload.column_options import DEFAULT_OPTIONS, ColumnOptions
from simulator.workload.columns import Columns, Prompts, Waits, first_rows, nearest, reordered
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.drawing.timing import Arrival, RateChoice, Timing
from simulator.workload.history import check_keys
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS

MAX_SESSIONS = 10**8
MAX_TURNS = 2**31 - 1


class Sessions(Histories, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a session, [workload.sessions].

    A prompt consists of the session so far and new tokens.
    """

    rounds: Annotated[LengthChoice, Meta(description="turns of a session")]
    new_tokens: Annotated[LengthChoice, Meta(description="tokens that each turn adds to the prompt")]
    first_tokens: Annotated[LengthChoice | None, Meta(description=(
        "new tokens of the first turn; absent: as new_tokens"))] = None
    output_tokens: Annotated[LengthChoice, Meta(description="output lengths")]
    max_tokens: Annotated[LengthChoice | None, Meta(description=(
        "most output tokens of a turn; a longer output ends there; absent: as output_tokens"))] = None
    reasoning_tokens: Annotated[LengthChoice | None, Meta(description=(
        "output tokens before the answer, at most the whole output; absent: none"))] = None
    think_time_s: Annotated[Seconds | TimeChoice, Meta(description="between a turn and the next")] = 0.0
    think_time_from: Annotated[Literal["arrival", "end"], Meta(description=(
        "start of think_time_s: end: the answer is complete; arrival: the turn came, so that the next comes though the "
        "answer is not complete, as in BLIS's drawn sessions"))] = "end"
    prefix_groups: Annotated[int, Meta(ge=0, le=2**24, description=(
        "number of system prompts; each session begins with one of them; 0: with none"))] = 0
    prefix_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS, description="length of a system prompt")] = 0
    accumulate: Annotated[bool, Meta(description="a turn's prompt begins with all turns before")] = True
    on_reject: Annotated[Literal["continue", "end"], Meta(description=(
        "after a rejected turn: continue: the next turn is due after the think time, with the answer in its prompt "
        "that it would have had; end: it is not sent"))] = "end"
    on_overflow: Annotated[Literal["end", "error", "slide"], Meta(description=(
        "a turn with a prompt that leaves no room for a token in max_model_len: end: the session ends before; error: "
        "the experiment is refused; slide: the oldest turns after the system prompt are left out"))] = "end"

    def __post_init__(self):
        if (self.prefix_groups > 0) != (self.prefix_tokens > 0):
            raise ValueError("prefix_groups and prefix_tokens go together")
        if self.given_keys() and not self.accumulate:
            raise ValueError(f"{' and '.join(self.given_keys())}: a turn's prompt holds nothing before it, since "
                             "accumulate = false")


class SessionsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drawn conversations: a number, all that begin before an end, or both."""

    num_sessions: Annotated[Annotated[int, Meta(ge=1, le=MAX_SESSIONS)] | None, Meta(description=(
        "number of sessions"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "all turns come before this time"))] = None
    arrival: Annotated[Arrival | None, Meta(description=(
        "when sessions begin; absent if [workload.load] starts them"))] = None
    rate: Annotated[RateChoice | None, Meta(description=(
        "a changing rate of sessions, for the process of [workload.arrival], default poisson"))] = None
    sessions: Annotated[Sessions, Meta(description="the shape of a session")]


class SessionsWorkload:
    """Drawn conversations. Each property has its own random stream."""

    Parameters = SessionsParameters

    def __init__(self, parameters: SessionsParameters):
        self.parameters = parameters
        self.timing = Timing(parameters.arrival, parameters.rate, "session")

    def columns(self, streams: RandomStreams, options: ColumnOptions = DEFAULT_OPTIONS) -> Columns:
        """Return the turns, session by session.

        Raises
        ------
        InputErrors
            No session, or a prompt that is empty or too long.
        """
        given = self.parameters.sessions
        start_ns = self._starts(streams, options)
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
        limits = None if given.max_tokens is None else np.maximum(
            _lengths(given.max_tokens, streams, "max_tokens", len(session)), 1)
        reasoning = None if given.reasoning_tokens is None else np.minimum(
            _lengths(given.reasoning_tokens, streams, "reasoning_tokens", len(session)), output)
        check_keys(given, has_limits=limits is not None or given.on_overflow == "slide",
                   has_reasoning=reasoning is not None)
        group = streams.generator("prefix_groups").integers(0, max(given.prefix_groups, 1), len(rounds))
        history = _Histories(given, session, turn, new, _Outputs(output, limits, reasoning), options.longest_text)
        columns = Columns(
            start_ns[session], history.prompt_tokens, output, max_tokens=limits,
            facts={} if reasoning is None else {"reasoning_tokens": reasoning},
            labels={"session": (session, _names(len(rounds)))}, prompts=history.prompts(group),
            waits=_waits(given, session, turn, streams))
        return _without(columns, history.ends_before())

    def _starts(self, streams: RandomStreams, options: ColumnOptions) -> np.ndarray:
        """Return when each session begins, in ns."""
        given = self.parameters
        is_bounded = given.num_sessions or given.duration_s or options.num_requests
        if not (is_bounded or (options.arrivals and self.timing.ends_by_itself)):
            raise InputErrors([KeyFault("workload: give num_sessions, duration_s, or both")])
        if options.arrivals:
            return self.timing.arrivals_ns(streams.generator("arrivals"), streams, given.num_sessions, given.duration_s)
        if given.rate is not None:
            raise InputErrors([KeyFault("workload.rate: [workload.load] says when sessions begin; leave it out")])
        return np.zeros(options.num_requests or given.num_sessions, np.int64)


class _Outputs(NamedTuple):
    """Generated tokens; arrays are int64 (n,).

    tokens : output lengths without limits.
    limits : max_tokens; None: as `tokens`.
    reasoning : number of first `tokens` that are reasoning; None: none.
    """

    tokens: np.ndarray
    limits: np.ndarray | None
    reasoning: np.ndarray | None


class _Histories:
    """The content of each turn's prompt.

    prompt_tokens : int64 (n,).
    """

    def __init__(self, given: Sessions, session, turn, new, outputs: _Outputs, longest_text):
        self._given, self._session, self._turn, self._new = given, session, turn, new
        self._prefix = given.prefix_tokens if given.prefix_groups else 0
        limits = outputs.tokens if outputs.limits is None else outputs.limits
        self._is_declared = given.history == "declared"
        limited = limits if self._is_declared else np.minimum(outputs.tokens, limits)  # of outputs, in later prompts
        cut = np.zeros(len(turn), np.int64)                                         # cut out of it again
        if outputs.reasoning is not None and not given.history_keeps_reasoning:
            cut = outputs.reasoning
        self._loses_reasoning = cut > 0
        self._rows_of_turn = np.split(np.argsort(turn, kind="stable"), np.cumsum(np.bincount(turn))[:-1])
        self._longest = np.iinfo(np.int64).max if longest_text is None else longest_text()
        self._oldest, self._answers = np.arange(len(turn)), np.maximum(limited - cut, 0)
        self.prompt_tokens = self._prefix + new
        if given.accumulate:
            self._gather(limited, cut)
        self.is_too_long = self.prompt_tokens >= self._longest
        self._check()

    def _gather(self, limited: np.ndarray, cut: np.ndarray) -> None:
        """Add to each prompt the turns before: turn by turn, since an output may end at max_model_len."""
        said = np.zeros(len(self._turn), np.int64)          # tokens from turn `oldest` up to this one
        for rows in self._rows_of_turn:
            if self._turn[rows[0]]:
                said[rows] = said[rows - 1] + self._new[rows - 1] + self._answers[rows - 1]
                self._oldest[rows] = self._oldest[rows - 1]
            if self._given.on_overflow == "slide":
                self._slide(rows, said)
            self.prompt_tokens[rows] += said[rows]
            if not self._is_declared:
                room = np.maximum(self._longest - self.prompt_tokens[rows], 0)
                self._answers[rows] = np.maximum(np.minimum(limited[rows], room) - cut[rows], 0)

    def _slide(self, rows: np.ndarray, said: np.ndarray) -> None:
        """Leave out the oldest turns of prompts without room for a token."""
        while True:
            slides = rows[(self.prompt_tokens[rows] + said[rows] >= self._longest) & (self._oldest[rows] < rows)]
            if not len(slides):
                return
            oldest = self._oldest[slides]
            said[slides] -= self._new[oldest] + self._answers[oldest]
            self._oldest[slides] += 1

    def _check(self) -> None:
        if self.prompt_tokens.max() > MAX_TOKENS:
            raise InputErrors([KeyFault(f"workload.sessions: a prompt of {self.prompt_tokens.max()} tokens, at most "
                                        f"{MAX_TOKENS} are possible")])
        if self._given.on_overflow == "error" and self.is_too_long.any():
            row = int(np.argmax(self.is_too_long))
            raise InputErrors([KeyFault(
                f"workload.sessions.on_overflow: turn {self._turn[row]} of session {self._session[row]} has a prompt "
                f"of {self.prompt_tokens[row]} tokens, at most {self._longest - 1} leave room for an answer")])

    def ends_before(self) -> np.ndarray:
        """Return a mask of the turns left out: too long ones, and all after them."""
        too_long = np.where(self.is_too_long, self._turn, np.iinfo(np.int64).max)
        first = np.full(int(self._session[-1]) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, self._session, too_long)
        return self._turn >= first[self._session]

    def prompts(self, group: np.ndarray) -> Prompts:
        """Return the prompts: the system prompt of `group`, then new tokens and answers."""
        has_prefix = int(self._prefix > 0)
        rows = np.arange(len(self._turn))
        counts = has_prefix + 2 * (rows - self._oldest) + 1
        owner = np.repeat(rows, counts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) - has_prefix
        source = self._oldest[owner] + np.maximum(place, 0) // 2
        is_output = place % 2 == 1
        answers = np.where(self._loses_reasoning[source], records.named_stream(self._given.prefix_groups + source),
                           records.output_stream(source))
        streams = np.where(is_output, answers, records.own_stream(source))
        num_tokens = np.where(is_output, self._answers[source], self._new[source])
        if has_prefix:
            streams = np.where(place < 0, records.named_stream(group[self._session[owner]]), streams)
            num_tokens = np.where(place < 0, self._prefix, num_tokens)
        kept = num_tokens > 0                                       # an empty output is no segment
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
    return Waits(session, targets - 1, targets, nearest(think_s[targets] * 1e9),
                 np.full(len(targets), given.think_time_from == "arrival"))


def _without(columns: Columns, is_left_out: np.ndarray) -> Columns:
    """Return the turns without some at the ends of sessions."""
    if not is_left_out.any():
        return columns
    rows = np.concatenate([np.flatnonzero(~is_left_out), np.flatnonzero(is_left_out)])
    kept = first_rows(replace(reordered(columns, rows), most=int(np.sum(~is_left_out))))
    plays = np.unique(kept.waits.plays, return_inverse=True)[1]
    note = (f"{is_left_out.sum()} turns of {len(np.unique(columns.waits.plays[is_left_out]))} sessions were left out: "
            "their prompts would be longer than max_model_len (workload.sessions.on_overflow)")
    return replace(kept, waits=replace(kept.waits, plays=plays), notes=(*kept.notes, note))
