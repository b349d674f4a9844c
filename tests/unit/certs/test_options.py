"""Flags and environment of python -m certs."""

from dataclasses import replace
from pathlib import Path

import pytest

from certs.cluster import Pair, SecretsPlace
from certs.options import Ensure, EnsureInCluster, Run, parse
from certs.pair import WantedPair
from core.errors import ConfigError

SERVED = ("web", "web.ns", "web.ns.svc", "web.ns.svc.cluster.local")


def test_a_service_is_named_as_pods_and_the_api_server_may_name_it():
    options = parse(["ensure", "--dir", "d", "--service", "web", "--namespace", "ns"], {})
    assert isinstance(options, Ensure)
    assert options.directory == Path("d")
    assert options.wanted.dns_names == SERVED
    assert (options.wanted.days, options.wanted.ca_days) == (90, 1825)


def test_names_and_addresses_may_be_added_or_stand_alone():
    options = parse(["ensure", "--dir", "d", "--dns", "localhost", "--dns", "a.b", "--ip", "::1"], {})
    assert isinstance(options, Ensure)
    assert (options.wanted.dns_names, options.wanted.ip_addresses) == (("localhost", "a.b"), ("::1",))


def test_every_flag_has_a_variable_and_a_flag_wins():
    environ = {
        "CARDSHARE_DIR": "from-environment",
        "CARDSHARE_SERVICE": "web",
        "CARDSHARE_NAMESPACE": "ns",
        "CARDSHARE_DNS": "localhost, a.b",
        "CARDSHARE_IP": "127.0.0.1",
        "CARDSHARE_DAYS": "7",
        "CARDSHARE_CA_DAYS": "70",
    }
    options = parse(["ensure", "--days", "8"], environ)
    assert isinstance(options, Ensure)
    assert options.directory == Path("from-environment")
    assert options.wanted.dns_names == (*SERVED, "localhost", "a.b")
    assert options.wanted.ip_addresses == ("127.0.0.1",)
    assert (options.wanted.days, options.wanted.ca_days) == (8, 70)


def test_every_problem_is_listed():
    argv = ["ensure", "--service", "Web", "--dns", "a..b", "--ip", "300.1.1.1", "--days", "0", "--ca-days", "many"]
    with pytest.raises(ConfigError) as caught:
        parse(argv, {})
    for flag in ("--dir", "--namespace", "--service", "--dns", "--ip", "--days", "--ca-days"):
        assert any(problem.startswith(flag + " ") for problem in caught.value.problems), flag


IN_CLUSTER = ("ensure", "--service", "web", "--namespace", "ns", "--secret", "tls")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["ensure", "--dir", "d"], "--service (CARDSHARE_SERVICE): missing"),
        (["ensure", "--dir", "d", "--namespace", "n", "--ip", "::1"], "a namespace alone names nothing"),
        (["ensure", "--dir", "d", "--ip", "::1", "--ca-days", "9"], "found 9; write at least --days (90)"),
        (["ensure", "--dir", "d", "--ip", "::1", "--webhook", "w"], "--secret (CARDSHARE_SECRET): missing"),
        (["ensure", "--secret", "s", "--ip", "::1"], "--namespace (CARDSHARE_NAMESPACE): missing"),
        (["ensure", "--secret", "a/b", "--namespace", "n", "--ip", "::1"], "found 'a/b'"),
        (["ensure", "--secret", "s", "--namespace", "n", "--ip", "::1"], "--ca-secret (CARDSHARE_CA_SECRET): missing"),
        ([*IN_CLUSTER, "--ca-secret", "c", "--dir", "d"], "--dir (CARDSHARE_DIR): leave it out"),
        (["rotate", "--ip", "::1"], "--secret (CARDSHARE_SECRET): missing; name the Secret that is to be kept"),
        ([*IN_CLUSTER, "--ca-secret", "tls"], "Secret 'tls' is named twice; give each its own"),
        ([*IN_CLUSTER, "--ca-secret", "c", "--pair", "tls=a.b"], "Secret 'tls' is named twice; give each its own"),
        ([*IN_CLUSTER, "--ca-secret", "c", "--pair", "more"], "--pair (CARDSHARE_PAIR): found 'more'"),
        ([*IN_CLUSTER, "--ca-secret", "c", "--pair", "more=a..b"], "--pair (CARDSHARE_PAIR): found 'more=a..b'"),
    ],
)
def test_what_cannot_be_is_a_problem(argv, says):
    with pytest.raises(ConfigError) as caught:
        parse(argv, {})
    assert says in str(caught.value)


def test_a_secret_takes_the_place_of_the_directory():
    argv = [*IN_CLUSTER, "--ca-secret", "ca", "--webhook", "a", "--webhook", "b"]
    options = parse(argv, {})
    assert isinstance(options, EnsureInCluster)
    assert not options.rotate
    assert parse(["rotate", *argv[1:]], {}) == replace(options, rotate=True)
    pairs = (Pair(secret="tls", wanted=WantedPair(dns_names=SERVED, days=90, ca_days=1825)),)
    assert options.place == SecretsPlace(
        namespace="ns", authority="ca", pairs=pairs, service="web", webhooks=("a", "b")
    )


def test_more_pairs_are_for_the_names_given_to_their_secrets_alone():
    argv = [*IN_CLUSTER, "--ca-secret", "ca", "--days", "7", "--dns", "x.y"]
    more = {"CARDSHARE_PAIR": "more=a.b,more=127.0.0.1, last=c.d"}
    options = parse(argv, more)
    assert isinstance(options, EnsureInCluster)
    first, *others = options.place.pairs
    assert first.wanted.dns_names == (*SERVED, "x.y")
    assert [(pair.secret, pair.wanted.dns_names, pair.wanted.ip_addresses) for pair in others] == [
        ("more", ("a.b",), ("127.0.0.1",)),
        ("last", ("c.d",), ()),
    ]
    assert {pair.wanted.days for pair in options.place.pairs} == {7}


def test_what_is_kept_for_long_needs_a_secret_and_looks_every_few_seconds():
    argv = ["run", "--service", "web", "--namespace", "ns", "--webhook", "a"]
    with pytest.raises(ConfigError, match=r"--secret .*: missing; name the Secret that is to be kept"):
        parse(argv, {})
    argv = [*argv, "--secret", "tls", "--ca-secret", "ca"]
    options = parse(argv, {"CARDSHARE_EVERY": "0.5", "CARDSHARE_POD": "ns/p-0"})
    assert isinstance(options, Run)
    assert (options.every_s, options.place.secrets, options.pod) == (0.5, ("ca", "tls"), ("ns", "p-0"))
    assert str(options.metrics_listen) == ":8081"
    for flag, texts in (
        ("--every", ("0", "-1", "1e3", "4000", "x")),
        ("--metrics-listen", ("8081", "x:y")),
        ("--pod", ("p", "/p", "n/", "n/p/q")),
    ):
        for text in texts:
            with pytest.raises(ConfigError, match=flag):
                parse([*argv, flag, text], {})


def test_the_beginning_of_a_flag_is_no_flag(capsys):
    with pytest.raises(SystemExit):
        parse(["ensure", "--dir", "d", "--service", "web", "--name", "ns"], {})
    assert "unrecognized arguments: --name" in capsys.readouterr().err
