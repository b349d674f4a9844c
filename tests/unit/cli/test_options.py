"""The command line of ``kubectl cards``."""

from __future__ import annotations

import pytest

from cli.options import (
    FLAGS,
    Apply,
    By,
    Controller,
    Explain,
    Fits,
    Get,
    Output,
    Plan,
    PlanTarget,
    Queues,
    Simulate,
    Version,
    Waits,
    parse,
)
from core.port.cards import CardWish
from runtime.check import Check


def test_every_command_that_reads_an_installations_objects_takes_the_name_of_its_settings():
    """Except doctor, which has -n and --name, and shadow, which asks only a controller."""
    reads = {name for name, flags in FLAGS.items() if "kubeconfig" in flags} - {"doctor", "shadow"}
    assert {name for name, flags in FLAGS.items() if "settings_map" in flags} == reads


def test_get_takes_nodes_and_a_kubeconfig():
    assert parse(["get", "a", "b", "--kubeconfig", "f", "--context", "c"], {}) == Get(
        nodes=("a", "b"), kubeconfig="f", context="c"
    )


def test_a_node_may_be_named_as_kubectl_prints_it():
    assert parse(["get", "node/a", "nodes/b", "no/c", "d"], {}) == Get(nodes=("a", "b", "c", "d"))
    found = parse(["simulate", "--drain", "node/a,b", "--add-nodes", "1", "--like", "node/a"], {})
    assert isinstance(found, Simulate)
    assert (found.drain, found.like) == (("a", "b"), "a")


def test_what_leads_to_the_controller_comes_from_the_flags_before_the_environment():
    environ = {"CARDSHARE_CONTROLLER": "https://env:8444/", "CARDSHARE_TOKEN_FILE": "t", "CARDSHARE_CONTROLLER_CA": "c"}
    found = parse(["explain", "p", "-n", "ns"], environ)
    assert isinstance(found, Explain)
    assert (found.pod, found.namespace) == (("", "", "p"), "ns")
    assert found.controller == Controller(url="https://env:8444", token_file="t", ca_file="c")
    words = ["explain", "p", "--controller", "https://flag", "--token-file", "u", "--tls-server-name", "s"]
    flagged = parse(words, environ)
    assert isinstance(flagged, Explain)
    assert flagged.controller == Controller(url="https://flag", token_file="u", ca_file="c", server_name="s")


def test_without_a_controller_only_the_api_is_asked():
    found = parse(["explain", "p", "-o", "json"], {"CARDSHARE_TOKEN_FILE": "t"})
    assert isinstance(found, Explain)
    assert (found.controller, found.output) == (None, Output.JSON)


@pytest.mark.parametrize("url", ["http://h:8080", "h:8444", "https:", "https://h/path", "https://h:1 x"])
def test_a_token_is_shown_over_tls_alone(url, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["explain", "p", "--controller", url], {})
    assert ended.value.code == 2
    assert f"--controller (CARDSHARE_CONTROLLER): found '{url}'; write https://host:port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["explain", "p", "--token-file", "f"], "--token-file: of no use without --controller"),
        (["explain", ""], "POD: found ''; write NAME"),
        (["get", ""], "NODE: found ''; write the name of a node"),
        (["get", "pod/p"], "NODE: found 'pod/p'; write the name of a node"),
        (["simulate", "--drain", "node/"], "--drain: found 'node/'; write the name of a node"),
        # An installation's name, of which only doctor has a flag, is not the beginning of --namespace.
        (["get", "--name", "shares"], "kubectl cards get: unrecognized arguments: --name"),
        (
            ["explain", "p", "--controller", "foo"],
            "kubectl cards explain: --controller (CARDSHARE_CONTROLLER): found 'foo'",
        ),
        (["explain", "a/b/c"], "POD: found 'a/b/c'; write NAME, NAMESPACE/NAME, or KIND/NAME"),
        (["why", "a/b/c"], "POD: found 'a/b/c'; write NAME or NAMESPACE/NAME;"),
        (["explain", "/p"], "POD: found '/p'; write NAME, NAMESPACE/NAME, or KIND/NAME"),
        (["explain", "job/"], "POD: found 'job/'; write NAME, NAMESPACE/NAME, or KIND/NAME"),
        (["explain", "a/b", "-n", "c"], "POD: found 'a/b', which names a namespace; leave -n and -A out"),
        (["explain", "a/b", "-A"], "POD: found 'a/b', which names a namespace; leave -n and -A out"),
        (["plan"], "--for: missing; write what to make room for"),
        (["plan", "--for", "4 A100"], "--for: found '4 A100'; write for example '4 x whole A100'"),
        (["plan", "--for", "0 x whole"], "--for: found '0 x whole'; write for example '4 x whole A100'"),
        (["plan", "--for", "pod", "a/b/c"], "--for: found 'pod a/b/c'; write for example"),
        (["plan", "--for", "pod a/b", "--pods", "2"], "--pods: only for a shape"),
        (["plan", "--for", "whole", "--moves", "many"], "--moves: found 'many'; write a number from 0 to 1000"),
        (["plan", "--for", "whole", "--pods", "0"], "--pods: found '0'; write a number from 1 to 1000"),
        (["apply", "p", "--timeout", "0"], "--timeout: found '0'; write a number from 1 to 86400"),
        (["apply", "p", "--undo", "--dry-run"], "--undo: found beside --dry-run, which changes nothing"),
        (["apply", "p", "--timeout", "1d"], "--timeout: found '1d'; write a number from 1 to 86400"),
        (["fits"], "--memory: missing; give --memory"),
        (
            ["fits", "--memory", "40Gi"],
            "--memory: found '40Gi'; write a number of MiB from 1 to 67108864, such as 20480",
        ),
        (["fits", "--cores", "101"], "--cores: found '101'; write a number from 1 to 100"),
        (["fits", "--cards", "0"], "--cards: found '0'; write a number from 1 to 1024"),
        (["fits", "-f", "x", "--cards", "1"], "-f: found beside --memory"),
        (["waiting", "-A", "-n", "c"], "-A: found beside -n 'c'; leave one of them out"),
        (["explain", "p", "-o", "wide"], "--output: found 'wide'; write text, json or yaml"),
        (["why", "job/a"], "POD: found 'job/a'; write NAME or NAMESPACE/NAME;"),
        (["get", "-A", "-n", "c"], "-A: found beside -n 'c'; leave one of them out"),
        (["check"], "kubectl cards check: --filename: missing"),
        (["check", "-f", "x", "-n", ""], "--namespace: found ''; write a namespace"),
        (["doctor", "-n", ""], "--namespace: found ''; write a namespace"),
        (["doctor", "-n", "Bad NS"], "--namespace: found 'Bad NS'; write a namespace: at most 63 small letters"),
        (["web", "-n", "Bad NS"], "--namespace: found 'Bad NS'; write a namespace: at most 63 small letters"),
        (["get", "-n", "team_a"], "--namespace: found 'team_a'; write a namespace"),
        (["check", "-f", "x", "-n", "team/a"], "--namespace: found 'team/a'; write a namespace"),
        (["doctor", "--name", ""], "--name: found ''; write a prefix"),
        (["snapshot", "-o", "-"], "-o: found '-'; it is the file to write: name it, such as cluster.json.gz"),
        (["snapshot", "-o", "json"], "-o: found 'json'; it is the file to write: name it, such as cluster.json.gz"),
        (["apply"], "kubectl cards apply: one of the arguments FILE -f/--filename is required"),
        (["apply", "p", "-f", "p"], "argument -f/--filename: not allowed with argument FILE"),
        (
            ["apply", "p", "-k", "q"],
            "kubectl cards apply: unrecognized arguments: -k q; see kubectl cards apply --help",
        ),
        (["--bogus", "get"], "kubectl cards get: unrecognized arguments: --bogus; see kubectl cards get --help"),
    ],
)
def test_what_makes_no_sense_is_told_by_the_command_itself(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words, {})
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [[], ["explain"], ["drop", "p"], ["get", "-o", "table"], ["explain", "p", "-o", "wide"], ["waiting", "--by", "x"]],
)
def test_what_is_not_understood_ends_with_a_line_that_leads_to_help(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words, {})
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kubectl cards")
    assert line.endswith(" --help")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["team/p"], ("", "team", "p", False)),
        (["deploy/d", "-n", "team"], ("Deployment", "team", "d", False)),
        (["deployment.apps/d"], ("Deployment", "", "d", False)),
        (["statefulset/s"], ("StatefulSet", "", "s", False)),
        (["daemonset/s"], ("DaemonSet", "", "s", False)),
        (["replicaset/s"], ("ReplicaSet", "", "s", False)),
        (["Job/j", "-A"], ("Job", "", "j", True)),
        (["p", "--all-namespaces"], ("", "", "p", True)),
    ],
)
def test_what_is_explained_is_named_as_kubectl_names_it(words, expected):
    found = parse(["explain", *words], {})
    assert isinstance(found, Explain)
    kind, namespace, name = found.pod
    assert (kind, namespace or found.namespace, name, found.all_namespaces) == expected


def test_waiting_takes_kubectls_flags_and_by_what_pods_are_counted():
    assert parse(["waiting"], {}) == Waits(namespace="", all_namespaces=False, kubeconfig="", context="")
    assert parse(["waiting", "-A", "--by", "queue", "-o", "json", "--context", "c"], {}) == Waits(
        namespace="", all_namespaces=True, kubeconfig="", context="c", by=By.QUEUE, output=Output.JSON
    )


def test_fits_takes_what_a_pod_asks_or_a_manifest():
    found = parse(["fits", "--memory", "40000", "--cards", "4", "-n", "team"], {})
    assert isinstance(found, Fits)
    assert (found.wish, found.namespace) == (CardWish(4, 40_000), "team")
    found = parse(["fits", "--cores", "50", "--type", "A100"], {})
    assert isinstance(found, Fits)
    assert found.wish == CardWish(1, None, 50, "A100")
    found = parse(["fits", "-f", "pod.yaml"], {})
    assert isinstance(found, Fits)
    assert (found.wish, found.file) == (None, "pod.yaml")


def test_queues_takes_an_output_format():
    assert parse(["queues", "-o", "yaml"], {}) == Queues(kubeconfig="", context="", output=Output.YAML)


def test_check_takes_files_and_what_configures_it():
    environ = {"CARDSHARE_SETTINGS": "s", "CARDSHARE_DEVICE_CONFIG": "d"}
    words = ["check", "-f", "a", "b", "-f", "-", "-n", "team", "--settings", "t"]
    assert parse(words, environ) == Check(files=("a", "b", "-"), namespace="team", settings="t", device_config="d")
    assert parse(["check", "-f", "a"], {}) == Check(files=("a",))


def test_version_needs_nothing():
    assert parse(["version"], {}) == Version()


def test_the_context_may_stand_in_front_of_the_command_as_with_kubectl():
    found = parse(["--context", "c", "--kubeconfig", "f", "get", "--kubeconfig", "g"], {})
    assert isinstance(found, Get)
    assert (found.context, found.kubeconfig) == ("c", "g")


@pytest.mark.parametrize("word", ["p", "pod/p", "pods/p", "po/p"])
def test_a_pod_may_be_named_as_kubectl_prints_it(word):
    found = parse(["explain", word], {})
    assert isinstance(found, Explain)
    assert found.pod == ("", "", "p")


def test_get_takes_kubectls_flags():
    found = parse(["get", "-l", "pool=a100", "-o", "wide", "--no-headers", "-w"], {})
    assert found == Get(
        nodes=(), kubeconfig="", context="", selector="pool=a100", output=Output.WIDE, headers=False, watch=True
    )


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["get", "--help"], *([one, "-h"] for one in ("explain", "fits", "queues"))],
)
def test_help_and_version_are_answered(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words, {})
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("kubectl-cards ") if words == ["--version"] else "Examples:" in said


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["4 x whole A100"], PlanTarget("4 x whole A100", CardWish(4, None, None, "A100"))),
        (["2", "x", "20000", "MiB"], PlanTarget("2 x 20000 MiB", CardWish(2, 20000))),
        (["whole"], PlanTarget("whole", CardWish(1))),
        (["8000mib 30% cores T4,A10"], PlanTarget("8000mib 30% cores T4,A10", CardWish(1, 8000, 30, "T4,A10"))),
        (["pod", "team/train"], PlanTarget("pod team/train", None, "pod", "team", "train")),
        (["pod/train"], PlanTarget("pod/train", None, "pod", "", "train")),
        (["group team/ring"], PlanTarget("group team/ring", None, "group", "team", "ring")),
    ],
)
def test_what_a_plan_is_for_is_a_shape_a_pod_or_a_group(words, asked):
    assert parse(["plan", "--for", *words], {}) == Plan(asked=asked, kubeconfig="", context="")


def test_a_plan_is_a_file_unless_another_format_is_asked_and_has_limits():
    words = [
        "plan",
        "--for",
        "whole",
        "--pods",
        "3",
        "--moves",
        "4",
        "--per-namespace",
        "1",
        "--priority",
        "7",
        "--jobs",
    ]
    assert parse([*words, "-o", "text"], {}) == Plan(
        asked=PlanTarget("whole", CardWish(1)),
        pods=3,
        moves=4,
        per_namespace=1,
        priority=7,
        jobs=True,
        output=Output.TEXT,
        kubeconfig="",
        context="",
    )


@pytest.mark.parametrize("file", [["p.yaml"], ["-f", "p.yaml"], ["--filename=p.yaml"]], ids=" ".join)
def test_apply_takes_its_file_with_kubectls_flag_or_without(file):
    expected = Apply(file="p.yaml", yes=True, timeout_s=9, kubeconfig="", context="")
    assert parse(["apply", *file, "--yes", "--timeout", "9"], {}) == expected
    assert parse(["apply", "--yes", "--timeout", "9", *file], {}) == expected


@pytest.mark.parametrize("command", FLAGS)
def test_help_names_the_controllers_variables_of_commands_that_ask_it(command, capsys):
    with pytest.raises(SystemExit):
        parse([command, "--help"], {})
    asks = "controller_url" in FLAGS[command]
    assert ("[CARDSHARE_CONTROLLER]" in capsys.readouterr().out) == asks
