"""A data set: a folder with `dataset.toml`, which has the provenance of measurements and the keys of their reader."""
import hashlib
import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator import registry
from simulator.config.layers import Source, read_toml
from simulator.config.reader import MISSING, Reader
from simulator.errors import InputErrors, did_you_mean

FILE = "dataset.toml"
# Form -> module here with a frozen `Parameters`, `ROLES` of its files, its `LEVEL`, and `read(data_set) -> cases`.
FORMS = {"burst": "simulator.study.accuracy.burst", "closed_loop": "simulator.study.accuracy.closed_loop",
         "observed": "simulator.study.accuracy.observed", "request_log": "simulator.study.accuracy.request_log"}

Text = Annotated[str, Meta(min_length=1)]
Metric = Literal["ttft", "tpot", "e2e", "makespan", "throughput"]
Share = Annotated[float, Meta(ge=0, le=10)]


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of measurements.

    Its path is relative to the root of all data, or after ./ to dataset.toml.
    """

    role: Annotated[Text, Meta(description="name of the file in its form")]
    path: Text
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="of the file's bytes, compressed or not")]


class Unusable(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements that are not compared."""

    metric: Metric
    model: Annotated[str | None, Meta(description="model; default: all models")] = None
    reason: Text


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A known cause of errors, shown beside the worst rows."""

    metrics: Annotated[tuple[Metric, ...], Meta(min_length=1)]
    model: Annotated[str | None, Meta(description="model; default: all models")] = None
    backend: Annotated[str | None, Meta(description="predictor; default: every one")] = None
    cause: Text


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another simulator, with published predictions to show beside ours."""

    name: Text
    version: Text
    column_prefix: Annotated[str | None, Meta(description="prefix of its columns in a CSV file of points")] = None
    role: Annotated[str | None, Meta(description="role of the file with its means and percentiles")] = None


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Median relative difference of repeated measurements, shares."""

    ttft: Share | None = None
    tpot: Share | None = None
    e2e: Share | None = None
    makespan: Share | None = None
    throughput: Share | None = None


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `dataset.toml`.

    Paths in its tables are relative to the root; those that begin with ./ are relative to its folder.
    """

    name: Annotated[str, Meta(pattern=r"^\w[\w.+ -]*$")]
    measured: Annotated[Text, Meta(description="measured quantities")]
    machine: Annotated[Text, Meta(description="machines of the measurement")]
    engine: Annotated[Text, Meta(description="serving engine")]
    version: Annotated[Text, Meta(description="versions of the engine")]
    date: Annotated[Text, Meta(description="date of the measurement, or that it is not known")]
    source: Annotated[Text, Meta(description="repository, commit and path, or own")]
    licence: Text
    level: Literal["operator", "collective", "step", "request"]
    purpose: Annotated[Literal["development", "held"], Meta(description=(
        "development: used while prices were made; held: not used"))]
    fits: Annotated[tuple[str, ...], Meta(description="backends and other predictors that were fitted on it")]
    form: Annotated[Literal["burst", "closed_loop", "observed", "request_log"], Meta(description="form of the files")]
    files: Annotated[tuple[DataFile, ...], Meta(min_length=1)]
    reader: Annotated[dict[str, Any], Meta(description="keys of the form")] = {}
    experiment: Annotated[dict[str, Any], Meta(description="tables of an experiment that all runs have")] = {}
    backends: Annotated[dict[str, dict[str, Any]], Meta(description="backend -> keys of its [latency]")] = {}
    noise: Noise = Noise()
    unusable: tuple[Unusable, ...] = ()
    causes: tuple[Cause, ...] = ()
    peers: tuple[Peer, ...] = ()


class Opened(msgspec.Struct, frozen=True):
    """A data set with its files.

    place : its dataset.toml, as in messages.
    root : of all data.
    says : its content. parameters : the form's, of [reader].
    absent : missing files.
    """

    place: str
    root: str
    says: DataSet
    parameters: Any
    absent: tuple[str, ...]

    def path(self, role: str) -> Path:
        """Return the file of a role."""
        return Path(self.root, next(file.path for file in self.says.files if file.role == role))

    def why_unusable(self, metric: str, model: str) -> str | None:
        """Return why a metric of a model is not compared; None: it is compared."""
        return next((each.reason for each in self.says.unusable
                     if each.metric == metric and each.model in (None, model)), None)

    def cases(self) -> list:
        """Return the runs.

        Raises
        ------
        InputErrors
            All faults of the files.
        """
        return form_of(self.says.form).read(self)


def form_of(name: str):
    """Return the module of a form."""
    return import_module(FORMS[name])


def open_all(folders: Iterable[str | os.PathLike], root: str | os.PathLike) -> list[Opened]:
    """Read the data sets in folders, or one level below; check their files.

    Raises
    ------
    InputErrors
        All faults of all data sets; a folder without one. Missing files are no fault.
    """
    faults, found = [], []
    for folder in folders:
        files = _files_in(Path(folder))
        if not files:
            faults.append(f"{folder}: no {FILE}, nor folders that have one")
        for file in files:
            try:
                found.append(_open(file, str(root)))
            except InputErrors as errors:
                faults += errors.faults
    names: dict[str, str] = {}
    for each in found:
        if each.says.name in names:
            faults.append(f"{each.place}: name: {each.says.name!r} is the name of {names[each.says.name]}, too")
        names.setdefault(each.says.name, each.place)
    if faults:
        raise InputErrors(faults)
    return found


def _files_in(folder: Path) -> list[Path]:
    if (folder / FILE).is_file():
        return [folder / FILE]
    return sorted(folder.glob(f"*/{FILE}"))


def _open(file: Path, root: str) -> Opened:
    data = read_toml(str(file))
    reader = Reader(lambda path: Source(str(file), root))
    says = reader.table(DataSet, data)
    parameters, absent = MISSING, []
    if says is not MISSING:
        form = form_of(says.form)
        parameters = reader.table(form.Parameters, says.reader, ("reader",))
        for path, fault in _disagreements(says, form):
            reader.fault(path, fault)
        says = msgspec.structs.replace(says, files=tuple(
            msgspec.structs.replace(each, path=_beside(each.path, file.parent)) for each in says.files))
        for index, each in enumerate(says.files):
            absent += _check(Path(root, each.path), each, lambda fault, i=index: reader.fault(("files", i), fault))
    if reader.faults:
        raise InputErrors(reader.faults)
    says = msgspec.structs.replace(says, experiment=_beside(says.experiment, file.parent),
                                   backends=_beside(says.backends, file.parent))
    return Opened(str(file), root, says, parameters, tuple(absent))


def _beside(value: Any, folder: Path) -> Any:
    """Return a value of TOML with paths that begin with ./ resolved against a folder."""
    if isinstance(value, dict):
        return {name: _beside(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [_beside(each, folder) for each in value]
    return str(folder.absolute() / value[2:]) if isinstance(value, str) and value.startswith("./") else value


def _disagreements(says: DataSet, form):
    """Yield key and fault of contradictions between keys."""
    if says.level != form.LEVEL:
        yield ("level",), f'expected "{form.LEVEL}", which is what {says.form} holds, found "{says.level}"'
    roles = [file.role for file in says.files]
    for role in form.ROLES:
        if roles.count(role) != 1:
            yield ("files",), f'expected one file with role = "{role}", found {roles.count(role)}'
    peer_roles = {peer.role for peer in says.peers}
    for index, role in enumerate(roles):
        if role not in form.ROLES and role not in peer_roles:
            near = did_you_mean(role, {*form.ROLES, *filter(None, peer_roles)})
            yield ("files", index, "role"), f'nobody reads "{role}"{near}'
    for index, peer in enumerate(says.peers):
        if getattr(peer, form.PEER_KEY) is None:
            yield ("peers", index), f"missing; {says.form} finds published predictions by {form.PEER_KEY}"
        elif peer.role is not None and peer.role not in roles:
            yield ("peers", index, "role"), f'no file has role = "{peer.role}"{did_you_mean(peer.role, roles)}'
    known = {*registry.KINDS["latency"].entries, *(peer.name for peer in says.peers)}
    for key, names in (("fits", says.fits), ("backends", says.backends)):
        for name in names:
            if name not in known and ":" not in name:
                yield (key,), f'no backend "{name}"{did_you_mean(name, known)}'
    for key in ("latency", "extends", "name"):
        if key in says.experiment:
            yield ("experiment", key), "a run has its own; [backends.NAME] has keys of [latency]"


def _check(path: Path, file: DataFile, fault) -> list[str]:
    """Report a file that cannot be read or has another content; return its path if it is missing."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return [str(path)]
    except OSError as error:
        fault(f"{path}: cannot be read: {error.strerror or error}")
        return []
    if digest != file.sha256:
        fault(f"sha256: {path} has {digest}, not {file.sha256}: it is another file than the one described here")
    return []
