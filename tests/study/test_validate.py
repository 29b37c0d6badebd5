"""`validate` checks a study as a whole, and says how many runs it makes; nothing is run."""
from pathlib import Path

import pytest

from simulator import cli, registry
from simulator.study.sweep.laboratory import Laboratory
from support.studies import EXPERIMENT, STUDY

CONFIGS = Path(__file__).parents[2] / "configs"
ASKED = {
    "sweep": '[study.axes]\n"engine.max_num_seqs" = [2, 8]\n',
    "capacity": '[study.slo]\n"ttft_ms.p99" = {max = 5.0}\n',
    "tune": '[study.objectives]\noutput_throughput = "max"\n[study.axes]\n"engine.max_num_seqs" = [2, 8]\n'}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Write a study of a kind, with what is added to [study] and behind it; return its path. No run may begin."""
    monkeypatch.setattr(Laboratory, "run", lambda *_: pytest.fail("a run"))
    (tmp_path / "base.toml").write_text(EXPERIMENT)

    def written(kind, keys="", behind=None):
        path = tmp_path / f"{kind}.toml"
        path.write_text(f'extends = "base.toml"\n[study]\nkind = "{kind}"\n{keys}\n'
                        + (ASKED.get(kind, "") if behind is None else behind))
        return path

    return written


def told(path, capsys):
    status = cli.main(["validate", str(path)])
    out, err = capsys.readouterr()
    return status, [line for line in out.splitlines() if line.startswith("#")], err.splitlines()


@pytest.mark.parametrize(("kind", "keys", "said"), [
    ("sweep", "seeds = 3", ["# 2 points x 3 seeds: 6 runs"]),
    ("sweep", "statistics.precision = 0.1",
     ["# 2 points x 1 seed: 2 runs; more where study.statistics.precision asks for them"]),
    ("capacity", "max_seeds = 4", [
        "# 1 point: workload.arrival.rate_per_s from 0.1 to 1000",
        "# at most about 24 values each, of 3 to 4 runs: 72 to 96 runs"]),     # 14 doublings, 7 halves, 3 more
    ("tune", "seeds = 2", ['# 2 candidates, search = "exhaustive"', "# at most 4 runs of full length"])])
def test_a_study_says_how_many_runs_it_makes(study, capsys, kind, keys, said):
    status, lines, faults = told(study(kind, keys), capsys)
    assert (status, lines, faults) == (0, said, [])


@pytest.mark.parametrize("kind", list(ASKED))
def test_a_study_as_validate_writes_it_says_the_same(study, capsys, kind, tmp_path):
    cli.main(["validate", str(study(kind))])
    first = capsys.readouterr().out
    (tmp_path / "again.toml").write_text(first)
    assert cli.main(["validate", str(tmp_path / "again.toml")]) == 0
    assert capsys.readouterr().out == first


def test_all_faults_of_a_study_are_told_at_once(study, capsys):
    """Unknown key, wrong type, impossible bounds, a metric that is none, a wrong axis, a fault of the experiment."""
    path = study("capacity", 'from = 10\nto = 5\nmin_seeds = "three"\nrel_tolerance = 0.1', (
        '[study.slo]\n"ttft_ms.p98" = {max = 5}\n"tpot_ms.p99" = {mx = 5}\n'
        '[study.axes]\n"engine.max_num_seqs" = {from = 1, to = 4}\n[study.statistics]\nmin_tial = 3\n'
        "[engine]\nmax_num_seqs = 0\n"))
    status, _, faults = told(path, capsys)
    assert status == 2
    assert sorted(faults) == sorted(f"{path}: {fault}" for fault in (
        "study.statistics.min_tial: unknown key; did you mean min_tail?",
        'study.min_seeds: expected an integer from 1 to 10000, found "three"',
        "study.rel_tolerance: unknown key; did you mean rel_tol?",
        "study.from: expected at most to = 5, found 10",
        'study.axes."engine.max_num_seqs": steps: expected an integer from 1 to 1000000, found none',
        'study.slo."tpot_ms.p99".mx: unknown key; did you mean max?; expected max or min',
        'study.slo: summary.json has no number "ttft_ms.p98"; did you mean ttft_ms.p99?',
        "engine.max_num_seqs: expected an integer from 1 to 1048576, found 0"))


def test_faults_of_points_come_with_those_of_the_table(study, capsys):
    path = study("tune", "", '[study.objectives]\n"ttft_ms.p99" = "mn"\nrate = "max"\n'
                             '[study.axes]\n"engine.max_num_seq" = [1, 2]\n[study.limits]\ngpu = 3\n')
    _, _, faults = told(path, capsys)
    assert faults == [f"{path}: {fault}" for fault in (
        "study.limits.gpu: unknown key; did you mean gpus?",
        'study.objectives."ttft_ms.p99": expected "max" or "min", found "mn"; did you mean min?',
        'study.objectives.rate: goes with load = "capacity", or with points that set workload.arrival.rate_per_s; '
        "other loads are as they are offered",
        "point 0 of 2: engine.max_num_seq: unknown key; did you mean max_num_seqs? (and 1 more)")]


def test_faults_of_a_calibration_are_told_at_once(study, capsys, tmp_path):
    path = study("calibrate", 'measured = ["nope.csv"]\nheld_out = ["nop.csv"]\nfraction = 2', (
        '[study.fit]\n"latency.base" = {min = 1, max = 2}\n"latency.base_us" = {min = 3, max = 2, priorr = 1}\n'))
    _, _, faults = told(path, capsys)
    assert [fault.removeprefix(f"{path}: ").partition(": ")[0] for fault in faults] == [
        "study.fraction", "study.held_out", 'study.fit."latency.base"', 'study.fit."latency.base_us"',
        'study.fit."latency.base_us".priorr', str(tmp_path / "nope.csv")]


@pytest.mark.parametrize(("text", "fault"), [
    ('[study]\nkind = "swep"', 'study.kind: expected one of "calibrate", "capacity", "sweep", "tune", found "swep"; '
                               "did you mean sweep?"),
    ("study = 3", 'no study: expected a table [study] with kind = "sweep"; `simulator run` runs an experiment')])
def test_a_study_of_no_kind_is_told(study, tmp_path, capsys, text, fault):
    path = study("sweep")
    path.write_text(f'{"" if text == "study = 3" else "extends = " + chr(34) + "base.toml" + chr(34)}\n{text}\n')
    assert f"{path}: {fault}" in told(path, capsys)[2]


def test_a_metric_that_no_summary_has_is_refused(tmp_path, capsys):
    """It was an empty column."""
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    path = tmp_path / "small.toml"
    path.write_text(STUDY.replace("ttft_ms.mean", "ttft_ms.p98"))
    assert cli.main(["sweep", str(path), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (f'{path}: study.statistics.metrics: summary.json has no number "ttft_ms.p98"; '
                                       "did you mean ttft_ms.p99?\n")


def test_points_that_would_be_refused_are_told(study, capsys):
    missing = '[study.axes]\n"workload" = [{type = "trace", path = "no.csv"}, {type = "trace", path = "t.csv"}]\n'
    path = study("sweep", "", missing)
    path.with_name("base.toml").write_text(EXPERIMENT.split("[workload]")[0])
    path.write_text(path.read_text() + '[workload]\ntype = "trace"\npath = "t.csv"\n')
    assert told(path, capsys)[0] == 2                       # neither is there
    path.with_name("t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,3,4\n")
    status, lines, _ = told(path, capsys)
    assert status == 0 and lines[0] == "# 2 points x 1 seed: 2 runs"
    assert lines[1].startswith("# point 0 of 2 would be refused: ") and "no.csv" in lines[1]


def test_every_kind_of_study_has_a_command_that_validates():
    for kind in registry.STUDIES:
        assert callable(cli._study(kind).validated)


def test_comparisons_and_shipped_studies_are_valid(capsys):
    assert cli.main(["validate", str(CONFIGS / "compare_schedulers.toml")]) == 0
    assert " variants: as many runs of " in capsys.readouterr().out.splitlines()[0]
    for path in sorted(CONFIGS.glob("sweep_*.toml")):
        assert cli.main(["validate", str(path)]) == 0, path
