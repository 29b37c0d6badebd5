"""`python -m simulator serve EXPERIMENT.toml`: the simulated fleet as a live server of OpenAI's interface."""
import argparse
import ipaddress
import os
import re
import sys
import time
from pathlib import Path

from simulator.config.load import load_experiment
from simulator.core.argument_types import LAST_PORT, duration_s, port_number, whole_number
from simulator.domain.serving import LOCAL, Serve, ServeLimits
from simulator.errors import InputErrors, KeyFault, faults_of
from simulator.live.certificates import tls_context
from simulator.live.clock import speed_of
from simulator.live.opening import CONTENTS, Session, check_installed
from simulator.live.settings import LOOPBACK, Settings
from simulator.results import coloured
from simulator.results.directory import check_free

DONE, DIFFERS, NOT_KEPT_UP = 0, 1, 4
KEY = "SIMULATOR_API_KEY"       # clients give it where it is set


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help="its fleet serves; [workload] gives the lengths "
                                                                      "of answers")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--host", default=LOOPBACK, metavar="ADDRESS",
                        help=f"address to listen at, default {LOOPBACK}; others need --allow-remote")
    parser.add_argument("--port", type=port_number, metavar="N", help="port, 0: any free one; default 8000")
    parser.add_argument("--replica-ports", type=port_number, metavar="N",
                        help="a port for each replica, from N on, 0: any free ones, in place of --port: clients, or a "
                             "gateway of theirs, choose the replica")
    parser.add_argument("--admin-port", type=port_number, metavar="N",
                        help="port of an admin, on this machine alone: speed, failures and number of replicas; "
                             "default: none")
    parser.add_argument("--speed", type=_speed, metavar="S",
                        help="serve.speed: simulated seconds a second, 0.01 to 10000, or fast: time jumps to the next "
                             "event; default: the file's, else 1")
    parser.add_argument("--like", choices=("vllm", "sglang"), help="serve.like: paths and metrics as this engine's; "
                                                                   "default: the file's, else the scheduler's")
    parser.add_argument("--served-model-name", metavar="NAME", help="default: the model's, else the experiment's")
    parser.add_argument("--most-requests", type=whole_number, default=100_000, metavar="N",
                        help="requests until the end of the session, 2 or more; default 100000")
    parser.add_argument("--duration", type=duration_s, metavar="10m",
                        help="end the session then; default: a signal does")
    parser.add_argument("--exit-when-idle", type=duration_s, metavar="30s",
                        help="end the session when no request has been open for this time")
    parser.add_argument("--body-bytes", type=whole_number, metavar="N",
                        help="serve.limits.body_bytes: longest body of a request; default: the file's, else 8388608")
    parser.add_argument("--connections", type=whole_number, metavar="N",
                        help="serve.limits.connections: connections at once; default: the file's, else 10000")
    parser.add_argument("--kv-events", metavar="tcp://HOST:PORT",
                        help="serve.kv_events.endpoint: publish KV events there, or, of this machine, from PORT on, a "
                             "port a replica; default: the file's, else none")
    parser.add_argument("--ssl-certfile", metavar="FILE", help="certificate, PEM: clients use https")
    parser.add_argument("--ssl-keyfile", metavar="FILE", help="its key, PEM; default: in the certificate's file")
    parser.add_argument("--out", metavar="DIR", help="folder of the session; default: results/<name>-served")
    parser.add_argument("--overwrite", action="store_true", help="replace the files of an earlier session")
    parser.add_argument("--allow-remote", action="store_true", help="allow a --host that other machines can reach")
    parser.add_argument("--strict-time", action="store_true", help="exit with 4 if answers were late")
    parser.add_argument("--quiet", action="store_true", help="no banner, no summary")


def run(options: argparse.Namespace) -> int:
    """Serve until the end of the session, write it; return the exit status."""
    check_installed()
    _check(options)
    tls = tls_context(options.ssl_certfile, options.ssl_keyfile)
    experiment = load_experiment(options.experiment, [*options.overrides, *_overrides(options)], "--set")
    serve = experiment.serve or Serve()
    out = check_free(options.out or Path("results", f"{experiment.name}-served"), options.overwrite, CONTENTS)
    with faults_of(options.experiment):
        _check_reach(serve, options.allow_remote)
        session = Session(experiment, serve.speed, options.most_requests, options.served_model_name,
                          os.environ.get(KEY, ""), options.replica_ports is not None)

    def announce(ports: list[int], admin_port: int | None) -> None:
        if not options.quiet:
            scheme = "http" if tls is None else "https"
            print("\n".join(session.banner(options.host, ports, admin_port, scheme)), flush=True)

    session.serve(_settings(options, serve.limits, session.num_replicas)._replace(tls=tls), announce)
    began_s = time.monotonic()
    try:
        report = session.write(out, options.overwrite)
    except (OSError, InputErrors):
        if (kept := session.rescue()) is not None:
            print(f"the record of the session is kept: `python -m simulator run {kept}` gives its results",
                  file=sys.stderr)
        raise
    if not options.quiet:
        print(f"{report['requests']} requests, session and results in {out} ({time.monotonic() - began_s:.1f} s)")
    for line in session.warnings(report):
        print(coloured(f"warning: {line}", sys.stderr), file=sys.stderr)
    if report["differing_rows"]:
        return DIFFERS
    return NOT_KEPT_UP if options.strict_time and report["kept_up"] is False else DONE


def _overrides(options: argparse.Namespace) -> list[str]:
    """Return the options that are keys of [serve], as --set takes them."""
    given = {"serve.speed": options.speed, "serve.like": options.like, "serve.limits.body_bytes": options.body_bytes,
             "serve.limits.connections": options.connections, "serve.kv_events.endpoint": options.kv_events}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def _settings(options: argparse.Namespace, limits: ServeLimits, num_replicas: int) -> Settings:
    """Return the settings of a session. Raises InputErrors: there are not so many ports."""
    first = options.replica_ports
    if first is not None and first + num_replicas - 1 > LAST_PORT:
        raise InputErrors([f"--replica-ports {first}: expected at most {LAST_PORT - num_replicas + 1}: there are "
                           f"{num_replicas} replicas"])
    ports = () if first is None else tuple(first and first + i for i in range(num_replicas))
    return Settings(options.host, 8000 if options.port is None else options.port, options.admin_port, options.duration,
                    options.exit_when_idle, limits, ports)


def _check(options: argparse.Namespace) -> None:
    faults = []
    if options.most_requests < 2:
        faults.append(f"--most-requests: expected at least 2, found {options.most_requests}")
    if options.port is not None and options.replica_ports is not None:
        faults.append(f"--port {options.port}: expected none with --replica-ports: the router of the experiment serves "
                      "--port, and does not know of requests to single replicas")
    if not _is_loopback(options.host) and not options.allow_remote:
        faults.append(f"--host {options.host}: other machines can reach it; --allow-remote says that they may")
    if faults:
        raise InputErrors(faults)


def _check_reach(serve: Serve, allows: bool) -> None:
    """Raise InputErrors: other machines get KV events, and no option allows it."""
    events, local = serve.kv_events, re.compile(LOCAL)
    given = {} if events is None else {"endpoint": events.endpoint, "replay_endpoint": events.replay_endpoint}
    if faults := [KeyFault(f'serve.kv_events.{key}: expected an address of this machine, found "{value}": '
                           "--allow-remote says that others may be reached") for key, value in given.items()
                  if value is not None and not allows and not local.match(value)]:
        raise InputErrors(faults)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _speed(text: str) -> float | str:
    try:
        return speed_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number from 0.01 to 10000, or fast, found {text!r}") from None
