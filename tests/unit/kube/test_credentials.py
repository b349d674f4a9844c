import asyncio
import base64
import json
import os
import stat
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from kube.credentials import (
    KUBECONFIG_DEADLINE_S,
    READER,
    InClusterSource,
    KubeconfigSource,
    Tls,
    choose_source,
    mistake_in,
)
from kube.errors import CredentialsError
from kube.transport import _make_context


def account(directory: Path, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in ({"token": "secret\n", "ca": "PEM", "namespace": "cards"} | files).items():
        (directory / ("ca.crt" if name == "ca" else name)).write_text(text)
    return directory


def kubeconfig(
    path: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **more: object
) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "cards"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/"} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    } | more
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_a_pods_own_files_are_read_again_each_time(tmp_path):
    source = InClusterSource(server="https://10.0.0.1:443", directory=account(tmp_path / "sa"))
    first = await source.read()
    (tmp_path / "sa" / "token").write_text("renewed")
    second = await source.read()
    assert first.authorization == "Bearer secret"
    assert second.authorization == "Bearer renewed"
    assert (first.server, first.namespace, first.tls.ca_pem) == ("https://10.0.0.1:443", "cards", "PEM")


async def test_a_missing_token_is_named(tmp_path):
    directory = account(tmp_path / "sa")
    (directory / "token").unlink()
    with pytest.raises(CredentialsError, match=r"sa/token: No such file or directory; check"):
        await InClusterSource(server="https://api", directory=directory).read()


async def test_an_empty_token_is_named(tmp_path):
    with pytest.raises(CredentialsError, match="token: the file is empty"):
        await InClusterSource(server="https://api", directory=account(tmp_path / "sa", token="\n")).read()


async def test_no_secret_shows_in_a_printed_value(tmp_path):
    credentials = await InClusterSource(server="https://api", directory=account(tmp_path / "sa")).read()
    assert "secret" not in repr(credentials)


async def test_a_kubeconfig_gives_server_token_and_authority(tmp_path):
    pem = trustme.CA().cert_pem.bytes().decode()
    ca = base64.b64encode(pem.encode()).decode()
    path = kubeconfig(tmp_path / "config", cluster={"certificate-authority-data": ca, "tls-server-name": "kubernetes"})
    found = await KubeconfigSource(path).read()
    assert (found.server, found.authorization) == ("https://api:6443", "Bearer secret")
    assert (found.tls.ca_pem, found.tls.server_name, found.namespace) == (pem, "kubernetes", "cards")
    assert found.tls.verify


def test_comments_beside_certificates_may_have_any_characters(tmp_path):
    pem = f"# Főtanúsítvány\n{trustme.CA().cert_pem.bytes().decode()}"
    ca = base64.b64encode(pem.encode()).decode()
    path = kubeconfig(tmp_path / "config", cluster={"server": "https://api", "certificate-authority-data": ca})
    assert mistake_in(kubeconfig=path, environ={}) == ""
    assert _make_context(Tls(ca_pem=pem)).cert_store_stats()["x509"] == 1


async def test_a_missing_authority_is_named_without_a_context_that_nobody_named(tmp_path):
    path = kubeconfig(tmp_path / "config", cluster={"certificate-authority": "/nope"})
    with pytest.raises(CredentialsError) as failed:
        await KubeconfigSource(path).read()
    assert str(failed.value) == f"kubeconfig {path}: it names a missing file: /nope; correct the kubeconfig"


async def test_a_token_file_is_read_again_and_its_line_break_dropped(tmp_path):
    (tmp_path / "token").write_text("first\n")
    source = KubeconfigSource(kubeconfig(tmp_path / "config", user={"tokenFile": "token"}))
    assert (await source.read()).authorization == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert (await source.read()).authorization == "Bearer second"


async def test_a_client_pair_renewed_in_place_makes_other_credentials(tmp_path):
    for name in ("cert", "key"):
        (tmp_path / name).write_text(name)
    user = {"client-certificate": "cert", "client-key": "key"}
    source = KubeconfigSource(kubeconfig(tmp_path / "config", user=user))
    first = await source.read()
    assert first == await source.read()
    (tmp_path / "cert").write_text("renewed")
    assert (await source.read()).tls != first.tls


async def test_another_context_can_be_named(tmp_path):
    contexts = [{"name": "there", "context": {"cluster": "c", "user": "u"}}]
    path = kubeconfig(tmp_path / "config", contexts=contexts)
    found = await KubeconfigSource(path, context="there").read()
    assert found.server == "https://api:6443"


async def test_a_slow_plugin_is_not_started_again_by_the_calls_that_gave_up(tmp_path):
    starts, gate, plugin = (tmp_path / name for name in ("starts", "gate", "plugin"))
    os.mkfifo(gate)
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "slow"}}
    plugin.write_text(f"#!/bin/sh\necho >>{starts}\n[ ! -p {gate} ] || cat {gate}\necho '{json.dumps(answer)}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    source = KubeconfigSource(kubeconfig(tmp_path / "config", user=exec_user))
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(source.read(rejected=True))
        opened = await asyncio.to_thread(gate.open, "wb")  # once the plugin reads from it
        gate.unlink()
        first.cancel()
        await asyncio.wait([first])
        others = [tasks.create_task(source.read(rejected=rejected)) for rejected in (True, False)]
        opened.close()
        assert [(await one).authorization for one in others] == ["Bearer slow"] * 2
    assert first.cancelled()
    assert len(starts.read_text().splitlines()) == 1
    await source.read(rejected=True)
    assert len(starts.read_text().splitlines()) == 2


def test_a_process_ends_while_a_plugin_hangs(tmp_path):
    gate, plugin = tmp_path / "gate", tmp_path / "plugin"
    os.mkfifo(gate)
    plugin.write_text(f"#!/bin/sh\ncat {gate}\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    source = KubeconfigSource(kubeconfig(tmp_path / "config", user=exec_user))

    async def interrupted():
        reading = asyncio.create_task(source.read(), name="read")
        opened = await asyncio.to_thread(gate.open, "wb")  # once the plugin reads from it
        reading.cancel()
        return opened, time.monotonic()

    opened, interrupted_s = asyncio.run(interrupted())
    try:
        assert time.monotonic() - interrupted_s < KUBECONFIG_DEADLINE_S / 2
    finally:
        opened.close()
        for thread in threading.enumerate():
            if thread.name == READER:
                thread.join()


async def test_a_plugin_runs_again_only_when_rejected(tmp_path):
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f'#!/bin/sh\necho run >> {tmp_path}/runs\nN=$(wc -l < {tmp_path}/runs)\necho "{{'
        '\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
        '\\"status\\":{\\"token\\":\\"t$N\\"}}"\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    source = KubeconfigSource(kubeconfig(tmp_path / "config", user=exec_user))
    answers = [await source.read(), await source.read(), await source.read(rejected=True)]
    assert [one.authorization.replace(" ", "") for one in answers] == ["Bearert1", "Bearert1", "Bearert2"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "a: [", "7", "clusters: 7\ncontexts: 7\ncurrent-context: x", "current-context: x", "\x00"],
    ids=ascii,
)
async def test_a_file_that_is_no_kubeconfig_is_one_clear_line(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError) as caught:
        await KubeconfigSource(str(path)).read()
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": {"server": ""}}, "no server"),
        ({"cluster": {"certificate-authority": "gone.crt"}}, "gone.crt"),
        ({"user": {"exec": {"apiVersion": "v1", "command": "/nowhere/plugin"}}}, "/nowhere/plugin"),
    ],
    ids=["no server", "no authority", "no plugin"],
)
async def test_what_is_missing_is_named(tmp_path, change, words):
    path = kubeconfig(tmp_path / "config", **change)
    with pytest.raises(CredentialsError, match=words):
        await KubeconfigSource(path).read()


async def test_a_wrong_context_is_named(tmp_path):
    path = kubeconfig(tmp_path / "config")
    with pytest.raises(CredentialsError, match=r"there is no context 'elsewhere'; its contexts are: 'here'"):
        await KubeconfigSource(path, context="elsewhere").read()


@pytest.mark.parametrize("name", ["none", "a" * 300])
async def test_a_file_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(CredentialsError, match=rf"{name}: there is no such file; check the path"):
        await KubeconfigSource(str(tmp_path / name)).read()


def test_the_named_file_wins_then_the_pod_then_the_environment(tmp_path):
    directory = account(tmp_path / "sa")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": "else"}
    named = choose_source(kubeconfig="named", environ=environ, service_account_dir=directory)
    inside = choose_source(environ=environ, service_account_dir=directory)
    tokenless = choose_source(environ=environ, service_account_dir=tmp_path / "none")
    outside = choose_source(environ={"KUBECONFIG": "else"}, service_account_dir=directory)
    assert isinstance(named, KubeconfigSource)
    assert inside == InClusterSource(server="https://10.0.0.1:443", directory=directory)
    assert isinstance(tokenless, KubeconfigSource)
    assert isinstance(outside, KubeconfigSource)


def test_an_ipv6_service_address_is_bracketed(tmp_path):
    directory = account(tmp_path / "sa")
    source = choose_source(environ={"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account_dir=directory)
    assert source == InClusterSource(server="https://[fd00::1]:443", directory=directory)


@pytest.mark.parametrize(
    ("environ", "words"),
    [({}, "give --kubeconfig FILE, or set KUBECONFIG"), ({"KUBERNETES_SERVICE_HOST": "h"}, "automount")],
    ids=["nothing", "no token"],
)
def test_without_any_the_remedy_is_told(tmp_path, environ, words):
    with pytest.raises(CredentialsError, match=words):
        choose_source(environ=environ, service_account_dir=tmp_path)


NONE = "it has no {}: write one, and its name here"
OTHER = {"name": "other"}
NO_AUTHORITY = "certificate-authority-data is no certificate; write a PEM certificate in base64"
SAYS_NOTHING = (
    "has no mapping under user; write a token, a certificate or a plugin there, or {} if the server asks for nobody"
)


def context(**names: str) -> dict[str, Any]:
    return {"contexts": [{"name": "here", "context": names}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current-context": ""}, "it has no current-context; set it to one of its contexts: 'here'"),
        ({"current-context": "x"}, "there is no context 'x'; its contexts are: 'here'"),
        ({"clusters": []}, f"context 'here' names cluster 'c', which is not there; {NONE.format('clusters')}"),
        (
            {"clusters": [OTHER]},
            "context 'here' names cluster 'c', which is not there; name one of its clusters: 'other'",
        ),
        ({"users": []}, f"context 'here' names user 'u', which is not there; {NONE.format('users')}"),
        ({"users": None}, f"context 'here' names user 'u', which is not there; {NONE.format('users')}"),
        ({"users": [OTHER]}, "context 'here' names user 'u', which is not there; name one of its users: 'other'"),
        ({"contexts": [{"name": "here"}]}, "context 'here' names no cluster; name one of its clusters: 'c'"),
        (context(cluster="c"), "context 'here' names no user; name one of its users: 'u'"),
        (context(cluster="c", user=""), "context 'here' names no user; name one of its users: 'u'"),
        (context(user="u"), "context 'here' names no cluster; name one of its clusters: 'c'"),
        ({"contexts": 7}, "contexts: write a list of entries with a name each"),
        ({"cluster": {"server": ""}}, "cluster 'c' has no server; write its URL"),
        ({"cluster": {"server": 5}}, "cluster 'c': server: found '5'; write a URL: https://HOST:PORT"),
        ({"cluster": {"server": "api:6443"}}, "cluster 'c': server: found 'api:6443'; write a URL: https://HOST:PORT"),
        (
            {"cluster": {"server": "https://a:b"}},
            "cluster 'c': server: found 'https://a:b'; write a URL: https://HOST:PORT",
        ),
        ({"cluster": {"server": "https://a", "certificate-authority-data": "QUJD"}}, f"cluster 'c': {NO_AUTHORITY}"),
        ({"cluster": {"server": "https://a", "certificate-authority-data": "@"}}, f"cluster 'c': {NO_AUTHORITY}"),
        ({"users": [{"name": "u"}]}, f"user 'u' {SAYS_NOTHING}"),
        ({"users": [{"name": "u", "user": "token"}]}, f"user 'u' {SAYS_NOTHING}"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_kubeconfig_that_cannot_be_right_is_told_with_what_it_has(tmp_path, change, words):
    path = kubeconfig(tmp_path / "config", **change)
    assert mistake_in(kubeconfig=path, environ={}) == f"kubeconfig {path}: {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [", "it is not YAML (line 2); correct the file"), ("contexts: 7", "contexts: write a list")],
)
def test_of_several_kubeconfigs_the_one_that_cannot_be_right_is_named(tmp_path, text, words):
    paths = f"{kubeconfig(tmp_path / 'config')}:{tmp_path / 'other'}:{tmp_path / 'absent'}"
    (tmp_path / "other").write_text(text, encoding="utf-8")
    assert mistake_in(kubeconfig=paths, environ={}).startswith(f"kubeconfig {paths}: {tmp_path / 'other'}: {words}")


def test_a_kubeconfig_that_may_be_right_is_no_mistake(tmp_path):
    path = kubeconfig(tmp_path / "config")
    assert mistake_in(kubeconfig=path, environ={}) == ""
    assert mistake_in(kubeconfig=path, context="nope", environ={}).endswith("its contexts are: 'here'")
    assert mistake_in(environ={"KUBECONFIG": f"{tmp_path}/none:{path}"}) == ""
    assert mistake_in(kubeconfig=kubeconfig(tmp_path / "nobody", user={}), environ={}) == ""


async def test_a_server_that_asks_for_nobody_is_shown_nothing(tmp_path):
    found = await KubeconfigSource(kubeconfig(tmp_path / "config", user={})).read()
    assert (found.server, found.authorization) == ("https://api:6443", "")


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"token": "s3cret", "exec": None}, "exec has no value"),
        ({"token": "s3cret", "client-key": None}, "client-key has no value"),
        ({"password": "s3cret", "exec": {"apiVersion": "v1", "command": None}}, "command has no value"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": 5, "client-secret": "s3cret"}}}, "AssertionError"),
    ],
    ids=["exec", "key", "command", "provider"],
)
async def test_no_secret_is_in_what_is_told_of_a_bad_user(tmp_path, capfd, user, words):
    path = kubeconfig(tmp_path / "config", user=user)
    with pytest.raises(CredentialsError) as caught:
        await KubeconfigSource(path).read()
    told = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in told + "".join(capfd.readouterr())
    assert words in str(caught.value)


async def test_a_plugin_that_answers_no_token_is_told_each_time(tmp_path):
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {}}
    user = {"exec": {"apiVersion": answer["apiVersion"], "command": "echo", "args": [json.dumps(answer)]}}
    source = KubeconfigSource(kubeconfig(tmp_path / "config", user=user))
    for _ in range(2):
        with pytest.raises(CredentialsError, match="answered neither a token nor a certificate"):
            await source.read()


def test_the_first_of_several_files_counts(tmp_path):
    first = kubeconfig(tmp_path / "first", clusters=[{"name": "c", "cluster": {}}])
    second = kubeconfig(tmp_path / "second")
    assert "has no server" in mistake_in(kubeconfig=f"{first}:{second}", environ={})
    assert mistake_in(kubeconfig=f"{second}:{first}", environ={}) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is no kubeconfig"),
        ("a: 1\n{{{", "it is not YAML (line "),
        ("\x00", "it is not YAML"),
        ("contexts: !!bool x", "it is not YAML"),
        ("[" * 5000, "it is not YAML"),
    ],
    ids=["empty", "no YAML", "control", "no switch", "deep"],
)
def test_a_text_that_is_no_kubeconfig_is_told_in_one_line(tmp_path, text, words):
    (tmp_path / "config").write_text(text)
    told = mistake_in(kubeconfig=str(tmp_path / "config"), environ={})
    assert words in told
    assert told.isprintable()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"users": [{"name": {"token": "s3cret"}}]}, "users: write a list of entries with a name each"),
        ({"current-context": {"token": "s3cret"}}, "it has no current-context"),
        ({"contexts": [{"name": "here", "context": {"cluster": "c", "user": ["s3cret"]}}]}, "'here' names no user"),
    ],
    ids=["users", "current-context", "user"],
)
def test_a_token_that_stands_where_a_name_belongs_is_not_told(tmp_path, entry: dict[str, Any], words):
    told = mistake_in(kubeconfig=kubeconfig(tmp_path / "config", **entry), environ={})
    assert words in told
    assert "s3cret" not in told


def test_a_folder_and_nothing_at_all_are_mistakes_and_a_token_that_comes_later_is_none(tmp_path):
    assert "is a directory; name a file" in mistake_in(kubeconfig=str(tmp_path), environ={})
    assert "give --kubeconfig FILE" in mistake_in(environ={}, service_account_dir=tmp_path)
    assert mistake_in(environ={"KUBERNETES_SERVICE_HOST": "h"}, service_account_dir=tmp_path) == ""


def test_the_client_library_is_not_loaded_before_a_kubeconfig_is_read():
    code = "import sys, kube.calls, kube.reflector; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=100).returncode == 0
