"""Conversations from a JSON file, drawn as by vLLM's multi-turn benchmark, with equal lengths.

Source: vllm-project/vllm, benchmarks/multi_turn/bench_dataset.py, commit 0fdcab7e, and README.md. Random numbers are
those of NumPy's global generator, seeded by the tool's --seed: turns of all conversations, then the prefixes of all,
then the common prefix, then for each conversation all user texts and all answers.
"""
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, did_you_mean
from simulator.workload.limits import MAX_TOKENS

MAX_CONVERSATIONS = 10**7
FILETYPE = "generate_conversations"
USUAL_MEDIAN_RATIO = 0.85           # of a lognormal distribution with an average
Number = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Cap = Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None
Positive = Annotated[float, Meta(gt=0, le=MAX_TOKENS)]


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="distribution"):
    """Whole numbers; `sample` draws them as the tool does."""


class Constant(Distribution, frozen=True, tag="constant"):
    """One number."""

    value: Number

    def sample(self, generator: np.random.RandomState, count: int) -> np.ndarray:
        return np.full(count, self.value)


class Uniform(Distribution, frozen=True, tag="uniform"):
    """Every number from min to max, both included."""

    min: Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
    max: Number

    def __post_init__(self):
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")

    def sample(self, generator: np.random.RandomState, count: int) -> np.ndarray:
        return generator.randint(self.min, self.max + 1, size=count)


class Zipf(Distribution, frozen=True, tag="zipf"):
    """Number k has weight k**-alpha; larger numbers become `max`, if it is given."""

    alpha: Annotated[float, Meta(gt=1, le=1000)]
    max: Cap = None

    def sample(self, generator: np.random.RandomState, count: int) -> np.ndarray:
        return _capped(generator.zipf(self.alpha, size=count), self.max)


class Poisson(Distribution, frozen=True, tag="poisson"):
    """A Poisson distribution of mean alpha."""

    alpha: Annotated[float, Meta(ge=0, le=MAX_TOKENS)]
    max: Cap = None

    def sample(self, generator: np.random.RandomState, count: int) -> np.ndarray:
        return _capped(generator.poisson(self.alpha, size=count), self.max)


class Lognormal(Distribution, frozen=True, tag="lognormal"):
    """A log-normal distribution.

    Given are mean and sigma of the logarithm, or the average and the ratio of median to average. With an average and
    ratio r: sigma**2 = 2 ln(1 / r), mu = ln(average r), and one call multiplies its draws so that their mean is the
    average; the cap comes after that.
    """

    mean: Annotated[float, Meta(gt=0, le=30)] | None = None
    sigma: Annotated[float, Meta(ge=0, le=30)] | None = None
    average: Annotated[float, Meta(ge=1, le=MAX_TOKENS)] | None = None
    median_ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None
    max: Cap = None

    def __post_init__(self):
        if self.average is None:
            if self.mean is None or self.sigma is None or self.median_ratio is not None:
                raise ValueError("give either mean and sigma, or average and, if need be, median_ratio")
        elif self.mean is not None or self.sigma is not None:
            raise ValueError("give either mean and sigma, or average")

    def sample(self, generator: np.random.RandomState, count: int) -> np.ndarray:
        mean, sigma = self.mean, self.sigma
        if self.average is not None:
            median = self.average * (self.median_ratio or USUAL_MEDIAN_RATIO)
            mean, sigma = np.log(median), np.sqrt(2 * np.log(self.average / median))
        samples = generator.lognormal(mean=mean, sigma=sigma, size=count)
        if self.average is not None:
            samples *= self.average / samples.mean()
        return np.round(_capped(samples, self.max)).astype(np.int64)


Chosen = Constant | Uniform | Zipf | Poisson | Lognormal


class Settings(NamedTuple):
    """The settings in the file: number of conversations, and distributions."""

    num_conversations: int
    num_turns: Chosen
    prefix_num_tokens: Chosen
    num_tokens: Chosen
    answer_tokens: Chosen
    common_prefix_num_tokens: Chosen = Constant(0)


class Turns(NamedTuple):
    """Turns of conversations, one after the other; arrays are int64.

    conversation : (n,), index of each turn's conversation, from 0.
    new_tokens : (n,), length of the user's text, with prefixes.
    output_tokens : (n,), length of the answer.
    common_tokens : length of the beginning that the first turns of all conversations share.
    """

    conversation: np.ndarray
    new_tokens: np.ndarray
    output_tokens: np.ndarray
    common_tokens: int


def read_settings(path: str | Path, data: bytes) -> Settings:
    """Return the settings in a file of the tool.

    Raises
    ------
    InputErrors
        All faults of the file, by key.
    """
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputErrors([f"{path}: {error}"]) from None
    if not isinstance(given, dict) or given.get("filetype") != FILETYPE:
        raise InputErrors([f'{path}: filetype: expected "{FILETYPE}", or a list of conversations instead of the file'])
    faults, found = [], {}

    def take(table: dict, place: str, keys: dict[str, tuple]) -> None:
        """Read the keys of a table; `keys`: name here, type, whether required."""
        faults.extend(f"{place}{key}: unknown key{did_you_mean(key, keys)}" for key in table if key not in keys)
        for key, (name, kind, is_needed) in keys.items():
            if key not in table:
                faults.extend([f"{place}{key}: missing"] * is_needed)
                continue
            try:
                found[name] = msgspec.convert(table[key], kind)
            except msgspec.ValidationError as error:
                faults.append(f"{place}{key}: {_plainly(error)}")

    take(given, "", {
        "filetype": ("filetype", str, True), "print_stats": ("print_stats", bool, False),
        "num_conversations": ("num_conversations", Annotated[int, Meta(ge=1, le=MAX_CONVERSATIONS)], True),
        "text_files": ("text_files", Annotated[list[str], Meta(min_length=1)], True),
        "prompt_input": ("prompt_input", dict, True), "prompt_output": ("prompt_output", dict, True)})
    take(found.get("prompt_input", {}), "prompt_input.", {
        key: (key, Chosen, key != "common_prefix_num_tokens" and "prompt_input" in found)
        for key in ("num_turns", "common_prefix_num_tokens", "prefix_num_tokens", "num_tokens")})
    take(found.get("prompt_output", {}), "prompt_output.", {
        "num_tokens": ("answer_tokens", Chosen, "prompt_output" in found)})
    if faults:
        raise InputErrors([f"{path}: {fault}" for fault in faults])
    return Settings(**{name: found[name] for name in Settings._fields if name in found})


def _plainly(error: msgspec.ValidationError) -> str:
    """Return the message of an error, with the key of the distribution in front."""
    what, _, key = str(error).partition(" - at `$.")
    return f"{key.rstrip('`')}: {what}" if key else what


def draw_turns(given: Settings, seed: int, least_user_tokens: int) -> Turns:
    """Return the turns of all conversations.

    Texts and answers alternate, at least one of each; an odd number is raised by one. The common prefix is part of the
    first text's num_tokens, which is at least the prefix and `least_user_tokens`; the prefix of a conversation is
    added to it.

    Parameters
    ----------
    least_user_tokens : the shortest user text that the tool makes.
    """
    generator = np.random.RandomState(seed)
    texts = np.maximum(given.num_turns.sample(generator, given.num_conversations), 2)
    texts += texts % 2
    if texts.sum() // 2 > MAX_TOKENS:
        raise InputErrors([f"num_turns: {texts.sum() // 2} requests, at most {MAX_TOKENS} are possible"])
    prefixes = given.prefix_num_tokens.sample(generator, given.num_conversations)
    common = int(given.common_prefix_num_tokens.sample(generator, 1)[0])
    asked, answered = [], []
    for count in texts.tolist():
        asked.append(np.maximum(given.num_tokens.sample(generator, count), least_user_tokens)[::2])
        answered.append(np.maximum(given.answer_tokens.sample(generator, count), 1)[1::2])
    new_tokens, firsts = np.concatenate(asked).astype(np.int64), np.cumsum(texts // 2) - texts // 2
    new_tokens[firsts] = np.maximum(new_tokens[firsts], common + least_user_tokens) + prefixes
    output_tokens = np.concatenate(answered).astype(np.int64)
    if max(new_tokens.max(), output_tokens.max()) > MAX_TOKENS:
        raise InputErrors([f"num_tokens: a text of {max(new_tokens.max(), output_tokens.max())} tokens, at most "
                           f"{MAX_TOKENS} are possible; give a max"])
    return Turns(np.repeat(np.arange(len(texts)), texts // 2), new_tokens, output_tokens, common)


def _capped(samples: np.ndarray, most: int | None) -> np.ndarray:
    return np.minimum(samples, most) if most else samples
