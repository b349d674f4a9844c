"""The flags of ``python -m sandbox``."""

import pytest

from core.errors import ConfigError
from sandbox.__main__ import parse
from sandbox.nodes.kubelet import AdmissionOrder


def test_without_flags_every_plugin_is_played_on_a_free_port_of_this_machine():
    settings = parse([], {}).settings
    assert (settings.host, settings.port, settings.players, settings.enforces_rbac) == ("127.0.0.1", 0, None, False)


def test_flags_and_variables_are_the_settings():
    words = ["--players", "vgpu, gpushare", "--admission-order", "shuffled", "--seed", "7", "--authorization", "rbac"]
    settings = parse(words, {"CARDSHARE_LISTEN": ":1", "CARDSHARE_ADMISSION_DELAY": "0.5"}).settings
    assert (settings.host, settings.port, settings.players) == ("127.0.0.1", 1, frozenset({"vgpu", "gpushare"}))
    assert settings.enforces_rbac
    assert settings.kubelet is not None
    kubelet = settings.kubelet
    assert (kubelet.order, kubelet.seed, kubelet.admission_delay_s) == (AdmissionOrder.SHUFFLED, 7, 0.5)
    assert parse(["--players", "none"], {}).settings.players == frozenset()


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--players", "nope", "write all, none, or some of amd, ascend-hami, "),
        ("--admission-delay", "-1", "write seconds from 0 to 3600"),
        ("--admission-order", "x", "write "),
        ("--authorization", "x", "write record or rbac"),
        *(("--listen", text, "write host:port") for text in ("nowhere", "127.0.0.1:", "127.0.0.1:70000", "h:x")),
    ],
)
def test_a_value_that_cannot_be_used_is_told_with_its_flag(flag, value, says):
    with pytest.raises(ConfigError) as caught:
        parse([f"{flag}={value}"], {})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{flag} (CARDSHARE_")
    assert f"found '{value}'; {says}" in problem
