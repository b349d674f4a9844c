"""Unknown fields are dropped and told; fields of another type are refused before anybody else sees them."""

import pytest

from sandbox.api.errors import StatusError
from sandbox.api.fields import check, refuse_or_warn
from sandbox.api.resources import Catalogue

KINDS = {kind.resource: kind for kind in Catalogue()}


def container(**more):
    return {"name": "c", "image": "i", **more}


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}}


def test_unknown_fields_are_dropped_at_every_depth_and_named():
    body = {**pod(containers=[container(bogus=1)], colour=2), "extra": {}}
    kept, unknown = check(KINDS["pods"], body)
    assert kept == pod()
    assert set(unknown) == {"extra", "spec.colour", "spec.containers[0].bogus"}


def test_null_is_as_good_as_absent():
    kept, unknown = check(KINDS["pods"], pod(nodeName=None, tolerations=None))
    assert (kept, unknown) == (pod(), ())


def test_a_template_is_looked_at_as_well():
    body = {"metadata": {"name": "d"}, "spec": {"replicas": 1, "template": {"spec": {"containers": [container(x=1)]}}}}
    kept, unknown = check(KINDS["deployments.apps"], body)
    assert unknown == ("spec.template.spec.containers[0].x",)
    assert kept["spec"]["template"]["spec"]["containers"] == [container()]
    cron = {"metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": {"y": 1}}}}}}
    assert check(KINDS["cronjobs.batch"], cron)[1] == ("spec.template.spec.y",)


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": [], "spec": {}},
        {"metadata": "x"},
        {"metadata": {"labels": {"a": 1}}},
        {"metadata": {"annotations": ["a"]}},
        {"metadata": {"finalizers": "a"}},
        {"metadata": {"ownerReferences": ["a"]}},
        {"spec": []},
        {"spec": {"containers": {}}},
        {"spec": {"containers": ["c"]}},
        {"spec": {"containers": [{"name": 1}]}},
        {"spec": {"containers": [{"resources": []}]}},
        {"spec": {"containers": [{"resources": {"limits": "1"}}]}},
        {"spec": {"containers": [{"env": [{"name": "a", "value": 1}]}]}},
        {"spec": {"nodeName": 1}},
        {"spec": {"hostNetwork": "yes"}},
        {"spec": {"priority": True}},
        {"spec": {"tolerations": ["a"]}},
        {"status": "Running"},
    ],
)
def test_a_field_of_another_type_is_refused(body):
    with pytest.raises(StatusError, match="cannot unmarshal") as caught:
        check(KINDS["pods"], body)
    assert caught.value.code == 400


def test_unknown_fields_are_warned_of_refused_or_ignored():
    warnings: list[str] = []
    refuse_or_warn(KINDS["pods"], ["spec.x"], "", warnings)
    refuse_or_warn(KINDS["pods"], ["spec.y"], "Ignore", warnings)
    assert warnings == ['unknown field "spec.x"']
    with pytest.raises(StatusError, match=r'strict decoding error: unknown field "spec\.x"'):
        refuse_or_warn(KINDS["pods"], ["spec.x"], "Strict", warnings)
