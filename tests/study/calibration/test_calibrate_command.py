"""`simulator calibrate`: what it writes, what it refuses, and that it goes on where it stopped."""
import csv
import json
import tomllib

import pytest

from simulator import cli

pytest.importorskip("scipy", reason="the extra `fit`")

TRUTH = {"latency.base_us": 9000.0}
SMALL = {"workload.num_requests": 40, "workload.arrival.rate_per_s": 2.0}
BASE = '"latency.base_us" = {min = 0.0, max = 1e5}'
QUEUE = '"latency.host.queue_base_us" = {min = 0.0, max = 1e4}'


@pytest.fixture
def calibrate(tmp_path, capsys):
    """Return what runs a study and tells status, stdout and stderr."""
    def _calibrate(keys, fit, *options, head='extends = "server.toml"'):
        (tmp_path / "study.toml").write_text(f'{head}\n[study]\nkind = "calibrate"\n{keys}\n[study.fit]\n{fit}\n')
        status = cli.main(["calibrate", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"), *options])
        told = capsys.readouterr()
        return status, told.out, told.err
    return _calibrate


def read(path):
    return json.loads(path.read_text())


@pytest.mark.slow
def test_pairs_are_those_of_each_request(serve, calibrate, tmp_path):
    truth = serve(TRUTH, **SMALL, with_steps=True)
    status, out, _ = calibrate('measured = ["measured"]\nfraction = 0.5\nclient_rtt_ms = 2.0', BASE)
    with (tmp_path / "out/pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert status == 0 and "calibration.json, pairs.csv, calibrated.toml in" in out
    assert list(rows[0]) == ["data_set", "held_out", "request_id", "measured_ttft_s", "simulated_ttft_s",
                             "measured_tpot_s", "simulated_tpot_s", "measured_e2el_s", "simulated_e2el_s"]
    assert [row["request_id"] for row in rows] == [str(i) for i in range(40)]
    sent = truth.requests["arrival_ns"] / 1e9
    assert [row["held_out"] for row in rows] == ["true" if at // 10 % 2 else "false" for at in sent]
    for row in rows:                            # the round trip to the client is on top of what the server takes
        assert float(row["simulated_ttft_s"]) == pytest.approx(float(row["measured_ttft_s"]) + 0.002, abs=1e-6)
        assert float(row["simulated_e2el_s"]) == pytest.approx(float(row["measured_e2el_s"]) + 0.002, abs=1e-6)
    found = read(tmp_path / "out/calibration.json")
    assert found["training"]["ttft"]["n"] + found["held_out"]["ttft"]["n"] == 40
    assert found["training"]["counts"] == {"measured": 40, "matched": 40, "failed": 0, "unmatched": 0,
                                           "mismatched_tokens": 0}


def test_no_fit_only_compares(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    status, out, _ = calibrate('measured = ["measured"]', "", "--no-fit")

    assert status == 0 and "nothing was held out; MAPE of requests 4" in out      # 5,000 instead of 9,000 us
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "calibration.json", "pairs.csv", "provenance.json"]
    found = read(tmp_path / "out/calibration.json")
    assert (found["coefficients"], found["held_out"], found["transfers"]) == ({}, None, None)
    assert found["training"]["tpot"]["request_level"]["bias"] == pytest.approx(5 / 9 - 1, abs=1e-3)
    assert found["training"]["tpot"]["request_level"]["bias_direction"] == "under-predict"


@pytest.mark.parametrize("keys", ['measured = ["measured"]\nheld_out = ["measured"]',
                                  'measured = [{path = "measured", held_out = true}]'])
def test_without_a_fit_all_may_be_held_out(serve, calibrate, tmp_path, keys):
    serve(TRUTH, **SMALL)
    status, out, err = calibrate(keys, BASE, "--no-fit")

    assert status == 0
    assert "held out, and nothing is fitted: it is compared as one" in out + err
    found = read(tmp_path / "out/calibration.json")
    assert (found["held_out"], found["training"]["ttft"]["n"]) == (None, 40)


@pytest.mark.slow
def test_a_fit_that_was_stopped_goes_on(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    keys = 'measured = ["measured"]\nevaluations = 20\nlevel = "requests"'
    whole = calibrate(keys, BASE)
    first, lines = (tmp_path / "out/calibration.json").read_bytes(), (tmp_path / "out/evaluations.jsonl").read_bytes()
    (tmp_path / "out/calibration.json").unlink()
    (tmp_path / "out/evaluations.jsonl").write_bytes(b"".join(lines.splitlines(True)[:6]) + b'{"torn')
    status, _, err = calibrate(keys, BASE, "--stop-after", "0s")

    assert whole[0] == 0
    assert status == 75 and "stopped; evaluations so far are in" in err
    assert not (tmp_path / "out/calibration.json").exists()
    assert calibrate(keys, BASE)[0] == 0
    assert (tmp_path / "out/calibration.json").read_bytes() == first
    assert (tmp_path / "out/evaluations.jsonl").read_bytes() == lines


@pytest.mark.slow
def test_the_answer_to_another_question_is_left_alone(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL, with_steps=True)
    assert calibrate('measured = ["measured"]', BASE)[0] == 0
    assert calibrate('measured = ["measured"]', BASE)[0] == 0
    status, _, err = calibrate('measured = ["measured"]', BASE.replace("1e5", "2e5"))

    assert status == 2 and "the answer to another question is there; --overwrite replaces it" in err
    assert calibrate('measured = ["measured"]', BASE.replace("1e5", "2e5"), "--overwrite")[0] == 0


def test_keys_that_are_none_are_refused_with_the_nearest(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    status, _, err = calibrate('measured = ["measured"]', """
"latency.bas_us" = {min = 0.0, max = 1.0}
"engine.max_num_seqs" = {min = 1.0, max = 2.0}
"latency.backend" = {min = 0.0, max = 1.0}
"latency.mfu_prefill" = {min = 0.1, max = 1.0}
"latency.base_us" = {min = 5.0, max = 1.0}
"latency.per_sequence_us" = {min = 0.0, max = 1.0, prior = 2.0, prior_sd = 1.0}
"latency.per_prefill_token_us" = {min = 0.0, max = 1.0, prior = 0.5}
"latency.host.iteration_us" = {minimum = 0.0, max = 1.0}
""")

    assert status == 2
    place = f"{tmp_path}/study.toml: study.fit."
    assert f'{place}"latency.bas_us": no key of [latency]; did you mean latency.base_us?' in err
    assert f'{place}"engine.max_num_seqs": no key of [latency]' in err
    assert f'{place}"latency.base_us": expected min below max, found 5 and 1' in err
    assert f'{place}"latency.per_sequence_us": prior: expected a value from min to max, found 2' in err
    assert f'{place}"latency.per_prefill_token_us": expected prior and prior_sd, or neither' in err
    assert 'study.fit."latency.host.iteration_us".minimum: unknown key' in err
    assert not (tmp_path / "out").exists()


def test_keys_of_another_backend_and_values_out_of_range_are_refused(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    status, _, err = calibrate('measured = ["measured"]', """
"latency.backend" = {min = 0.0, max = 1.0}
"latency.mfu_prefill" = {min = 0.1, max = 1.0}
"latency.base_us" = {min = -5.0, max = 1.0}
"latency.host.output_token_accumulates" = {min = 0.0, max = 1.0}
""")

    assert status == 2
    assert "study.fit: latency.mfu_prefill: unknown key" in err
    assert "study.fit: latency.base_us: expected" in err and "found -5" in err
    assert "study.fit: latency.backend: expected" in err
    assert "study.fit: latency.host.output_token_accumulates: expected" in err


def test_what_is_asked_has_to_go_together(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    (tmp_path / "empty").mkdir()

    def told(*arguments):
        status, _, err = calibrate(*arguments)
        assert status == 2
        return err

    assert "no such file, nor a folder with observed.csv or steps.csv" in told('measured = ["empty"]', BASE)
    assert "nothing is left to fit to" in told('measured = ["measured"]\nheld_out = ["measured"]', BASE)
    assert "study.held_out: " in told('measured = ["measured"]\nheld_out = ["mesured"]', BASE)
    assert "did you mean" in told('measured = ["measured"]\nheld_out = ["mesured"]', BASE)
    assert "study.fit: missing" in told('measured = ["measured"]', "")
    assert '"steps" expects steps.csv, which measured has not' in told(
        'measured = ["measured"]\nlevel = "steps"', BASE)
    assert "study.sizes: unknown key" in told('measured = ["measured"]\nsizes = 3', BASE)
    assert "expected none where whole data sets are held out" in told(
        'measured = [{path = "measured"}, {path = "measured/observed.csv", held_out = true}]\nfraction = 0.3', BASE)


@pytest.mark.slow
def test_a_client_that_was_late_is_refused_unless_forced(serve, calibrate):
    serve(TRUTH, late_s=0.05, **SMALL)
    keys = 'measured = ["measured"]\nevaluations = 10'
    status, _, err = calibrate(keys, BASE)

    assert status == 2
    assert "client-bound: one of a hundred requests was sent 50.00 ms late or more" in err
    assert "--force takes it all the same" in err
    status, _, err = calibrate(keys, BASE, "--force")
    assert status == 0 and "note: " in err and "client-bound" in err


@pytest.mark.parametrize(("verdict", "reasons"), [
    ({"client_bound": False, "too_many_short": False}, []),       # who came late waited for a place in flight
    ({"client_bound": True, "too_many_short": True}, ["client-bound: requests were sent late", "shorter than asked"])])
def test_the_clients_own_verdict_counts(serve, calibrate, tmp_path, verdict, reasons):
    serve(TRUTH, late_s=0.05, **SMALL)
    (tmp_path / "measured" / "server.json").write_text(json.dumps({"summary": {"verdict": verdict}}))
    status, _, err = calibrate('measured = ["measured"]', "", "--no-fit")
    assert status == (2 if reasons else 0) and all(f"server.json says {each}" in err or each in err for each in reasons)


def test_a_servers_file_of_something_else_is_refused(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    (tmp_path / "measured" / "server.json").write_text("{}")
    status, _, err = calibrate('measured = ["measured"]', "", "--no-fit")
    assert status == 2 and "server.json: expected what `simulator observe` writes: 'summary'" in err


@pytest.mark.slow
def test_failures_are_refused_from_one_in_twenty_on(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    path = tmp_path / "measured/observed.csv"
    lines = path.read_text().splitlines()
    failed = [",".join((*line.split(",")[:3], *[""] * 8, "timeout", *[""] * 4)) for line in lines[1:4]]
    path.write_text("\n".join([lines[0], *failed, *lines[4:]]) + "\n")
    status, _, err = calibrate('measured = ["measured"]\nevaluations = 10', BASE)

    assert status == 2 and "3 of 40 requests failed, more than 5%" in err
    path.write_text("\n".join([lines[0], *failed[:2], *lines[3:]]) + "\n")
    status, _, err = calibrate('measured = ["measured"]\nevaluations = 10', BASE)
    assert status == 0 and "2 of 40 requests failed (2 timeout) and were left out" in err
    assert read(tmp_path / "out/calibration.json")["training"]["counts"]["failed"] == 2


@pytest.mark.slow
def test_requests_that_the_experiment_cannot_serve_are_counted_and_refused(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    status, _, err = calibrate('measured = ["measured"]\nevaluations = 10', BASE, "--set", "engine.max_model_len=400")

    assert status == 2
    assert "requests cannot be compared, more than 5%" in err and "is the experiment that of this server?" in err


def test_each_data_set_may_have_a_server_of_its_own(serve, calibrate, tmp_path):
    serve(TRUTH, name="one", with_steps=True, **SMALL)
    serve(TRUTH, name="two", with_steps=True, **SMALL, **{"engine.max_num_seqs": 2})
    (tmp_path / "narrow.toml").write_text('extends = "server.toml"\nengine = {max_num_seqs = 2}\n')
    keys = ('measured = [{path = "one", experiment = "server.toml"}, {path = "two", experiment = "narrow.toml", '
            'held_out = true}]')
    status, out, _ = calibrate(keys, BASE, "--set", "engine.max_num_batched_tokens=512", head="")

    assert status == 0 and "calibrated.toml, calibrated-2.toml" in out
    found = read(tmp_path / "out/calibration.json")
    assert found["coefficients"]["latency.base_us"]["value"] == pytest.approx(9000, rel=1e-3)
    assert found["held_out"]["e2el"]["request_level"]["mape"] < 1e-3
    second = tomllib.loads((tmp_path / "out/calibrated-2.toml").read_text())
    assert second["extends"] == "../narrow.toml" and second["engine"]["max_num_batched_tokens"] == 512
    assert second["latency"] == {"base_us": pytest.approx(9000, rel=1e-3)}


@pytest.mark.slow
def test_prompts_share_what_the_trace_beside_them_says(serve, calibrate, tmp_path):
    # one at a time, each prompt in one iteration
    truth = serve(TRUTH, with_steps=True, **SMALL | {"workload.arrival.rate_per_s": 0.05,
                                                     "workload.prompt_tokens.max": 500})
    keys, dear = 'measured = ["measured"]', ("--no-fit", "--overwrite", "--set", "latency.per_prefill_token_us=100")

    def mean_ttft_ms():
        assert calibrate(keys, "", *dear)[::2] == (0, "")
        return read(tmp_path / "out/calibration.json")["training"]["ttft"]["workload_level"]["mean"]["sim"]

    whole = mean_ttft_ms()
    (tmp_path / "measured/trace.csv").write_text("request_id,prompt\n" + "".join(
        f"{row},s0:16/:{length - 16}\n" for row, length in enumerate(truth.requests["prompt_tokens"].tolist())))

    # all but the first find a block of 16 tokens, 100 us each
    assert whole - mean_ttft_ms() == pytest.approx(39 / 40 * 1.6, rel=1e-3)


def test_a_server_that_changed_does_not_transfer(serve, calibrate, tmp_path):
    serve(TRUTH, name="before", with_steps=True, **SMALL)
    serve({"latency.base_us": 12_000.0}, name="after", with_steps=True, **SMALL)
    status, out, _ = calibrate('measured = ["before", "after"]\nheld_out = ["after"]', BASE)

    assert status == 0 and "does not transfer: the held-out error is more than twice that of training" in out
    found = read(tmp_path / "out/calibration.json")
    assert found["transfers"] is False
    assert found["held_out"]["step"]["request_level"]["bias"] == pytest.approx(9 / 12 - 1, abs=1e-4)


def test_a_key_of_one_pool_is_fitted(serve, calibrate, tmp_path):
    serve(TRUTH, **SMALL)
    (tmp_path / "pooled.toml").write_text('extends = "server.toml"\n[[pools]]\nname = "all"\n')
    status, _, _ = calibrate('measured = ["measured"]\nevaluations = 60', BASE.replace("latency.", "pools.0.latency."),
                             head='extends = "pooled.toml"')

    assert status == 0
    found = read(tmp_path / "out/calibration.json")
    assert found["level"] == "requests"
    assert found["coefficients"]["pools.0.latency.base_us"]["value"] == pytest.approx(9000, rel=0.01)
    made = tomllib.loads((tmp_path / "out/calibrated.toml").read_text())
    assert made["pools"][0]["latency"]["base_us"] == found["coefficients"]["pools.0.latency.base_us"]["value"]


def test_other_kinds_of_files_name_their_command(serve, tmp_path, capsys):
    (tmp_path / "study.toml").write_text('extends = "server.toml"\n[study]\nkind = "calibrate"\nmeasured = ["m"]\n')
    assert cli.main(["run", str(tmp_path / "study.toml")]) == 2
    assert "a study, not an experiment; `simulator calibrate` runs it" in capsys.readouterr().err
    assert cli.main(["sweep", str(tmp_path / "study.toml")]) == 2
    assert '"calibrate"; `simulator calibrate` does that' in capsys.readouterr().err
    (tmp_path / "study.toml").write_text('extends = "server.toml"\n[study]\nkind = "sweep"\n')
    assert cli.main(["calibrate", str(tmp_path / "study.toml")]) == 2
    assert '"sweep"; `simulator sweep` does that' in capsys.readouterr().err
    assert cli.main(["calibrate", str(tmp_path / "server.toml")]) == 2
    assert 'expected a table [study] with kind = "calibrate"' in capsys.readouterr().err
