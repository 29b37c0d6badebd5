import json

import pytest

from simulator import cli

DEFAULTS = {"--gpu": "h100-sxm-80gb", "--gpus": "2", "--input": "800", "--output": "20", "--ttft-p99": "500",
            "--tpot-p99": "40", "--tensor-parallel": "1"}


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """Make runs a quarter as long, in this process."""
    monkeypatch.setattr("simulator.study.planning.texts.LEAST_REQUESTS", 1000)
    monkeypatch.setattr("simulator.study.planning.texts.MOST_REQUESTS", {False: 1500, True: 3000})
    monkeypatch.setattr("simulator.study.planning.texts.MIN_TAIL", 2)
    monkeypatch.setattr("simulator.study.plan_command.usable_cores", lambda: 1)


@pytest.fixture
def asked(tmp_path, capsys):
    """Run `plan`; return the exit status, and the JSON or what was printed on stderr.

    Keywords replace options; None leaves one out, True gives it without a value.
    """
    def run(*words, out="plan", model="llama-3.1-8b", **options):
        given = DEFAULTS | {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        texts = [text for name, value in given.items() if value is not None
                 for text in ([name] if value is True else [name, str(value)])]
        arguments = ["plan", *([model] if model else []), *texts, *words, "--out", str(tmp_path / out)]
        status = cli.main([*arguments, "--json"])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out else printed.err

    return run
