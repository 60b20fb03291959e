"""`eosframework broker` and `eosframework database`: embedded servers that outlive the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer

from eosframework.cli import group
from eosframework.cli.options import JsonOption, parse_assignments
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import cleaning_up, note_remains

if TYPE_CHECKING:
    from eosframework.embedded import KafkaCluster, PostgresServer

KAFKA_PORT = 9092
"""The default port of Kafka's clients."""

POSTGRES_PORT = 5432
"""The default port of PostgreSQL's clients."""


def _data_directory() -> Path:
    try:
        return platformdirs.user_data_path("eosframework")
    except RuntimeError:  # The user has no home; the command that needs one says so.
        return Path("~", "eosframework")


_DATA = _data_directory()

broker = group("broker", "Start, stop and show a real Kafka on this machine.")
database = group("database", "Start, stop and show a real PostgreSQL on this machine.")


def _data_option(content: str) -> Any:
    return typer.Option("--data-dir", help=f"Directory of the {content}.")


def _port_option(help: str, *, new: str, default: int, most: int = 65_535) -> Any:
    shown = f"as before, {default} for a new {new}"
    return typer.Option(min=0, max=most, help=help, show_default=shown)


def _set_option(what: str) -> Any:
    help = f"A {what}; repeatable. If none is given: as before."
    return typer.Option("--set", metavar="KEY=VALUE", help=help)


KafkaVersion = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help="Version of Kafka; an unknown one is answered with those to choose from.",
        show_default="as before, the newest for a new cluster",
    ),
]
Nodes = Annotated[
    int | None, typer.Option(help="1 or 3.", show_default="as before, 1 for a new cluster")
]
BrokerPort = Annotated[
    int | None,
    _port_option(
        "Port of the first node, the others follow; 0: free ports.",
        new="cluster",
        default=KAFKA_PORT,
        most=65_533,
    ),
]
BrokerData = Annotated[Path, _data_option("cluster's data, ports and logs")]
Heap = Annotated[int, typer.Option(min=128, help="Java heap of each node.")]
BrokerProperties = Annotated[list[str] | None, _set_option("broker property")]
StartLimit = Annotated[
    float | None,
    typer.Option(
        min=1, metavar="SECONDS", help="Longest wait for the nodes to serve.", show_default="180"
    ),
]
DatabaseData = Annotated[Path, _data_option("server's data, port, password and log")]


@broker.command("up")
def broker_up(
    kafka: KafkaVersion = None,
    nodes: Nodes = None,
    port: BrokerPort = None,
    data_dir: BrokerData = _DATA / "kafka",
    heap_megabytes: Heap = 512,
    set_property: BrokerProperties = None,
    timeout: StartLimit = None,
    json: JsonOption = False,
) -> None:
    """Start Kafka, with its former data, and leave it running."""
    from eosframework.embedded import find_kafka, start_kafka
    from eosframework.embedded.data_directory import START_SECONDS

    cleaning_up()
    known = find_kafka(data_dir)
    if known and known.running:
        _refuse_other_cluster(known, kafka, nodes, port)
        _print_cluster(known, json=json, headline=f"Kafka {known.version} was up already")
        return
    note_remains(
        f"the nodes that were started are stopped again; "
        f"`eosframework broker up --data-dir {data_dir}` starts them"
    )
    limit = timeout or START_SECONDS
    typer.echo(
        f"waiting for Kafka to serve, {limit:g} s at most; its log is {data_dir}/node-1/server.log",
        err=True,
    )
    cluster = start_kafka(
        data_dir,
        kafka=kafka,
        nodes=nodes,
        ports=_choose_ports(known, nodes, port),
        properties=_assigned(set_property, "log.retention.hours=1"),
        heap_megabytes=heap_megabytes,
        detached=True,
        deadline_seconds=limit,
    )
    _print_cluster(cluster, json=json, headline=f"Kafka {cluster.version} is up")


@broker.command("down")
def broker_down(data_dir: BrokerData = _DATA / "kafka", json: JsonOption = False) -> None:
    """Stop Kafka; its data stays for the next `up`."""
    from eosframework.embedded import find_kafka

    known = find_kafka(data_dir)
    was_up = known is not None and any(node.running for node in known.nodes)
    if known:
        known.stop()
    headline = "Kafka is down" if was_up else "Kafka was not running"
    _print_cluster(known, json=json, headline=headline, data_dir=data_dir)


@broker.command("status")
def broker_status(data_dir: BrokerData = _DATA / "kafka", json: JsonOption = False) -> None:
    """Show the nodes that run and their addresses."""
    from eosframework.embedded import find_kafka

    known = find_kafka(data_dir)
    up_now = sum(node.running for node in known.nodes) if known else 0
    headline = f"{up_now} of {len(known.nodes)} nodes run" if known else "there is no cluster"
    _print_cluster(known, json=json, headline=headline, data_dir=data_dir)


@database.command("up")
def database_up(
    port: Annotated[
        int | None,
        _port_option("Port on 127.0.0.1; 0: a free one.", new="server", default=POSTGRES_PORT),
    ] = None,
    data_dir: DatabaseData = _DATA / "postgres",
    set_property: Annotated[list[str] | None, _set_option("PostgreSQL setting")] = None,
    json: JsonOption = False,
) -> None:
    """Start PostgreSQL, with its former data, and leave it running."""
    from eosframework.embedded import find_postgres, start_postgres

    cleaning_up()
    settings = _assigned(set_property, "wal_level=logical")
    known = find_postgres(data_dir)
    if known and known.running:
        _refuse_other_server(known, port, settings)
        _print_server(known, json=json, headline="PostgreSQL was up already")
        return
    note_remains(
        f"a server that was started is stopped again; "
        f"`eosframework database up --data-dir {data_dir}` starts it"
    )
    server = start_postgres(
        data_dir, port=_choose_port(known, port), settings=settings, detached=True
    )
    _print_server(server, json=json, headline="PostgreSQL is up")


@database.command("down")
def database_down(data_dir: DatabaseData = _DATA / "postgres", json: JsonOption = False) -> None:
    """Stop PostgreSQL; its data stays for the next `up`."""
    from eosframework.embedded import find_postgres

    known = find_postgres(data_dir)
    was_up = known is not None and known.running
    if known:
        known.stop()
    headline = "PostgreSQL is down" if was_up else "PostgreSQL was not running"
    _print_server(known, json=json, headline=headline, data_dir=data_dir)


@database.command("status")
def database_status(data_dir: DatabaseData = _DATA / "postgres", json: JsonOption = False) -> None:
    """Show whether the server runs, and its address."""
    from eosframework.embedded import find_postgres

    known = find_postgres(data_dir)
    if known is None:
        headline = "there is no server"
    else:
        headline = f"PostgreSQL {'runs' if known.running else 'does not run'}"
    _print_server(known, json=json, headline=headline, data_dir=data_dir)


def _assigned(given: list[str] | None, example: str) -> dict[str, str] | None:
    """Return the values of `--set`; None: those that the server had before."""
    return parse_assignments(given, example=example) if given else None


def _choose_ports(
    known: KafkaCluster | None, nodes: int | None, port: int | None
) -> list[int] | None:
    """Return the ports to ask for; None: those that the cluster had before."""
    size = nodes or (len(known.nodes) if known else 1)
    if port == 0:
        from eosframework.embedded.data_directory import free_ports

        return free_ports(size)
    if port is None and known:
        return None
    first = port or KAFKA_PORT
    return list(range(first, first + size))


def _choose_port(known: PostgresServer | None, port: int | None) -> int | None:
    """Return the port to ask for; None: the one that the server had before."""
    if port is None:
        return None if known else POSTGRES_PORT
    if port == 0:
        from eosframework.embedded.data_directory import free_ports

        return free_ports(1)[0]
    return port


def _refuse_other_cluster(
    known: KafkaCluster, kafka: str | None, nodes: int | None, port: int | None
) -> None:
    """Refuse options that a running cluster would ignore.

    Raises:
        ConfigurationError: another version, size or port is requested.
    """
    from eosframework.errors import ConfigurationError

    is_same = kafka in (None, known.version) and nodes in (None, len(known.nodes))
    if not is_same or port not in (None, 0, known.nodes[0].port):
        raise ConfigurationError(
            f"Kafka {known.version} is up already with {len(known.nodes)} node(s) on "
            f"{known.bootstrap_servers}; "
            f"run `eosframework broker down` first, or choose another --data-dir"
        )


def _refuse_other_server(
    known: PostgresServer, port: int | None, settings: dict[str, str] | None
) -> None:
    """Refuse options that a running server would ignore.

    Raises:
        ConfigurationError: another port or other settings are requested.
    """
    from eosframework.errors import ConfigurationError

    if port not in (None, 0, known.port) or settings not in (None, known.settings):
        raise ConfigurationError(
            f"PostgreSQL is up already on port {known.port} with settings {known.settings}; "
            f"run `eosframework database down` first, or choose another --data-dir"
        )


def _print_cluster(
    cluster: KafkaCluster | None, *, json: bool, headline: str, data_dir: Path | None = None
) -> None:
    nodes = [
        {"id": node.id, "port": node.port, "pid": node.pid, "running": node.running}
        for node in (cluster.nodes if cluster else ())
    ]
    report = {
        "bootstrap_servers": cluster.bootstrap_servers if cluster else None,
        "kafka": cluster.version if cluster else None,
        "nodes": nodes,
        "data_dir": str(cluster.data_dir if cluster else data_dir),
    }
    lines = [
        f"  node {node['id']} on 127.0.0.1:{node['port']} "
        + (f"runs as pid {node['pid']}" if node["running"] else "does not run")
        for node in nodes
    ]
    if cluster and cluster.running:
        lines.append(f"  export EOS_KAFKA__BOOTSTRAP_SERVERS={cluster.bootstrap_servers}")
    _print(report, headline, lines, json=json)


def _print_server(
    server: PostgresServer | None, *, json: bool, headline: str, data_dir: Path | None = None
) -> None:
    pid = server.pid if server else None
    report = {
        "dsn": server.dsn if server else None,
        "port": server.port if server else None,
        "pid": pid,
        "running": pid is not None,
        "data_dir": str(server.data_dir if server else data_dir),
    }
    lines: list[str] = []
    if server:
        state = f"runs as pid {pid}" if pid else "does not run"
        lines += [
            f"  on 127.0.0.1:{server.port}, {state}",
            f"  export EOS_DATABASE__DSN={server.dsn}",
        ]
    _print(report, headline, lines, json=json)


def _print(report: dict[str, Any], headline: str, lines: list[str], *, json: bool) -> None:
    if json:
        print_json(report)
    else:
        typer.echo("\n".join([f"{headline} (data in {report['data_dir']})", *lines]))
