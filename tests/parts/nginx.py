"""A real nginx on a free port, with the locations that a test writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.parts.needs import program
from tests.parts.ports import free_port

_CONF = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    types {{ text/plain txt; }}
    server {{
        listen 127.0.0.1:{port};
        {rest}
    }}
}}
"""


@asynccontextmanager
async def nginx(folder: Path, rest: str) -> AsyncIterator[str]:
    """Serve until the block ends; gives the base URL.

    Raises:
        AssertionError: it did not begin to listen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "nginx.conf").write_text(_CONF.format(folder=folder, port=port, rest=rest))
    found = program("nginx")
    assert found is not None
    process = await asyncio.create_subprocess_exec(
        found, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"
    )
    try:
        await _listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int) -> None:
    for _ in range(1000):
        assert process.returncode is None, "nginx ended"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    raise AssertionError("nginx does not listen")
