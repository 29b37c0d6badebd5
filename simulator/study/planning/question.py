"""The question of `plan`: a model, accelerators, requests and bounds, checked as a whole."""
import argparse
import json
import math
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import tomli

from simulator.config.huggingface.reader import read_config
from simulator.config.layers import Source
from simulator.config.reader import Reader
from simulator.domain.costs import Price
from simulator.domain.facts import hub_ids, load_accelerator, load_model, names
from simulator.domain.model_spec import ModelSpec
from simulator.domain.short_names import accelerator_named
from simulator.domain.vllm_versions import NEWEST, VERSIONS
from simulator.errors import InputErrors, collect_faults, did_you_mean
from simulator.server_line.facts.checkpoints import checkpoint_of
from simulator.server_line.facts.flag_tables import version_named
from simulator.study.capacity.bounds import GOODPUT_SHARE, Bounds, bounds_of_options

MOST_GPUS = 4096
MOST_TOKENS = 2**31 - 1
MOST_RATE = 1e6                 # requests a second, as the searches for a rate allow
VLLM, SGLANG, TENSORRT = "vllm", "sglang", "tensorrt_llm"
ENGINES = (VLLM, SGLANG, TENSORRT)
RESERVED = {SGLANG: 6}          # tokens of its context_length that it keeps: scheduler.py, max_req_input_len
FLAG_TABLES = {SGLANG: "sglang", TENSORRT: "trtllm"}    # of engines with one modelled version
TPOT_KEYS = ("tpot_ms", "itl_ms")                       # numbers that an answer of one token does not have


class _File(msgspec.Struct):
    """What --prices reads of a file."""

    prices: Annotated[dict[str, Price], msgspec.Meta(extra={"facts": "hardware"})]


class Requests(NamedTuple):
    """The requests.

    prompt, output : tokens of each. rate : requests a second; None: it is asked for.
    """

    prompt: int
    output: int
    rate: float | None

    @property
    def length(self) -> int:
        """Tokens of prompt and answer."""
        return self.prompt + self.output


class Question(NamedTuple):
    """The question, checked.

    title : the model as it was given. model : [model] of the experiment. spec : its shape. card : name in hardware/.
    gpus : that there are, at most. bounds : to hold. engine : name of the scheduler. version : key of its version;
    None: the newest. max_model_len : of the engine. price : [prices] of the experiment; None: no price is given.
    model_confidence : over the latency model, as of [study.statistics]; None: predictions as they are. notes : how
    short options were understood, a sentence each.
    """

    title: str
    model: dict[str, str]
    spec: ModelSpec
    card: str
    gpus: int
    requests: Requests
    bounds: Bounds
    engine: str
    version: str | None
    max_model_len: int
    price: dict[str, Any] | None
    notes: tuple[str, ...] = ()
    model_confidence: float | None = None

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return f"{Path(self.title).name.lower()}-{Path(self.card).stem}".replace(" ", "-")


def question_of(options: argparse.Namespace) -> Question:
    """Return the question of the command's options.

    Raises
    ------
    InputErrors
        All faults at once.
    """
    (model, spec), named, bounds, (version, price, requests) = collect_faults(
        lambda: model_named(options.model, options.config), lambda: accelerator_named(options.gpu),
        lambda: _bounds_of(options), lambda: _others(options))
    notes = list(filter(None, [named.remark(f"--gpu {options.gpu}")]))
    prices, max_model_len, _ = collect_faults(
        lambda: _prices_of(price, named.name),
        lambda: _length_of(options.max_model_len, requests, spec, options.model, options.engine),
        lambda: load_accelerator(named.name))
    if options.max_model_len is None:
        notes.append(f"max_model_len = {max_model_len:,}, enough for these requests: --max-model-len sets the server's")
    return Question(options.model, model, spec, named.name, options.gpus, requests, bounds, options.engine, version,
                    max_model_len, prices, tuple(notes), options.model_confidence)


def _others(options: argparse.Namespace) -> tuple[str | None, Any, Requests]:
    """Return version, price and requests."""
    faults = [f"--{name}: expected a whole number from 1 to {most:,}, found {value}"
              for name, value, most in (("gpus", options.gpus, MOST_GPUS), ("input", options.input, MOST_TOKENS),
                                        ("output", options.output, MOST_TOKENS)) if not 1 <= value <= most]
    if options.rate is not None and not 0 < options.rate <= MOST_RATE:
        faults.append(f"--rate: expected requests a second above 0, at most {MOST_RATE:,.0f}, found {options.rate:g}")
    if options.tensor_parallel is not None and 1 <= options.gpus < min(options.tensor_parallel):
        faults.append(f"--tensor-parallel: expected at most --gpus {options.gpus}, found "
                      f"{min(options.tensor_parallel)}")
    elif options.tensor_parallel is not None and options.gpus >= 1:
        faults += [f"--tensor-parallel: {each} does not divide --gpus {options.gpus}: {options.gpus % each} "
                   f"would be idle; --gpus {options.gpus - options.gpus % each} has none"
                   for each in options.tensor_parallel if options.gpus % each]
    if options.model_confidence is not None and not 0.5 <= options.model_confidence < 1:
        faults.append(f"--model-confidence: expected a share from 0.5, below 1, found {options.model_confidence:g}")
    version = price = None
    try:
        version = _version_of(options.engine, options.engine_version)
    except InputErrors as errors:
        faults += errors.faults
    try:
        price = _read_prices(options.prices)
    except InputErrors as errors:
        faults += errors.faults
    if faults:
        raise InputErrors(faults)
    return version, price, Requests(options.input, options.output, options.rate)


def model_named(name: str, folder: str | None) -> tuple[dict[str, str], ModelSpec]:
    """Return [model] and the shape of a model.

    name : in models/, of a repository on the hub, or of a folder with config.json. folder : in place of the name.
    """
    path = Path(folder or name).expanduser()
    if folder is not None or path.is_dir() or path.name == "config.json":
        file = path / "config.json" if path.is_dir() else path
        return {"config": str(file.absolute())}, read_config(file)
    if name in names("model") or name.endswith(".toml") or name in hub_ids():
        own = str(path.absolute()) if name.endswith(".toml") else hub_ids().get(name, name)
        return {"name": own}, load_model(name)
    found = checkpoint_of(name)
    if found.model is None:
        raise InputErrors([f"{name}: an experiment needs its shape; give --config FOLDER with its config.json"])
    return {"name": found.model} | ({"dtype": found.stored} if found.stored else {}), load_model(found.model)


def _bounds_of(options: argparse.Namespace) -> Bounds:
    texts, faults = list(options.slo), []
    for name, key in (("ttft_p99", "ttft_ms.p99"), ("tpot_p99", "tpot_ms.p99")):
        limit = getattr(options, name)
        if limit is not None and not (0 < limit < math.inf):
            faults.append(f"--{name.replace('_', '-')}: expected milliseconds above 0, found {limit:g}")
        elif limit is not None:
            texts.append(f"{key}={limit!r}")
    sides = Counter(re.split(r"[<>]?=", text)[0].strip() for text in texts)
    faults += [f"{key}: bounded {count} times: expected one bound of it" for key, count in sides.items() if count > 1]
    if faults:
        raise InputErrors(faults)
    if not texts:
        raise InputErrors(["plan: give a bound to hold: --ttft-p99 MS, --tpot-p99 MS or --slo KEY=LIMIT"])
    bounds = bounds_of_options(texts)
    if any(each.key == GOODPUT_SHARE for each in bounds.bounds):
        faults.append(f"--slo {GOODPUT_SHARE}: expected bounds of latencies: no [slo] says which requests are good")
    if options.output == 1:
        faults += [f"{each.key}: expected no such bound with --output 1: the first token is the only one"
                   for each in bounds.bounds if each.key.startswith(TPOT_KEYS)]
    faults += [f"{each.key}: expected a bound above 0, found {each.limit:g}: nothing takes no time"
               for each in bounds.bounds if each.is_most and each.limit <= 0 and "_ms." in each.key]
    if faults:
        raise InputErrors(faults)
    return bounds


def _version_of(engine: str, text: str | None) -> str | None:
    """Return the key of an engine's version; None: the newest that is modelled."""
    if text is None:
        return None
    if engine != VLLM:
        version_named(FLAG_TABLES[engine], text)
        return None                             # the only one
    asked = text.removeprefix("v")
    for version, row in VERSIONS.items():
        if asked in (version, row.release):
            return version
    raise InputErrors([f'--engine-version: vLLM "{text}" is not modelled; expected one of {", ".join(VERSIONS)}'
                       f"{did_you_mean(asked, VERSIONS) if asked else ''}"])


def version_words(question: Question) -> str:
    """Return engine and version in words."""
    if question.engine == VLLM:
        return f"vLLM {VERSIONS[question.version or NEWEST].release}"
    name, _ = version_named(FLAG_TABLES[question.engine], None)
    return f"{'SGLang' if question.engine == SGLANG else 'TensorRT-LLM'} {name}"


def _length_of(given: int | None, requests: Requests, spec: ModelSpec, title: str, engine: str) -> int:
    """Return the longest text of the engine."""
    most = spec.max_position_embeddings
    if requests.length > most:
        raise InputErrors([f"--input and --output: a request has {requests.length:,} tokens, {title} takes {most:,} at "
                           "most"])
    if given is None:
        return min(requests.length + RESERVED.get(engine, 0), most)
    if not requests.length <= given <= most:
        raise InputErrors([f"--max-model-len: expected {requests.length:,}, which a request has, to {most:,}, the "
                           f"model's, found {given:,}"])
    return given


def _read_prices(text: str | None) -> Any:
    """Return a number, or the table [prices] of a file."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not 0 < number <= 1e9:
            raise InputErrors([f"--prices: expected the price of a GPU-hour above 0, found {text}"])
        return number
    try:
        table = tomli.loads(Path(text).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise InputErrors([f"--prices: expected the price of a GPU-hour, or a file with [prices]; {text}: "
                           f"{getattr(error, 'strerror', None) or error}"]) from None
    if not isinstance(table.get("prices"), dict):
        raise InputErrors([f"--prices: {text} has no table [prices]"])
    reader = Reader(lambda path: Source(text, ""))
    reader.values(_File, {"prices": table["prices"]})
    if reader.faults:
        raise InputErrors(reader.faults)
    return table["prices"]


def _prices_of(price: Any, card: str) -> dict[str, Any] | None:
    """Return [prices] with the price of a card."""
    if price is None:
        return None
    if isinstance(price, float):
        return {card: {"per_gpu_hour": price, "currency": "USD", "source": "the option --prices",
                       "date": date.today().isoformat()}}
    if card not in price:
        raise InputErrors([f"--prices: no price of {card}{did_you_mean(card, price)}"])
    return {card: price[card]}


def quoted(value: Any) -> str:
    """Return a value as TOML: text, number, or inline table."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {quoted(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(quoted, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)
