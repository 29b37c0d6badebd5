"""The prompt of a later turn: the conversation before it, and the user's new message."""
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.sessions import Histories
from simulator.errors import InputErrors, KeyFault
from simulator.workload.budgets import UNDECLARED
from simulator.workload.columns import Columns, Prompts
from simulator.workload.limits import MAX_TOKENS

NOTHING_TO_TELL = {"history": "every output of this workload is as long as its max_tokens",
                   "history_keeps_reasoning": "nothing says what of an output is reasoning"}


class Turn(NamedTuple):
    """A finished turn, as the next turn sees it.

    row : of its request.
    prompt : its prompt, [(stream, tokens)].
    output_tokens : length of its output in later turns' prompts.
    reasoning_tokens : how many first tokens of the output are reasoning, not answer.
    """

    row: int
    prompt: list[tuple[int, int]]
    output_tokens: int
    reasoning_tokens: int = 0


def next_prompt(before: Turn, added: list[tuple[int, int]], answer_stream: int,
                keeps_reasoning: bool) -> list[tuple[int, int]]:
    """Return the prompt of the turn after one, as [(stream, tokens)].

    Without its reasoning the output is another text: other tokens precede its tokens, so that the KV cache of the turn
    before is reusable only up to the end of that turn's prompt. Later turns share the answer, by its stream.

    Parameters
    ----------
    added : the user's new message, [(stream, tokens)].
    answer_stream : code of a named stream for this answer alone.
    keeps_reasoning : the prompt holds the whole output.
    """
    answer = (records.output_stream(before.row), before.output_tokens)
    if before.reasoning_tokens and not keeps_reasoning:
        answer = (answer_stream, before.output_tokens - before.reasoning_tokens)
    return [piece for piece in (*before.prompt, answer, *added) if piece[1] > 0]


def limits_of(columns: Columns) -> np.ndarray:
    """Return how many tokens each request may generate, int64 (n,).

    That is max_tokens, or the output length where none is given or declared.
    """
    if columns.max_tokens is None:
        return columns.output_tokens
    return np.where(columns.max_tokens <= UNDECLARED, columns.output_tokens, columns.max_tokens)


def composed(columns: Columns, given: Histories, longest_text: int | None) -> Columns:
    """Return the requests with prompts that hold the earlier turns of their sessions.

    Parameters
    ----------
    columns : with `adds_to`; prompts hold only the pieces that each turn adds.
    longest_text : max_model_len, at which outputs end; None: it is not known.

    Raises
    ------
    InputErrors
        A key of `given` that changes nothing; a prompt that is too long.
    """
    reasoning = columns.facts.get("reasoning_tokens")
    check_keys(given, has_limits=columns.max_tokens is not None, has_reasoning=reasoning is not None)
    reasoning = np.zeros(len(columns), np.int64) if reasoning is None else np.maximum(reasoning, 0)
    limits = limits_of(columns)
    if given.history != "declared":
        limits = np.minimum(limits, columns.output_tokens)
    prompts, lengths = _own_pieces(columns), columns.prompt_tokens.copy()
    first_free = _first_free(columns.prompts)
    for row, before in _in_turn(columns.adds_to):
        tokens = int(limits[before])
        if longest_text is not None and given.history != "declared":
            tokens = min(tokens, max(longest_text - int(lengths[before]), 0))
        turn = Turn(before, prompts[before], tokens, min(int(reasoning[before]), tokens))
        prompts[row] = next_prompt(turn, prompts[row], records.named_stream(first_free + before),
                                   bool(given.history_keeps_reasoning))
        lengths[row] = sum(num_tokens for _, num_tokens in prompts[row])
        if lengths[row] > MAX_TOKENS:
            raise InputErrors([KeyFault(f"workload.sessions.accumulate: a prompt of {lengths[row]} tokens, at most "
                                        f"{MAX_TOKENS} are possible")])
    flat = np.array([piece for prompt in prompts for piece in prompt], dtype=np.int64).reshape(-1, 2)
    counts = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
    return replace(columns, prompt_tokens=lengths, adds_to=None,
                   prompts=Prompts(counts, flat[:, 0].copy(), flat[:, 1].copy()))


def check_keys(given: Histories, *, has_limits: bool, has_reasoning: bool) -> None:
    """Refuse keys that change nothing.

    has_limits : outputs may be shorter or longer than declared.
    has_reasoning : the reasoning tokens of some output are known.
    """
    tells = {"history": has_limits, "history_keeps_reasoning": has_reasoning}
    faults = [KeyFault(f"workload.sessions.{key}: {NOTHING_TO_TELL[key]}; leave it out")
              for key in given.given_keys() if not tells[key]]
    if faults:
        raise InputErrors(faults)


def _own_pieces(columns: Columns) -> list[list[tuple[int, int]]]:
    """Return the pieces that each request adds, as [(stream, tokens)]."""
    tokens = columns.prompt_tokens.tolist()
    if columns.prompts is None:
        return [[(records.own_stream(row), each)] for row, each in enumerate(tokens)]
    pieces = list(zip(columns.prompts.streams.tolist(), columns.prompts.num_tokens.tolist(), strict=True))
    ends = np.cumsum(columns.prompts.num_segments).tolist()
    begins = [0, *ends[:-1]]
    return [pieces[begin:end] or [(records.own_stream(row), each)]
            for row, (begin, end, each) in enumerate(zip(begins, ends, tokens, strict=True))]


def _first_free(prompts: Prompts | None) -> int:
    """Return the first name of a stream that no prompt uses."""
    if prompts is None:
        return 0
    return int((prompts.streams >> 2).max(initial=-1)) + 1


def _in_turn(adds_to: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield (row, row of the turn before) for each later turn; earlier turns first."""
    followers = {}
    for row, before in enumerate(adds_to.tolist()):
        followers.setdefault(before, []).append(row)
    pending = list(followers.get(-1, ()))
    while pending:
        before = pending.pop()
        for row in followers.get(before, ()):
            yield row, before
            pending.append(row)
