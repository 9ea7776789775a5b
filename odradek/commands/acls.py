"""`odradek acls`: list, add and remove ACLs, and show which rule decides about an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.target import Target, on_cluster
from odradek.local.output import print_json, usage_error
from odradek.plurals import counted
from odradek.protocol.acls import CLUSTER_RESOURCE, Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from odradek.commands.rows import Row

app = typer.Typer(
    help="ACLs: list, add, remove, and explain a decision.", no_args_is_help=True, rich_markup_mode="rich"
)

TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
"""Resource types by the word of the command line."""
WORDS = {number: word for word, number in TYPES.items()}
TABLE = ("resource", "principal", "host", "operation", "permission_type")
PATTERN = ("resource_type", "resource_name", "pattern_type")
FIELDS = TABLE + PATTERN
LISTED = Output("acls list", TABLE, PATTERN)
ADDED = Output("acls add", more=FIELDS)
REMOVED = Output("acls remove", more=FIELDS)
EXPLAINED = Output("acls explain", more=("allowed", "rule", "acl"), shape=Shape.OBJECT)
RULE = Output("acls explain", more=FIELDS, shape=Shape.OBJECT, within="acl")

UserArgument = Annotated[
    str, typer.Argument(help="User, or principal as Type:name. * stands for all.", autocompletion=completion.users)
]
OperationArgument = Annotated[str, typer.Argument(help="Operation, such as read, write or all.")]
ResourceArgument = Annotated[
    str, typer.Argument(help="topic:NAME, group:NAME, transactional-id:NAME, token:ID, user:NAME or cluster.")
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The name is a prefix of names.")]
ResourceOption = Annotated[
    str | None, typer.Option("--resource", help="Only ACLs of this resource.", metavar="TYPE[:NAME]")
]
UserOption = Annotated[
    str | None, typer.Option("--user", help="Only ACLs of this user.", autocompletion=completion.users)
]
OperationOption = Annotated[str | None, typer.Option("--operation", help="Only ACLs of this operation.")]


@app.command("list")
@on_cluster
def list_acls(
    target: Target,
    resource: ResourceOption = None,
    user: UserOption = None,
    operation: OperationOption = None,
    applying: Annotated[
        bool, typer.Option("--applying", help="With --resource: also the prefixes and * that apply to it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List ACLs.

    Examples:

      odradek acls list

      odradek acls list --resource topic:payments --applying

      odradek acls list --user alice
    """
    if applying and resource is None:
        usage_error("--applying needs the name of a resource: specify --resource TYPE:NAME")
    with exit_on_client_error():
        pattern = PatternType.MATCH if applying else PatternType.ANY
        wanted = filter_of(resource, user, operation, pattern)
    acls = run(target, lambda cluster: client.describe_acls(cluster, wanted))
    LISTED.show(map(row_of, acls), as_json=as_json, empty="no ACLs")


@app.command()
@on_cluster
def add(
    target: Target,
    permission: Annotated[str, typer.Argument(help="allow or deny.")],
    user: UserArgument,
    operations: Annotated[str, typer.Argument(help="Operations, separated by commas.")],
    resource: ResourceArgument,
    host: Annotated[str, typer.Option("--host", help="Address, or network such as 10.0.0.0/8.")] = "*",
    prefixed: Prefixed = False,
    as_json: Json = False,
) -> None:
    """Add ACLs: allow or deny operations on a resource to a user.

    A deny takes precedence over each allow. read, write, delete and alter
    also allow describe.

    Examples:

      odradek acls add allow alice read,write topic:payments

      odradek acls add allow alice read group:billing- --prefixed

      odradek acls add deny "*" all topic:secret --host 10.0.0.0/8
    """
    with exit_on_client_error():
        kind, name = parse_resource(resource)
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        decision = parse_permission(permission)
        acls = [
            Acl(kind, required(name, resource), pattern, principal_of(user), host, each, decision)
            for each in map(parse_operation, operations.split(","))
        ]
    run(target, lambda cluster: client.create_acls(cluster, acls))
    if as_json:
        print_json(ADDED.rows(map(row_of, acls)))
        return
    for acl in acls:
        print(f"added: {acl}")


@app.command()
@on_cluster
def remove(
    target: Target,
    resource: ResourceOption = None,
    user: UserOption = None,
    operation: OperationOption = None,
    as_json: Json = False,
) -> None:
    """Remove the ACLs that match all given options.

    Examples:

      odradek acls remove --user alice --resource topic:payments

      odradek acls remove --user alice
    """
    if resource is None and user is None and operation is None:
        usage_error("no ACL is named: specify --resource, --user or --operation")
    with exit_on_client_error():
        wanted = filter_of(resource, user, operation, PatternType.ANY)
    acls = run(target, lambda cluster: client.delete_acls(cluster, wanted))
    if as_json:
        print_json(REMOVED.rows(map(row_of, acls)))
        return
    for acl in acls:
        print(f"removed: {acl}")
    print(f"removed {counted(len(acls), 'ACL')}")


@app.command()
@on_cluster
def explain(
    target: Target,
    user: UserArgument,
    operation: OperationArgument,
    resource: ResourceArgument,
    host: Annotated[
        str, typer.Option("--host", help="Address of the client. Without it, only ACLs for all hosts count.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show whether a user may do an operation, and which rule decides.

    Examples:

      odradek acls explain alice read topic:payments

      odradek acls explain alice write topic:payments --host 10.0.0.7
    """
    with exit_on_client_error():
        kind, name = parse_resource(resource)
        principal, requested = principal_of(user), parse_operation(operation)
        named = required(name, resource)
    found = run(
        target,
        lambda cluster: client.explain_acl(cluster, principal, requested, kind, named, host=host),
    )
    if as_json:
        acl = None if found.acl is None else RULE.row(row_of(found.acl))
        EXPLAINED.print_json({"allowed": found.allowed, "rule": found.rule, "acl": acl})
        return
    print("allowed" if found.allowed else "denied")
    print(f"rule: {found.rule}")


def row_of(acl: Acl) -> Row:
    """Convert an ACL into a row of words."""
    prefix = "*" if acl.pattern is PatternType.PREFIXED else ""
    word = WORDS[acl.resource]
    return {
        "resource": word if acl.resource is ResourceType.CLUSTER else f"{word}:{acl.name}{prefix}",
        "resource_type": word,
        "resource_name": acl.name,
        "pattern_type": acl.pattern.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission_type": acl.permission.name.lower(),
    }


def filter_of(resource: str | None, user: str | None, operation: str | None, pattern: PatternType) -> AclFilter:
    """Return the filter of the given options. Raise InvalidArgument."""
    kind, name = (ResourceType.ANY, None) if resource is None else parse_resource(resource)
    return AclFilter(
        kind,
        name,
        pattern,
        None if user is None else principal_of(user),
        operation=AclOperation.ANY if operation is None else parse_operation(operation),
    )


def principal_of(user: str) -> str:
    """Return the principal of a user. A text with a colon is a principal."""
    return user if ":" in user else f"User:{user}"


def parse_resource(text: str) -> tuple[ResourceType, str | None]:
    """Parse `type:name`, or a type without a name. Raise InvalidArgument."""
    word, colon, name = text.partition(":")
    if word not in TYPES:
        raise client.InvalidArgument(f"resource {text}: unknown type; expected {', '.join(TYPES)}")
    if TYPES[word] is ResourceType.CLUSTER and not colon:
        name = CLUSTER_RESOURCE
    return TYPES[word], name or None


def required(name: str | None, resource: str) -> str:
    """Return the name of a resource. Raise InvalidArgument if it is missing."""
    if name is None:
        raise client.InvalidArgument(f"resource {resource}: the name is missing; expected type:name")
    return name


def parse_operation(text: str) -> AclOperation:
    """Parse an operation in any case, with dashes or underscores. Raise InvalidArgument."""
    name = text.strip().upper().replace("-", "_")
    if name not in AclOperation.__members__ or name == AclOperation.ANY.name:
        known = ", ".join(each.name.lower() for each in AclOperation if each is not AclOperation.ANY)
        raise client.InvalidArgument(f"operation {text}: unknown; expected {known}")
    return AclOperation[name]


def parse_permission(text: str) -> Permission:
    """Parse `allow` or `deny`. Raise InvalidArgument."""
    name = text.upper()
    if name not in {Permission.ALLOW.name, Permission.DENY.name}:
        raise client.InvalidArgument(f"permission {text}: expected allow or deny")
    return Permission[name]
