"""The model, accelerator or node that a wrong name most likely means: of the same generation, or none.

`H100-SXM5-80GB-oc` means h100-sxm-80gb. By letters alone a100-sxm-80gb would be as near, and that is another card.
"""
import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from simulator.errors import MOST_NAMES

# Parts of a name that identify no generation: amounts of memory, form factors, kinds of memory, formats of weights.
_COMMON = re.compile(
    r"\d+(gi?b?)?|(sxm|hbm|pcie|nvl|gddr)\d*|(fp|int|bf)\d*|w\d+a\d+|a?\d+(\.\d+)?b|it|base|instruct")
_NUMBERED = re.compile(r".*\d")
ALIKE = 0.8                     # of two spellings of one generation, as difflib counts


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a wrong one means; None: none of its generation.

    Parameters
    ----------
    name : as it was given, of any case, with blanks or underscores for hyphens; or the path of a file.
    known : names, or repositories on the hub, which are known by their last part.
    """
    asked = _words(Path(name).name.removesuffix(".toml"))
    words = {each: _words(each.rpartition("/")[2]) for each in known}
    for each, own in words.items():
        if "".join(own) == "".join(asked):
            return each
    kin = [each for each, own in words.items() if _are_kin(asked, own)]
    return max(kin, key=lambda each: (_shared(asked, words[each]), _ratio(asked, words[each]), each), default=None)


def end_of(name: str, known: Iterable[str]) -> str:
    """End a message about a wrong name with the one that it means, or with others.

    These are 40 at most: those that begin alike, or the first.
    """
    known = sorted(known)
    found = near(name, known)
    if found is not None:
        return f"; did you mean {found}?"
    first = _words(Path(name).name)[:1]
    shown = [each for each in known if _words(each)[:1] == first] or known[:MOST_NAMES]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    own = "" if "/" in name or name.endswith(".toml") else "; or the path of a .toml file of your own"
    return f"; valid: {', '.join(shown)}{more}{own}"


def near_file(path: Path) -> str | None:
    """Return the name of the nearest file beside a path; None: none is near."""
    folder = path.parent
    names = [each.name for each in folder.glob(f"*{path.suffix}")] if folder.is_dir() else []
    return next(iter(get_close_matches(path.name, names, n=1, cutoff=ALIKE)), None)


def _words(name: str) -> list[str]:
    return [each for each in re.split(r"[^a-z0-9.+]+", name.casefold()) if each]


def _are_kin(asked: list[str], other: list[str]) -> bool:
    """Return whether two names share the number that identifies a generation, such as "h100", "v3.1", "4090"."""
    own = [each for each in asked if not _COMMON.fullmatch(each)]
    numbered = [each for each in own if _NUMBERED.fullmatch(each)] or own
    return any(SequenceMatcher(None, one, two).ratio() >= ALIKE and _digits(one, two)
               for one in numbered for two in other if not _COMMON.fullmatch(two))


def _digits(one: str, two: str) -> bool:
    """Say whether the numbers in two words agree, as far as the shorter goes."""
    first, second = "".join(re.findall(r"\d", one)), "".join(re.findall(r"\d", two))
    return first.startswith(second) or second.startswith(first)


def _shared(asked: list[str], other: list[str]) -> int:
    return len(set(asked) & set(other))


def _ratio(asked: list[str], other: list[str]) -> float:
    return SequenceMatcher(None, "-".join(asked), "-".join(other)).ratio()
