"""PriorityClasses are read for what their name stands for."""

from core.wire.policies import PriorityClass, decode_priority_class


def test_a_class_is_its_name_its_value_and_whether_it_preempts():
    text = b'{"metadata":{"name":"high"},"value":1000,"preemptionPolicy":"Never"}'
    assert decode_priority_class(text) == PriorityClass("high", 1000, preempts=False)
    assert decode_priority_class(b'{"metadata":{"name":"low"},"value":-5}') == PriorityClass("low", -5)
    found = decode_priority_class(b'{"metadata":{"name":"d"},"value":3,"globalDefault":true}')
    assert found == PriorityClass("d", 3, is_default=True)
