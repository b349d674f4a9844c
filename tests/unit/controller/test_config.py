import pytest

from controller.config import parse
from core.errors import ConfigError
from runtime.listening import Address


def test_flags_win_over_the_environment_and_that_over_the_defaults():
    environ = {"CARDSHARE_LISTEN": "127.0.0.1:1", "CARDSHARE_KUBECONFIG": "env", "CARDSHARE_SCHEDULER_NAME": "a, b"}
    config = parse(["--kubeconfig", "flag"], environ)
    assert (str(config.listen), config.kubeconfig) == ("127.0.0.1:1", "flag")
    assert config.scheduler_names == ("a", "b")
    assert parse(["--scheduler-name", "x", "--scheduler-name", "y"], environ).scheduler_names == ("x", "y")


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [(":8080", "", 8080), ("[::1]:9", "::1", 9)],
    ids=["every address", "IPv6"],
)
def test_addresses_are_read(listen, host, port):
    config = parse(["--listen", listen], {})
    assert config.listen == Address(host=host, port=port)


def test_every_wrong_flag_is_listed():
    with pytest.raises(ConfigError) as caught:
        parse(["--listen", "nowhere", "--lease-duration", "soon"], {})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "--listen (CARDSHARE_LISTEN)",
        "--lease-duration (CARDSHARE_LEASE_DURATION)",
    ]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            "--lease-duration 1x",
            "--lease-duration (CARDSHARE_LEASE_DURATION): found '1x'; write seconds from 6.2 to 60",
        ),
        ("--lease-duration 0", "--lease-duration (CARDSHARE_LEASE_DURATION): found '0'; write seconds from 6.2 to 60"),
        (
            "--lease-duration 9",
            "--lease-duration (CARDSHARE_LEASE_DURATION): found 9; write at least 10: a Binding takes up to 6 s, and a "
            "renewal may fail once",
        ),
        (
            "--lease-duration 10",
            "--lease-renew-deadline (CARDSHARE_LEASE_RENEW_DEADLINE): found 10; write less than --lease-duration (10), "
            "and at least twice --lease-retry-period (2)",
        ),
    ],
    ids=["unreadable", "never possible", "too short for its retry period", "no longer than its deadline"],
)
def test_a_wrong_timing_of_the_lease_has_one_message_that_can_be_followed(flags, told):
    with pytest.raises(ConfigError) as caught:
        parse(flags.split(), {})
    assert caught.value.problems == (told,)


@pytest.mark.parametrize("name", ["", "a b"])
def test_a_name_that_no_scheduler_can_have_is_refused(name):
    with pytest.raises(ConfigError, match=r"--scheduler-name \(CARDSHARE_SCHEDULER_NAME\): found .*; write the name"):
        parse(["--scheduler-name", name], {})


def test_pods_of_the_default_scheduler_are_only_judged_and_never_placed():
    with pytest.raises(
        ConfigError, match=r"CARDSHARE_SCHEDULER_NAME.*: found 'default-scheduler'; write cardshare, or"
    ):
        parse(["--scheduler-name", "default-scheduler"], {})
    assert parse(["--scheduler-name", "default-scheduler", "--shadow"], {}).shadow


def test_the_help_tells_command_and_defaults(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"], {})
    told = " ".join(capsys.readouterr().out.split())
    assert "usage: python -m controller" in told
    for default in ("0.0.0.0:8080", "cardshare-controller", "15"):
        assert f"(default {default})" in told
    assert "`python -m controller audit`" in told


@pytest.mark.parametrize("text", ["pod", "/p", "n/", "a/b/c", "/"])
def test_a_pod_is_named_with_its_namespace(text):
    with pytest.raises(ConfigError, match=r"--pod \(CARDSHARE_POD\): found .*; write NAMESPACE/NAME"):
        parse(["--pod", text], {})
    assert parse([], {"CARDSHARE_POD": "n/p"}).pod == ("n", "p")
    assert parse([], {}).pod is None


def test_namespaces_to_trust_are_read_and_none_is_by_default():
    assert parse([], {}).trusted == frozenset()
    assert parse(["--trust-namespaces", "kube-system, mindx-dl"], {}).trusted == {"kube-system", "mindx-dl"}
    with pytest.raises(ConfigError, match=r"--trust-namespaces .*: found '\*'; write names of namespaces"):
        parse([], {"CARDSHARE_TRUST_NAMESPACES": "kube-system,*"})


def test_hamis_config_map_by_flag_or_environment():
    assert parse([], {"CARDSHARE_HAMI_CONFIG": "gpu-stack/shares"}).hami_config == "gpu-stack/shares"
    with pytest.raises(ConfigError, match=r"--hami-config \(CARDSHARE_HAMI_CONFIG\): found 'shares'"):
        parse(["--hami-config", "shares"], {})
