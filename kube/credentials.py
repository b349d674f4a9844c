"""Finds the API server's address and credentials in in-cluster files or a kubeconfig, and reads them again over time.

This module reads a service account's files itself. A kubeconfig goes through kubernetes_asyncio's loader, which is
imported only then because it costs 0.25 s and 40 MiB. `kube.transport` decides when credentials are read again.
"""

import asyncio
import base64
import hashlib
import logging
import re
import ssl
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from os.path import exists
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import yaml

from core.errors import escaped, quoted
from kube.errors import CredentialsError, printable

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# An exec plugin may prompt a person or call a cloud; after this long it is considered hung.
KUBECONFIG_DEADLINE_S: Final = 30.0
READER: Final = "kubeconfig"
_SHOWN: Final = 8
# The start of the loader's message about a missing part; the rest quotes the file, including secrets.
_MISSING: Final = re.compile(r"Invalid kube-config file\.(?: Expected key (\S+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to verify the server, and the client's own certificate.

    Attributes:
        ca_pem: trusted certificates; empty for those of the system.
        cert_file, key_file: the client's own pair, or "".
        pair_digest: digest of the pair's content, so that a pair renewed in place compares unequal.
        server_name: the name to verify instead of the URL's host, or "".
        verify: `False` only if a kubeconfig sets `insecure-skip-tls-verify`.
    """

    ca_pem: str = field(default="", repr=False)
    cert_file: str = ""
    key_file: str = ""
    pair_digest: str = ""
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A server's address and the credentials for it. Equal values need no new connection.

    Attributes:
        server: the URL, without a trailing slash.
        authorization: the whole header (`Bearer ...`), or ""; never logged.
        tls: certificates.
        proxy_url: the kubeconfig's own proxy, or "". The environment's is never used.
        namespace: the namespace of the credentials, or "".
    """

    server: str
    authorization: str = field(default="", repr=False)
    tls: Tls = Tls()
    proxy_url: str = ""
    namespace: str = ""


class CredentialSource(Protocol):
    """A source of credentials."""

    async def read(self, *, rejected: bool = False) -> Credentials:
        """Read the current credentials outside the event loop, because files and plugins block.

        Args:
            rejected: the server rejected the last credentials, so cached ones must not be returned.

        Raises:
            CredentialsError: nothing usable; one line that names the file.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InClusterSource:
    """A pod's service account: `token`, `ca.crt` and `namespace` in one directory; the kubelet rotates them."""

    server: str
    directory: Path = SERVICE_ACCOUNT_DIR

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`."""
        del rejected  # nothing is cached
        return await asyncio.to_thread(self._read)

    def _read(self) -> Credentials:
        token = _text(self.directory / "token").strip()
        if not token:
            raise CredentialsError(f"{self.directory / 'token'}: the file is empty; check the service account")
        namespace = self.directory / "namespace"
        return Credentials(
            server=self.server,
            authorization=f"Bearer {token}",
            tls=Tls(ca_pem=_text(self.directory / "ca.crt")),
            namespace=_text(namespace).strip() if namespace.is_file() else "",
        )


class KubeconfigSource:
    """One kubeconfig, or several joined by colons, with tokens, token files, client certificates or exec plugins.

    A plugin runs again only when its answer expires or is rejected; files are read each time.
    """

    def __init__(self, paths: str, *, context: str = "") -> None:
        self._paths = paths
        self._context = context
        self._from_plugin: Credentials | None = None
        self._plugin_expiry: datetime | None = None
        # The read whose result nobody has yet, and whether it ignores the known answer of the plugin.
        self._reading: asyncio.Future[Credentials] | None = None
        self._reads_anew = False

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`.

        A plugin may take longer than the call that needs it. Then it goes on, and the next read gets its answer.
        """
        reading = self._reading
        if reading is None or (rejected and not self._reads_anew):
            reading = _in_thread(self._read(rejected=rejected))
            self._reading, self._reads_anew = reading, rejected
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done() and self._reading is reading:
                self._reading = None

    def mistake(self) -> str:
        """Return why these files can never be used as they are, or ""."""
        return problem_of(self._paths, self._context)

    async def _read(self, *, rejected: bool) -> Credentials:
        # Imported lazily; the module docstring gives the reason.
        from kubernetes_asyncio.config import ConfigException, kube_config  # noqa: PLC0415
        from yaml import YAMLError  # noqa: PLC0415

        if self._from_plugin and not rejected and not _expires_soon(self._plugin_expiry):
            return self._from_plugin
        if problem := self.mistake():
            raise CredentialsError(problem)
        # The loader also raises what it logs, or the code below reports it.
        logging.getLogger(kube_config.__name__).disabled = True
        landing = SimpleNamespace(api_key={})
        try:
            async with asyncio.timeout(KUBECONFIG_DEADLINE_S):
                loader = await kube_config.load_kube_config(
                    config_file=self._paths,
                    context=self._context or None,
                    client_configuration=landing,
                    persist_config=False,
                )
            found = _from_landing(landing, loader)
        except TimeoutError as e:
            raise CredentialsError(
                f"kubeconfig {self._paths}: no credentials within {KUBECONFIG_DEADLINE_S:.0f} s; "
                "run its exec plugin by hand to see what it waits for"
            ) from e
        except (
            ConfigException,
            YAMLError,
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            AssertionError,
        ) as e:
            # The loader does not validate the file: a list in place of a mapping raises AttributeError. Its message may
            # hold a token, so it is not chained as the cause.
            named = f", context {quoted(self._context)}" if self._context else ""
            raise CredentialsError(f"kubeconfig {self._paths}{named}: {_told(e)}; correct the kubeconfig") from None
        uses_plugin = has_plugin(self._paths, self._context)
        if uses_plugin and not (found.authorization or found.tls.cert_file):
            raise CredentialsError(
                f"kubeconfig {self._paths}: its exec plugin answered neither a token nor a certificate with its key; "
                "run it by hand to see what it says"
            )
        self._from_plugin = found if uses_plugin else None
        self._plugin_expiry = getattr(loader, "exec_plugin_expiry", None)
        return found


def _in_thread(run: Coroutine[object, object, Credentials]) -> asyncio.Future[Credentials]:
    """Run *run* in a thread with its own loop, because the loader reads files and its import alone takes 0.25 s.

    It is not a thread of an executor, because a process waits for those at its end, and a plugin may hang.
    """
    found = Future[Credentials]()
    found.set_running_or_notify_cancel()

    def work() -> None:
        try:
            found.set_result(asyncio.run(run))
        except BaseException as e:  # noqa: BLE001 (whoever reads gets it)
            found.set_exception(e)

    threading.Thread(target=work, name=READER, daemon=True).start()
    return asyncio.wrap_future(found)


def choose_source(
    *,
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str],
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> CredentialSource:
    """Return the source to use: *kubeconfig* if given, else the pod's service account, else `KUBECONFIG`.

    Args:
        kubeconfig: value of `--kubeconfig`, or "".
        context: a context in it other than the current one, or "".
        environ: the process's environment; only `KUBERNETES_SERVICE_*` and `KUBECONFIG` are read.
        service_account_dir: directory of the service account's files.

    Raises:
        CredentialsError: none of the three exists.
    """
    if kubeconfig:
        return KubeconfigSource(kubeconfig, context=context)
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    if host and (service_account_dir / "token").is_file():
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        shown = f"[{host}]" if ":" in host else host
        return InClusterSource(server=f"https://{shown}:{port}", directory=service_account_dir)
    if paths := environ.get("KUBECONFIG", ""):
        return KubeconfigSource(paths, context=context)
    if host:
        raise CredentialsError(
            f"in a pod, but {service_account_dir / 'token'} is missing; "
            "set automountServiceAccountToken, or give --kubeconfig FILE"
        )
    raise CredentialsError("no API server is named; give --kubeconfig FILE, or set KUBECONFIG")


def mistake_in(
    *,
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str],
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> str:
    """Return why the source that `choose_source` picks needs a person's correction; "" if waiting may help.

    A missing pod token or an unreachable server may recover, so neither is a mistake.
    """
    try:
        source = choose_source(
            kubeconfig=kubeconfig, context=context, environ=environ, service_account_dir=service_account_dir
        )
    except CredentialsError as e:
        return "" if environ.get("KUBERNETES_SERVICE_HOST") else str(e)
    return source.mistake() if isinstance(source, KubeconfigSource) else ""


def _from_landing(landing: SimpleNamespace, loader: object) -> Credentials:
    server = getattr(landing, "host", "")
    if not server:
        raise CredentialsError("the cluster of the kubeconfig's context has no server; add its URL")
    ca_file = getattr(landing, "ssl_ca_cert", None)
    cert_file = getattr(landing, "cert_file", None) or ""
    key_file = getattr(landing, "key_file", None) or ""
    context = getattr(loader, "current_context", None)
    inner = context.get("context") if isinstance(context, dict) else None
    return Credentials(
        server=str(server).rstrip("/"),
        # A token file ends with a line break, which is invalid in a header.
        authorization=" ".join(str(landing.api_key.get("BearerToken", "")).split()),
        tls=Tls(
            ca_pem=_text(Path(ca_file)) if ca_file else "",
            cert_file=cert_file,
            key_file=key_file,
            pair_digest=_digest(cert_file, key_file),
            server_name=getattr(landing, "tls_server_name", None) or "",
            verify=bool(getattr(landing, "verify_ssl", True)),
        ),
        proxy_url=getattr(landing, "proxy", None) or "",
        namespace=str(inner.get("namespace") or "") if isinstance(inner, dict) else "",
    )


def _told(error: Exception) -> str:
    """Return the loader's message without any value of the file."""
    text = str(error) or type(error).__name__
    if missing := _MISSING.match(text):
        return f"{missing[1]} has no value" if missing[1] else "it is no kubeconfig"
    return printable(text, 512).replace("File does not exists:", "it names a missing file:")


def _expires_soon(expiry: datetime | None) -> bool:
    # Without an expiry, the answer is valid until it is rejected, as in client-go.
    return expiry is not None and expiry - datetime.now(UTC) < timedelta(minutes=1)


def _digest(*files: str) -> str:
    content = b"\0".join(Path(name).read_bytes() for name in files if name)
    return hashlib.sha256(content).hexdigest() if content else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        what = e.strerror if isinstance(e, OSError) and e.strerror else "not text"
        raise CredentialsError(f"{path}: {what}; check that the file is there and readable") from e


def problem_of(paths: str, context: str = "") -> str:
    """Return why the files in *paths*, joined by colons, have no usable context; "" if they have one.

    The client library reads the credentials, but its errors say less. Source: Kubernetes documentation, "Organizing
    Cluster Access Using kubeconfig Files"; the first file that sets a value wins.

    Args:
        paths: if there are several files, missing ones are skipped, as kubectl does.
        context: the context to use; "" for the current one.
    """
    try:
        _user(paths, context)
    except _UnusableError as e:
        return f"kubeconfig {escaped(paths)}: {e}"
    return ""


def has_plugin(paths: str, context: str = "") -> bool:
    """Return whether the user of the context gets its credentials from a plugin (`exec`); see `problem_of`."""
    try:
        return "exec" in _user(paths, context)
    except _UnusableError:
        return False


class _UnusableError(ValueError):
    """The problem and its remedy."""


def _user(paths: str, context: str) -> Mapping[str, Any]:
    """Return the user of the context, once everything that it needs was checked."""
    found = _merged([Path(path).expanduser() for path in paths.split(":") if path])
    contexts = found["contexts"]
    name = context or found["current-context"]
    if not name:
        raise _UnusableError(f"it has no current-context; set it to one of its contexts: {_list(contexts)}")
    if name not in contexts:
        raise _UnusableError(f"there is no context {quoted(name)}; its contexts are: {_list(contexts)}")
    cluster, user = (_entry(name, contexts[name], kind, found[f"{kind}s"]) for kind in ("cluster", "user"))
    _check_cluster(cluster, found["clusters"][cluster])
    chosen = found["users"][user]
    if not isinstance(chosen, dict):
        remedy = "write a token, a certificate or a plugin there, or {} if the server asks for nobody"
        raise _UnusableError(f"user {quoted(user)} has no mapping under user; {remedy}")
    return chosen


def _merged(files: Iterable[Path]) -> dict[str, Any]:
    there = [path for path in files if exists(path)]
    if not there:
        raise _UnusableError("there is no such file; check the path")
    merged: dict[str, Any] = {"current-context": "", "contexts": {}, "clusters": {}, "users": {}}
    for path in there:
        try:
            found = _read(path)
            merged["current-context"] = merged["current-context"] or _name(found.get("current-context"))
            for kind in ("contexts", "clusters", "users"):
                merged[kind] = _named(found.get(kind), kind) | merged[kind]
        except _UnusableError as e:
            raise _UnusableError(f"{escaped(str(path))}: {e}" if len(there) > 1 else str(e)) from e
    return merged


def _read(path: Path) -> Mapping[str, Any]:
    if path.is_dir():
        raise _UnusableError(f"{path.name or path} is a directory; name a file")
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except OSError as e:
        raise _UnusableError(f"it cannot be read: {(e.strerror or str(e)).lower()}; check who may read it") from e
    # A YAML tag that does not match its value (`!!bool x`) makes the loader raise these other errors.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as e:
        raise _UnusableError(f"it is not YAML{_line_of(e)}; correct the file") from e
    if not isinstance(found, dict):
        raise _UnusableError("it is no kubeconfig: write a mapping with contexts, clusters and users")
    return found


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" (line {mark.line + 1})" if mark is not None else ""


def _named(found: object, kind: str) -> dict[str, Any]:
    entries = found or []
    if not isinstance(entries, list) or not all(isinstance(one, dict) and _name(one.get("name")) for one in entries):
        raise _UnusableError(f"{kind}: write a list of entries with a name each")
    # If two entries have the same name, the first counts.
    return {_name(one["name"]): one.get(kind.removesuffix("s")) for one in reversed(entries)}


def _name(found: object) -> str:
    """Return *found* if it is a name. A misindented mapping or list in its place may hold a token."""
    return str(found) if isinstance(found, str | int) else ""


def _entry(name: str, context: object, kind: str, entries: Mapping[str, object]) -> str:
    """Return the cluster or user that the context *name* uses."""
    named = _name(context.get(kind)) if isinstance(context, dict) else ""
    if named in entries:
        return named
    told = f"names {kind} {quoted(named)}, which is not there" if named else f"names no {kind}"
    remedy = (
        f"name one of its {kind}s: {_list(entries)}" if entries else f"it has no {kind}s: write one, and its name here"
    )
    raise _UnusableError(f"context {quoted(name)} {told}; {remedy}")


def _check_cluster(name: str, cluster: object) -> None:
    server = _name(cluster.get("server")) if isinstance(cluster, dict) else ""
    if not server:
        raise _UnusableError(f"cluster {quoted(name)} has no server; write its URL")
    if not _is_url(server):
        raise _UnusableError(f"cluster {quoted(name)}: server: found {quoted(server)}; write a URL: https://HOST:PORT")
    data = cluster.get("certificate-authority-data") if isinstance(cluster, dict) else None
    if data and not _is_authority(data):
        said = "certificate-authority-data is no certificate; write a PEM certificate in base64"
        raise _UnusableError(f"cluster {quoted(name)}: {said}")


def _is_authority(data: object) -> bool:
    try:
        text = base64.b64decode("".join(str(data).split()), validate=True)
        ssl.create_default_context(cadata=ascii_of(text.decode()))
    except (ssl.SSLError, ValueError):
        return False
    return True


def ascii_of(pem: str) -> str:
    """Return *pem* for Python's ssl, which rejects other characters even in comments between certificates."""
    return pem.encode("ascii", "replace").decode()


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        return False


def _list(names: Iterable[str]) -> str:
    known = [quoted(name) for name in names]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return (", ".join(known[:_SHOWN]) or "none") + more
