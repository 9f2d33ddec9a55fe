"""What is different between two fleets, key by key, as a person would read it in the fleet file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleet.apply import compare
from fleet.config import Fleet


@dataclass(frozen=True)
class Edit:
    """``before`` or ``after`` is none where the key is not there, or has its default."""

    key: str
    before: object
    after: object


@dataclass(frozen=True)
class Difference:
    """Servers by name, and every other key that differs; ``altered`` has all that these reach."""

    added: list[str]
    removed: list[str]
    altered: list[str]
    edits: list[Edit]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.edits)

    @property
    def is_of_gateways(self) -> bool:
        """Whether gateways that run serve something else: each reads its file when it begins."""
        return any(edit.key.startswith(("gateway.", "endpoints.")) for edit in self.edits)


def difference(before: Fleet | None, after: Fleet) -> Difference:
    change = compare(before, after)
    new = {*change.added, *change.removed}
    old_keys = _keys(before, without=new) if before is not None else {}
    new_keys = _keys(after, without=new) if before is not None else {}
    edits = [
        Edit(key, old_keys.get(key), new_keys.get(key))
        for key in dict.fromkeys([*old_keys, *new_keys])
        if old_keys.get(key) != new_keys.get(key)
    ]
    return Difference(change.added, change.removed, change.altered, edits)


def _keys(fleet: Fleet, without: set[str]) -> dict[str, object]:
    tables = fleet.model_dump(mode="json", exclude_defaults=True)
    servers = tables.get("servers", {})
    tables["servers"] = {name: each for name, each in servers.items() if name not in without}
    return dict(_flat(tables, ""))


def _flat(table: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
