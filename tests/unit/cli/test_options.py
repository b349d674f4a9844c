"""The command line of ``kubectl cards``."""

from __future__ import annotations

import pytest

from cli.options import Explain, Get, parse


def test_get_takes_nodes_and_a_kubeconfig():
    assert parse(["get", "a", "b", "--kubeconfig", "f", "--context", "c"], {}) == Get(
        nodes=("a", "b"), kubeconfig="f", context="c"
    )


def test_the_controllers_address_comes_from_the_flag_before_the_environment():
    environ = {"CARDSHARE_CONTROLLER": "http://env/"}
    assert parse(["explain", "p", "-n", "ns"], environ) == Explain(
        pod="p", namespace="ns", controller="http://env", kubeconfig="", context=""
    )
    flagged = parse(["explain", "p", "--controller", "http://flag"], environ)
    assert isinstance(flagged, Explain)
    assert flagged.controller == "http://flag"


@pytest.mark.parametrize("words", [[], ["explain"], ["drop", "p"]])
def test_what_is_not_understood_ends_with_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words, {})
    assert ended.value.code == 2
    assert "usage: kubectl cards" in capsys.readouterr().err
