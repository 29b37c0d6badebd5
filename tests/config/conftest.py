import pytest

from simulator.config.load import load_experiment
from simulator.errors import InputErrors

# The least that is valid: no [model], no [hardware], no file that must exist.
MINIMAL = """
[engine]
max_model_len = 8192
num_gpu_blocks = 1000

[latency]
backend = "linear"

[workload]
type = "trace"
path = "t.csv"
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into the current folder, which is a fresh one; return its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(text=MINIMAL, name="a.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write_file


@pytest.fixture
def load(write):
    """Load the minimal experiment with overrides, or a text."""
    return lambda *overrides, text=MINIMAL: load_experiment(write(text), overrides, "--set")


@pytest.fixture
def faults():
    """Return the lines that a call is refused with."""
    def faults_of(call, *arguments, **named):
        with pytest.raises(InputErrors) as caught:
            call(*arguments, **named)
        return list(caught.value.faults)

    return faults_of
