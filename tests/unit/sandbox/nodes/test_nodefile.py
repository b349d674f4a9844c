"""The nodes of the embedded cluster, as they are described."""

import msgspec
import pytest

from sandbox.nodes.nodefile import read


def test_a_node_is_read_with_its_plugin():
    first, second = read(
        [
            {
                "name": "gpu-{i}",
                "count": 2,
                "labels": {"zone": "z{i}"},
                "capacity": {"cpu": "8000m", "example.com/dev": 4},
                "allocatable": {"cpu": 7},
                "plugin": {"kind": "vgpu", "cards": [{"uuid": "GPU-{i}-a"}]},
            }
        ]
    )
    assert (first.name, second.name, second.labels) == ("gpu-0", "gpu-1", {"zone": "z1"})
    assert (second.capacity["cpu"], second.allocatable["cpu"], second.allocatable["example.com/dev"]) == ("8", "7", "4")
    assert second.plugins[0].kind == "vgpu"
    assert second.plugins[0].options == {"cards": [{"uuid": "GPU-1-a"}]}


def test_a_misspelled_key_is_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `colour`"):
        read([{"name": "z", "colour": "red"}])
