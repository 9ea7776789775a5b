"""`odradek features` and `odradek brokers`: levels of features, and registrations of brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.offset_targets import parse_number
from odradek.commands.options import INT16_MAX, INT32_MAX, Json, parse_pair
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import row_of
from odradek.commands.target import Target, on_cluster

app = typer.Typer(
    help="Features of the cluster: list, upgrade, downgrade.", no_args_is_help=True, rich_markup_mode="rich"
)
brokers = typer.Typer(help="Registered brokers: unregister.", no_args_is_help=True, rich_markup_mode="rich")

LISTED = Output(
    "features list", ("feature", "supported_min_version", "supported_max_version", "finalized_version_level")
)
CHANGED_FIELDS = ("feature", "finalized_version_level", "validate_only")
UPGRADED = Output("features upgrade", more=CHANGED_FIELDS, shape=Shape.OBJECT)
DOWNGRADED = Output("features downgrade", more=CHANGED_FIELDS, shape=Shape.OBJECT)
UNREGISTERED = Output("brokers unregister", more=("node_id",), shape=Shape.OBJECT)

Level = Annotated[str, typer.Argument(help="Feature and its new level.", metavar="FEATURE=LEVEL")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate the change only.")]


@app.command("list")
@on_cluster
def list_features(target: Target, as_json: Json = False) -> None:
    """List the levels that the brokers support, and the finalized ones.

    Example:

      odradek features list
    """
    LISTED.show(map(row_of, run(target, client.list_features)), as_json=as_json, empty="no features")


@app.command()
@on_cluster
def upgrade(target: Target, level: Level, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Raise the finalized level of a feature.

    Examples:

      odradek features upgrade transaction.version=2

      odradek features upgrade transaction.version=2 --dry-run
    """
    change(target, level, client.UpgradeType.UPGRADE, dry_run=dry_run, as_json=as_json)


@app.command()
@on_cluster
def downgrade(
    target: Target,
    level: Level,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Accept the loss of metadata.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Lower the finalized level of a feature. 0 stops its use.

    Example:

      odradek features downgrade transaction.version=1
    """
    kind = client.UpgradeType.UNSAFE_DOWNGRADE if unsafe else client.UpgradeType.SAFE_DOWNGRADE
    change(target, level, kind, dry_run=dry_run, as_json=as_json)


def change(target: Target, text: str, kind: client.UpgradeType, *, dry_run: bool, as_json: bool) -> None:
    """Change the level of a feature, and print the result."""
    with exit_on_client_error():
        feature, number = parse_pair(text, "feature")
        level = parse_number(number, "level", 0, INT16_MAX)
    run(target, lambda cluster: client.update_feature(cluster, feature, level, kind, validate_only=dry_run))
    if as_json:
        output = UPGRADED if kind is client.UpgradeType.UPGRADE else DOWNGRADED
        output.print_json({"feature": feature, "finalized_version_level": level, "validate_only": dry_run})
    else:
        print(f"{feature} {'would be' if dry_run else 'is'} at level {level}")


@brokers.callback()
def of_brokers() -> None:
    """Remove the registrations of brokers."""


@brokers.command()
@on_cluster
def unregister(
    target: Target,
    node_id: Annotated[
        int, typer.Argument(help="Node id of the broker.", autocompletion=completion.brokers, min=0, max=INT32_MAX)
    ],
    as_json: Json = False,
) -> None:
    """Remove the registration of a fenced broker that will not return.

    Before that, move its replicas to other brokers (odradek partitions reassign)
    and stop it. It is fenced after broker.session.timeout.ms at the latest, and
    the command refuses it until then.

    Example:

      odradek brokers unregister 4
    """
    run(target, lambda cluster: client.unregister_broker(cluster, node_id))
    if as_json:
        UNREGISTERED.print_json({"node_id": node_id})
    else:
        print(f"broker {node_id} is unregistered")
