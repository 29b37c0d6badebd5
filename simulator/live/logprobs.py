"""Log probabilities of the tokens of an answer: fixed values, since a simulated model has none.

-0.1 for each token that is written, and -3.0 - 0.1 j for the j-th other.
"""
from collections.abc import Iterator, Sequence

from simulator.live.words import Words

WRITTEN, OTHERS, STEP = -0.1, -3.0, -0.1


def of_completion(pieces: Sequence[str], names: Sequence[str], words: Words, most: int, begin: int) -> dict:
    """Return the field `logprobs` of a completion.

    names : of the tokens. words : tokenizer. most : other tokens at each place. begin : characters of the answer before
    the first.
    """
    offsets = [begin]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return {"text_offset": offsets[:-1], "token_logprobs": [WRITTEN] * len(pieces), "tokens": list(names),
            "top_logprobs": [{name: WRITTEN} | {other: value for other, _, value in _others(words, name, most - 1)}
                             for name in names]}


def of_chat(pieces: Sequence[str], names: Sequence[str], words: Words, most: int) -> dict:
    """Return the field `logprobs` of a chat completion.

    words : tokenizer. most : tokens at each place, with the written one.
    """
    return {"content": [_entry(name, WRITTEN, piece) | {"top_logprobs": [
        _entry(other, value, other)
        for other, _, value in ((name, 0, WRITTEN), *_others(words, name, most - 1))][:most]}
        for piece, name in zip(pieces, names, strict=True)]}


def of_prompt(ids: Sequence[int], words: Words, most: int) -> list[dict | None]:
    """Return the field `prompt_logprobs`: tables by token id, behind the first."""
    found: list[dict | None] = [None]
    for token in ids[1:]:
        piece = words.piece(token)
        table = {str(token): {"logprob": WRITTEN, "rank": 1, "decoded_token": piece}}
        for rank, (name, other, value) in enumerate(_others(words, piece, most - 1), 2):
            table[str(other)] = {"logprob": value, "rank": rank, "decoded_token": name}
        found.append(table)
    return found


def _entry(name: str, value: float, piece: str) -> dict:
    return {"token": name, "logprob": value, "bytes": list(piece.encode(errors="replace"))}


def _others(words: Words, name: str, count: int) -> Iterator[tuple[str, int, float]]:
    """Yield other tokens than one, with their ids and values."""
    beside = (other for i in range(count + 1) if (other := words.other(i))[0] != name)
    for i, (other, token) in zip(range(1, count + 1), beside, strict=False):
        yield other, token, round(OTHERS + STEP * i, 9)
