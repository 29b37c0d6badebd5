"""Whole measurements of the stand-in."""
import pytest
import tomli_w

from simulator import cli
from support.observing import ENGINE, Outcome, read
from support.sse_server import SERVED


@pytest.fixture
def experiment(tmp_path):
    """Write an experiment with such a trace or workload, and return its path."""
    def write(trace=None, **tables):
        if trace is not None:
            (tmp_path / "trace.csv").write_text(trace)
            tables = {"workload": {"type": "trace", "path": str(tmp_path / "trace.csv")}} | tables
        path = tmp_path / "measured.toml"
        path.write_text(tomli_w.dumps(ENGINE | tables))
        return path
    return write


@pytest.fixture
def observe(tmp_path, capsys):
    """Measure a server; return an Outcome."""
    def run(path, server, *options, model=SERVED):
        directory = tmp_path / "out"
        status = cli.main(["observe", str(path), "--url", getattr(server, "url", server), "--model", model, "--out",
                           str(directory), "--self-test", "0", *map(str, options)])
        printed = capsys.readouterr()
        return Outcome(status, *read(directory), printed.out, printed.err, directory)
    return run
