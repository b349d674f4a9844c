"""The check of manifests: what is read, where findings are said to be, and how it ends."""

import io
import json
from pathlib import Path

import pytest

from runtime.check import check, parse

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"

GOOD = """\
apiVersion: v1
kind: Pod
metadata:
  name: good
spec:
  containers:
    - name: main
      image: i
      resources:
        limits:
          volcano.sh/vgpu-number: 1
          volcano.sh/vgpu-memory: 1024
"""
WRONG = GOOD.replace("name: good", "name: wrong\n  annotations:\n    volcano.sh/vgpu-mode: hamicore")
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: many
spec:
  template:
    metadata:
      annotations:
        volcano.sh/vgpu-mode: hamicore
    spec:
      containers:
        - name: main
          image: i
          resources:
            limits:
              volcano.sh/vgpu-number: 1
"""


def judged(words, stdin):
    return check(parse(words, {}, "check"), stdin)


@pytest.fixture
def run(capsys, tmp_path):
    def judge(text, *flags, stdin=False):
        file = tmp_path / "pods.yaml"
        if not stdin:
            file.write_text(text)
        code = judged(["-f", "-" if stdin else str(file), *flags], io.StringIO(text))
        return code, capsys.readouterr().out.replace(str(tmp_path) + "/", "").splitlines()

    return judge


def test_a_map_of_hamis_is_known_as_such(run, tmp_path):
    devices = tmp_path / "device-config.yaml"
    devices.write_text(
        "nvidia:\n  resourceCountName: nvidia.com/vgpu\n  resourceMemoryName: nvidia.com/gpumem\n"
        "  knownMigGeometries:\n  - models: [A30]\n    allowedGeometries: [[{name: 1g.6gb, memory: 6144, count: 4}]]\n"
    )
    flags = ("--device-config", str(devices))
    hamis = GOOD.replace("volcano.sh/vgpu-number", "nvidia.com/vgpu").replace("volcano.sh/vgpu", "nvidia.com/gpu")
    hamis = hamis.replace("nvidia.com/gpu-memory", "nvidia.com/gpumem")
    # Volcano's names are still Volcano's.
    for text in (hamis, GOOD):
        assert run(text, *flags) == (0, ["1 object, 0 denied"])
    assert run(hamis.replace("1024", "lots"), *flags)[0] == 1


def test_what_only_looks_like_a_key_or_has_no_effect_is_told_and_ends_with_0(run):
    pod, deployment = (
        GOOD.replace("vgpu-memory", "vgpu-memroy"),
        DEPLOYMENT.replace("vgpu-mode: hamicore", "vgpu-mod: a"),
    )
    code, lines = run(f"{pod}---\n{deployment}")
    assert code == 0
    nobody = "no device plugin is known to offer this resource"
    assert lines[:2] == [
        f'pods.yaml:1: Pod good: warning: CS115 container "main": limit volcano.sh/vgpu-memroy: {nobody}; '
        "did you mean volcano.sh/vgpu-memory?",
        "pods.yaml:14: Deployment many: warning: CS115 spec.template: annotation volcano.sh/vgpu-mod: "
        "this key is unknown; did you mean volcano.sh/vgpu-mode?",
    ]


def test_an_admitted_pod_ends_with_0(run):
    assert run(GOOD) == (0, ["1 object, 0 denied"])


def test_a_denied_pod_is_told_at_its_documents_line_and_ends_with_1(run):
    code, lines = run(f"# two pods\n{GOOD}---\n# the second\n\n{WRONG}")
    assert code == 1
    assert lines[0].startswith("pods.yaml:17: Pod wrong: denied: CS1")
    assert "did you mean 'hami-core'?" in lines[0]
    assert lines[1:] == ["2 objects, 1 denied"]


def test_stdin_is_read(run):
    code, lines = run(WRONG, stdin=True)
    assert (code, lines[0].startswith("-:1: Pod wrong: denied: ")) == (1, True)


def test_json_is_read_and_lists_are_taken_apart(run):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    wrong = json.loads(json.dumps(pod).replace('"a"', '"b"'))
    wrong["metadata"]["annotations"] = {"volcano.sh/vgpu-mode": "x"}
    wrong["spec"]["containers"] = [{"name": "m", "resources": {"limits": {"volcano.sh/vgpu-number": 1}}}]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, wrong]}, indent=1)
    code, lines = run(text)
    assert code == 1
    at = text.splitlines().index("  {", text.splitlines().index("  {") + 1) + 1
    assert lines[0].startswith(f"pods.yaml:{at}: Pod b: denied: ")
    assert lines[-1] == "2 objects, 1 denied"


def test_templates_of_workloads_are_judged(run):
    code, lines = run(DEPLOYMENT)
    assert any(line.startswith("pods.yaml:1: Deployment many: ") and "hamicore" in line for line in lines), lines
    assert code == ("denied:" in lines[0])


def test_other_kinds_and_empty_documents_are_passed_over(run):
    text = "---\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n# nothing\n"
    none = "pods.yaml: nothing in it was judged: it holds no pod or workload with a spec"
    assert run(text) == (0, [none, "1 object, 0 denied, 1 not judged"])
    assert run(f"{text}{GOOD}") == (0, ["2 objects, 0 denied, 1 not judged"])


@pytest.mark.parametrize("kind", ["v1 Pod", "apps/v1 Deployment", "batch.volcano.sh/v1alpha1 Job"])
@pytest.mark.parametrize("spec", ["", "spec: {}\n", "specs: {containers: []}\n"])
def test_a_pod_or_workload_without_a_spec_is_not_passed_over(capsys, kind, spec):
    version, _, name = kind.partition(" ")
    text = f"{GOOD}---\napiVersion: {version}\nkind: {name}\n{spec}"
    assert judged(["-f", "-"], io.StringIO(text)) == 2
    told = capsys.readouterr()
    assert told.err == f"check: -:14: write the spec of this {name}; it has none\n"
    assert told.out == "2 objects, 0 denied, 1 not judged\n"


@pytest.mark.parametrize("text", ["a: [", "- 1", "just words", "a: *b", "\x00", "kind: 1\napiVersion: [1]\n---\n{"])
def test_what_is_no_manifest_ends_with_2_and_does_not_hide_the_next(run, text):
    code, lines = run(f"{text}\n---\n{WRONG}")
    assert code == 2
    assert "Pod wrong: denied: " in lines[-2]


@pytest.mark.parametrize("word", ["on", "Off", "true", "1", "1.5", "2026-01-01"])
def test_a_key_that_yaml_takes_for_something_else_is_a_text_as_kubectl_has_it(run, word):
    code, lines = run(WRONG.replace("  annotations:\n", f"  labels: {{{word}: x}}\n  annotations:\n"))
    assert (code, len(lines)) == (1, 2)
    assert "Pod wrong: denied: CS104" in lines[0]


@pytest.mark.parametrize("key", ["null", "~", "? !!null x\n   ", "? !!omap [a: 1]\n   "])
def test_a_key_that_is_no_text_ends_with_2_and_does_not_hide_the_next(run, key):
    text = GOOD.replace("  name: good\n", f"  name: good\n  labels:\n    {key}: x\n")
    code, lines = run(f"{text}---\n{WRONG}")
    assert code == 2
    assert "Pod wrong: denied: " in lines[-2]


def test_a_field_of_another_type_is_told_in_words(run):
    code, lines = run("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: hello\n")
    assert code == 1
    assert "object.spec: found 'a text where a mapping belongs'" in lines[0]


def test_an_amount_of_another_type_is_told_each_possible_type_once(run):
    spec = "{containers: [{name: a, resources: {limits: {volcano.sh/vgpu-number: [1]}}}]}"
    code, lines = run(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {spec}\n")
    assert code == 1
    assert "found 'a list where a number or a text belongs'" in lines[0]


def test_one_flag_takes_several_files_and_each_that_cannot_be_read_is_told(capsys, tmp_path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    files = [str(tmp_path / name) for name in ("a.yaml", "b.yaml", "none.yaml")]
    assert judged(["-f", *files], io.StringIO()) == 2
    out, err = capsys.readouterr()
    assert out == "2 objects, 0 denied\n"
    assert "none.yaml: there is no such file" in err


def test_of_a_directory_each_manifest_in_it_is_judged_as_kubectl_would_apply_it(capsys, tmp_path):
    for name in ("b.yaml", "a.yml", "notes.txt", "c.json"):
        (tmp_path / name).write_text(WRONG)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "d.yaml").write_text(WRONG)
    assert judged(["-f", str(tmp_path)], io.StringIO()) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == [
        str(tmp_path / one) for one in ("a.yml", "b.yaml", "c.json")
    ]
    assert lines[-1] == "3 objects, 3 denied"


def test_a_directory_without_manifests_is_refused(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text(GOOD)
    assert judged(["-f", str(tmp_path)], io.StringIO()) == 2
    assert "no file in this directory ends in .json, .yaml, .yml" in capsys.readouterr().err


def test_flags_that_name_no_file_are_named_and_notes_are_told(capsys, tmp_path):
    for name, found in (("/nope", "/nope'"), ("a" * 300, "aaa")):
        assert judged(["-f", "-", "--settings", name], io.StringIO(GOOD)) == 2
        err = capsys.readouterr().err
        assert f"--settings (CARDSHARE_SETTINGS): found '{found}" in err
        assert "there is no such file" in err
    (tmp_path / "volcano-scheduler.conf").write_text("actoins: x")
    assert judged(["-f", "-", "--settings", str(tmp_path)], io.StringIO(GOOD)) == 0
    assert "volcano-scheduler.conf: actoins: unknown" in capsys.readouterr().err


def test_what_is_mended_is_told_and_not_denied(run):
    code, lines = run(WRONG.replace("hamicore", "HAMI-core"))
    assert (code, "warning: CS104" in lines[0]) == (0, True)


def test_files_and_settings_that_cannot_be_used_end_with_2(capsys, tmp_path):
    assert judged(["-f", str(tmp_path / "none.yaml")], io.StringIO()) == 2
    settings = tmp_path / "settings.yaml"
    settings.write_text("polcy: 1\n")
    assert judged(["-f", "-", "--settings", str(settings)], io.StringIO(GOOD)) == 2
    assert "check: " in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(one for one in EXAMPLES.glob("*.yaml") if "outcome" not in one.name))
def test_the_examples_are_denied_exactly_where_their_outcomes_say_so(capsys, file):
    outcome = file.with_suffix(".outcome.yaml")
    expected = "denied" in outcome.read_text() if outcome.exists() else False
    code = judged(["-f", str(file)], io.StringIO())
    assert (code == 1) <= expected, capsys.readouterr().out
