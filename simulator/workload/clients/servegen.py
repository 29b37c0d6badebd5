"""`servegen`: many clients measured by ServeGen, each with rates, gaps and lengths that change.

Source of files and algorithm: alibaba/ServeGen at f891d118, servegen/construct.py, clientpool.py, utils.py.
"""
import math
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, KeyFault, number_of
from simulator.workload.clients.servegen_files import Dataset, Trace, Window, client_numbers
from simulator.workload.column_options import ColumnOptions
from simulator.workload.columns import Columns, nearest, stream_of
from simulator.workload.drawing.arrivals import LEAST
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS

MODALITIES = ("image", "audio", "video")
MAX_REQUESTS = 10**9
MAX_ITEMS = 10_000              # for example images, of a request
Rate = Annotated[float, Meta(ge=LEAST, le=1e9)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)]


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients and request rates from a folder of ServeGen, [workload.servegen]."""

    clients: Annotated[tuple[Annotated[int, Meta(ge=0, le=2**31 - 1)], ...], Meta(description=(
        "numbers k of the clients, from chunk-k-trace.csv; absent: all"))] = ()
    top: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "number of clients with the highest mean rates that are kept; 0: all"), extra={"unit": "clients"})] = 0
    start_s: Annotated[Seconds, Meta(description="beginning in the traces, a whole number of windows")] = 0.0
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)], Meta(
        description="length of the part that is used, a whole number of windows")] = 3600.0
    rate: Annotated[Literal["scaled", "constant", "bounded"], Meta(description=(
        "total rate: scaled: as measured, times rate_scale; constant: rate_per_s; bounded: as measured, scaled down "
        "to max_rate_per_s if the highest rate is above it"))] = "scaled"
    rate_scale: Annotated[Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description="a factor; default: 1")] = None
    rate_per_s: Annotated[Rate | None, Meta(description="total rate in every window")] = None
    max_rate_per_s: Annotated[Rate | None, Meta(description="total rate in the window with most requests")] = None
    counts: Annotated[Literal["upstream", "whole"], Meta(description=(
        "requests of a client at rate r in a window: upstream: n - 1 of n = ceil(r x length), as in ServeGen, which "
        "drops the last, so that clients with few requests lose many; whole: n"))] = "upstream"
    correlation: Annotated[Literal["comonotone", "independent"], Meta(description=(
        "comonotone: one random number chooses all lengths of a request, as in ServeGen; independent: one a length"
    ))] = "comonotone"
    missing_dataset: Annotated[Literal["error", "drop"], Meta(description=(
        "a client without published lengths: error: refused; drop: left out"))] = "error"

    def __post_init__(self):
        keys = {"scaled": "rate_scale", "constant": "rate_per_s", "bounded": "max_rate_per_s"}
        needed = keys[self.rate]
        strangers = [key for key in keys.values() if key != needed and getattr(self, key) is not None]
        if strangers:
            raise ValueError(f'rate = "{self.rate}" does not read {", ".join(strangers)}')
        if needed != "rate_scale" and getattr(self, needed) is None:
            raise ValueError(f'rate = "{self.rate}" needs {needed}')


class ServeGenParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder of measured clients."""

    path: Annotated[str, Meta(description="the folder of a model's clients", extra={"path": True})]
    servegen: Annotated[Span, Meta(description="clients and request rates")]


class Measured(NamedTuple):
    """A client and its windows in the span."""

    number: int
    dataset: Dataset | None
    windows: list[Window]

    @property
    def name(self) -> str:
        """Return the name of its random streams and of its tenant."""
        return f"chunk-{self.number}"


class Drawn(NamedTuple):
    """The requests of one client in one window; arrays (n,)."""

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray


class ServeGen:
    """Requests as ServeGen draws them, with random streams of our own."""

    Parameters = ServeGenParameters

    def __init__(self, parameters: ServeGenParameters):
        self.path, self.span = parameters.path, parameters.servegen

    def columns(self, streams: RandomStreams, options: ColumnOptions) -> Columns:
        """Return the requests by arrival, then by client; their tenants are the clients.

        Raises
        ------
        InputErrors
            Faults of the files; a span that they do not cover; no request, or too many.
        """
        clients, window_s, notes = self._clients()
        starts_s = self._starts(window_s)
        rates = target_rates(self.span, np.array([[each.rate_per_s for each in client.windows] for client in clients]))
        if rates.sum() * window_s > MAX_REQUESTS:
            raise InputErrors([KeyFault(f"workload.servegen.{self.span.rate}: more than {MAX_REQUESTS} requests")])
        drawn, codes = [], []
        for code, client in enumerate(clients):
            for each in self._requests(client, rates[code], starts_s, window_s, streams):
                drawn.append(each)
                codes.append(np.full(len(each.arrival_s), code))
        if not sum(map(len, codes)):
            made = _note_on_dropped(clients, rates, window_s, 0)
            raise InputErrors([KeyFault(f"workload.servegen: no request comes in {self.span.duration_s:g} s from "
                                        f"{self.span.start_s:g} s on{''.join(f' ({each})' for each in made)}")])
        if self.span.counts == "upstream":
            notes += _note_on_dropped(clients, rates, window_s, sum(map(len, codes)))
        return _columns(drawn, np.concatenate(codes), [client.name for client in clients], notes)

    def _clients(self) -> tuple[list[Measured], float, tuple[str, ...]]:
        """Return the chosen clients, the length of a window, and notes on left-out data."""
        paths = client_numbers(self.path)
        unknown = [number for number in self.span.clients if number not in paths]
        if unknown:
            raise InputErrors([KeyFault(f"workload.servegen.clients: expected numbers of {self.path}, such as "
                                        f"{next(iter(paths))}, found {', '.join(map(str, unknown))}")])
        chosen = sorted(set(self.span.clients)) or list(paths)
        traces = {number: Trace(paths[number]) for number in chosen}
        if self.span.top:
            by_rate = sorted(chosen, key=lambda number: (-traces[number].mean_rate_per_s(), number))
            chosen = sorted(by_rate[:self.span.top])
        window_s = traces[chosen[0]].window_s
        datasets = {number: _dataset_beside(paths[number], number) for number in chosen}
        missing = [number for number in chosen if datasets[number] is None]
        if missing and self.span.missing_dataset == "error":
            raise InputErrors([
                f"{self.path}: client {number} has no chunk-{number}-dataset.json, so that its lengths are unknown; "
                'missing_dataset = "drop" leaves it out' for number in missing])
        starts_s = self._starts(window_s)
        clients = [Measured(number, datasets[number], [traces[number].window(each) for each in starts_s])
                   for number in chosen if datasets[number] is not None]
        if not clients:
            raise InputErrors([f"{self.path}: no chosen client has a dataset"])
        are = "are left out, as they have" if len(missing) > 1 else "is left out, as it has"
        notes = (f"{number_of(len(missing), 'client')} of {self.path} {are} no dataset: "
                 f"{', '.join(map(str, missing))}.",) if missing else ()
        return clients, window_s, notes + _unused(clients)

    def _starts(self, window_s: float) -> np.ndarray:
        """Return when the windows of the span begin in the traces, s."""
        faults = [KeyFault(f"workload.servegen.{key}: expected a multiple of {window_s:g} s, a window's length, "
                           f"found {value:g}") for key, value in (
            ("start_s", self.span.start_s), ("duration_s", self.span.duration_s)) if value % window_s]
        if faults:
            raise InputErrors(faults)
        return self.span.start_s + window_s * np.arange(round(self.span.duration_s / window_s))

    def _requests(self, client: Measured, rates: np.ndarray, starts_s: np.ndarray, window_s: float,
                  streams: RandomStreams):
        """Yield the requests of a client, window by window."""
        gaps, lengths, items = (streams.generator(stream_of(client.name, purpose))
                                for purpose in ("arrivals", "lengths", "items"))
        for window, rate, start_s in zip(client.windows, rates.tolist(), starts_s.tolist(), strict=True):
            times_s = arrivals_in_window(window, rate, window_s, gaps, self.span.counts == "whole")
            if not len(times_s):
                continue
            at = client.dataset.start_at(start_s)
            if at is None:
                raise InputErrors([f"{client.dataset.path}: no window with lengths begins at {start_s:g} s or before"])
            prompts, outputs = lengths_of(client.dataset, at, len(times_s), self.span.correlation, lengths, items)
            yield Drawn(start_s - self.span.start_s + times_s, prompts, outputs)


def target_rates(span: Span, measured: np.ndarray) -> np.ndarray:
    """Return each client's requests/s in each window, (clients, windows).

    All clients together have the target rate; each client has its share of the `measured` rates.
    """
    sums = measured.sum(axis=0)
    target = sums * (1.0 if span.rate_scale is None else span.rate_scale)
    if span.rate == "constant":
        target = np.full(len(sums), span.rate_per_s)
    if span.rate == "bounded":
        target = sums * min(1.0, span.max_rate_per_s / max(sums.max(), span.max_rate_per_s))
    return np.divide(target * measured, sums, out=np.zeros_like(measured), where=sums > 0)


def _note_on_dropped(clients: list[Measured], rates: np.ndarray, window_s: float, sent: int) -> tuple[str, ...]:
    """Return a note with the number of requests that the rates make, and the number sent, if they differ."""
    has_pattern = np.array([[bool(window.pattern) for window in client.windows] for client in clients])
    made = int(np.ceil(rates * window_s)[has_pattern].sum())
    if made == sent:
        return ()
    return (f"workload.servegen: of {number_of(made, 'request')} {sent} are sent: as in ServeGen, the last one of each "
            'client in each window is left out; counts = "whole" sends all.',)


def arrivals_in_window(window: Window, rate_per_s: float, window_s: float, generator,
                       is_whole: bool = False) -> np.ndarray:
    """Return when requests arrive after a window's beginning, s.

    ceil(rate x window) gaps are stretched so that the last arrival is at the window's end, and is dropped: only the
    shape of the gaps matters.

    is_whole : one more gap is drawn, so that ceil(rate x window) arrivals are left.
    """
    count = math.ceil(rate_per_s * window_s)
    if count and is_whole:
        count += 1
    if not window.pattern or count < 2:
        return np.empty(0)
    draw = generator.standard_gamma if window.pattern == "Gamma" else generator.weibull
    times = np.cumsum(draw(window.shape, count))
    return np.minimum(times[:-1] * (window_s / times[-1]), np.nextafter(window_s, 0))


def lengths_of(dataset: Dataset, start_s: float, count: int, correlation: str, generator,
               items) -> tuple[np.ndarray, np.ndarray]:
    """Return prompt and output lengths of requests, float64 (count,).

    Parameters
    ----------
    items : draws the tokens of each image, audio and video.

    Raises
    ------
    InputErrors
        Required fields are missing, or a count is too large.
    """
    fields = dataset.fields(start_s)
    shared = generator.random(count)

    def at(name):
        if name not in fields:
            raise InputErrors([f"{dataset.path}: window {start_s:g}: no field {name}; found {', '.join(fields)}"])
        return fields[name].at(shared if correlation == "comonotone" else generator.random(count))

    outputs = at("output_tokens")
    if "text_tokens" not in fields:
        return at("input_tokens"), outputs
    prompts = at("text_tokens")
    for modality in MODALITIES:
        if f"{modality}_count" not in fields:
            continue
        counts = at(f"{modality}_count").astype(np.int64)
        if counts.max() > MAX_ITEMS:
            raise InputErrors([f"{dataset.path}: window {start_s:g}: {modality}_count: expected {MAX_ITEMS} at most, "
                               f"found {counts.max()}"])
        tokens = fields[f"{modality}_tokens"].at(items.random(counts.sum()))
        prompts = prompts + np.bincount(np.repeat(np.arange(count), counts), tokens, minlength=count)
    return prompts, outputs


def _dataset_beside(trace: Path, number: int) -> Dataset | None:
    paths = [trace.with_name(f"chunk-{number}-dataset.json{ending}") for ending in ("", ".gz")]
    return next((Dataset(path) for path in paths if path.exists()), None)


def _unused(clients: list[Measured]) -> tuple[str, ...]:
    """Return notes on fields of the datasets that requests lack."""
    if not any(client.dataset.has("reason_ratio") for client in clients):
        return ()
    return ("reason_ratio of the datasets is not used: reasoning tokens are counted as output tokens.",)


def _columns(drawn: list[Drawn], codes: np.ndarray, names: list[str], notes: tuple[str, ...]) -> Columns:
    arrival_s, prompts, outputs = (np.concatenate(each) for each in zip(*drawn, strict=True))
    order = np.argsort(arrival_s, kind="stable")
    prompt_tokens, output_tokens = nearest(prompts[order]), nearest(outputs[order])
    for field, tokens in (("input", prompt_tokens), ("output", output_tokens)):
        if tokens.max() > MAX_TOKENS:
            raise InputErrors([f"a dataset has {tokens.max()} {field} tokens, at most {MAX_TOKENS} are possible"])
    empty = int((prompt_tokens < 1).sum())
    if empty:
        notes = (*notes, f"{number_of(empty, 'prompt')} of 0 tokens {'has' if empty == 1 else 'have'} 1 instead.")
    return Columns(nearest(arrival_s[order] * 1e9), np.maximum(prompt_tokens, 1), output_tokens,
                   labels={"tenant": (codes[order], names)}, notes=notes)
