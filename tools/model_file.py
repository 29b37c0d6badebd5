"""Write a file in models/ from a config.json: python tools/model_file.py CONFIG --hub ORG/NAME --parameters N."""
import argparse
import datetime as dt
import sys
from pathlib import Path

from msgspec.structs import replace

from simulator.config.huggingface.reader import read_config
from simulator.config.model_file import model_toml
from simulator.domain.model_spec import Published
from simulator.errors import InputErrors

NEAR = 0.03         # relative difference of a rounded count


def main(arguments: list[str] | None = None) -> int:
    """Write the file, unless the count differs from the published one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="config.json, or its folder")
    parser.add_argument("--hub", required=True, metavar="ORG/NAME", help="repository on the hub")
    parser.add_argument("--parameters", required=True, type=int, metavar="N", help="published count, tower left out")
    parser.add_argument("--kind", default="exact", choices=("exact", "counted", "rounded"), help="of this count")
    parser.add_argument("--source", default="tensor metadata of the hub page", help="of this count")
    parser.add_argument("--out", metavar="FILE", help="default: models/NAME.toml, in small letters")
    options = parser.parse_args(arguments)
    try:
        model = read_config(options.config)
    except InputErrors as error:
        print(error, file=sys.stderr)
        return 2
    apart = abs(model.num_parameters / options.parameters - 1)
    if apart > (0 if options.kind == "exact" else NEAR):
        print(f"{options.config}: {model.num_parameters:_} parameters, published {options.parameters:_}: a file that "
              "differs is not written", file=sys.stderr)
        return 2
    out = Path(options.out or Path("models") / f"{options.hub.rpartition('/')[2].lower()}.toml")
    published = Published(parameters=options.parameters, kind=options.kind, source=options.source)
    out.write_text(model_toml(replace(
        model, hf_id=options.hub, source="config.json on the Hugging Face hub", published=published,
        date=f"{dt.date.today():%Y-%m}")), encoding="utf-8")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
