"""Which kubeconfig ``kubectl cards`` takes, and a server that does not answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cli.__main__ import run
from cli.cluster import fetch_holdings
from cli.options import parse
from kube.errors import ApiUnknownError
from kube.exchange import Response
from kube.transport import Transport


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
