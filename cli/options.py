"""The options of ``kubectl cards``, read from the command line; the environment is an argument."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

from core.errors import escaped, quoted
from core.names import VERSION
from core.port.cards import CardWish
from runtime.check import DEVICES, SETTINGS, Check

_URL: Final = re.compile(r"https://[A-Za-z0-9.\[\]:-]{1,253}", re.ASCII)
# Prefixes of a name, as kubectl prints and accepts them: ``pod/NAME``, ``deployment/NAME``.
_PODS: Final = frozenset({"pod", "pods", "po"})
_WORKLOADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("deployment", "deployments", "deploy", "deployment.apps"), "Deployment"),
    **dict.fromkeys(("replicaset", "replicasets", "rs", "replicaset.apps"), "ReplicaSet"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts", "statefulset.apps"), "StatefulSet"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds", "daemonset.apps"), "DaemonSet"),
    **dict.fromkeys(("job", "jobs", "job.batch", "job.batch.volcano.sh", "vcjob", "vj"), "Job"),
}
_EXIT_STATUS: Final = (
    "Exit status:\n"
    "  0  answered\n"
    "  1  the pod or node does not exist, or the API server does not answer; check: something is denied\n"
    "  2  the command line, the kubeconfig or a file is wrong\n"
    "  3  doctor: something is at risk or unknown\n"
    "  4  doctor: something does not work\n"
    "  5  simulate: a pod that runs now would not run\n"
    "  6  plan: no moves help; apply: it stopped before the end"
)
_VARIABLES: Final = (
    "The controller's flags have environment variables: CARDSHARE_CONTROLLER, CARDSHARE_TOKEN_FILE, "
    "CARDSHARE_CONTROLLER_CA, CARDSHARE_TLS_SERVER_NAME."
)
# No cluster has a billion nodes.
_DIGITS_MAX: Final = 10
_NAMESPACE: Final = "cardshare-system"
_NAME: Final = "cardshare"
TOLD_VERSION: Final = f"kubectl-cards {VERSION}"
_EXAMPLES: Final = {
    "": "kubectl cards get\nkubectl cards explain pod/train -n team-a\nkubectl cards waiting -A\n"
    "kubectl cards check -f pod.yaml\nkubectl cards doctor",
    "get": "kubectl cards get\nkubectl cards get gpu-3 -o wide\nkubectl cards get -l pool=a100 --watch\n"
    "kubectl cards get -n team-a\nkubectl cards get -o json",
    "explain": "kubectl cards explain train\nkubectl cards explain team-a/train\n"
    "kubectl cards explain deployment/serve -n team-a\nkubectl cards explain job/train -A\n"
    "kubectl cards explain train --controller https://localhost:8444 --token-file token --controller-ca ca.crt",
    "check": "kubectl cards check -f pod.yaml\nkubectl cards check -f jobs.yaml other.yaml -n team-a\n"
    "helm template . | kubectl cards check -f -",
    "version": "kubectl cards version",
    "snapshot": "kubectl cards snapshot -o cluster.json.gz\nkubectl cards snapshot -o cluster.json.gz --redact\n"
    "kubectl cards waiting -A --snapshot cluster.json.gz",
    "web": "kubectl cards web\nkubectl cards web --port 8000 --no-browser",
    "why": "kubectl cards why train\n"
    "kubectl cards why team-a/train --controller https://localhost:8444 --token-file token --controller-ca ca.crt",
    "waiting": "kubectl cards waiting\nkubectl cards waiting -A --by reason\nkubectl cards waiting -A -o json",
    "fits": "kubectl cards fits --memory 40000 --cards 4\nkubectl cards fits --memory 8000 --type A100,H100 -n team-a\n"
    "kubectl cards fits -f pod.yaml -o json",
    "plan": "kubectl cards plan --for '4 x whole A100' > plan.yaml\n"
    "kubectl cards plan --for '2 x 20000 MiB' --pods 3 -o text\n"
    "kubectl cards plan --for pod team-a/train --moves 4\nkubectl cards plan --for group team-a/ring",
    "apply": "kubectl cards apply plan.yaml --dry-run\nkubectl cards apply plan.yaml\n"
    "kubectl cards apply plan.yaml --undo",
    "queues": "kubectl cards queues\nkubectl cards queues -o json",
    "simulate": "kubectl cards simulate -f job.yaml\nkubectl cards simulate --drain gpu-3\n"
    "kubectl cards simulate --add-nodes 2 --like gpu-3 --snapshot cluster.json.gz\n"
    "kubectl cards simulate -f pod.yaml --request volcano.sh/vgpu-memory=8000 --policy spread\n"
    "kubectl cards simulate --policy pack --controller https://localhost:8444 --token-file token "
    "--controller-ca ca.crt",
    "doctor": "kubectl cards doctor\nkubectl cards doctor -o json",
    "shadow": "kubectl cards shadow --controller https://localhost:8444 --token-file token --controller-ca ca.crt",
}


class Output(StrEnum):
    """The output format."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """How to reach the controller.

    ca_file: PEM, "" = the system's authorities. server_name: name in its certificate, "" = the host of the URL.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Show the cards of *nodes* (empty = all) and what each pod holds.

    selector: a label selector of nodes, as in kubectl. watch: print changes until interrupted.
    namespace: only cards that pods of this namespace hold; "" for all.
    controller: reports what force-deleted pods still hold; None = only data of the API.
    """

    nodes: tuple[str, ...]
    kubeconfig: str
    context: str
    output: Output = Output.TEXT
    selector: str = ""
    headers: bool = True
    watch: bool = False
    namespace: str = ""
    controller: Controller | None = None
    snapshot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Explain the state of a pod, or of each pod of a workload; controller None = only data of the API.

    kind: the kind of the workload *name*, "" for a pod. namespace: "" = the kubeconfig's.
    all_namespaces: every namespace that has an object of that name.
    """

    name: str
    namespace: str
    controller: Controller | None
    kubeconfig: str
    context: str
    output: Output = Output.TEXT
    kind: str = ""
    all_namespaces: bool = False
    snapshot: str = ""


class By(StrEnum):
    """The grouping of waiting pods."""

    POD = "pod"
    REASON = "reason"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """List the waiting pods. namespace: "" = the kubeconfig's."""

    namespace: str
    all_namespaces: bool
    kubeconfig: str
    context: str
    by: By = By.POD
    output: Output = Output.TEXT
    snapshot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Show what happened to the pods of one name; controller None = only data of the API.

    namespace: "" = the kubeconfig's.
    """

    name: str
    namespace: str
    controller: Controller | None
    kubeconfig: str
    context: str
    output: Output = Output.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Count the pods that fit now: pods that request *wish*, or the pods of the manifest *file* if *wish* is None.

    namespace: its quotas apply; "" = the kubeconfig's.
    """

    wish: CardWish | None
    namespace: str
    kubeconfig: str
    context: str
    file: str = ""
    output: Output = Output.TEXT
    snapshot: str = ""


class Asked(NamedTuple):
    """What is to get in: *pods* pods with *wish*, or the pod or group *name*; text: as given.

    kind: "pod" or "group", "" for a wish. namespace: "" = that of the kubeconfig.
    """

    text: str
    wish: CardWish | None = None
    pods: int = 1
    kind: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan moves that let in *asked*; moves, per_namespace: the most. jobs: pods of Jobs and the like may move too.

    priority: of the pods with a wish; pods of a higher one stay.
    """

    asked: Asked
    kubeconfig: str
    context: str
    moves: int = 10
    per_namespace: int = 2
    priority: int = 0
    jobs: bool = False
    output: Output = Output.YAML
    snapshot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Carry out the plan in *file*; timeout_s: of each wait. undo: only open its nodes again."""

    file: str
    kubeconfig: str
    context: str
    yes: bool = False
    dry_run: bool = False
    undo: bool = False
    timeout_s: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """List the queues."""

    kubeconfig: str
    context: str
    output: Output = Output.TEXT
    snapshot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulate:
    """Show what would happen if the cluster changed.

    namespace: of objects without one, "" = the kubeconfig's. controller: simulates it; None = this process does.
    The other fields are those of `core.wire.changes.Change`.
    """

    namespace: str
    kubeconfig: str
    context: str
    file: str = ""
    requests: tuple[tuple[str, str], ...] = ()
    add_nodes: int = 0
    like: str = ""
    drain: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    repartition: tuple[tuple[str, str], ...] = ()
    policy: str = ""
    output: Output = Output.TEXT
    snapshot: str = ""
    controller: Controller | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """Print the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Report problems and risks of the cluster.

    namespace: where cardshare is installed. name: object name prefix.
    """

    namespace: str
    name: str
    kubeconfig: str
    context: str
    output: Output = Output.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """Report how a controller in shadow mode would place the pods of another scheduler."""

    controller: Controller
    output: Output = Output.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Serve a page of cards and waiting pods on this machine.

    port: 0 = any free one. browser: open it. namespace: that of the user's own pods; "" = the kubeconfig's.
    """

    kubeconfig: str
    context: str
    port: int = 0
    browser: bool = True
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Write all scheduling input to *file*; with replaced names if *redact*."""

    file: str
    kubeconfig: str
    context: str
    redact: bool = False


# The commands that can also read a snapshot.
Stored = Get | Explain | Waits | Fits | Queues | Simulate | Plan
Options = Stored | Why | Apply | Snapshot | Web | Doctor | Shadow | Check | Version


class Flag(NamedTuple):
    """A flag; metavar is "" if it takes no value. choices: all allowed values, the first is the default.

    many: it may be given several times, or with several values between commas.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    many: bool = False


# How to reach the API server; allowed before or after the command's name.
COMMON: Final = (
    Flag(("--kubeconfig",), "FILE", "kubeconfig file; default as kubectl: KUBECONFIG, ~/.kube/config"),
    Flag(("--context",), "NAME", "context in the kubeconfig; default the current one"),
)
_SNAPSHOT: Final = Flag(("--snapshot",), "FILE", "read this file of kubectl cards snapshot instead of the cluster")
# How to reach the controller and verify its certificate.
_ASKING: Final = (
    Flag(
        ("--controller",),
        "URL",
        "https://host:port of the controller's --preview-listen, which knows more than the API server",
    ),
    Flag(("--token-file",), "FILE", "token for the controller: kubectl create token --audience cardshare-controller"),
    Flag(("--controller-ca",), "FILE", "CA certificates (PEM) of the controller; default the system's"),
    Flag(("--tls-server-name",), "NAME", "server name in the controller's certificate; default the URL's host"),
)
_ALL: Final = Flag(("-A", "--all-namespaces"), "", "in all namespaces")
FLAGS: Final[Mapping[str, tuple[Flag, ...]]] = {
    "get": (
        Flag(("-o", "--output"), "FORMAT", "output format; wide adds protocol, mode and health"),
        Flag(("-n", "--namespace"), "NAMESPACE", "only cards that pods in this namespace hold; default all"),
        _ALL,
        Flag(("-l", "--selector"), "SELECTOR", "only nodes with these labels, such as pool=a100"),
        Flag(("-w", "--watch"), "", "watch for changes and print changed nodes"),
        Flag(("--no-headers",), "", "omit headings and totals"),
        _SNAPSHOT,
        *_ASKING,
    ),
    "explain": (
        Flag(("-o", "--output"), "FORMAT", "output format"),
        Flag(("-n", "--namespace"), "NAMESPACE", "namespace; default the kubeconfig's"),
        _ALL,
        _SNAPSHOT,
        *_ASKING,
    ),
    "why": (
        Flag(("-o", "--output"), "FORMAT", "output format"),
        Flag(("-n", "--namespace"), "NAMESPACE", "namespace; default the kubeconfig's"),
        *_ASKING,
    ),
    "waiting": (
        Flag(("-o", "--output"), "FORMAT", "output format"),
        Flag(("-n", "--namespace"), "NAMESPACE", "pods of this namespace; default that of the kubeconfig"),
        _ALL,
        Flag(("--by",), "BY", "list pods, or count them by reason or by queue", tuple(By)),
        _SNAPSHOT,
    ),
    "fits": (
        Flag(("-o", "--output"), "FORMAT", "output format"),
        Flag(("-n", "--namespace"), "NAMESPACE", "apply the quotas of this namespace; default that of the kubeconfig"),
        Flag(("--memory",), "MIB", "memory on each card, in MiB; default the whole card"),
        Flag(("--cards",), "NUMBER", "cards per pod; default 1"),
        Flag(("--cores",), "PERCENT", "percentage of the cores of each card"),
        Flag(("--type",), "TYPES", "card types, such as A100,H100"),
        Flag(("-f", "--filename"), "FILE", "pod or workload to count instead, YAML or JSON, - for stdin"),
        _SNAPSHOT,
    ),
    "plan": (
        Flag(("-o", "--output"), "FORMAT", "output format; default yaml, for a file to review and apply"),
        Flag(("--for",), "WHAT", "'4 x whole A100', '2 x 20000 MiB', pod NAMESPACE/NAME or group NAMESPACE/NAME"),
        Flag(("--pods",), "NUMBER", "how many pods of the shape to make room for; default 1"),
        Flag(("--moves",), "NUMBER", "most pods to move; default 10"),
        Flag(("--per-namespace",), "NUMBER", "most pods to move in one namespace; default 2"),
        Flag(("--priority",), "NUMBER", "priority of the pods of the shape; pods of a higher one stay; default 0"),
        Flag(("--jobs",), "", "also move pods of Jobs and of other controllers that may count a failure for each"),
        _SNAPSHOT,
    ),
    "apply": (
        Flag(("--yes",), "", "do not ask before the first eviction"),
        Flag(("--dry-run",), "", "ask the API server whether it would evict the pods, and change nothing"),
        Flag(("--undo",), "", "only reopen the nodes that an interrupted run of this plan left closed"),
        Flag(("--timeout",), "SECONDS", "wait no longer than this for a budget or a replacement; default 300"),
    ),
    "queues": (Flag(("-o", "--output"), "FORMAT", "output format"), _SNAPSHOT),
    "simulate": (
        Flag(("-o", "--output"), "FORMAT", "output format"),
        Flag(("-f", "--filename"), "FILE", "manifests to add: pods, workloads, nodes, quotas; - for stdin"),
        Flag(("-n", "--namespace"), "NAMESPACE", "namespace of objects without one; default the kubeconfig's"),
        Flag(
            ("--request",),
            "KEY=VALUE",
            "change a request of the containers with cards in FILE, KEY= removes it; repeatable",
            many=True,
        ),
        Flag(("--add-nodes",), "NUMBER", "number of nodes to add; needs --like"),
        Flag(("--like",), "NODE", "added nodes are healthy, empty copies of this one"),
        Flag(("--drain",), "NODE", "cordon nodes and evict their pods; repeatable", many=True),
        Flag(("--remove",), "NODE", "remove nodes with their pods; repeatable", many=True),
        Flag(
            ("--repartition",),
            "NODE=HOW",
            "drain a node of Volcano's plugin and give its cards a mode, or a number of shares; repeatable",
            many=True,
        ),
        Flag(("--policy",), "POLICY", "place pods by this policy: binpack, spread or pack; alone, also those that run"),
        _SNAPSHOT,
        *_ASKING,
    ),
    "snapshot": (
        Flag(("-o", "--output-file"), "FILE", "write to this file"),
        Flag(("--redact",), "", "replace the names of nodes, pods, namespaces, queues and cards, and label values"),
    ),
    "doctor": (
        Flag(("-o", "--output"), "FORMAT", "output format"),
        Flag(("-n", "--namespace"), "NAMESPACE", f"namespace of cardshare; default {_NAMESPACE}"),
        Flag(("--name",), "NAME", f"object name prefix; default {_NAME}"),
    ),
    "shadow": (Flag(("-o", "--output"), "FORMAT", "output format"), *_ASKING),
    "check": (
        Flag(("-f", "--file"), "FILE", "YAML or JSON files, - for stdin; repeatable"),
        Flag(("-n", "--namespace"), "NAMESPACE", "namespace of objects without one; default 'default'"),
        *(Flag((flag,), "FILE", f"{told} [{variable}]") for flag, variable, told in (SETTINGS, DEVICES)),
    ),
    "web": (
        Flag(("--port",), "PORT", "port on 127.0.0.1; default any free one"),
        Flag(("--no-browser",), "", "only print the address"),
        Flag(("-n", "--namespace"), "NAMESPACE", "namespace of My pods and of the form; default the kubeconfig's"),
    ),
    "version": (),
}
OUTPUTS: Final[Mapping[str, tuple[Output, ...]]] = {
    "get": tuple(Output),
    "explain": (Output.TEXT, Output.JSON, Output.YAML),
    "why": (Output.TEXT, Output.JSON, Output.YAML),
    "waiting": (Output.TEXT, Output.JSON, Output.YAML),
    "fits": (Output.TEXT, Output.JSON, Output.YAML),
    "queues": (Output.TEXT, Output.JSON, Output.YAML),
    "simulate": (Output.TEXT, Output.JSON, Output.YAML),
    "plan": (Output.YAML, Output.TEXT, Output.JSON),
    "apply": (),
    "doctor": (Output.TEXT, Output.JSON, Output.YAML),
    "shadow": (Output.TEXT, Output.JSON, Output.YAML),
    "check": (),
    "web": (),
    "snapshot": (),
    "version": (),
}


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read the command line.

    Raises:
        SystemExit: ``--help``, ``--version``, or invalid arguments.
    """
    found = _parser().parse_args(argv)
    command: argparse.ArgumentParser = found.parser
    reach = {"kubeconfig": found.kubeconfig, "context": found.context}
    if found.command == "version":
        return Version()
    if found.command == "check":
        return _check(command, found, environ)
    if getattr(found, "all_namespaces", False) and found.namespace:
        command.error(f"-A: found beside -n {quoted(found.namespace, 256)}; leave one of them out")
    if found.command == "snapshot":
        if not found.output_file:
            command.error("-o: missing; name the file to write, such as cluster.json.gz")
        return Snapshot(file=found.output_file, redact=found.redact, **reach)
    stored = {"snapshot": getattr(found, "snapshot", "")}
    if found.command == "get":
        if found.watch and found.snapshot:
            command.error("--watch: a snapshot does not change; leave out --watch or --snapshot")
        if "" in found.nodes:
            command.error("NODE: found ''; write the name of a node, or none for all nodes")
        return Get(
            nodes=tuple(found.nodes),
            output=Output(found.output),
            selector=found.selector,
            headers=not found.no_headers,
            watch=found.watch,
            namespace=found.namespace,
            controller=_controller(command, found, environ),
            **stored,
            **reach,
        )
    if found.command == "waiting":
        return Waits(
            namespace=found.namespace,
            all_namespaces=found.all_namespaces,
            by=By(found.by),
            output=Output(found.output),
            **stored,
            **reach,
        )
    if found.command == "web":
        return Web(port=_port(command, found.port), browser=not found.no_browser, namespace=found.namespace, **reach)
    if found.command == "fits":
        return Fits(
            wish=_wish(command, found),
            file=found.filename,
            namespace=found.namespace,
            output=Output(found.output),
            **stored,
            **reach,
        )
    if found.command == "plan":
        return _plan(command, found, reach)
    if found.command == "apply":
        if found.undo and found.dry_run:
            command.error("--undo: found beside --dry-run, which changes nothing; leave one of them out")
        return Apply(
            file=found.file,
            yes=found.yes,
            dry_run=found.dry_run,
            undo=found.undo,
            timeout_s=_number(command, found, "timeout", 300, 86_400, least=1),
            **reach,
        )
    if found.command == "simulate":
        return _simulate(command, found, reach, environ)
    if found.command == "queues":
        return Queues(output=Output(found.output), **stored, **reach)
    if found.command == "doctor":
        return Doctor(
            namespace=found.namespace or _NAMESPACE, name=found.name or _NAME, output=Output(found.output), **reach
        )
    if found.command == "shadow":
        controller = _controller(command, found, environ)
        if controller is None:
            command.error("--controller: missing; name the https://host:port of the controller that runs with --shadow")
        return Shadow(controller=controller, output=Output(found.output))
    kind, namespace, name = _asked(command, found.pod, kinds=found.command != "why")
    is_anywhere = getattr(found, "all_namespaces", False)
    if namespace and (is_anywhere or found.namespace not in ("", namespace)):
        flags = "-n" if found.command == "why" else "-n and -A"
        command.error(f"POD: found {quoted(found.pod, 256)}, which names a namespace; leave {flags} out")
    if found.command == "why":
        if kind:
            command.error(f"POD: found {quoted(found.pod, 256)}; write the name of a pod, NAME or NAMESPACE/NAME")
        return Why(
            name=name,
            namespace=namespace or found.namespace,
            controller=_controller(command, found, environ),
            output=Output(found.output),
            **reach,
        )
    return Explain(
        name=name,
        kind=kind,
        namespace=namespace or found.namespace,
        all_namespaces=is_anywhere,
        controller=_controller(command, found, environ),
        output=Output(found.output),
        **stored,
        **reach,
    )


def _simulate(
    command: argparse.ArgumentParser, found: argparse.Namespace, reach: Mapping[str, str], environ: Mapping[str, str]
) -> Simulate:
    if found.snapshot and found.controller:
        command.error("--controller: found beside --snapshot, which no controller reads; leave one of them out")
    number = found.add_nodes or "0"
    if not (number.isascii() and number.isdigit() and len(number) < _DIGITS_MAX):
        command.error(f"--add-nodes: found {quoted(number, 64)}; write a number of nodes")
    if bool(int(number)) != bool(found.like):
        command.error("--add-nodes: give it together with --like, the node to copy")
    simulate = Simulate(
        namespace=found.namespace,
        file=found.filename,
        requests=_pairs(command, "--request", found.request),
        add_nodes=int(number),
        like=found.like,
        drain=_each(found.drain),
        remove=_each(found.remove),
        repartition=_pairs(command, "--repartition", found.repartition),
        policy=found.policy,
        output=Output(found.output),
        snapshot=found.snapshot,
        controller=None if found.snapshot else _controller(command, found, environ),
        **reach,
    )
    changes = (simulate.file, simulate.add_nodes, simulate.drain, simulate.remove, simulate.repartition)
    if not (any(changes) or simulate.policy):
        command.error("-f: missing; give -f, --add-nodes, --drain, --remove, --repartition or --policy")
    if simulate.requests and not simulate.file:
        command.error("--request: it changes the pods of a file; give -f too")
    return simulate


_SHAPE: Final = re.compile(
    r"(?:(?P<cards>\d{1,4})\s*x\s*)?(?:whole|(?P<memory>\d{1,8})\s*MiB)"
    r"(?:\s+(?P<cores>\d{1,3})\s*%(?:\s+cores)?)?(?:\s+(?P<types>[^\s%]+))?",
    re.ASCII | re.IGNORECASE,
)
_NAMED: Final = re.compile(r"(?P<kind>pod|group)[\s/]+(?:(?P<namespace>[^\s/]+)/)?(?P<name>[^\s/]+)", re.ASCII)


def _plan(command: argparse.ArgumentParser, found: argparse.Namespace, reach: Mapping[str, str]) -> Plan:
    text = " ".join(getattr(found, "for")).strip()
    if not text:
        command.error("--for: missing; write what to make room for, such as '4 x whole A100' or pod NAMESPACE/NAME")
    pods = _number(command, found, "pods", 1, 1000, least=1)
    named, shape = _NAMED.fullmatch(text), _SHAPE.fullmatch(text)
    if named is not None:
        if found.pods or found.priority:
            command.error("--pods: only for a shape such as '4 x whole A100', as --priority is; leave both out")
        asked = Asked(text, None, 1, named["kind"], named["namespace"] or "", named["name"])
    elif shape is not None:
        cards, memory = int(shape["cards"] or 1), shape["memory"]
        cores = int(shape["cores"]) if shape["cores"] else None
        if not cards or memory == "0" or cores == 0 or (cores or 0) > 100:
            command.error(f"--for: found {quoted(text, 256)}; cards and MiB begin at 1, and percent end at 100")
        wish = CardWish(cards, int(memory) if memory else None, cores, shape["types"] or "")
        asked = Asked(text, wish, pods)
    else:
        examples = "'4 x whole A100', '2 x 20000 MiB 30 % T4', pod NAMESPACE/NAME or group NAMESPACE/NAME"
        command.error(f"--for: found {quoted(text, 256)}; write for example {examples}")
    return Plan(
        asked=asked,
        moves=_number(command, found, "moves", 10, 1000),
        per_namespace=_number(command, found, "per_namespace", 2, 1000),
        priority=_number(command, found, "priority", 0, 2_000_000_000),
        jobs=found.jobs,
        output=Output(found.output),
        snapshot=found.snapshot,
        **reach,
    )


def _number(
    command: argparse.ArgumentParser, found: argparse.Namespace, name: str, default: int, most: int, *, least: int = 0
) -> int:
    text = getattr(found, name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and least <= int(text) <= most):
        command.error(f"--{name.replace('_', '-')}: found {quoted(text, 64)}; write a number from {least} to {most}")
    return int(text)


def _each(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for text in given for one in text.split(",") if one))


def _pairs(command: argparse.ArgumentParser, flag: str, given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for text in _each(given):
        key, equals, value = text.partition("=")
        if not (key and equals):
            command.error(f"{flag}: found {quoted(text, 256)}; write it with an equals sign, as --help shows")
        found.append((key, value))
    return tuple(found)


def _wish(command: argparse.ArgumentParser, found: argparse.Namespace) -> CardWish | None:
    """Return the request in the flags of ``fits``; None if a manifest is given."""

    def number(flag: str, most: int) -> int | None:
        text = getattr(found, flag)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) <= most):
            command.error(f"--{flag}: found {quoted(text, 64)}; write a number from 1 to {most}")
        return int(text)

    memory_mib, cards, cores_pct = number("memory", 2**26), number("cards", 1024), number("cores", 100)
    is_asked = bool(found.type) or any(one is not None for one in (memory_mib, cards, cores_pct))
    if found.filename and is_asked:
        command.error("-f: found beside --memory, --cards, --cores or --type; leave these out")
    if not found.filename and not is_asked:
        command.error("--memory: missing; give --memory, --cards, --cores or --type, or a manifest with -f")
    return None if found.filename else CardWish(cards or 1, memory_mib, cores_pct, found.type)


def _asked(command: argparse.ArgumentParser, word: str, *, kinds: bool) -> tuple[str, str, str]:
    """Return (workload kind or "", namespace or "", name) from ``NAME``, ``KIND/NAME`` or ``NAMESPACE/POD``."""
    before, slash, name = word.rpartition("/")
    if not name or "/" in before or (slash and not before):
        forms = "NAME, NAMESPACE/NAME, or KIND/NAME such as job/train" if kinds else "NAME or NAMESPACE/NAME"
        command.error(f"POD: found {quoted(word, 256)}; write {forms}")
    kind = before.lower()
    if kind in _WORKLOADS:
        return _WORKLOADS[kind], "", name
    return "", "" if kind in _PODS else before, name


def _check(command: argparse.ArgumentParser, found: argparse.Namespace, environ: Mapping[str, str]) -> Check:
    if not found.file:
        command.error("--file: missing; name the files to judge, - is stdin")
    return Check(
        files=tuple(found.file),
        namespace=found.namespace or "default",
        settings=found.settings or environ.get(SETTINGS[1], ""),
        device_config=found.device_config or environ.get(DEVICES[1], ""),
    )


def _port(command: argparse.ArgumentParser, text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and int(text) < 65536):
        command.error(f"--port: found {quoted(text, 256)}; write a number from 0 to 65535")
    return int(text or 0)


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {escaped(message)}; see {self.prog} --help\n")


def _controller(
    command: argparse.ArgumentParser, found: argparse.Namespace, environ: Mapping[str, str]
) -> Controller | None:
    def text(flag: str) -> str:
        return str(getattr(found, flag) or environ.get(f"CARDSHARE_{flag.upper()}", ""))

    url = text("controller").rstrip("/")
    # Only https, because plain HTTP would expose the token.
    if url and not _URL.fullmatch(url):
        command.error(f"--controller: found {quoted(url, 256)}; write https://host:port")
    if url:
        return Controller(
            url=url,
            token_file=text("token_file"),
            ca_file=text("controller_ca"),
            server_name=text("tls_server_name"),
        )
    for flag in ("token_file", "controller_ca", "tls_server_name"):
        if getattr(found, flag):
            command.error(f"--{flag.replace('_', '-')}: of no use without --controller; give it too")
    return None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kubectl cards",
        description="Shows the GPUs and NPUs of the cluster, who holds them, why pods wait, and what changes would do.",
        epilog=f"Examples:\n{_EXAMPLES['']}\n\n{_EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=TOLD_VERSION)
    _add(parser, COMMON, default="")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    get = _command(commands, "get", "list cards, their usage and the pods that hold them")
    get.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes")
    explain = _command(commands, "explain", "show where a pod was placed, or why it waits")
    explain.add_argument(
        "pod",
        metavar="POD",
        help="NAME, NAMESPACE/NAME, or pod/, deployment/, replicaset/, statefulset/, daemonset/, job/NAME",
    )
    why = _command(commands, "why", "show what happened to a pod: what it waited for, and where it went")
    why.add_argument("pod", metavar="POD", help="NAME or NAMESPACE/NAME, also of a pod that is gone")
    _command(commands, "waiting", "list the pods that wait, why, what helps, and their places in line")
    _command(commands, "queues", "list the queues, what their pods hold, their limits, and who waits")
    _command(commands, "fits", "count how many pods fit now, on which cards, and show what stops the next")
    _command(commands, "plan", "find the fewest pods to move so that others fit, and write a plan to review")
    apply = _command(commands, "apply", "carry out a plan: evict one pod after another, and stop if one finds no place")
    apply.add_argument("file", metavar="FILE", help="the output of kubectl cards plan")
    _command(commands, "simulate", "show what would happen if pods or nodes were added, or nodes drained")
    _command(commands, "check", "check manifests against the admission rules, without a cluster")
    _command(commands, "doctor", "find what does not work in the cluster, or is at risk")
    _command(commands, "shadow", "show what a controller with --shadow would do with another scheduler's pods")
    _command(commands, "snapshot", "save everything that decides placements in a file, for later or for a bug report")
    _command(commands, "web", "show the cards and the pods that wait in a browser, live")
    _command(commands, "version", "print the version")
    return parser


def _command(commands: Any, name: str, told: str) -> argparse.ArgumentParser:
    more = f"\n\n{_VARIABLES}" if set(_ASKING) <= set(FLAGS[name]) else ""
    epilog = f"Examples:\n{_EXAMPLES[name]}{more}"
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=told, description=told, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.set_defaults(parser=command)
    # A value before the command's name stays unless it is given again.
    _add(command, COMMON, default=argparse.SUPPRESS)
    _add(command, FLAGS[name], default="", outputs=OUTPUTS[name])
    return command


def _add(
    parser: argparse.ArgumentParser, flags: Sequence[Flag], *, default: str, outputs: Sequence[Output] = ()
) -> None:
    for flag in flags:
        if not flag.metavar:
            parser.add_argument(*flag.names, action="store_true", help=flag.help)
        elif flag.many:
            parser.add_argument(*flag.names, action="append", default=[], metavar=flag.metavar, help=flag.help)
        elif flag.choices:
            words = [str(one) for one in flag.choices]
            parser.add_argument(*flag.names, choices=words, default=words[0], help=flag.help)
        elif "--for" in flag.names:
            parser.add_argument(*flag.names, nargs="+", default=[], metavar=flag.metavar, help=flag.help)
        elif "--file" in flag.names:
            parser.add_argument(*flag.names, action="extend", nargs="+", metavar=flag.metavar, help=flag.help)
        elif "--output" in flag.names:
            parser.add_argument(
                *flag.names, choices=[str(one) for one in outputs], default=str(outputs[0]), help=flag.help
            )
        else:
            parser.add_argument(*flag.names, default=default, metavar=flag.metavar, help=flag.help)
