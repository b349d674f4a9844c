"""Splits a streaming answer, such as a watch, into lines."""

import asyncio
from collections import deque
from typing import Final

import aiohttp

from kube.causes import cause_of
from kube.errors import ApiUnreadableError
from kube.exchange import Exchange

# etcd stores objects of up to 1.5 MiB and the API server sends up to 3 MiB; an event holds one object.
MAX_LINE_BYTES: Final = 16 * 2**20


class Lines:
    """The lines of a body, in linear time even for a line of many chunks. A slow reader slows the server down."""

    def __init__(self, answer: aiohttp.ClientResponse, exchange: Exchange, silence_s: float, max_bytes: int) -> None:
        self._answer = answer
        self._exchange = exchange
        self._silence_s = silence_s
        self._max_bytes = max_bytes
        self._ready: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await self._chunk()
            if not chunk:
                if self._size:
                    raise self._unreadable(f"the last line was cut off after {self._size} bytes")
                raise StopAsyncIteration
            self._take(chunk)
        return self._ready.popleft()

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout(self._silence_s):
                return await self._answer.content.readany()
        except TimeoutError as e:
            raise self._exchange.lost(f"silent for {self._silence_s:g} s") from e
        except (aiohttp.ClientError, OSError) as e:
            raise self._exchange.lost(cause_of(e)) from e

    def _take(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._max_bytes:
            raise self._unreadable(f"a line is longer than {self._max_bytes} bytes")
        if not others:
            return
        lines = (b"".join(self._parts), *others[:-1])
        self._ready.extend(line for line in lines if line.strip())
        self._parts = [others[-1]]
        self._size = len(others[-1])

    def _unreadable(self, text: str) -> ApiUnreadableError:
        return ApiUnreadableError(
            verb=self._exchange.verb, path=self._exchange.path, status=self._answer.status, message=text
        )
