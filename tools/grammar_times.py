"""Measure the times of simulator/domain/grammar_times.py on this machine: CPU time that compiles a random grammar.

    python tools/grammar_times.py xgrammar|guidance --size 131072 TOKENS ...

TOKENS: vocabularies, joined, cut to --size: `tekken_*.json` of mistral_common, or `*.tiktoken`, of which dashscope has
one. Needs xgrammar (with torch) or llguidance. Prints kind, size, median, least and largest CPU milliseconds.
"""
import argparse
import base64
import json
import random
import statistics
import time
from pathlib import Path

REPEATS = 9
NUM_SPECIAL = 1000
SIZES = {"json": (1,), "json_schema": (1, 4, 16, 64, 256), "constrained_schema": (1, 4, 16, 64, 256),
         "regex": (4, 16, 64), "ebnf": (4, 16)}
LENGTHS = (10, 20, 40, 64, 100, 200)            # of strings that no earlier grammar has
NAMES = ["name", "title", "address", "city", "country", "amount", "price", "quantity", "status", "owner", "email"]
TYPES = [{"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"},
         {"type": "array", "items": {"type": "string"}}, {"enum": ["low", "medium", "high"]}]
CONSTRAINED = [
    {"type": "string", "maxLength": 64}, {"type": "string", "minLength": 1, "maxLength": 120},
    {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4,8}$"}, {"type": "integer", "minimum": 0, "maximum": 10000},
    {"type": "array", "items": {"type": "string", "maxLength": 32}, "minItems": 1, "maxItems": 10},
    {"type": "string", "format": "date-time"}, {"type": "string", "format": "email"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "number"}, {"type": "boolean"}]
ATOMS = [r"[a-z]{2,8}", r"\d{3}", r"(foo|bar|baz)", r"[A-Z][a-z]*", r"-"]


def main() -> None:
    """Print the table, and the times of strings with new lengths."""
    parser = argparse.ArgumentParser()
    parser.add_argument("compiler", choices=("xgrammar", "guidance"))
    parser.add_argument("tokens", nargs="+", type=Path)
    parser.add_argument("--size", type=int, default=131_072)
    options = parser.parse_args()
    tokens = vocabulary(options.tokens, options.size)
    compile_ = (xgrammar_of if options.compiler == "xgrammar" else llguidance_of)(tokens)
    print(f"{options.compiler}, {len(tokens):,} tokens")
    for length in LENGTHS:                      # first: no earlier grammar has a longer one
        schema = schema_of({"value": {"type": "string", "maxLength": length}})
        print(f"new length,{length},{cpu_ms(compile_, 'json_schema', schema):.1f}", flush=True)
    for kind, sizes in SIZES.items():
        for size in sizes:
            times = [cpu_ms(compile_, kind, made(kind, size, random.Random(1000 * i + size), options.compiler))
                     for i in range(REPEATS)]
            print(f"{kind},{size},{statistics.median(times):.3f},{min(times):.3f},{max(times):.3f}", flush=True)


def vocabulary(paths: list[Path], size: int) -> list[bytes]:
    """Return the tokens of files, each once, behind special ones."""
    found: dict[bytes, None] = {}
    for path in paths:
        if path.suffix == ".json":
            coded = [each["token_bytes"] for each in json.loads(path.read_text())["vocab"]]
        else:
            coded = [line.split()[0] for line in path.read_text().splitlines()]
        found |= dict.fromkeys(map(base64.b64decode, coded))
    return ([b"<special %d>" % i for i in range(NUM_SPECIAL)] + list(found))[:size]


def xgrammar_of(tokens: list[bytes]):
    """Return a function that compiles a grammar with xgrammar, in one thread."""
    import xgrammar

    info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=[2])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=True, cache_limit_bytes=512 * 2**20)
    calls = {"regex": compiler.compile_regex, "ebnf": compiler.compile_grammar}
    return lambda kind, text: calls.get(kind, compiler.compile_json_schema)(text)


def llguidance_of(tokens: list[bytes]):
    """Return a function that compiles a grammar with llguidance."""
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    class Tokenizer:
        bos_token_id, eos_token_id = 1, 2

        def __init__(self):
            self.tokens, self.special_token_ids = tokens, list(range(NUM_SPECIAL))

        def __call__(self, text):
            return list(text if isinstance(text, bytes) else text.encode())

    tokenizer = LLTokenizer(TokenizerWrapper(Tokenizer()))
    calls = {"regex": LLMatcher.grammar_from_regex, "ebnf": LLMatcher.grammar_from_lark}

    def compile_(kind: str, text: str) -> None:
        matcher = LLMatcher(tokenizer, calls.get(kind, LLMatcher.grammar_from_json_schema)(text))
        if matcher.is_error():
            raise ValueError(matcher.get_error())

    return compile_


def cpu_ms(compile_, kind: str, text: str) -> float:
    """Return the CPU time of one compilation, in milliseconds."""
    begin_s = time.process_time()
    compile_(kind, text)
    return 1e3 * (time.process_time() - begin_s)


def made(kind: str, size: int, drawn: random.Random, compiler: str) -> str:
    """Return a random grammar as text."""
    if kind == "json":
        return '{"type": "object"}'
    if kind == "regex":
        return "".join(drawn.choice(ATOMS) for _ in range(size))
    if kind == "ebnf":
        return rules(size, drawn, compiler)
    types = TYPES if kind == "json_schema" else CONSTRAINED
    return schema_of({f"{drawn.choice(NAMES)}_{i}": types[(i + drawn.randrange(len(types))) % len(types)]
                      for i in range(size)})


def schema_of(properties: dict) -> str:
    """Return a JSON schema of an object, two thirds of its properties required."""
    required = list(properties)[:max(1, 2 * len(properties) // 3)]
    return json.dumps({"type": "object", "properties": properties, "required": required, "additionalProperties": False})


def rules(size: int, drawn: random.Random, compiler: str) -> str:
    """Return a chain of statements, one a rule: EBNF for xgrammar, Lark for llguidance."""
    sign, letters, digits, start = ("::=", "[a-z]+", "[0-9]+", "root") if compiler == "xgrammar" else (
        ":", "/[a-z]+/", "/[0-9]+/", "start")
    following = [f"s{i + 1}" for i in range(size - 1)] + ['"end"']
    return "\n".join([f"{start} {sign} s0"] + [
        f's{i} {sign} "{drawn.choice(NAMES)}{drawn.randrange(1000)}" " " {letters} "=" {digits} ";" {each}'
        for i, each in enumerate(following)])


if __name__ == "__main__":
    main()
