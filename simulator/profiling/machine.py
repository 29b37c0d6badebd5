"""The measured machine, and its state meanwhile: clocks, temperature, power, read from nvidia-smi."""
import platform
import subprocess
import time
from collections.abc import Callable

FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw", "power.limit")
PERIOD_S = 10.0                 # a call of nvidia-smi takes a part of a second
THROTTLED = 0.9                 # of the highest clock seen


def describe(torch, device: str, vllm: str = "") -> dict:
    """Return the properties that must not change when a profile continues.

    vllm : its version; empty: none of its kernels is measured.
    """
    found = {"device": device, "torch": torch.__version__, "host": platform.processor() or platform.machine()}
    found |= {"vllm": vllm} if vllm else {}
    if device == "cpu":
        return found | {"name": "CPU", "threads": torch.get_num_threads()}
    facts = torch.cuda.get_device_properties(0)
    return found | {"name": facts.name, "memory_bytes": facts.total_memory, "cuda": torch.version.cuda,
                    "multiprocessors": facts.multi_processor_count,
                    "devices": torch.cuda.device_count(), "nccl": _nccl(torch),
                    "driver": (nvidia_smi() or {}).get("driver_version")}


def _nccl(torch) -> str | None:
    """Return the version of PyTorch's NCCL; None: PyTorch was built without it."""
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError, ImportError):
        return None


def free_bytes(torch, device: str) -> int:
    """Return the memory available for operands."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024 // 2
    except (OSError, KeyError):
        return 1 << 30


def nvidia_smi() -> dict[str, str] | None:
    """Return the fields of the first GPU; None: nvidia-smi does not answer."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    values = [value.strip() for value in text.strip().split(",")]
    return dict(zip(FIELDS, values)) if len(values) == len(FIELDS) else None


class Gauges:
    """Clocks and temperatures during a session.

    Parameters
    ----------
    read : returns FIELDS, or None.
    clock : seconds.
    """

    def __init__(self, read: Callable[[], dict | None] = nvidia_smi, clock: Callable[[], float] = time.monotonic):
        self._read, self._clock, self._due = read, clock, clock()
        self.samples: list[dict] = []
        self.num_throttled = 0

    def sm_mhz(self) -> str:
        """Return the clock of the multiprocessors, PERIOD_S old at most; "": unknown."""
        if self._clock() >= self._due:
            self._due = self._clock() + PERIOD_S
            sample = self._read()
            if sample is not None:
                self.samples.append(sample)
                clocks = [float(each["clocks.sm"]) for each in self.samples]
                self.num_throttled += clocks[-1] < THROTTLED * max(clocks)
        return self.samples[-1]["clocks.sm"] if self.samples else ""
