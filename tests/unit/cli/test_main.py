"""Which kubeconfig ``kubectl cards`` takes, and a server that does not answer."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import msgspec
import pytest

from cli.__main__ import _apply, run
from cli.cluster import fetch_holdings
from cli.options import Apply, parse
from core.view.plan import Plan
from kube.errors import ApiUnknownError
from kube.transport import Response, Transport


@pytest.mark.may_block(reason="which kubeconfig there is, is looked at before anything else is done")
@pytest.mark.parametrize("taken", ["flag", "variable", "home"])
async def test_the_kubeconfig_is_the_one_that_kubectl_would_take(taken, tmp_path, capsys):
    environ = {"HOME": str(tmp_path)}
    words = ["get"]
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("[home]")
    if taken != "home":
        environ["KUBECONFIG"] = str(tmp_path / "variable")
    if taken == "flag":
        words += ["--kubeconfig", str(tmp_path / "flag")]
    assert await run(parse(words, environ), environ) == 2
    named = {"home": ".kube/config: it is no kubeconfig"}.get(taken, f"{taken}: there is no such file")
    assert f"kubeconfig {tmp_path}/{named}" in capsys.readouterr().err


@pytest.mark.may_block(reason="which kubeconfig there is, is looked at before anything else is done")
async def test_without_any_kubeconfig_it_says_so(tmp_path, capsys):
    environ = {"HOME": str(tmp_path)}
    assert await run(parse(["get"], environ), environ) == 2
    assert "no API server is named" in capsys.readouterr().err


async def test_a_server_that_does_not_answer_is_not_asked_for_more():
    asked: list[str] = []

    class Silent:
        async def request(self, verb: str, path: str, **_: Any) -> Response:
            asked.append(path)
            raise ApiUnknownError(verb=verb, path=path, message="no answer within 10 s")

    with pytest.raises(ApiUnknownError):
        await fetch_holdings(cast(Transport, Silent()))
    assert len(asked) == 1


@pytest.mark.may_block(reason="files are read before anything else is done")
@pytest.mark.parametrize("flag", ["--token-file", "--controller-ca"])
@pytest.mark.parametrize("command", [["shadow"], ["simulate", "--drain", "a"]], ids=lambda words: words[0])
async def test_a_file_for_the_controller_that_is_not_there_is_a_wrong_command_line(command, flag, tmp_path, capsys):
    kubeconfig = tmp_path / "kubeconfig"
    named = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
    server = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    }
    kubeconfig.write_text(json.dumps({**named, **server}))
    words = [*command, "--kubeconfig", str(kubeconfig), "--controller", "https://127.0.0.1:1", flag, "nowhere"]
    assert await run(parse(words, {}), {}) == 2
    assert f"{flag} nowhere: no such file" in capsys.readouterr().err


@pytest.mark.may_block(reason="files are read before anything else is done")
@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "error: not found", "\x7fELF"])
async def test_a_file_without_a_token_is_told_instead_of_a_call_that_must_fail(content, tmp_path, capsys):
    file, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    file.write_text(content)
    kubeconfig.write_text("{}")
    flags = ["--kubeconfig", str(kubeconfig), "--controller", "https://127.0.0.1:1", "--token-file", str(file)]
    assert await run(parse(["shadow", *flags], {}), {}) == 2
    assert f"--token-file {file}: it holds no token" in capsys.readouterr().err


@pytest.mark.may_block(reason="files are read before anything else is done")
@pytest.mark.parametrize("helps", [True, False])
@pytest.mark.parametrize("from_stdin", [True, False])
async def test_a_plan_without_moves_is_done_if_there_is_room_and_else_ends_as_its_plan_did(
    helps, from_stdin, tmp_path, monkeypatch, capsys
):
    plan = Plan(
        asked="1 x whole",
        state="1",
        newest_s=0,
        gain="no move is needed" if helps else "no pod may be moved",
        helps=helps,
        priority=0,
        jobs=False,
        moves_max=10,
        per_namespace_max=2,
        staying=(),
        notes=(),
    )
    text = msgspec.json.encode(plan).decode()
    (tmp_path / "plan").write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO(text if from_stdin else ""))
    options = Apply(file="-" if from_stdin else str(tmp_path / "plan"), kubeconfig="", context="")
    assert await _apply(cast(Transport, None), options) == (0 if helps else 6)
    said = capsys.readouterr()
    assert ("no move is needed" in said.out) == helps
    assert ("no pod may be moved" in said.err) != helps
