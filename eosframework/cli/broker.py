"""`eosframework broker up|down|status`: an embedded Kafka that stays when the command ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import platformdirs
import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption, parse_assignments
from eosframework.process.interrupts import cleaning_up, leaves

if TYPE_CHECKING:
    from eosframework.embedded import KafkaCluster

FIRST_PORT = 9092
"""Where clients look for Kafka when they are told nothing."""

commands = typer.Typer(
    help="Start, stop and show a real Kafka on this machine.", no_args_is_help=True
)
app.add_typer(commands, name="broker")

DataDir = Annotated[
    Path,
    typer.Option("--data-dir", help="Where the cluster keeps its data, ports and logs."),
]

_DEFAULT_DATA_DIR = Path(platformdirs.user_data_dir("eosframework")) / "kafka"


@commands.command()
def up(
    nodes: Annotated[
        int | None,
        typer.Option(help="1 or 3.", show_default="as before, 1 for a new cluster"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_533,
            help="Port of the first node, the others follow; 0: free ports.",
            show_default=f"as before, {FIRST_PORT} for a new cluster",
        ),
    ] = None,
    data_dir: DataDir = _DEFAULT_DATA_DIR,
    heap_megabytes: Annotated[int, typer.Option(min=128, help="Heap of each node.")] = 512,
    set_property: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A broker property; repeatable. None given: as before.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start Kafka on the data of the last time, and leave it running."""
    cleaning_up()
    from eosframework.embedded import find_kafka, start_kafka

    known = find_kafka(data_dir)
    if known and known.running:
        _refuse_other_shape(known, nodes, port)
        _print(known, json=json, headline="Kafka was up already")
        return
    leaves(
        f"the nodes that were started are stopped again; "
        f"`eosframework broker up --data-dir {data_dir}` starts them"
    )
    cluster = start_kafka(
        data_dir,
        nodes=nodes,
        ports=_choose_ports(known, nodes, port),
        properties=(
            parse_assignments(set_property, example="log.retention.hours=1")
            if set_property
            else None
        ),
        heap_megabytes=heap_megabytes,
        detached=True,
    )
    _print(cluster, json=json, headline="Kafka is up")


@commands.command()
def down(data_dir: DataDir = _DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """Stop Kafka; its data stays for the next `up`."""
    from eosframework.embedded import find_kafka

    known = find_kafka(data_dir)
    was_up = known is not None and any(node.running for node in known.nodes)
    if known:
        known.stop()
    headline = "Kafka is down" if was_up else "Kafka was not running"
    _print(known, json=json, headline=headline, data_dir=data_dir)


@commands.command()
def status(data_dir: DataDir = _DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """Show which nodes run, and where clients reach them."""
    from eosframework.embedded import find_kafka

    known = find_kafka(data_dir)
    up_now = sum(node.running for node in known.nodes) if known else 0
    headline = f"{up_now} of {len(known.nodes)} nodes run" if known else "there is no cluster"
    _print(known, json=json, headline=headline, data_dir=data_dir)


def _choose_ports(
    known: KafkaCluster | None, nodes: int | None, port: int | None
) -> list[int] | None:
    """The ports to ask for; None leaves the choice to the record, or to chance."""
    size = nodes or (len(known.nodes) if known else 1)
    if port == 0:
        from eosframework.embedded.ports import free_ports

        return free_ports(size)
    if port is None and known:
        return None
    first = port or FIRST_PORT
    return list(range(first, first + size))


def _refuse_other_shape(known: KafkaCluster, nodes: int | None, port: int | None) -> None:
    """A cluster that runs keeps its size and ports; silence would let a user believe otherwise.

    Raises:
        ConfigurationError: another size or port was asked for.
    """
    from eosframework.errors import ConfigurationError

    if nodes not in (None, len(known.nodes)) or port not in (None, 0, known.nodes[0].port):
        raise ConfigurationError(
            f"Kafka is up already with {len(known.nodes)} node(s) on {known.bootstrap_servers}; "
            f"run `eosframework broker down` first, or choose another --data-dir"
        )


def _print(
    cluster: KafkaCluster | None, *, json: bool, headline: str, data_dir: Path | None = None
) -> None:
    nodes = [
        {"id": node.id, "port": node.port, "pid": node.pid, "running": node.running}
        for node in (cluster.nodes if cluster else ())
    ]
    place = str(cluster.data_dir if cluster else data_dir)
    if json:
        servers = cluster.bootstrap_servers if cluster else None
        answer = {"bootstrap_servers": servers, "nodes": nodes, "data_dir": place}
        typer.echo(orjson.dumps(answer).decode())
        return
    typer.echo(f"{headline} (data in {place})")
    for node in nodes:
        state = f"runs as pid {node['pid']}" if node["running"] else "does not run"
        typer.echo(f"  node {node['id']} on 127.0.0.1:{node['port']} {state}")
