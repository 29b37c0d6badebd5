"""Facts of a server, before and after a load: models, version, metrics."""
import json
from typing import NamedTuple

from simulator.errors import InputErrors, nearest
from simulator.study.observe.client import Client
from simulator.study.observe.messages import error_of
from simulator.study.server_metrics.text_format import samples_of

SHOWN = 5                       # names in a message
LOOK_S = 10.0                   # for an answer to a query that costs a server nothing


class Served(NamedTuple):
    """A model of /v1/models.

    max_model_len : longest text in tokens; None: the server does not say.
    """

    model: str
    max_model_len: int | None


async def served_models(client: Client, url: str, key_name: str) -> dict[str, Served]:
    """Return the models that a server serves, by name.

    key_name : environment variable of the key.

    Raises
    ------
    InputErrors
        The server does not answer, or not as servers of this interface do.
    """
    try:
        status, content = await client.get("/v1/models", LOOK_S)
    except OSError as error:
        raise InputErrors([f"--url {url}: nobody answers: {error}"]) from None
    if status in (401, 403):
        raise InputErrors([f"--url {url}: it wants a key, another one than was given, if any (status {status}); put it "
                           f"into the environment variable {key_name}"])
    try:
        if status != 200:
            raise ValueError(f"status {status}: {error_of(content)}")
        models = [Served(str(each["id"]), _length(each.get("max_model_len"))) for each in json.loads(content)["data"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputErrors([f"--url {url}: /v1/models does not answer as OpenAI's interface does: {error}"]) from None
    return {each.model: each for each in models}


def check_served(models: dict[str, Served], names: dict[str, str], url: str) -> None:
    """Refuse names that a server does not serve.

    names : model or adapter -> the option or key that names it.

    Raises
    ------
    InputErrors
        All of the names, grouped by option or key.
    """
    valid, unknown = ", ".join(sorted(models)) or "no model", {}
    for name, who in names.items():
        if name not in models:
            unknown.setdefault(who, []).append(name)
    if unknown:
        raise InputErrors([
            f"{who} {', '.join(missing[:SHOWN])}{', ...' * (len(missing) > SHOWN)}: {url} does not serve "
            f"{'it' if len(missing) == 1 else 'them'}, but {valid}{nearest(missing[0], models)}"
            for who, missing in unknown.items()])


async def version_of(client: Client) -> str | None:
    """Return the version from /version, in vLLM's format; None: there is none."""
    try:
        status, content = await client.get("/version", LOOK_S)
        body = json.loads(content)
    except (OSError, ValueError):
        return None
    version = body.get("version") if isinstance(body, dict) else None
    return version if status == 200 and isinstance(version, str) else None


async def metrics_of(client: Client, url: str | None) -> dict[str, float] | str:
    """Return samples of the page of metrics, or why there are none.

    url : of the page; None: /metrics of the server.
    """
    try:
        status, content = await client.get(url or "/metrics", LOOK_S)
    except OSError as error:
        return f"not told: {error}"
    return samples_of(content.decode("utf-8", "replace")) if status == 200 else f"not told: status {status}"


def _length(value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
