"""Accelerators by a short name: `h100` for h100-sxm-80gb, `4090` for rtx-4090."""
import re
from typing import NamedTuple

from simulator.domain.facts import names, path_of
from simulator.errors import InputErrors

FORM = "sxm"                    # the form in which servers of eight are sold: meant where a family has it once
MOST_PARTS = 3                  # of a plain name: family, form, memory


class Named(NamedTuple):
    """An accelerator that a text names.

    name : in hardware/, or the path of a file. others : further cards that the text may mean, sorted.
    """

    name: str
    others: tuple[str, ...] = ()

    def remark(self, given: str) -> str:
        """Return the reading of a text, as a sentence; "" where it means one card."""
        return f"{given} is taken as {self.name}; there are also {', '.join(self.others)}" if self.others else ""


def accelerator_named(text: str) -> Named:
    """Return the accelerator that a text names, in full or by parts of its name.

    Raises
    ------
    InputErrors
        No card has such a name, or several have, of which none is the usual one.
    """
    known, asked = names("hardware"), _parts(text)
    if text in known or "/" in text or text.endswith(".toml"):
        return Named(text)
    for each in known:
        if _parts(each) == asked:
            return Named(each)
    kin = [each for each in known if asked and _holds(_parts(each), asked)]
    if len(kin) == 1:
        return Named(kin[0])
    for plain in ([each for each in kin if _is_of_servers(each)], _shortest(kin)):
        if len(plain) == 1:
            return Named(plain[0], tuple(each for each in kin if each != plain[0]))
    if kin:
        raise InputErrors([f'"{text}" names {len(kin)} accelerators: expected one of {", ".join(kin)}'])
    path_of("hardware", text)                   # raises, with the nearest name
    return Named(text)


def _is_of_servers(name: str) -> bool:
    parts = _parts(name)
    return parts[-1] == "server" or (len(parts) <= MOST_PARTS and any(part.startswith(FORM) for part in parts))


def _shortest(cards: list[str]) -> list[str]:
    """Return the names of the fewest parts: h20-96gb, not h20-3e-141gb."""
    least = min((len(_parts(each)) for each in cards), default=0)
    return [each for each in cards if len(_parts(each)) == least]


def _holds(parts: list[str], asked: list[str]) -> bool:
    """Return whether the asked parts follow each other in a name."""
    return any(parts[at:at + len(asked)] == asked for at in range(len(parts)))


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9.]+", name.casefold()) if part]
