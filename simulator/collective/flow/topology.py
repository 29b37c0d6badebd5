"""A network of accelerators: its nodes, its links, and SimAI's text format for them.

The first line of a file counts: nodes, GPUs of a server, NVSwitches, other switches, links, and names the type of GPU.
The second lists the ids of the switches. Each further line is a link: two nodes, bandwidth, latency, error rate. GPUs
have the lowest ids, server by server, then NVSwitches, then the other switches.
Source: aliyun/SimAI, astra-sim-alibabacloud/inputs/topo/gen_Topo_Template.py.
"""
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import InputErrors

LINK = np.dtype([("source", "i4"), ("target", "i4"), ("bytes_per_ns", "f8"), ("latency_ns", "f8")])
HEADER = ("nodes", "gpus_per_server", "nv_switches", "other_switches", "links", "gpu_type")
FIELDS = ("source", "target", "bandwidth", "latency", "error_rate")

_BANDWIDTH = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(bps|Kbps|Mbps|Gbps|Tbps)")
_LATENCY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|ms|s)")
_BYTES_PER_NS = {"bps": 0.125e-9, "Kbps": 0.125e-6, "Mbps": 0.125e-3, "Gbps": 0.125, "Tbps": 125.0}
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_MAX_NODES = 1_000_000
_MAX_FAULTS = 20


@dataclass(frozen=True)
class Topology:
    """Nodes and links; every link carries its bandwidth in both directions at once."""

    num_gpus: int
    gpus_per_server: int
    num_nv_switches: int
    num_switches: int               # others than NVSwitches
    gpu_type: str
    links: np.ndarray               # of LINK

    @property
    def num_nodes(self) -> int:
        """GPUs and switches of both kinds."""
        return self.num_gpus + self.num_nv_switches + self.num_switches

    @property
    def first_switch(self) -> int:
        """Id of the first switch that is not an NVSwitch."""
        return self.num_gpus + self.num_nv_switches

    def text(self) -> str:
        """Return the topology in SimAI's format."""
        counts = (self.num_nodes, self.gpus_per_server, self.num_nv_switches, self.num_switches, len(self.links))
        lines = [" ".join(map(str, (*counts, self.gpu_type))),
                 " ".join(map(str, range(self.num_gpus, self.num_nodes)))]
        lines += [f"{source} {target} {_decimal(rate / 0.125)}Gbps {_decimal(latency / 1e6)}ms 0"
                  for source, target, rate, latency in self.links.tolist()]
        return "\n".join(lines) + "\n"


def _decimal(value):
    return np.format_float_positional(value, trim="-")


def read_topology(path: str | Path) -> Topology:
    """Read a topology file of SimAI.

    Raises
    ------
    InputErrors
        Faults of the file, by line and field.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputErrors([f"{path}: cannot be read: {error}"]) from error
    return _Reader(path, lines).topology()


class _Reader:
    """Turn the lines of one file into a topology, collecting their faults."""

    def __init__(self, path, lines):
        self.path, self.lines, self.faults = path, lines, []

    def fault(self, line, field, expected, found):
        self.faults.append(f'{self.path}:{line}: {field}: expected {expected}, found "{found}"')

    def raise_if_any(self):
        if self.faults:
            more = len(self.faults) - _MAX_FAULTS
            raise InputErrors(self.faults[:_MAX_FAULTS] + [f"{self.path}: {more} more faults"] * (more > 0))

    def topology(self):
        nodes, per_server, nv_switches, switches, num_links, gpu_type = self.header()
        num_gpus = nodes - nv_switches - switches
        self.check_switches(num_gpus, nodes)
        links = self.links(nodes)
        if len(links) != num_links:
            self.fault(1, "links", f"{len(links)}, the number of lines after the second", num_links)
        self.raise_if_any()
        return Topology(num_gpus, per_server, nv_switches, switches, gpu_type, np.array(links, LINK))

    def header(self):
        words = self.lines[0].split() if self.lines else []
        if len(words) != len(HEADER):
            self.fault(1, "header", f"{len(HEADER)} fields: {' '.join(HEADER)}", " ".join(words))
            self.raise_if_any()
        smallest = (2, 1, 0, 0, 1)
        counts = [self.integer(1, field, word, low, _MAX_NODES * 100)
                  for field, word, low in zip(HEADER, words, smallest, strict=False)]
        self.raise_if_any()
        nodes, per_server, nv_switches, switches, _ = counts
        num_gpus = nodes - nv_switches - switches
        if not 1 <= num_gpus <= _MAX_NODES:
            self.fault(1, "nodes", f"1 to {_MAX_NODES} GPUs besides {nv_switches + switches} switches", nodes)
        elif num_gpus % per_server:
            self.fault(1, "gpus_per_server", f"a divisor of the {num_gpus} GPUs", per_server)
        self.raise_if_any()
        return *counts, words[-1]

    def check_switches(self, num_gpus, nodes):
        words = self.lines[1].split() if len(self.lines) > 1 else []
        if words != [str(switch) for switch in range(num_gpus, nodes)]:
            found = " ".join(words)
            self.fault(2, "switch ids", f"the {nodes - num_gpus} ids {num_gpus} to {nodes - 1} in order",
                       found if len(found) <= 40 else found[:37] + "...")

    def links(self, nodes):
        links, line_of = [], {}
        for number, line in enumerate(self.lines[2:], 3):
            words = line.split()
            if not words and not any(rest.strip() for rest in self.lines[number:]):
                break                               # empty lines at the end
            if len(words) != len(FIELDS):
                self.fault(number, "link", f"{len(FIELDS)} fields: {' '.join(FIELDS)}", line.strip()[:60])
                continue
            link = self.link(number, words, nodes)
            ends = tuple(sorted(link[:2], key=lambda node: -1 if node is None else node))
            if ends in line_of and None not in ends:
                self.fault(number, "link", f"one link between two nodes, line {line_of[ends]} has it",
                           line.strip()[:60])
            line_of[ends] = number
            links.append(link)
        return links

    def link(self, number, words, nodes):
        source, target = (self.integer(number, field, word, 0, nodes - 1)
                          for field, word in zip(FIELDS, words[:2], strict=False))
        if source is not None and source == target:
            self.fault(number, "target", "another node than the source", words[1])
        rate = self.quantity(number, "bandwidth", words[2], _BANDWIDTH, _BYTES_PER_NS)
        if rate == 0.0:
            self.fault(number, "bandwidth", "more than 0", words[2])
        latency = self.quantity(number, "latency", words[3], _LATENCY, _NS)
        if not re.fullmatch(r"0+(\.0*)?", words[4]):
            self.fault(number, "error_rate", "0, as loss is not simulated", words[4])
        return source, target, rate, latency

    def integer(self, number, field, word, low, high):
        if word.isascii() and word.isdigit() and len(word) < 16 and low <= int(word) <= high:
            return int(word)
        self.fault(number, field, f"an integer from {low} to {high}", word)
        return None

    def quantity(self, number, field, word, pattern, units):
        match = pattern.fullmatch(word)
        value = float(match[1]) * units[match[2]] if match else math.inf
        if value < 1e15:
            return value
        self.fault(number, field, f"a number and one of {', '.join(units)}", word)
        return None
