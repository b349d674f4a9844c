"""Where an unreadable document of a manifest file is wrong."""

import pytest

from core.wire.manifests import Unreadable, read_manifests


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ("kind: Pod\n  bad: x", "this is not YAML: mapping values are not allowed in this context at line 7, column 6"),
        ("a: [1\nb: 2", "parsing a flow sequence at line 6, column 4 did not find expected ',' or ']' at line 7,"),
        ("kind: Pod\na: !!int x", "line 7: 'x' is no int"),
        (f"kind: Pod\na: {'9' * 99}", "line 7: a number of 99 characters"),
        ("a: 1\n- ...\n", "line 7: '- ...' stands for lines that were left out"),
    ],
    ids=["parser", "parser-twice", "tag", "number", "dots"],
)
def test_lines_are_those_of_the_file_and_not_of_the_document(document, where):
    (*_, found) = read_manifests(f"a: 1\n---\nb: 1\n# c\n---\n{document}")
    assert isinstance(found, Unreadable)
    assert found.line == 6
    assert where in found.problem
    assert "unicode string" not in found.problem
