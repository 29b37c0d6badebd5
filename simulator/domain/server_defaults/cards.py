"""Accelerators as an engine sees them: the driver's name and memory, and the compute capability."""
from typing import NamedTuple

from simulator.domain.facts import load_accelerator
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors

GIB = 2**30
MIB = 2**20
# NVIDIA, CUDA C++ Programming Guide and developer.nvidia.com/cuda-gpus: by architecture, and cards that differ from it.
CAPABILITIES = {"Volta": (7, 0), "Turing": (7, 5), "Ampere": (8, 6), "Ada": (8, 9), "Hopper": (9, 0),
                "Blackwell": (10, 0), "Blackwell Ultra": (10, 3)}
OTHERS = {"a100": (8, 0), "a800": (8, 0), "a30": (8, 0), "rtx-50": (12, 0), "rtx-pro": (12, 0)}
NO_CAPABILITY = (0, 0)          # the card is not of NVIDIA, or of an architecture that is not listed


class Card(NamedTuple):
    """One accelerator.

    title : the vendor's name. memory_bytes : as NVML and nvidia-smi report it. capability : major and minor.
    """

    name: str
    title: str
    memory_bytes: int
    capability: tuple[int, int]

    @property
    def major(self) -> int:
        """Major compute capability."""
        return self.capability[0]

    @property
    def memory_mib(self) -> int:
        """Memory in MiB, as nvidia-smi prints it."""
        return self.memory_bytes // MIB

    @property
    def short(self) -> str:
        """The name in prose: H100 SXM5 80GB."""
        return self.title or self.name


def card_of(name: str) -> Card:
    """Return the card of a name in hardware/.

    Raises
    ------
    InputErrors
        No such card, or its compute capability is not known: not of NVIDIA.
    """
    spec = load_accelerator(name)
    card = as_card(spec)
    if card.capability == NO_CAPABILITY:
        raise InputErrors([f"{spec.name}: the defaults of engines are known on cards of NVIDIA alone, found "
                           f"{spec.vendor} {spec.architecture}"])
    return card


def as_card(spec: AcceleratorSpec) -> Card:
    """Return an accelerator as a driver shows it.

    Its capability is NO_CAPABILITY where that is not known.
    """
    return Card(spec.name, spec.title, spec.memory_bytes, _capability(spec))


def _capability(spec: AcceleratorSpec) -> tuple[int, int]:
    for start, capability in OTHERS.items():
        if spec.name.startswith(start):
            return capability
    return CAPABILITIES.get(spec.architecture, NO_CAPABILITY) if spec.vendor == "NVIDIA" else NO_CAPABILITY
