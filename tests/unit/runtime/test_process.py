"""What log lines look like."""

import structlog

from runtime.process import configure_log


def test_values_that_are_several_are_written_as_people_write_them(capsys):
    configure_log()
    try:
        log = structlog.get_logger()
        log.info("controller serving", names=("cardshare", "volcano"), trusted=["a"], none=(), some={"b", "a"})
    finally:
        structlog.reset_defaults()
    line = capsys.readouterr().err
    assert "names='cardshare, volcano' trusted='a' none='' some='a, b'" in line
