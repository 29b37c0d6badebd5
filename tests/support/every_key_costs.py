"""Keys of money, power and carbon; see every_key.py. An h100-sxm-80gb is the accelerator there."""
from support.every_key import ACCELERATOR, acts

PRICE = {"per_gpu_hour": 4.25, "currency": "USD", "source": "s", "date": "2024-02-07"}
POWER = {"idle_w": 75.0, "prefill_w": 700.0, "decode_w": 380.0, "source": "s", "pue": 1.2, "pue_source": "s"}
NODE = {"host_w": 500.0, "host_source": "s"}
CARBON = {"g_per_kwh": 400.0, "source": "s", "region": "r", "date": "2024-02-07"}
ON = {"hardware__name": ACCELERATOR}
PRICED = ON | {"prices": {ACCELERATOR: PRICE}}
POWERED = ON | {"power": {ACCELERATOR: POWER}}
HOSTED = ON | {"power": {ACCELERATOR: POWER | NODE}, "topology__node": "dgx-h100"}
GRID = POWERED | {"carbon": CARBON}
CURRENT = {"per_kwh": 0.3, "currency": "EUR", "source": "s", "date": "2024-02-07"}
BILLED = POWERED | {"electricity": CURRENT}
HOURS = [100.0, *[500.0] * 23]

COSTS = {
    "prices.NAME.per_gpu_hour": acts(4.25, 2.21, **PRICED),
    "prices.NAME.currency": acts("USD", "EUR", **PRICED),
    "prices.NAME.source": acts("a cloud page", "another", **PRICED),
    "prices.NAME.date": acts("2024-02-07", "2025-02-07", **PRICED),
    "prices.NAME.starts_at_hour": acts(0, 12, **ON | {"prices": {ACCELERATOR: PRICE | {"per_gpu_hour": HOURS}}}),
    "pools[].price_per_gpu_hour": acts(4.25, HOURS, **PRICED | {"pools": [{"name": "a"}]}),
    "pools[].carbon_g_per_kwh": acts(400.0, HOURS, **GRID | {"pools": [{"name": "a"}]}),
    "pools[].electricity_per_kwh": acts(0.3, HOURS, **BILLED | {"pools": [{"name": "a"}]}),
    "pools[].starts_at_hour": acts(0, 12, **POWERED | {
        "carbon": CARBON | {"g_per_kwh": HOURS}, "pools": [{"name": "a"}]}),
    "power.NAME.idle_w": acts(75.0, 63.0, **POWERED),
    "power.NAME.prefill_w": acts(700.0, 400.0, **POWERED),
    "power.NAME.decode_w": acts(380.0, 250.0, **POWERED),
    "power.NAME.source": acts("s", "t", **POWERED),
    "power.NAME.host_w": acts(500.0, 1000.0, **HOSTED),
    "power.NAME.host_source": acts("s", "t", **HOSTED),
    "power.NAME.pue": acts(1.2, 1.1, **POWERED),
    "power.NAME.pue_source": acts("s", "t", **POWERED),
    "carbon.g_per_kwh": acts(400.0, HOURS, **GRID),
    "carbon.starts_at_hour": acts(0, 12, **POWERED | {"carbon": CARBON | {"g_per_kwh": HOURS}}),
    "carbon.source": acts("s", "t", **GRID),
    "carbon.region": acts("DE", "SE", **GRID),
    "carbon.date": acts("2024-02-07", "2025-02-07", **GRID),
    "electricity.per_kwh": acts(0.3, 0.1, **BILLED),
    "electricity.starts_at_hour": acts(0, 12, **POWERED | {"electricity": CURRENT | {"per_kwh": HOURS}}),
    "electricity.currency": acts("EUR", "USD", **BILLED),
    "electricity.source": acts("s", "t", **BILLED),
    "electricity.date": acts("2024-02-07", "2025-02-07", **BILLED),
}
