"""All config.json of the installed aiconfigurator-core: taken with the published count, or refused for a reason."""
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

from simulator.config.huggingface.reader import read_config
from simulator.domain.facts import hub_ids, load_model
from simulator.errors import InputErrors
from support.parameters import published_scope_parameters

PACKAGE = find_spec("aiconfigurator_core")
FOLDER = Path(PACKAGE.submodule_search_locations[0], "model_configs") if PACKAGE else Path()
BESIDE = "_hf_quant_config.json"
NAMES = sorted(file.name.removesuffix("_config.json") for file in FOLDER.glob("*_config.json")
               if PACKAGE and not file.name.endswith(BESIDE))
# A form of the package's own, and a reason.
REFUSED = dict.fromkeys(("stepfun-ai--Step-3.7-Flash", "stepfun-ai--Step-3.7-Flash-FP8"),
                        "a reduced form without attention_other_setting")
NOT_PUBLISHED = ("MiniMaxAI--MiniMax-M3",)      # a form of the package's own, of the size of minimax-m3-nvfp4
pytestmark = pytest.mark.skipif(not NAMES, reason="needs the package aiconfigurator-core")


def read(name, folder):
    shutil.copy(FOLDER / f"{name}_config.json", folder / "config.json")
    if (FOLDER / f"{name}{BESIDE}").is_file():
        shutil.copy(FOLDER / f"{name}{BESIDE}", folder / "hf_quant_config.json")
    return read_config(folder)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_config_has_the_published_count(name, tmp_path):
    found = read(name, tmp_path)
    known = load_model("minimax-m3-nvfp4" if name in NOT_PUBLISHED else hub_ids()[name.replace("--", "/")])

    # others: "1.6 T" is announced of DeepSeek-V4-Pro, 1,573 G are counted; 26 G of Gemma-4, 25.2 G and a tower of 0.6
    limit = 0.01 if known.published.kind in ("exact", "counted") else 0.03
    counted = published_scope_parameters(replace(found, published=known.published))
    assert counted == pytest.approx(known.published.parameters, rel=limit)


@pytest.mark.parametrize("name", REFUSED)
def test_a_reduced_form_is_refused_with_its_reason(name, tmp_path):
    with pytest.raises(InputErrors, match=REFUSED[name]):
        read(name, tmp_path)
