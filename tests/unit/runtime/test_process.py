"""What log lines look like."""

import asyncio
import json
import logging
import re
import socket

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from runtime.flags import LogFormat
from runtime.process import configure_log, fast_loop, logfmt, plain_values
from tests.support.worlds.world import pod


@pytest.fixture(params=LogFormat)
def form(request):
    """Each format; a test configures it itself, when stderr is what the test reads."""
    yield request.param
    structlog.reset_defaults()


def read(line, form):
    """The line's values by key, as a log tool reads them."""
    if form is LogFormat.JSON:
        return json.loads(line)
    pairs = re.findall(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^ "]*)(?: |$)', line)
    assert " ".join(f"{key}={value}" for key, value in pairs) == line
    return {key: json.loads(value) if value.startswith('"') else value for key, value in pairs}


def test_a_line_has_time_level_message_and_values(form, capsys):
    configure_log(form)
    structlog.get_logger().warning("node rests", pod=pod("a").key, names=("x", "y z"), some={"b", "a"}, none=(), n=2)
    found = read(capsys.readouterr().err.removesuffix("\n"), form)
    assert list(found)[:3] == ["timestamp", "level", "msg"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[0-9:.]+Z", found.pop("timestamp"))
    figure = 2 if form is LogFormat.JSON else "2"
    assert found == {
        "level": "warning",
        "msg": "node rests",
        "pod": pod("a").key,
        "names": "x, y z",
        "some": "a, b",
        "none": "",
        "n": figure,
    }


def test_a_traceback_is_in_the_line(form, capsys):
    configure_log(form)
    try:
        raise ValueError("of no use")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert read(line, form)["exception"].endswith("\nValueError: of no use")


def test_what_a_library_logs_is_a_line_too(form, capsys):
    root = logging.getLogger()
    kept, root.handlers = root.handlers, []
    try:
        configure_log(form)
        logging.getLogger("asyncio").warning("%s took long", "a task")
    finally:
        root.handlers = kept
    found = read(capsys.readouterr().err.removesuffix("\n"), form)
    assert (found["level"], found["msg"], found["logger"]) == ("warning", "a task took long", "asyncio")


@given(st.text())
def test_whatever_a_value_is_logfmt_keeps_it_in_its_place(text):
    event = plain_values(None, "info", {"msg": "m", "z": 1, "error": text, "flag": True, "nothing": None})
    line = logfmt(None, "info", event)
    assert line.isascii()
    assert line.isprintable()
    expected = {"msg": "m", "z": "1", "error": text, "flag": "true", "nothing": ""}
    found = read(line, LogFormat.LOGFMT)
    assert {key: value.encode("utf-16", "surrogatepass") for key, value in found.items()} == {
        key: value.encode("utf-16", "surrogatepass") for key, value in expected.items()
    }


class _Peer(asyncio.Protocol):
    """Tells when its connection is lost."""

    def __init__(self):
        self.is_lost = asyncio.Event()

    def connection_lost(self, exc):
        del exc
        self.is_lost.set()


async def _written_to_after_it_closed():
    """The error of the loop when a closed connection is written to, with the context that its TLS reports."""
    ours, theirs = socket.socketpair()
    with theirs:
        transport, protocol = await asyncio.get_running_loop().create_connection(_Peer, sock=ours)
        transport.abort()
        await protocol.is_lost.wait()
        with pytest.raises(RuntimeError) as found:
            transport.write(b"the end of a handshake")
    return {"message": "Fatal error", "exception": found.value, "transport": transport, "protocol": protocol}


@pytest.mark.parametrize(("kept", "lines"), [({"protocol", "exception"}, 0), ({"exception"}, 1), ({"protocol"}, 1)])
def test_a_connection_that_closed_under_tls_is_no_error(kept, lines, caplog):
    """Only with the error, and from a connection; what a task or a callback of ours raises is logged."""

    async def reported():
        context = await _written_to_after_it_closed()
        other = {"exception": RuntimeError("of ours")}
        asyncio.get_running_loop().call_exception_handler(
            {"message": "Fatal error"} | {key: value for key, value in (other | context).items() if key in kept}
        )

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(reported())
    assert len(caplog.records) == lines
