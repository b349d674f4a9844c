"""Where the API server is and what to show it: in-cluster files or a kubeconfig, read again while they may change.

In a pod the service account's files are read here; a kubeconfig goes through kubernetes_asyncio's loader, imported only
then, for it costs a quarter of a second and 40 MiB. What to do with the credentials is `login.py`'s.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Final, Protocol

from core.errors import quoted
from kube.errors import CredentialsError, printable
from kube.kubeconfig import problem_of

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# An exec plugin may ask a person or a cloud; longer than this it is taken to hang.
KUBECONFIG_DEADLINE_S: Final = 30.0
# How the loader begins to say that it misses something; it goes on with a part of the file, secrets and all.
_MISSING: Final = re.compile(r"Invalid kube-config file\.(?: Expected key (\S+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to prove who the server is, and who we are.

    Attributes:
        ca_pem: certificates to trust; empty for those of the system.
        cert_file, key_file: the client's own pair, or "".
        pair_digest: of the pair's content, so that a pair renewed in place compares unequal.
        server_name: the name to verify instead of the URL's host, or "".
        verify: `False` only where a kubeconfig says `insecure-skip-tls-verify`.
    """

    ca_pem: str = field(default="", repr=False)
    cert_file: str = ""
    key_file: str = ""
    pair_digest: str = ""
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A server's address and what to show it. Equal values need no new connection.

    Attributes:
        server: the URL, without a slash at its end.
        authorization: the whole header (`Bearer ...`), or ""; never logged.
        tls: certificates.
        proxy_url: the kubeconfig's own proxy, or "". The environment's is never used.
        namespace: the one that the credentials belong to, or "".
    """

    server: str
    authorization: str = field(default="", repr=False)
    tls: Tls = Tls()
    proxy_url: str = ""
    namespace: str = ""


class CredentialSource(Protocol):
    """Where credentials come from."""

    async def read(self, *, rejected: bool = False) -> Credentials:
        """What is true now; off the loop, since files and plugins block.

        Args:
            rejected: the server refused the last ones, so nothing remembered may be answered.

        Raises:
            CredentialsError: nothing usable; one line that names the file.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSource:
    """Credentials that never change: handed in by someone who made the server too."""

    credentials: Credentials

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`."""
        del rejected
        return self.credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class InClusterSource:
    """A pod's service account: `token`, `ca.crt` and `namespace` in one directory, rotated by the kubelet."""

    server: str
    directory: Path = SERVICE_ACCOUNT_DIR

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`."""
        del rejected  # nothing is remembered
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
    """One kubeconfig, or several joined by colons; tokens, token files, client certificates, exec plugins.

    A plugin is run again only when what it answered expires or was rejected; files are read each time.
    """

    def __init__(self, paths: str, *, context: str = "") -> None:
        self._paths = paths
        self._context = context
        self._from_plugin: Credentials | None = None
        self._plugin_expiry: datetime | None = None

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`."""
        # A loop of its own in a thread: the loader reads files, and its import alone stalls for a quarter of a second.
        return await asyncio.to_thread(asyncio.run, self._read(rejected=rejected))

    def mistake(self) -> str:
        """Why these files can never be used as they are, or ""."""
        return problem_of(self._paths, self._context)

    async def _read(self, *, rejected: bool) -> Credentials:
        # Lazy: see the module's docstring.
        from kubernetes_asyncio.config import ConfigException, kube_config  # noqa: PLC0415
        from yaml import YAMLError  # noqa: PLC0415

        if self._from_plugin and not rejected and not _expires_soon(self._plugin_expiry):
            return self._from_plugin
        if problem := self.mistake():
            raise CredentialsError(problem)
        # What the loader logs it raises as well, or it is told below.
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
            # The loader walks the file as it finds it: a list where a mapping belongs is an AttributeError. What it
            # says may hold a token, and is no cause of what is told.
            named = f", context {quoted(self._context)}" if self._context else ""
            raise CredentialsError(f"kubeconfig {self._paths}{named}: {_told(e)}; correct the kubeconfig") from None
        user = getattr(loader, "_user", None)  # the loader tells in no other way whether it used a plugin
        uses_plugin = user is not None and "exec" in user
        if uses_plugin and not (found.authorization or found.tls.cert_file):
            raise CredentialsError(
                f"kubeconfig {self._paths}: its exec plugin answered neither a token nor a certificate with its key; "
                "run it by hand to see what it says"
            )
        self._from_plugin = found if uses_plugin else None
        self._plugin_expiry = getattr(loader, "exec_plugin_expiry", None)
        return found


def choose_source(
    *,
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str],
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> CredentialSource:
    """The source to use: *kubeconfig* if named, else the pod's own, else what `KUBECONFIG` names.

    Args:
        kubeconfig: what `--kubeconfig` said, or "".
        context: a context in it other than the current one, or "".
        environ: the process's environment; only `KUBERNETES_SERVICE_*` and `KUBECONFIG` are looked at.
        service_account_dir: where the kubelet puts the service account's files.

    Raises:
        CredentialsError: none of the three is there.
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
    """Why nobody can log in by what `choose_source` is told, until a person changes that; "" if it may be waited for.

    A pod's token may come later, and a server may come back: those are no mistakes.
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
        # A token file ends with a line break, which a header may not hold.
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
    """What the loader says, without any value of the file."""
    text = str(error) or type(error).__name__
    if missing := _MISSING.match(text):
        return f"{missing[1]} has no value" if missing[1] else "it is no kubeconfig"
    return printable(text, 512).replace("File does not exists:", "it names a missing file:")


def _expires_soon(expiry: datetime | None) -> bool:
    # Without an expiry the answer holds until it is rejected, as in client-go.
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
