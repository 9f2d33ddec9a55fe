"""The search attributes by which incidents are found in the Temporal UI: steady registers its own.

A workflow that sets an attribute which the server does not know hangs, so whether they are there is
known before any workflow starts.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fleet.contracts.names import SearchAttribute

_RPC_TIMEOUT = timedelta(seconds=10)
_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_LOOKS = 20
_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Attributes:
    """Whether workflows may set the search attributes, and that in one line for people."""

    available: bool
    line: str


async def register_search_attributes(client: Client) -> Attributes:
    """See that the attributes are there, and add what is missing where the server allows it."""
    try:
        there = await _listed(client)
    except RPCError as problem:
        return await _unlisted(client, problem)
    wrong = [name for name in SearchAttribute if there.get(name, _KEYWORD) != _KEYWORD]
    if wrong:
        return _of_another_type(wrong)
    missing = [name for name in SearchAttribute if name not in there]
    if not missing:
        return _all_there()
    try:
        await _add(client, missing)
        return await _once_listed(client)
    except RPCError as problem:
        return _unavailable(missing, problem)


async def _unlisted(client: Client, problem: RPCError) -> Attributes:
    """Some servers keep the list from us: one still can search by an attribute that exists."""
    try:
        await _add(client, list(SearchAttribute))
        return _all_there()
    except RPCError as refusal:
        if refusal.status is RPCStatusCode.ALREADY_EXISTS or await _is_searchable(client):
            return _all_there()
    return _unavailable(list(SearchAttribute), problem)


async def _is_searchable(client: Client) -> bool:
    query = " AND ".join(f"{name} = 'none'" for name in SearchAttribute)
    try:
        await client.count_workflows(query, rpc_timeout=_RPC_TIMEOUT)
    except RPCError:
        return False
    return True


async def _listed(client: Client) -> Mapping[str, int]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    answer = await client.operator_service.list_search_attributes(request, timeout=_RPC_TIMEOUT)
    return dict(answer.custom_attributes)


async def _add(client: Client, names: Collection[str]) -> None:
    request = AddSearchAttributesRequest(
        namespace=client.namespace, search_attributes=dict.fromkeys(map(str, names), _KEYWORD)
    )
    await client.operator_service.add_search_attributes(request, timeout=_RPC_TIMEOUT)


async def _once_listed(client: Client) -> Attributes:
    """A server takes a moment until what was added holds everywhere."""
    missing: list[SearchAttribute] = []
    for _ in range(_LOOKS):
        there = await _listed(client)
        missing = [name for name in SearchAttribute if name not in there]
        if not missing:
            return _all_there()
        await asyncio.sleep(_BETWEEN_LOOKS)
    return Attributes(
        False, f"search attributes were added, but do not show yet: {', '.join(missing)}"
    )


def _all_there() -> Attributes:
    return Attributes(True, f"search attributes are there: {', '.join(SearchAttribute)}")


def _of_another_type(names: Collection[str]) -> Attributes:
    return Attributes(
        False,
        f"search attributes are not used: {', '.join(names)} must be of the type Keyword on this"
        " server; remove and create them with `temporal operator search-attribute`",
    )


def _unavailable(names: Collection[str], problem: RPCError) -> Attributes:
    pairs = " ".join(f"--name {name} --type Keyword" for name in names)
    return Attributes(
        False,
        f"search attributes are not used, since this server did not let steady add them"
        f" ({problem.status.name}); whoever may, runs: temporal operator search-attribute create"
        f" {pairs}",
    )
