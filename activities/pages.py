"""The pages of a server as evidence: one bounded GET each, and what came of it in words."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urljoin

import httpx

from activities.bundle import KEEP, Bundle
from activities.secrets import SecretError, resolve
from activities.web import new_client, why
from fleet.secret_refs import SecretRef

#: Seconds for one page.
WITHIN = 10.0


async def keep_pages(pages: dict[str, tuple[str, SecretRef | None]], bundle: Bundle) -> None:
    """Keep each page of ``pages``, side by side: its file's name, its URL, the token for it."""
    if not pages:
        return
    client = new_client(trust_env=False)
    try:
        async with asyncio.TaskGroup() as group:
            for name, (url, token) in pages.items():
                group.create_task(_keep(client, name, url, token, bundle))
    finally:
        await client.aclose()


@dataclass
class _Page:
    status: str = ""
    body: bytearray | None = None
    cut: bool = False


async def _keep(
    client: httpx.AsyncClient, name: str, url: str, token: SecretRef | None, bundle: Bundle
) -> None:
    page = _Page()
    try:
        async with asyncio.timeout(WITHIN):
            await _read(client, url, _headers(token, bundle), page)
    except TimeoutError:
        bundle.lack(name, f"cut off after {WITHIN:g} s")
    except SecretError as problem:
        bundle.lack(name, f"token: {problem}")
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        bundle.lack(name, why(problem))
    if page.cut:
        bundle.lack(name, f"only the first {KEEP // 1024} KiB were kept")
    if page.body is not None:
        await bundle.keep(name, f"{page.status}\n\n".encode() + page.body)


async def _read(client: httpx.AsyncClient, url: str, headers: dict[str, str], page: _Page) -> None:
    """Fill ``page`` as its parts come, so that what came before the end of the time is there."""
    async with client.stream("GET", url, headers=headers) as response:
        # Some engines serve a page at its path with a slash, and point there.
        moved = response.is_redirect and urljoin(url, response.headers.get("Location", ""))
        page.status, page.body = f"HTTP {response.status_code}", bytearray()
        async for chunk in response.aiter_raw():
            page.body += chunk[: KEEP - len(page.body)]
            if len(page.body) >= KEEP:
                page.cut = True
                return
    if moved == f"{url}/":
        await _read(client, moved, headers, page)


def _headers(token: SecretRef | None, bundle: Bundle) -> dict[str, str]:
    # A small compressed body may unpack to any size, so none is asked for.
    headers = {"Accept-Encoding": "identity"}
    if token is not None:
        secret = resolve(token)
        bundle.hide(secret)
        if not secret.isascii():
            raise SecretError("it has characters that HTTP can't send")
        headers["Authorization"] = f"Bearer {secret}"
    return headers
