"""The node file is read as a whole, and the error names a problem of each wrong node."""

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


def test_a_problem_of_each_wrong_node_is_reported():
    text = """
    - {name: z, colour: red}
    - {labels: {}}
    - {name: a}
    - {name: b, plugin: {cards: []}}
    - {name: c, capacity: {cpu: x}}
    - {name: d, images: ["train:1"]}
    - {name: a}
    """
    with pytest.raises(NodeFileError) as caught:
        read_text(text)
    for words in (
        "unknown field `colour`; a node may have name, count, labels,",
        "required field `name`",
        "named twice",
        "a 'kind'",
        "capacity.cpu: found 'x'",
    ):
        assert words in str(caught.value)
    assert "node 6: Expected `object`, got `str` - at `$.images[0]`" in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "nodes: 3", "hello"])
def test_a_file_that_lists_no_nodes_is_refused(text):
    with pytest.raises(NodeFileError):
        read_text(text)
