"""[prices], [power], [carbon] and [electricity]: what is read, and what is refused."""
import msgspec
import pytest
import tomli

from simulator.config.describe import describe_text
from simulator.config.json_schema import experiment_schema
from simulator.config.load import load_experiment, resolved_toml
from simulator.errors import InputErrors
from simulator.study.sweep.identity import id_of

BASE = """
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 100, max_model_len = 512}
latency = {backend = "linear"}
[workload]
type = "synthetic"
num_requests = 3
arrival = {process = "poisson", rate_per_s = 5.0}
prompt_tokens = {distribution = "constant", tokens = 10}
output_tokens = {distribution = "constant", tokens = 10}
"""
PRICE = 'per_gpu_hour = 4.25\ncurrency = "USD"\nsource = "a cloud page"\ndate = 2024-02-07\n'
PRICES = f"[prices.h100-sxm-80gb]\n{PRICE}"
POWER = '[power.h100-sxm-80gb]\nidle_w = 75\nprefill_w = 700\ndecode_w = 380\nsource = "splitwise-sim"\n'
CARBON = '[carbon]\ng_per_kwh = 400\nsource = "s"\nregion = "r"\ndate = "2024-01-01"\n'


@pytest.fixture
def load(tmp_path):
    """Return a function that reads the base experiment with more text behind it."""
    def loaded(*texts, **overrides):
        (tmp_path / "a.toml").write_text("".join((BASE, *texts)))
        return load_experiment(tmp_path / "a.toml", {key.replace("__", "."): value
                                                     for key, value in overrides.items()})
    return loaded


def faults_of(load, *texts, **overrides):
    with pytest.raises(InputErrors) as caught:
        load(*texts, **overrides)
    return [fault.partition("a.toml: ")[2] or fault for fault in caught.value.faults]


def test_a_price_list_may_be_a_file_of_its_own(load, tmp_path):
    (tmp_path / "prices.toml").write_text(f'[h100-sxm-80gb]\n{PRICE}[a100-sxm-80gb]\n{PRICE}')

    by_file, at_place = load(prices=str(tmp_path / "prices.toml")), load(PRICES)

    assert by_file.prices["h100-sxm-80gb"] == at_place.prices["h100-sxm-80gb"]
    assert set(by_file.prices) == {"h100-sxm-80gb", "a100-sxm-80gb"}


def test_faults_of_a_price_list_name_its_file(load, tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text('[h100-sxm-80gb]\nper_gpu_hour = -1.0\ncurrency = "USD"\n')

    found = faults_of(load, prices=str(file), power=str(tmp_path / "no.toml"), seed=-1)

    assert found == [
        f"{tmp_path}/no.toml: No such file or directory",
        "overrides: seed: expected an integer from 0 to 9223372036854775807, found -1",
        f"{file}: prices.h100-sxm-80gb.per_gpu_hour: expected a number > 0 and <= 1000000000 or a list of numbers > 0 "
        "and <= 1000000000, exactly 24, found -1.0",
        f"{file}: prices.h100-sxm-80gb.source: missing; expected text (source of the price)",
        f"{file}: prices.h100-sxm-80gb.date: missing; expected text matching \\d{{4}}-\\d{{2}}-\\d{{2}} (date "
        "of the price, year-month-day: prices age)"]


def test_dates_of_toml_and_texts_are_the_same_and_what_is_resolved_is_read_again(load, tmp_path):
    experiment = load(PRICES, POWER, 'pue = 1.2\npue_source = "s"\n', CARBON)
    (tmp_path / "resolved.toml").write_text(resolved_toml(experiment))

    assert tomli.loads(resolved_toml(experiment))["prices"]["h100-sxm-80gb"]["date"] == "2024-02-07"
    assert load_experiment(tmp_path / "resolved.toml", {"name": "a"}) == experiment


def test_the_price_is_part_of_what_a_run_is(load):
    one, other = load(PRICES), load(PRICES, **{"prices__h100-sxm-80gb__per_gpu_hour": 5.0})

    assert id_of(one) != id_of(other)
    assert id_of(one) == id_of(load(PRICES))


@pytest.mark.parametrize(("text", "fault"), [
    ('[prices."h100-sxm"]\n' + PRICE, 'prices.h100-sxm: no hardware "h100-sxm" in hardware/; did you mean '
                                      "h100-sxm-80gb?"),
    (PRICES.replace("2024-02-07", '"2024-02-30"'),
     "prices.h100-sxm-80gb: date: 2024-02-30: day is out of range for month"),
    ("[prices.l4]\n" + PRICE, 'prices: no price of "h100-sxm-80gb", which the experiment runs on; valid: l4: give it'),
    (PRICES + "[prices.l4]\n" + PRICE.replace("USD", "EUR"),
     'prices.l4.currency: expected "USD", as for h100-sxm-80gb, found "EUR": costs are added up'),
    (PRICES + '[[pools]]\nname = "a"\ncost_per_hour = 3.0\n',
     "prices: no effect: every pool has a cost_per_hour, which overrides it; leave it out"),
    ("[power.l4]\nidle_w = 10\nsource = \"s\"\n",
     'power: expected the power draw of the experiment\'s accelerators, "h100-sxm-80gb"'),
    (POWER + "host_w = 500\n", "power.h100-sxm-80gb: host_w and host_source go together: give both or neither"),
    (POWER + 'host_w = 500\nhost_source = "s"\n',
     "topology.node: missing; power.h100-sxm-80gb.host_w is per node, and the node type gives a replica's share of a "
     "node"),
    (POWER + "pue = 0.9\n", "power.h100-sxm-80gb.pue: expected a number from 1 to 100, found 0.9"),
    (CARBON, "carbon: counts kilowatt-hours, which [power] gives: missing table [power]"),
    (POWER + CARBON, "power.h100-sxm-80gb.pue: missing; [carbon] and [electricity] count the power of the building: "
                     "expected a number >= 1, 1.0 for the machines alone"),
    (CARBON + "starts_at_hour = 3\n",
     "carbon: starts_at_hour goes with 24 numbers in g_per_kwh, found one for all hours"),
    (PRICES.replace("4.25", "4.25\nstarts_at_hour = 3"),
     "prices.h100-sxm-80gb: starts_at_hour goes with 24 numbers in per_gpu_hour, found one for all hours"),
    ('[[pools]]\nname = "a"\nprice_per_gpu_hour = 3.0\n',
     "pools[0].price_per_gpu_hour: replaces a number of [prices]: missing table [prices]"),
    (PRICES + '[[pools]]\nname = "a"\n[[pools]]\nname = "b"\nprice_per_gpu_hour = 3.0\ncost_per_hour = 1.0\n',
     "pools[1].price_per_gpu_hour: no effect: the pool has a cost_per_hour; give one of the two"),
    (PRICES + '[[pools]]\nname = "a"\nstarts_at_hour = 3\n',
     "pools[0].starts_at_hour: no effect: no price and no emissions of the pool differ by hour"),
    (CARBON.replace("400", "[400, 300]"),
     "carbon.g_per_kwh: expected a list of numbers from 0 to 1000000, exactly 24, found [400, 300]"),
])
def test_what_cannot_be_reckoned_is_refused(load, text, fault):
    assert faults_of(load, text) == [fault]


def test_a_pool_without_price_or_accelerator_is_refused_and_all_at_once(load):
    text = PRICES + ('[[pools]]\nname = "a"\n[[pools]]\nname = "b"\nhardware = {name = "l4"}\n'
                     '[[pools]]\nname = "c"\nhardware = {name = "l40"}\ncost_per_hour = 1.0\n' + CARBON)

    assert faults_of(load, text) == [
        'prices: no price of "l4", which pool "b" runs on; valid: h100-sxm-80gb: give it, or pools.cost_per_hour',
        "carbon: counts kilowatt-hours, which [power] gives: missing table [power]"]


def test_replicas_cost_what_their_accelerators_do_unless_their_pool_says_so(load):
    text = PRICES + ('[[pools]]\nname = "a"\n[[pools]]\nname = "b"\ntopology = {tensor_parallel = 2, '
                     'pipeline_parallel = 2, data_parallel = 3}\n[[pools]]\nname = "c"\ncost_per_hour = 1.0\n')

    # 4.25; 2 x 2 x 3 of them; what it says
    assert [pool.cost_per_hour for pool in load(text).all_pools()] == [4.25, 51.0, 1.0]


def test_editors_know_both_forms():
    prices = experiment_schema()["properties"]["prices"]

    table, file = prices["anyOf"]
    assert "per_gpu_hour" in table["additionalProperties"]["properties"]
    assert file == {"type": "string"}
    assert msgspec.json.encode(prices)


@pytest.mark.parametrize("name", ["prices.NAME.per_gpu_hour", "prices.h100-sxm-80gb.per_gpu_hour", "per_gpu_hour"])
def test_keys_under_names_of_the_users_are_described(name):
    text = describe_text("key", name)

    assert text.startswith("prices.NAME.per_gpu_hour\n")
    assert "of one accelerator" in text
    with pytest.raises(InputErrors):
        describe_text("key", "engine.per_gpu_hour")


def test_their_tables_are_described_too():
    assert describe_text("table", "power").startswith("[power.NAME]\n")
    assert "idle_w" in describe_text("table", "power")
