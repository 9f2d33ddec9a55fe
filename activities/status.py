"""Status URLs: one GET, answered by the record as JSON."""

from urllib.parse import urlsplit

import httpx

from activities.answers import LARGEST_RECORD, BadAnswer, NoAnswer
from activities.secrets import SecretError, resolve
from activities.web import is_distrust, new_client, why
from fleet.config import StatusSource

_NO_RECORD = frozenset({404, 410})


class StatusPages:
    """Reads status URLs. The caller bounds the time; size is bounded here."""

    def __init__(self) -> None:
        self._client = new_client(trust_env=False)

    async def read(self, source: StatusSource) -> bytes:
        """Ask once.

        Raises:
            NoAnswer: refused, no route, 404.
            BadAnswer: any other status than 200, a body over 64 KiB or compressed, a token that
                can't be resolved.
        """
        place = urlsplit(source.url).netloc.rpartition("@")[2]
        try:
            return await self._get(source, place)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            text = f"{place}: {why(problem)}"
            if isinstance(problem, httpx.TransportError) and not is_distrust(problem):
                raise NoAnswer(text) from None
            raise BadAnswer(text) from None

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self, source: StatusSource, place: str) -> bytes:
        async with self._client.stream("GET", source.url, headers=_headers(source)) as response:
            if response.status_code in _NO_RECORD:
                raise NoAnswer(f"{place} answers {response.status_code}: no record at this URL")
            if response.is_redirect:
                raise BadAnswer(f"{place} redirects, which is not followed: name the final URL")
            if response.status_code != httpx.codes.OK:
                raise BadAnswer(f"{place} answers {response.status_code} instead of a record")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise BadAnswer(f"{place} compresses its answer, though asked not to")
            return await _bounded(response, place)


def _headers(source: StatusSource) -> dict[str, str]:
    # A small compressed body may unpack to any size, so none is asked for.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if source.token is not None:
        try:
            headers["Authorization"] = f"Bearer {resolve(source.token)}".encode().decode("ascii")
        except SecretError as problem:
            raise BadAnswer(f"source.token: {problem}") from None
        except UnicodeDecodeError:
            raise BadAnswer(
                "source.token: the secret has characters that HTTP can't send"
            ) from None
    return headers


async def _bounded(response: httpx.Response, place: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_RECORD:
            raise BadAnswer(f"{place} answers with over {LARGEST_RECORD // 1024} KiB: no record is")
    return bytes(body)
