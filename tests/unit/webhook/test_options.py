from pathlib import Path

import pytest

from core.errors import ConfigError
from runtime.listening import Address
from webhook.options import parse


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
        "--no-inventory (CARDSHARE_NO_INVENTORY)",
        "--drain-s (CARDSHARE_DRAIN_S)",
    ]


def test_names_of_clients_come_from_flags_or_the_environment_and_need_an_authority(tmp_path):
    flags = ["--cert-dir", str(tmp_path), "--client-ca", str(tmp_path)]
    assert parse(flags, {}).client_names == frozenset()
    assert parse(flags, {"CARDSHARE_CLIENT_NAME": "a, b"}).client_names == {"a", "b"}
    found = parse([*flags, "--client-name", "a", "b", "--client-name", "c"], {"CARDSHARE_CLIENT_NAME": "d"})
    assert found.client_names == {"a", "b", "c"}
    with pytest.raises(ConfigError, match=r"--client-ca .*missing; name the CA"):
        parse(["--cert-dir", str(tmp_path), "--client-name", "a"], {})
    with pytest.raises(ConfigError, match=r"--client-name .*found ''"):
        parse([*flags, "--client-name", ""], {})


def test_an_ipv6_address_is_understood(tmp_path):
    found = parse(["--cert-dir", str(tmp_path), "--listen", "[::1]:9"], {})
    assert found.listen == Address(host="::1", port=9)
    assert str(found.listen) == "[::1]:9"
    assert found.cert_dir == Path(tmp_path)


def test_callers_are_known_only_by_an_authority_and_a_name(tmp_path):
    flags = ["--cert-dir", str(tmp_path)]
    assert not parse(flags, {}).knows_callers
    flags += ["--client-ca", str(tmp_path)]
    assert not parse(flags, {}).knows_callers
    assert parse([*flags, "--client-name", "kube-apiserver"], {}).knows_callers


def test_the_beginning_of_a_flag_is_no_flag(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parse(["--cert-dir", str(tmp_path), "--metrics", ":1"], {})
    assert "unrecognized arguments: --metrics" in capsys.readouterr().err
