"""Time to compile the grammar of a structured output, by compiler, kind and size of the grammar, and vocabulary.

Measured in November 2026 on an AMD EPYC (2 CPUs, Linux, Python 3.11): CPU time of the compiling thread, median of nine
random grammars of each kind and size; xgrammar 0.2.8, as vLLM 0.33 has it, with its cache of 512 MB, and llguidance
1.9.1; vocabularies of 32,768 and 131,072 tokens (Mistral's Tekken) and of 229,712 (Tekken and Qwen joined). Source:
tools/grammar_times.py. Nested schemas, three objects deep, are not in the tables: they took 0.5 to 2.1 times as long.

xgrammar walks the vocabulary for each state of a grammar that no earlier grammar had. So each character of a string
with a new `maxLength` costs as much as tens of properties, up to about 170 characters, the longest token; later strings
of that length, or of a lesser one up to 128, cost about as much as other properties. It splits a
grammar among eight threads, at no more CPU time in all; llguidance has one thread and does not read the vocabulary.
"""
import math
from typing import Literal, NamedTuple

import numpy as np

from simulator.domain.drawn_times import DrawnTime

Kind = Literal["json", "json_schema", "constrained_schema", "regex", "ebnf"]
VOCABULARIES = (32_768, 131_072, 229_712)
USUAL_VOCABULARY = 131_072
MOST_CHARACTERS = 170           # of a bounded string that cost time
MOST_THREADS = 8                # of one grammar: GrammarCompiler(max_threads=8) of vLLM 0.33, xgrammar's default
CHARACTER_MS = {"xgrammar": (4.8, 22.0, 45.0)}      # of a string with a new maxLength, by vocabulary; others: 0


class Cost(NamedTuple):
    """CPU milliseconds of grammars.

    sizes : measured ones. ms : at each size, for each of `VOCABULARIES`, or alike for all. spread : standard deviation
    of the logarithm among grammars of one kind and size.
    """

    sizes: tuple[int, ...]
    ms: tuple[tuple[float, ...], ...]
    spread: float


COSTS = {
    "xgrammar": {
        "json": Cost((1,), ((6.9,), (40.3,), (73.4,)), 0.0),        # a new process compiles it once
        "json_schema": Cost((1, 4, 16, 64, 256), (
            (0.49, 1.8, 4.5, 24.8, 126.0), (1.2, 2.7, 8.3, 34.2, 241.0), (1.1, 3.0, 7.7, 28.4, 351.0)), 0.2),
        "constrained_schema": Cost((1, 4, 16, 64, 256), (
            (1.2, 7.7, 27.0, 64.1, 340.0), (1.3, 13.3, 28.6, 64.9, 568.0), (1.6, 52.3, 59.5, 170.0, 1008.0)), 0.3),
        "regex": Cost((4, 16, 64), ((1.4, 8.7, 26.9), (4.0, 23.5, 86.6), (6.6, 51.4, 102.0)), 0.55),
        "ebnf": Cost((4, 16), ((24.9, 106.0), (91.9, 329.0), (124.0, 407.0)), 0.15)},
    "guidance": {
        "json": Cost((1,), ((0.52,),), 0.2),
        "json_schema": Cost((1, 4, 16, 64, 256), ((0.44, 0.77, 1.2, 2.8, 14.0),), 0.2),
        "constrained_schema": Cost((1, 4, 16, 64, 256), ((1.2, 1.6, 3.8, 10.5, 35.6),), 0.2),
        "regex": Cost((4, 16, 64), ((1.8, 2.1, 2.6),), 0.2),
        "ebnf": Cost((4, 16), ((1.9, 2.8),), 0.2)}}


class Grammar(NamedTuple):
    """A grammar, as compilers see it.

    size : properties of a JSON schema, atoms of a regular expression, rules of an EBNF grammar.
    new_lengths : strings with a maxLength that no earlier grammar had, nor, up to 128, a longer one.
    max_length : characters of each. vocabulary : entries of the tokenizer.
    """

    kind: Kind
    size: int = 16
    new_lengths: int = 0
    max_length: int = 64
    vocabulary: int = USUAL_VOCABULARY


def cpu_ms(grammar: Grammar, compiler: str) -> float:
    """Return the median CPU time of a compilation, in milliseconds.

    compiler : "xgrammar" or "guidance".
    """
    cost = COSTS[compiler][grammar.kind]
    own_ms = _at_vocabulary(tuple(_at_size(cost.sizes, row, grammar) for row in cost.ms), grammar.vocabulary)
    character_ms = _at_vocabulary(CHARACTER_MS.get(compiler, (0.0,)), grammar.vocabulary)
    return own_ms + grammar.new_lengths * min(grammar.max_length, MOST_CHARACTERS) * character_ms


def compile_time(grammar: Grammar, compiler: str, cpus: int, num_workers: int) -> DrawnTime:
    """Return the time that one worker takes, in milliseconds.

    With all workers busy, each has its share of the CPUs, which xgrammar uses; a lone compilation may be faster.

    cpus : of the host; 0: no limit is known, one thread each. num_workers : grammars that compile at once.
    """
    shared = min(max(cpus / num_workers, 1.0), MOST_THREADS) if cpus and compiler == "xgrammar" else 1.0
    median, spread = cpu_ms(grammar, compiler) / shared, COSTS[compiler][grammar.kind].spread
    if spread == 0.0:
        return DrawnTime(value=median)
    return DrawnTime(distribution="lognormal", median=median, mean=median * math.exp(spread ** 2 / 2))


def workers(cpus: int) -> int:
    """Return the number of grammars that compile at once; 0: no limit.

    Source: vLLM 0.33.0, vllm/v1/structured_output/__init__.py, StructuredOutputManager.
    """
    return (cpus + 1) // 2


def beyond(grammar: Grammar) -> str | None:
    """Return in words how a grammar exceeds the measured ones; None: it does not."""
    sizes = COSTS["xgrammar"][grammar.kind].sizes
    if grammar.kind != "json" and not sizes[0] <= grammar.size <= sizes[-1]:
        return f"size = {grammar.size:,}, measured {sizes[0]:,} to {sizes[-1]:,}"
    if not VOCABULARIES[0] <= grammar.vocabulary <= VOCABULARIES[-1]:
        return f"a vocabulary of {grammar.vocabulary:,}, measured {VOCABULARIES[0]:,} to {VOCABULARIES[-1]:,}"
    return None


def _at_size(sizes: tuple[int, ...], ms: tuple[float, ...], grammar: Grammar) -> float:
    """Return a time by straight lines in logarithms; beyond the largest size it grows in proportion."""
    if grammar.kind == "json":
        return ms[0]
    within = float(np.exp(np.interp(math.log(grammar.size), np.log(sizes), np.log(ms))))
    return within * max(grammar.size / sizes[-1], 1.0)


def _at_vocabulary(values: tuple[float, ...], vocabulary: int) -> float:
    """Return a value between the measured vocabularies; outside it grows in proportion."""
    if len(values) == 1:
        return values[0]
    nearest = min(max(vocabulary, VOCABULARIES[0]), VOCABULARIES[-1])
    return float(np.interp(nearest, VOCABULARIES, values)) * vocabulary / nearest
