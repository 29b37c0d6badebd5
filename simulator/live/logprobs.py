"""Log probabilities of the tokens of an answer: fixed values, since a simulated model has none.

-0.1 for each token that is written, and -3.0 - 0.1 j for the j-th other.
"""
from collections.abc import Iterator, Sequence

from simulator.live.words import Words, word

WRITTEN, OTHERS, STEP = -0.1, -3.0, -0.1


def of_completion(pieces: Sequence[str], names: Sequence[str], most: int, begin: int) -> dict:
    """Return the field `logprobs` of a completion.

    names : of the tokens. most : other tokens at each place. begin : characters of the answer before the first.
    """
    offsets = [begin]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return {"text_offset": offsets[:-1], "token_logprobs": [WRITTEN] * len(pieces), "tokens": list(names),
            "top_logprobs": [{name: WRITTEN} | dict(_others(name, most - 1)) for name in names]}


def of_chat(pieces: Sequence[str], names: Sequence[str], most: int) -> dict:
    """Return the field `logprobs` of a chat completion.

    most : tokens at each place, with the written one.
    """
    return {"content": [_entry(name, WRITTEN, piece) | {"top_logprobs": [
        _entry(other, value, other) for other, value in ((name, WRITTEN), *_others(name, most - 1))][:most]}
        for piece, name in zip(pieces, names, strict=True)]}


def of_prompt(ids: Sequence[int], words: Words, most: int) -> list[dict | None]:
    """Return the field `prompt_logprobs`: tables by token id, behind the first."""
    found: list[dict | None] = [None]
    for token in ids[1:]:
        piece = words.piece(token)
        table = {str(token): {"logprob": WRITTEN, "rank": 1, "decoded_token": piece}}
        for rank, (name, value) in enumerate(_others(piece, most - 1), 2):
            table[str(words.ids([name])[0])] = {"logprob": value, "rank": rank, "decoded_token": name}
        found.append(table)
    return found


def _entry(name: str, value: float, piece: str) -> dict:
    return {"token": name, "logprob": value, "bytes": list(piece.encode(errors="replace"))}


def _others(name: str, count: int) -> Iterator[tuple[str, float]]:
    """Yield other tokens than one, with their values."""
    beside = (other for i in range(count + 1) if (other := f" {word(i)}") != name)
    for i, other in zip(range(1, count + 1), beside, strict=False):
        yield other, round(OTHERS + STEP * i, 9)
