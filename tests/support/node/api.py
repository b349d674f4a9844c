"""Calls to an API server behind a socket of the file system, which `kubectl proxy` serves: no port, no token."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

# The API server gives up a call after 60 s.
_WITHIN_S: Final = 70.0


class RefusedError(Exception):
    """The API server said no.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:1000]}")
        self.status = status


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket of the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_WITHIN_S)
        self.sock.connect(str(self._path))


class Api:
    """JSON in, JSON out; one connection a call, so that threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = ""

    def get(self, path: str) -> Json:
        """Fetch an object or a list.

        Raises:
            RefusedError: the server said no.
            OSError: there is no answer; likewise in every other call.
        """
        return self.call("GET", path)

    def create(self, path: str, body: Json) -> Json:
        """Create an object in the collection *path*."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """Change an object by a merge patch."""
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str, grace_s: int | None = None) -> Json:
        """Delete an object, or a collection."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        return self.call("DELETE", path, options if grace_s is None else {**options, "gracePeriodSeconds": grace_s})

    def warnings(self, path: str, body: Json) -> str:
        """What is told of *body* when it is created in the collection *path*; it is not."""
        self.call("POST", f"{path}?dryRun=All", body)
        return self._told

    def call(self, verb: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """One call."""
        connection = _Connection(self._path)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(verb, path, text, {"Content-Type": kind} if text else {})
            answer = connection.getresponse()
            said = answer.read()
            self._told = "\n".join(answer.headers.get_all("Warning", []))
        except http.client.HTTPException as e:
            raise OSError(str(e) or repr(e)) from e
        finally:
            connection.close()
        if answer.status >= 400:
            raise RefusedError(answer.status, said.decode(errors="replace"))
        found: Json = json.loads(said)
        return found
