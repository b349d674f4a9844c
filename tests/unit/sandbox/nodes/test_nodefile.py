"""The node file is read whole, and wrong ones say everything that is wrong."""

import pytest

from sandbox.nodes.nodefile import NodeFileError, read_text


def test_a_node_is_read_with_its_plugin():
    text = """
    - name: gpu-{i}
      count: 2
      labels: {zone: "z{i}"}
      capacity: {cpu: 8000m, "example.com/dev": 4}
      allocatable: {cpu: 7}
      plugin: {kind: vgpu, cards: [{uuid: "GPU-{i}-a"}]}
    """
    first, second = read_text(text)
    assert (first.name, second.name, second.labels) == ("gpu-0", "gpu-1", {"zone": "z1"})
    assert (second.capacity["cpu"], second.allocatable["cpu"], second.allocatable["example.com/dev"]) == ("8", "7", "4")
    assert second.plugins[0].kind == "vgpu"
    assert second.plugins[0].options == {"cards": [{"uuid": "GPU-1-a"}]}


def test_every_problem_is_told_at_once():
    text = """
    - {name: a, colour: red}
    - {labels: {}}
    - {name: a}
    - {name: b, plugin: {cards: []}}
    - {name: c, capacity: {cpu: x}}
    - {name: d, images: ["train:1"]}
    """
    with pytest.raises(NodeFileError) as caught:
        read_text(text)
    for words in ("unknown colour", "'name' is missing", "named twice", "needs a 'kind'", "capacity.cpu: found 'x'"):
        assert words in str(caught.value)
    assert "node 6: an image needs 'names', a list" in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "nodes: 3", "hello"])
def test_a_file_that_lists_no_nodes_is_refused(text):
    with pytest.raises(NodeFileError):
        read_text(text)
