"""Describes connection failures in plain words; the library's own messages name objects and their addresses."""

import os
import re
import ssl
from typing import Final

import aiohttp

# An object's representation in a library's text: useless to readers, and different in every run.
_OBJECT: Final = re.compile(r"\s*(?:ssl:)?<[^<>]* at 0x[0-9a-fA-F]+>")
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")


def cause_of(error: Exception) -> str:
    """Return what failed, with host and port if the error has them."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return (
                f"{_place(error.host, error.port)}: its certificate is not trusted: {_plain(error.certificate_error)}"
            )
        case aiohttp.ClientConnectorDNSError():
            return f"{_place(error.host, error.port)}: there is no such host"
        case aiohttp.ClientConnectorSSLError():
            return f"{_place(error.host, error.port)}: no TLS session: {_plain(error.os_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"proxy {_place(error.host, error.port)}: {_plain(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{_place(error.host, error.port)}: {_plain(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers {error.status} {error.message}".rstrip()
        case aiohttp.InvalidURL():
            return f"'{error.url}' is no URL that can be called"
        case _:
            return _plain(error)


def _place(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(error: BaseException) -> str:
    """Return the operating system's message, or the error's own without internals."""
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it failed").lower().replace("_", " ")
    # If several addresses were tried, the first error represents them.
    found = _ERRNO.search(text)
    number = getattr(error, "errno", None) or (int(found[1]) if found else None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return _OBJECT.sub("", text).strip() or type(error).__name__
