"""Structured outputs, [engine.structured_outputs]: keys that engines share, with published times of compilers."""
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from simulator.domain.drawn_times import DrawnTime, drawn
from simulator.domain.grammar_times import USUAL_VOCABULARY, Grammar, Kind, compile_time, workers

Time = Annotated[float, Meta(ge=0, le=1e12)]
Cpus = Annotated[int, Meta(ge=0, le=4096)]
BACKEND = "compiler of grammars; its published times are the defaults of compile_ms and mask_us"
# Measured on 10,000 JSON schemas, one thread; a lognormal distribution with these medians and means has their 99th
# percentiles of compilation within 5 %, but yields fewer very long masks. Source: guidance-ai/jsonschemabench,
# maskbench/README.md, at 00c3d018: xgrammar 0.1.10 and llguidance.
PUBLISHED = {
    "xgrammar": (DrawnTime(distribution="lognormal", median=540.0, mean=4140.0),
                 DrawnTime(distribution="lognormal", median=8.0, mean=292.0)),
    "guidance": (DrawnTime(value=1.6), DrawnTime(distribution="lognormal", median=36.0, mean=47.0)),
}


class GrammarKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of [engine.structured_outputs] that engines share.

    They add `backend` and `cpus`.
    """

    draft_valid_rate: ClassVar[float] = 1.0

    fraction: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "share of requests with a grammar, drawn; 0: requests have the values of the trace's column grammar"))] = 0.0
    num_grammars: Annotated[int, Meta(ge=0, le=2**20, description=(
        "different grammars among drawn ones, equally likely; 0: each request has its own"))] = 0
    failing_fraction: Annotated[float, Meta(ge=0, le=1, description=(
        "share of grammars that do not compile, drawn; their requests fail"))] = 0.0
    failing: Annotated[tuple[str, ...], Meta(description="names of grammars of the trace that do not compile")] = ()
    compile_ms: Annotated[Time | DrawnTime | None, Meta(description="time to compile a grammar, drawn for each")] = None
    kind: Annotated[Kind | None, Meta(description=(
        "kind of each grammar, for compile_ms as measured with xgrammar 0.2.8 and llguidance 1.9. json: any object; "
        "json_schema: types and enums; constrained_schema: with lengths, patterns, formats and ranges; absent: the "
        "published times of 10,000 JSON schemas, of xgrammar 0.1.10 and llguidance 0.6.7"))] = None
    size: Annotated[Annotated[int, Meta(ge=1, le=10**6)] | None, Meta(extra={"unit": "parts"}, description=(
        "with kind: properties of the schema, atoms of the regular expression, rules of the EBNF grammar; default: "
        "16"))] = None
    new_lengths: Annotated[int, Meta(ge=0, le=10**4, description=(
        "with a schema as kind: its strings with a maxLength that no earlier grammar had, nor, up to 128, a longer "
        "one; xgrammar compiles each of their characters"))] = 0
    max_length: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "characters"}, description=(
        "maxLength of these strings"))] = 64
    vocabulary: Annotated[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None, Meta(extra={"unit": "tokens"}, description=(
        "with kind: entries of the tokenizer; default: the model's, without [model] 131,072"))] = None
    mask_us: Annotated[Time | DrawnTime | None, Meta(description=(
        "time to fill a mask, drawn for each; a sequence has one, and one more per draft"))] = None

    def __post_init__(self):
        if self.kind is None and (self.size, self.new_lengths, self.max_length, self.vocabulary) != (None, 0, 64, None):
            raise ValueError("size, new_lengths, max_length and vocabulary describe a grammar: kind is missing")
        if self.kind is not None and self.compile_ms is not None:
            raise ValueError("kind and compile_ms both give the time to compile; give one of them")
        if self.new_lengths and self.kind not in ("json_schema", "constrained_schema"):
            raise ValueError(f'new_lengths: expected 0 with kind = "{self.kind}": only schemas have lengths')
        if self.kind == "json" and self.size is not None:
            raise ValueError('size: expected none with kind = "json", one grammar for any object')

    def notes_on(self, longest_ns: int) -> tuple[str, ...]:
        """Return notes for the diagnosis of a run; longest_ns : longest compilation."""
        return ()

    @property
    def compiler(self) -> str:
        """Compiler of grammars: "xgrammar" or "guidance"."""
        return self.backend

    @property
    def workers(self) -> int:
        """Grammars that compile at once; 0: no limit."""
        return workers(self.cpus)

    @property
    def grammar(self) -> Grammar | None:
        """Each grammar, as compilers see it; None: its time is given or published."""
        if self.kind is None:
            return None
        return Grammar(self.kind, self.size or 16, self.new_lengths, self.max_length,
                       self.vocabulary or USUAL_VOCABULARY)

    @property
    def compile_time(self) -> DrawnTime:
        """Milliseconds of one worker to compile a grammar."""
        if self.grammar is not None:
            return compile_time(self.grammar, self.compiler, self.cpus, self.workers)
        return PUBLISHED[self.compiler][0] if self.compile_ms is None else drawn(self.compile_ms)

    @property
    def mask_time(self) -> DrawnTime:
        """Microseconds to fill a mask."""
        return PUBLISHED[self.compiler][1] if self.mask_us is None else drawn(self.mask_us)
