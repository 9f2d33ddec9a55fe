"""``steady ssh-scan``."""

from typing import Annotated

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson


def ssh_scan(
    host: Annotated[str, typer.Argument(metavar="HOST", help="Address, as the fleet file has it.")],
    port: Annotated[int, typer.Option("--port", "-p", min=1, max=65535, help="SSH port.")] = 22,
    as_json: AsJson = False,
) -> None:
    """Print a host's keys as lines for `known_hosts`. Nothing is written, and nothing trusted.

    Compare the fingerprints with what the host itself says (on its console, for each key:
    `ssh-keygen -l -f /etc/ssh/ssh_host_ed25519_key.pub`). Then add the lines:

    `steady ssh-scan gpu-1.internal >> ~/.ssh/known_hosts`

    JSON: host, port, keys: each with line, kind, fingerprint.
    """
    import asyncio

    from activities.ssh_trust import NotSentError, scan_host_key
    from worker.render import as_json as print_json
    from worker.render import remark, say

    try:
        lines = asyncio.run(scan_host_key(host, port))
    except NotSentError as problem:
        raise Stop(f"no key was shown: {problem}", Exit.UNREACHED) from problem
    if as_json:
        print_json({"host": host, "port": port, "keys": [_document(line) for line in lines]})
        return
    for line in lines:
        say(line)
    remark("compare before you trust, on the host's own console (ssh-keygen -l -f FILE.pub):")
    for line in lines:
        key = _document(line)
        remark(f"  {key['kind']}  {key['fingerprint']}")


def _document(line: str) -> dict[str, str]:
    _, kind, _, fingerprint = line.split()
    return {"line": line, "kind": kind, "fingerprint": fingerprint}
