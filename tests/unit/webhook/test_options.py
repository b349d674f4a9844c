from pathlib import Path

import pytest

from core.errors import ConfigError
from webhook.options import Address, parse


def test_defaults_are_those_of_the_contract(tmp_path):
    found = parse(["--cert-dir", str(tmp_path)], {})
    assert (found.listen, found.metrics_listen) == (Address(host="0.0.0.0", port=8443), Address(host="", port=8081))
    assert (found.settings, found.device_config, found.kubeconfig, found.inventory) == (None, None, "", True)


def test_a_flag_wins_over_its_variable(tmp_path):
    environ = {"CARDSHARE_LISTEN": ":1", "CARDSHARE_CERT_DIR": "x", "CARDSHARE_NO_INVENTORY": "true"}
    found = parse(["--cert-dir", str(tmp_path)], environ)
    assert (found.listen.port, found.cert_dir, found.inventory) == (1, tmp_path, False)


def test_every_problem_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        parse(
            ["--listen", "8443", "--settings", "/no/such/file"],
            {"CARDSHARE_DRAIN_S": "soon", "CARDSHARE_NO_INVENTORY": "perhaps"},
        )
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "--cert-dir (CARDSHARE_CERT_DIR)",
        "--listen (CARDSHARE_LISTEN)",
        "--settings (CARDSHARE_SETTINGS)",
        "CARDSHARE_NO_INVENTORY",
        "--drain-s (CARDSHARE_DRAIN_S)",
    ]


def test_an_ipv6_address_is_understood(tmp_path):
    found = parse(["--cert-dir", str(tmp_path), "--listen", "[::1]:9"], {})
    assert found.listen == Address(host="::1", port=9)
    assert str(found.listen) == "[::1]:9"
    assert found.cert_dir == Path(tmp_path)
