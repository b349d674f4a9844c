import pytest
from structlog.testing import capture_logs

from webhook.clients import Clients, names_in


def certificate(*common, dns=(), others=()):
    return {
        "subject": (*((("commonName", one),) for one in common), (("organizationName", "wanted"),)),
        "subjectAltName": (*(("DNS", one) for one in dns), *others),
    }


def test_names_are_common_names_and_dns_names():
    found = certificate("a", dns=("b", "c"), others=(("IP Address", "10.0.0.1"), ("email", "d@x")))
    assert names_in(found) == {"a", "b", "c"}
    assert names_in({}) == frozenset()


@pytest.mark.parametrize("found", [certificate("wanted"), certificate("x", dns=("wanted",))], ids=["common", "dns"])
def test_a_client_of_a_given_name_is_let_in(found):
    assert Clients(frozenset({"wanted"}), lambda: 0.0).why_not(found) == ""


@pytest.mark.parametrize(
    "found",
    [{}, certificate("Wanted"), certificate("wanted.x"), certificate(others=(("email", "wanted"),))],
    ids=["no names", "another case", "a longer name", "a name of another kind"],
)
def test_any_other_is_refused_with_the_names_that_were_found(found):
    now = [0.0]
    clients = Clients(frozenset({"wanted"}), lambda: now[0])
    with capture_logs() as logs:
        for now[0] in (0.0, 10.0, 61.0):
            assert "no client of --client-name" in clients.why_not(found)
    assert len(logs) == 2


def test_what_a_client_calls_itself_is_shown_without_control_characters():
    assert "\\x1b" in Clients(frozenset({"wanted"}), lambda: 0.0).why_not(certificate("\x1b[2J"))
