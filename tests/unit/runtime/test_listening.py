import errno

from runtime.listening import cannot_listen


def test_a_port_that_needs_a_right_is_told_so():
    told = cannot_listen("--listen", ":443", OSError(errno.EACCES, "error while attempting to bind on ('', 443)"))
    assert told == (
        "--listen: cannot listen on :443: permission denied; choose a port above 1023, or give the process the right"
    )


def test_an_error_without_a_number_is_told_by_its_own_words():
    assert cannot_listen("--listen", ":1", OSError("odd")) == (
        "--listen: cannot listen on :1: odd; choose another address"
    )
