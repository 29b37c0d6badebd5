"""What the prompt of a later turn is made of: all before it, and what the user says now."""
from typing import NamedTuple

from simulator.domain import records


class Turn(NamedTuple):
    """A turn that is over, as the next one sees it.

    row : of its request.
    prompt : its prompt, [(stream, tokens)].
    output_tokens : generated, whether they ended by themselves or at max_tokens.
    reasoning_tokens : of these, the first ones, which are no part of the answer.
    """

    row: int
    prompt: list[tuple[int, int]]
    output_tokens: int
    reasoning_tokens: int = 0


def next_prompt(before: Turn, row: int, new_tokens: int, answer_stream: int,
                keeps_reasoning: bool = True) -> list[tuple[int, int]]:
    """Return the prompt of request `row`, which follows a turn, as [(stream, tokens)].

    Without its reasoning the output is another text: its tokens have other ones in front of them, so that the KV of the
    turn before is of use up to the end of its prompt. Later turns share the answer, by its stream.

    Parameters
    ----------
    new_tokens : of the request's own stream.
    answer_stream : code of a named stream that stands for this answer alone.
    keeps_reasoning : the whole output stands in the prompt.
    """
    answer = (records.output_stream(before.row), before.output_tokens)
    if before.reasoning_tokens and not keeps_reasoning:
        answer = (answer_stream, before.output_tokens - before.reasoning_tokens)
    return [piece for piece in (*before.prompt, answer, (records.own_stream(row), new_tokens)) if piece[1] > 0]
