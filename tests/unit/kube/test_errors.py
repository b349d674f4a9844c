import pytest
from multidict import CIMultiDict

from kube.errors import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiGoneError,
    ApiNotFoundError,
    ApiRefusedError,
    ApiThrottledError,
    ApiUnauthorizedError,
    ApiUnknownError,
    ApiWebhookError,
    ConflictKind,
    conflict_kind,
    from_answer,
    from_event,
)

STATUS = b'{"kind":"Status","status":"Failure","message":"told","reason":"Because","code":%d}'


def answer(status: int, body: bytes = b"", **headers: str) -> ApiError:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return from_answer("POST", "/api/v1/pods", status, named, body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, ApiRefusedError),
        (400, ApiRefusedError),
        (401, ApiUnauthorizedError),
        (403, ApiForbiddenError),
        (404, ApiNotFoundError),
        (409, ApiConflictError),
        (410, ApiGoneError),
        (413, ApiRefusedError),
        (422, ApiRefusedError),
        (429, ApiThrottledError),
        (500, ApiUnknownError),
        (502, ApiUnknownError),
        (503, ApiUnknownError),
        (504, ApiUnknownError),
    ],
)
def test_a_status_tells_what_became_of_a_write(status, kind):
    error = answer(status, STATUS % status)
    assert type(error) is kind
    assert isinstance(error, ApiRefusedError) is (status < 500)
    assert (error.status, error.reason, error.message) == (status, "Because", "told")


@pytest.mark.parametrize("status", [302, 307, 400, 404, 405, 409, 410, 413, 422, 500, 503])
def test_a_proxys_page_never_says_that_nothing_was_written(status):
    assert type(answer(status, b"<html>Sorry</html>", Retry_After="1")) is ApiUnknownError


@pytest.mark.parametrize(
    ("status", "kind"), [(401, ApiUnauthorizedError), (403, ApiForbiddenError), (429, ApiThrottledError)]
)
def test_a_proxy_refuses_callers_as_the_api_server_does(status, kind):
    assert type(answer(status, b"<html>Sorry</html>")) is kind


QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/api/v1/pods", STATUS % 404, ApiNotFoundError),
        (QUEUES, STATUS % 404, ApiNotFoundError),
        # A kind that is not installed.
        (QUEUES, b"404 page not found\n", ApiNotFoundError),
        ("/api/v1/pods", b"404 page not found\n", ApiUnknownError),
        (QUEUES, b"<html><h1>404 Not Found</h1><p>nginx</p></html>", ApiUnknownError),
        ("/api/v1/pods", b"default backend - 404", ApiUnknownError),
        ("/api/v1/pods", b'{"type":"error","message":"cluster not found"}', ApiUnknownError),
        ("/api/v1/pods", b"", ApiUnknownError),
    ],
)
def test_only_the_api_server_says_that_an_object_is_gone(path, body, kind):
    error = from_answer("GET", path, 404, CIMultiDict(), body)
    assert (type(error), error.status) == (kind, 404)


def test_a_503_with_retry_after_was_not_written():
    error = answer(503, STATUS % 503, Retry_After="3")
    assert type(error) is ApiThrottledError
    assert error.retry_after_s == 3.0


FAILED_CALL = b"Internal error occurred: failed calling webhook"
HOOKED = (
    b'{"kind":"Status","code":500,"reason":"InternalError","message":"%s \\"a.example.test\\": failed to call webhook: '
    b'Post \\"https://a.b.svc:443/?timeout=10s\\": context deadline exceeded"}'
)


def test_what_a_webhook_that_cannot_be_called_keeps_back_was_not_written():
    error = answer(500, HOOKED % FAILED_CALL)
    assert type(error) is ApiWebhookError
    assert isinstance(error, ApiRefusedError)
    assert error.retryable


@pytest.mark.parametrize(
    "words", [b"Internal error occurred: failed to apply the patch", b"etcd: failed calling webhook"]
)
def test_any_other_internal_error_may_have_been_written(words):
    assert type(answer(500, HOOKED % words)) is ApiUnknownError


@pytest.mark.parametrize("body", [b"", b"busy", b"<html>maintenance</html>", b'{"message":"overloaded"}'])
def test_a_503_of_a_proxy_may_replace_the_answer_of_a_server_that_has_written(body):
    error = answer(503, body, Retry_After="3")
    assert type(error) is ApiUnknownError
    assert error.retry_after_s == 3.0


@pytest.mark.parametrize("status", [429, 503])
def test_nobody_waits_for_longer_than_a_minute_because_of_one_answer(status):
    asked = b'{"kind":"Status","details":{"retryAfterSeconds":86400}}'
    assert answer(status, STATUS % status, Retry_After="86400").retry_after_s == 60.0
    assert answer(status, asked).retry_after_s == 60.0


def test_the_seconds_to_wait_are_found_in_the_body_too():
    error = answer(429, b'{"message":"slow","reason":"TooManyRequests","details":{"retryAfterSeconds":2}}')
    assert error.retry_after_s == 2.0


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e9", "٣", "Wed, 21 Oct 2026 07:28:00 GMT", "9" * 400])
def test_a_retry_after_that_is_no_number_is_none(text):
    assert answer(429, b"", Retry_After=text).retry_after_s is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502 Bad Gateway</html>",
        b"null",
        b"[]",
        b'{"message":7}',
        b'{"message":null,"reason":null,"details":null}',
        b'{"message":"\xff"}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"details":{"retryAfterSeconds":' + b"9" * 400 + b"}}",
        "\x1b[31m\u2028red".encode() * 10_000,
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_any_body_gives_one_printable_line(body):
    error = answer(502, body, Content_Type="text/html")
    assert str(error).isprintable()
    assert len(str(error)) < 1_300


def test_a_page_of_a_proxy_is_quoted_and_named_as_such():
    text = str(answer(502, b"<h1>Bad\nGateway</h1>", Content_Type="text/html"))
    assert text == (
        "POST /api/v1/pods: 502: the answer is not the API server's (text/html): "
        "'<h1>Bad Gateway</h1>'; look for a proxy in between"
    )


def test_a_refusal_says_what_to_do():
    said = (
        'nodes is forbidden: User \\"jane\\" cannot list resource \\"nodes\\" in API group \\"\\" at the cluster scope'
    )
    assert "give this account the right to list nodes" in str(answer(403, b'{"message": "%s"}' % said.encode()))
    assert "give this account that right" in str(answer(403, STATUS % 403))


def test_who_is_not_known_is_told_to_log_in_again():
    told = str(answer(401, STATUS % 401))
    assert "log in again" in told
    assert "right" not in told


@pytest.mark.parametrize(
    ("reason", "message", "kind"),
    [
        ("Conflict", 'pod a is already assigned to node "n"', ConflictKind.ALREADY_BOUND),
        ("Conflict", "pod a has non-empty .spec.schedulingGates", ConflictKind.GATED),
        ("Conflict", "pod a is being deleted, cannot be assigned to a host", ConflictKind.DELETING),
        (
            "Conflict",
            "Precondition failed: UID in precondition: 1, UID in object meta: 2",
            ConflictKind.OTHER_UID,
        ),
        (
            "Conflict",
            "the UID in the precondition (1) does not match the UID in record (2). "
            "The object might have been deleted and then recreated",
            ConflictKind.OTHER_UID,
        ),
        (
            "Conflict",
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (2). "
            "The object might have been modified",
            ConflictKind.CHANGED,
        ),
        ("Conflict", "the object has been modified; please apply", ConflictKind.CHANGED),
        ("AlreadyExists", 'events "a" already exists', ConflictKind.ALREADY_EXISTS),
        ("Conflict", "words of a later release", ConflictKind.OTHER),
    ],
)
def test_a_conflict_tells_which_assumption_failed(reason, message, kind):
    assert conflict_kind(reason, message) is kind


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (410, "Expired", ApiGoneError),
        (410, "Gone", ApiGoneError),
        (410, "", ApiGoneError),
        (0, "Expired", ApiGoneError),
        (500, "InternalError", ApiUnknownError),
        (0, "", ApiUnknownError),
        (429, "TooManyRequests", ApiThrottledError),
    ],
)
def test_an_error_event_is_the_error_that_it_stands_for(code, reason, kind):
    assert type(from_event("GET", "/api/v1/pods", code, reason, "too old")) is kind
