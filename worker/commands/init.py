"""``steady init``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson

if TYPE_CHECKING:
    from fleet.actions import Host
    from fleet.discovery import Found
    from fleet.draft import Looked


def init(  # noqa: PLR0913 - each is an option of the command
    hosts: Annotated[
        list[str], typer.Argument(metavar="HOST...", help="Machines that are reached over SSH.")
    ],
    *,
    user: Annotated[
        str | None, typer.Option("--user", help="The SSH user. Without it, this one.")
    ] = None,
    port: Annotated[int, typer.Option("--port", "-p", min=1, max=65535, help="SSH port.")] = 22,
    key: Annotated[
        str, typer.Option("--key", help="The private key, without a passphrase.")
    ] = "~/.ssh/steady",
    known_hosts: Annotated[
        str, typer.Option("--known-hosts", help="Where the keys of the hosts stand.")
    ] = "~/.ssh/known_hosts",
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The fleet file to write.")
    ] = Path("fleet.toml"),
    sudo: Annotated[
        bool, typer.Option("--sudo", help="Ask Docker and Podman through `sudo -n`.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at machines over SSH and write a fleet file to start from, in mode `dry_run`.

    It looks at the containers and systemd units that run, takes what looks like inference by name,
    image and command line, and marks with TODO what only you can know. Nothing is changed on the
    hosts. Each host's key must be in `known_hosts` first: `steady ssh-scan HOST` prints it.

    `steady init gpu-1.internal gpu-2.internal --user steady`

    A host that can't be reached is told, the others are written, and the exit code is 3.

    Of an engine that steady can read, like vLLM, SGLang or llama.cpp, the file has its own pages as
    the source, at the port that it publishes. What a restart would harm stands there as well: a
    container with `--rm`, or one that shares its network.

    JSON: file (null: nothing was written); hosts, each with host, problem (null: it was looked at),
    remarks, found: each with server (its name in the file), kind, name, looks_like, because, image,
    user, url (of an engine, null: not known), hindrance (what a restart would harm).
    """
    import asyncio

    from worker.render import as_json as print_json

    _may_write(out, force=force)
    asked = _asked(hosts, user=user, port=port, key=key, known_hosts=known_hosts)
    looked = asyncio.run(_look(asked, sudo=sudo))
    written = any(each.found for each in looked)
    if written:
        _write(looked, out, sudo=sudo, force=force)
    if as_json:
        print_json(_document(looked, out if written else None))
    else:
        _tell(looked, out if written else None)
    if any(each.problem for each in looked):
        raise typer.Exit(Exit.UNREACHED)
    if not written:
        raise typer.Exit(Exit.NO)


def _may_write(out: Path, *, force: bool) -> None:
    """Before anything is asked: nobody should wait for hosts to hear this."""
    if out.is_dir():
        raise Stop(f"{out} is a folder: name a file with --out", Exit.WRONG_INPUT)
    if out.exists() and not force:
        raise Stop(
            f"{out} is there already: --force replaces it, --out names another", Exit.WRONG_INPUT
        )
    if not out.absolute().parent.is_dir():
        raise Stop(f"there is no folder {out.parent}: make it, or name another", Exit.WRONG_INPUT)


def _asked(
    addresses: Sequence[str], *, user: str | None, port: int, key: str, known_hosts: str
) -> "list[Host]":
    import getpass

    from pydantic import ValidationError

    from fleet.actions import Host

    if not Path(key).expanduser().is_file():
        raise Stop(
            f"there is no key file {key}: name one with --key, or make it with"
            f" `ssh-keygen -t ed25519 -f {key}`",
            Exit.WRONG_INPUT,
        )
    facts = {
        "port": port,
        "user": user or getpass.getuser(),
        "key": _absolute(key),
        "known_hosts": _absolute(known_hosts),
    }
    try:
        return [
            Host.model_validate({"address": each, **facts}) for each in dict.fromkeys(addresses)
        ]
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        raise Stop(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}", Exit.WRONG_INPUT
        ) from None


def _absolute(path: str) -> str:
    """The file may be written elsewhere, and its relative paths are relative to it."""
    return path if path.startswith("~") else str(Path(path).absolute())


async def _look(hosts: "Sequence[Host]", *, sudo: bool) -> "list[Looked]":
    import asyncio

    from activities.discovery import look
    from fleet.draft import distinct

    at_once = asyncio.Semaphore(16)

    async def one(host: "Host") -> "Looked":
        async with at_once:
            return await look(host, sudo=sudo)

    return distinct(await asyncio.gather(*map(one, hosts)))


def _write(looked: "Sequence[Looked]", out: Path, *, sudo: bool, force: bool) -> None:
    from fleet.draft import draft

    text = draft(looked, sudo=sudo, file=str(out))
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Stop(f"{out} is there by now: it was left as it is", Exit.WRONG_INPUT) from None
    except OSError as problem:
        why = (problem.strerror or "failed").lower()
        raise Stop(f"{out} can't be written: {why}", Exit.WRONG_INPUT) from None


def _tell(looked: "Sequence[Looked]", written: Path | None) -> None:
    from fleet.draft import entries
    from worker.render import console, remark, say, table

    for each in looked:
        for line in each.remarks:
            remark(f"{each.host.address}: {line}")
        if each.problem:
            remark(each.problem)
    if written is None:
        seen = any(not each.problem for each in looked)
        why = (
            "nothing that looks like inference was found" if seen else "no host could be looked at"
        )
        remark(f"nothing was written: {why}")
        return
    shown = table("server", "host", "what", "looks like", "by")
    for entry in entries(looked):
        found = entry.found
        shown.add_row(
            entry.server, entry.host, f"{found.kind} {found.name}", found.looks_like, found.because
        )
    console().print(shown)
    say(f"{written} is written, in mode dry_run; fill in what is marked TODO, then:")
    say(f"  steady validate {written}")


def _document(looked: "Sequence[Looked]", written: Path | None) -> dict[str, Any]:
    from fleet.draft import entries
    from fleet.draft_sources import engine_url

    names = {id(entry.found): entry.server for entry in entries(looked)}
    keys = ("kind", "name", "looks_like", "because", "image", "user")

    def shown(found: "Found", address: str) -> dict[str, Any]:
        on = found.listens
        return {
            "server": names[id(found)],
            **{key: asdict(found)[key] for key in keys},
            "url": engine_url(address, on) if on is not None else None,
            "hindrance": found.hindrance,
        }

    return {
        "file": str(written) if written is not None else None,
        "hosts": [
            {
                "host": each.host.address,
                "problem": each.problem or None,
                "remarks": list(each.remarks),
                "found": [shown(found, each.host.address) for found in each.found],
            }
            for each in looked
        ],
    }
