"""Messages between kubelet and a device plugin, against bytes that protobuf itself makes."""

import pytest

from tests.support.node import kubelet_wire as wire

# Two devices, one of them unhealthy.
DEVICES = b"\n\x0e\n\x03m-0\x12\x07Healthy\n\x10\n\x03m-1\x12\tUnhealthy"


def test_a_list_of_devices():
    assert wire.device_list({"m-0": wire.HEALTHY, "m-1": wire.UNHEALTHY}) == DEVICES


def test_a_registration_names_version_socket_and_resource():
    assert wire.register_request("a.sock", "x.io/a") == b"\n\x07v1beta1\x12\x06a.sock\x1a\x06x.io/a"


def test_an_allocate_request_lists_the_devices_of_each_container():
    assert wire.allocate_request(b"\n\x0a\n\x03m-0\n\x03m-1\n\x05\n\x03m-2") == (("m-0", "m-1"), ("m-2",))


def test_an_allocate_response_has_the_environment_of_each_container():
    assert wire.allocate_response([{"A": "b"}, {}]) == b"\n\x08\n\x06\n\x01A\x12\x01b\n\x00"


def test_a_long_text_has_a_length_of_several_bytes():
    (pair,) = wire.allocate_request(b"\n\xcb\x01\n\xc8\x01" + b"m" * 200)
    assert pair == ("m" * 200,)


def test_pod_resources_tell_whose_devices_they_are_and_numbers_are_passed_over():
    # Each device has an entry of its own.
    devices = b"".join(b"\x12\x0d\n\x06x.io/a\x12\x03" + one for one in (b"m-0", b"m-1"))
    container = b"\n\x01c" + devices + b"\x1a\x01\x07"
    pod = b"\n\x01p\x12\x02ns\x1a" + bytes([len(container)]) + container + b"\x20\x07"
    body = b"\n" + bytes([len(pod)]) + pod
    held = wire.Held(namespace="ns", pod="p", resource="x.io/a", device_ids=frozenset({"m-0", "m-1"}))
    assert wire.pod_resources(body) == (held,)


def test_a_wire_type_that_none_of_the_messages_has_is_told():
    with pytest.raises(ValueError, match="wire type 5"):
        wire.allocate_request(b"\x0d\x00\x00\x00\x00")
