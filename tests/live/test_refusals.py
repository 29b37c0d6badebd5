"""Experiments and options that serve refuses."""
import pytest

from simulator import cli
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.live import refusals
from support.live_sessions import EXPERIMENT

COPIES = ",bandwidth_gb_per_s=1.0,kv_bytes_per_token=10000"
CASES = {
    "failures": ('failures=[{kind="stop",mtbf_s=10.0,mttr_s=5.0,on_failure="restart"}]',
                 'failures[0].on_failure: expected "retry", "lost" or "migrate", found "restart"'),
    "restarts": ('restarts=[{at_s=1.0,grace_s=1.0,loading_delay={},on_stop="restart"}]',
                 'restarts[0].on_stop: expected "retry" or "lost", found "restart"'),
    "regions": ('cluster.regions={names=["a"],replicas=[2],latency_ms=[[0.0]]}',
                "cluster.regions: serve cannot do this yet"),
    "grammars": ("engine.structured_outputs={fraction=0.5}",
                 "engine.structured_outputs: expected neither fraction nor failing: each request says which form"),
    "headroom": ('cluster.routing={policy="llumnix",dispatch_neutral_load_metric="freeness",'
                 'headroom=[{priority=1,tokens=9}]}', "cluster.routing.headroom: expected none: it reads"),
    "planned_headroom": ('cluster.rescheduling={policy="llumnix",neutral_load_metric="freeness",'
                         f'neutral_load_threshold=1.0,headroom=[{{priority=1,tokens=9}}]{COPIES}}}',
                         "cluster.rescheduling.headroom: expected none: it reads"),
    "labels": ('cluster.routing={policy="weighted",scorers=[{name="header-label",weight=1.0,label="tenant"}]}',
               "cluster.routing.scorers: header-label: expected a label with names from the beginning"),
    "horizon": ("horizon_s=10.0", "horizon_s: expected inf, found 10: --duration ends a session"),
    "lengths": ('workload.output_knowledge={predictor="exact"} cluster.routing={policy="least_loaded",'
                'metric="expected_tokens"}', "workload.output_knowledge: no policy can know the"),
    "queue": ('cluster.gateway_queue={order="edf"}',
              'cluster.gateway_queue.order: serve cannot take "edf": orders by deadlines'),
    "router": ('cluster.routing.policy="prefix_hash"',
               'cluster.routing.policy: serve cannot take "prefix_hash": reads requests before they come'),
    "own": ('cluster.routing.policy="simulator.routing.policies.random:Random"',
            'cluster.routing.policy: serve cannot take "simulator.routing.policies.random:Random": it is not one'),
    "hashed": ('cluster.routing={policy="consistent_hash",key="adapter"}',
               'cluster.routing.key: expected "session", "tenant" or "prompt", found "adapter"'),
    "scorers": ('cluster.routing={policy="weighted",scorers=[{name="mm-cache-affinity",weight=1.0}]}',
                'cluster.routing.scorers: serve cannot take "mm-cache-affinity": looks for images'),
    "texts": ('engine.speculative={method="ngram",num_tokens=2,drafter_per_sequence_us=1.0,'
              'acceptance={rates=[0.5,0.5]},by_text=[{label="tenant",name="a",acceptance={rates=[0.1,0.1]}}]}',
              "engine.speculative.by_text: serve cannot do this yet"),
    "task": ("engine.task=pooling", 'engine.task: expected "generate", found "pooling": answers are texts'),
    "scheduler": ('engine.scheduler="edf"', 'engine.scheduler: serve cannot take "edf": orders by deadlines'),
    "model": ('pools=[{name="a",serves="x"},{name="b"}]', "pools.a.serves: serve has one model; leave it out"),
    "host": ('pools=[{name="a",latency={host={output_token_us=5.0}}},{name="b"}]',
             "pools: expected one value of latency.host.output_token_us in all"),
}


@pytest.mark.parametrize("case", CASES)
def test_experiments(tmp_path, case):
    override, message = CASES[case]
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    experiment = load_experiment(tmp_path / "served.toml", override.split())
    with pytest.raises(InputErrors) as refused:
        refusals.check(experiment)
    assert any(fault.startswith(message) for fault in refused.value.faults), refused.value.faults


@pytest.mark.parametrize(("options", "message"), [
    (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines can reach it; --allow-remote says that they may"),
    (["--most-requests", "1"], "--most-requests: expected at least 2, found 1"),
    (["--port", "1", "--replica-ports", "2"], "--port 1: expected none with --replica-ports: "),
    (["--replica-ports", "0", "--set", 'autoscaling={policy="utilisation"}'],
     "autoscaling: expected none with --replica-ports"),
    (["--replica-ports", "0", "--set", f'cluster.rescheduling={{policy="rebalance"{COPIES}}}'],
     "cluster.rescheduling: expected none with --replica-ports: a request stays at its port"),
    (["--set", "engine.max_model_len=200"], "engine.max_model_len: expected at most 188, the tokens of all KV blocks"),
    (["--replica-ports", "65535"], "--replica-ports 65535: expected at most 65534: there are 2 replicas")])
def test_options(tmp_path, capsys, options, message):
    pytest.importorskip("aiohttp")
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    assert cli.main(["serve", str(tmp_path / "served.toml"), "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["--speed", "0"], ["--speed", "nan"], ["--port", "70000"], ["--like", "other"]])
def test_values_that_no_option_takes(tmp_path, capsys, options):
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    with pytest.raises(SystemExit):
        cli.main(["serve", str(tmp_path / "served.toml"), *options])
    assert options[0] in capsys.readouterr().err
