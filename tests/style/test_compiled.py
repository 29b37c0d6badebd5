"""C functions say how they fail, and one record has one definition."""
import re

import numpy as np
import pytest

from simulator.domain import records
from style.sources import COMPILED, ROOT, files, imports, name, signature

_C_FUNCTION = re.compile(r"\s*(?:cdef|cpdef)\s+(?!class\b|struct\b|enum\b|union\b|packed\b|extern\b)[^=(#]*\w\(|"
                         r"\s*ctypedef\s+[^(#]*\(\*\s*\w+\)\s*\(")
_RETURNS_OBJECT = re.compile(r"\s*c?p?def\s+(?:inline\s+)?(?:object|str|bytes|dict|list|tuple|set)\s+\w+\(")
_STRUCT = re.compile(r"^(?:cdef|ctypedef) struct (\w+):.*\n((?:(?:    .*)?\n)+)", re.MULTILINE)
_ENUM_VALUE = re.compile(r"^    ([A-Z_]+) = (\d+)", re.MULTILINE)
C_TYPES = {"int8_t": "i1", "int16_t": "i2", "int32_t": "i4", "int64_t": "i8", "uint64_t": "u8", "double": "f8"}
RECORDS = {     # NumPy name: file and C name
    "REQUEST": ("request", "Request"), "DEMAND": ("request", "Demand"), "OUTCOME": ("request", "Outcome"),
    "SEGMENT": ("request", "Segment"), "ITEM": ("request", "Item"),
    "ITERATION": ("tables", "IterationRow"), "REPLICA": ("tables", "ReplicaRow"),
    "TOKEN": ("tables", "TokenRow"), "JOURNEY": ("journey", "Journey"), "SAMPLE": ("trace_rows", "SampleRow"),
    "DECISION": ("trace_rows", "DecisionRow"), "CANDIDATE": ("trace_rows", "CandidateRow"),
    "KV_TIER": ("tables", "TierRow"), "TIER_USE": ("tables", "TierUse"), "TRANSFER": ("transfer", "Transfer"),
    "ENCODE_JOB": ("encode_job", "EncodeJob"), "LIFECYCLE": ("trace_rows", "LifecycleRow"), "LEG": ("journey", "Leg"),
    "EXECUTION": ("../engine/output/executions", "Execution"),
    "REPLICA_STATE": ("replica_state", "ReplicaState"), "REPLICA_ACCOUNT": ("replica_state", "ReplicaAccount"),
}

UNREAD = {      # headers that no other module reads, and why they are apart
    "simulator/engine/cluster.pxd": "the event loop, which a reader of the engine opens first",
    "simulator/engine/sources/scripted.pxd": "with its fields the module would hold over 700 lines"}


def struct_dtype(file, struct):
    """Return the NumPy dtype that a C compiler gives a struct of simulator/domain."""
    text = (ROOT / f"simulator/domain/{file}.pxd").read_text()
    body = dict(_STRUCT.findall(text + "\n"))[struct]
    fields = []
    for line in filter(None, (line.split("#")[0].strip() for line in body.splitlines())):
        kind, names = line.split(maxsplit=1)
        for field in names.split(","):
            label, _, length = field.strip().rstrip("]").partition("[")
            fields.append((label, C_TYPES[kind], int(length)) if length else (label, C_TYPES[kind]))
    return np.dtype(fields, align=True)


def test_every_c_function_says_how_it_fails():
    silent = []
    for path in files(*COMPILED, under="simulator"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if not _C_FUNCTION.match(line) or _RETURNS_OBJECT.match(line):
                continue
            tail = signature(lines, number).rpartition(")")[2]
            if not re.search(r"\b(noexcept|except)\b", tail):
                silent.append(f"{name(path, number + 1)}: neither noexcept, except nor object: {line.strip()}")
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(("line", "is_function"), [
    ("    cdef int64_t now(self) noexcept nogil:", True),
    ("cdef inline double mean(const double* x, int n):", True),
    ("cpdef int run(self) except -1:", True),
    ("ctypedef double (*Price)(int) noexcept nogil", True),
    ("    cdef int x = f(y)", False),
    ("    cdef readonly bint failed   # see check()", False),
    ("cdef class Linear(LatencyModel):", False),
    ("    cdef double[::1] view = np.zeros(3)", False),
    ("    def run(self):", False),
])
def test_the_reader_tells_c_functions_from_variables(line, is_function):
    assert bool(_C_FUNCTION.match(line)) == is_function


def cimported(path):
    """Return (module, item) that a file cimports: line."""
    return {(link.module, link.item): link.line for link in imports(path)
            if link.item and "cimport" in path.read_text().splitlines()[link.line - 1]}


def test_modules_do_not_repeat_what_their_headers_cimport():
    pairs = [(path, path.with_suffix(".pxd")) for path in files(".pyx", under="simulator")
             if path.with_suffix(".pxd").exists()]
    repeated = [f"{name(path, line)}: {link[1]} comes with {name(header)}" for path, header in pairs
                for link, line in cimported(path).items() if link in cimported(header)]
    assert not repeated, "\n".join(repeated)


def test_every_header_has_a_reader_beside_its_module():
    readers = {}
    for path in files(*COMPILED):
        for link in imports(path):
            readers.setdefault(link.module, set()).add(path.with_suffix(""))
    unread = [name(path) for path in files(".pxd", under="simulator") if path.with_suffix(".pyx").exists()
              and name(path) not in UNREAD
              and readers.get(name(path.with_suffix("")).replace("/", "."), set()) <= {path.with_suffix("")}]
    assert not unread, "\n".join(unread)


@pytest.mark.parametrize("record", sorted(RECORDS))
def test_record_is_the_same_in_c_and_in_numpy(record):
    ours, theirs = getattr(records, record), struct_dtype(*RECORDS[record])

    # dtype equality covers names, types, offsets and size
    assert ours == theirs


def test_every_record_is_compared():
    assert {key for key, value in vars(records).items() if isinstance(value, np.dtype)} == set(RECORDS)


def test_a_request_fills_one_cache_line():
    assert records.REQUEST.itemsize == 64


def test_status_codes_agree():
    codes = dict(_ENUM_VALUE.findall((ROOT / "simulator/domain/request.pxd").read_text()))
    assert {code.lower(): int(value) for code, value in codes.items()} == {
        status: number for number, status in enumerate(records.STATUS_NAMES)}
