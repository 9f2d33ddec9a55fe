"""Which sweep watches which server: a stable hash, so that a new server moves no other."""

import hashlib
from collections.abc import Iterable


def shard_of(server: str, shards: int) -> int:
    return int.from_bytes(hashlib.sha256(server.encode()).digest()[:8], "big") % shards


def shard_count(servers: int, shard_size: int) -> int:
    return max(1, -(-servers // shard_size))


def members(servers: Iterable[str], shard: int, shards: int) -> list[str]:
    return sorted(name for name in servers if shard_of(name, shards) == shard)
