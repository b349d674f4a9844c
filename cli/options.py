"""The options of ``kubectl cards``, read from the command line; the environment is an argument."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn

from core.configuration import OWN_MAP
from core.errors import escaped, quoted
from core.names import VERSION
from core.port.cards import CardWish
from core.wire.changes import NODES_MAX
from runtime import flags
from runtime.check import Check
from runtime.flags import FILE, OFF, SWITCH, URL, FlagKind, flag, one_of, several, whole

# Prefixes of a name, as kubectl prints and accepts them: ``pod/NAME``, ``node/NAME``, ``deployment/NAME``.
_PODS: Final = frozenset({"pod", "pods", "po"})
_NODES: Final = frozenset({"node", "nodes", "no"})
_WORKLOADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("deployment", "deployments", "deploy", "deployment.apps"), "Deployment"),
    **dict.fromkeys(("replicaset", "replicasets", "rs", "replicaset.apps"), "ReplicaSet"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts", "statefulset.apps"), "StatefulSet"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds", "daemonset.apps"), "DaemonSet"),
    **dict.fromkeys(("job", "jobs", "job.batch", "job.batch.volcano.sh", "vcjob", "vj"), "Job"),
}
_SHAPE: Final = re.compile(
    r"(?:(?P<cards>[1-9]\d{0,3})\s*x\s*)?(?:whole|(?P<memory>[1-9]\d{0,7})\s*MiB)"
    r"(?:\s+(?P<cores>[1-9]\d?|100)\s*%(?:\s+cores)?)?(?:\s+(?P<types>[^\s%]+))?",
    re.ASCII | re.IGNORECASE,
)
_NAMED: Final = re.compile(r"(?P<kind>pod|group)[\s/]+(?:(?P<namespace>[^\s/]+)/)?(?P<name>[^\s/]+)", re.ASCII)
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
# By a port-forward. The certificate of the installed Service has its name, and that of deploy/shadow.yaml localhost.
SERVER_NAME: Final = "--tls-server-name cardshare-controller.cardshare-system.svc"
_SHADOW: Final = "--controller https://localhost:8444 --token-file token --controller-ca ca.crt"
_CONTROLLER: Final = f"{_SHADOW} {SERVER_NAME}"
TOLD_VERSION: Final = f"kubectl-cards {VERSION}"


class Output(StrEnum):
    """The output format."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class By(StrEnum):
    """The grouping of waiting pods."""

    POD = "pod"
    REASON = "reason"
    QUEUE = "queue"


class Named(NamedTuple):
    """A pod, or a workload of *kind* ("" for a pod); namespace: "" if the name has none."""

    kind: str
    namespace: str
    name: str


class PlanTarget(NamedTuple):
    """What is to get in: pods with *wish*, or the pod or group *name*; text: as given.

    kind: "pod" or "group", "" for a wish. namespace: "" = that of the kubeconfig.
    """

    text: str
    wish: CardWish | None = None
    kind: str = ""
    namespace: str = ""
    name: str = ""


class Controller(NamedTuple):
    """How to reach the controller.

    ca_file: PEM, "" = the system's authorities. server_name: name in its certificate, "" = the host of the URL.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""
    server_name: str = ""


def _named(word: str) -> Named | None:
    """Read ``NAME``, ``KIND/NAME`` or ``NAMESPACE/POD``."""
    before, slash, name = word.rpartition("/")
    if not name or "/" in before or (slash and not before):
        return None
    if kind := _WORKLOADS.get(before.lower()):
        return Named(kind, "", name)
    return Named("", "" if before.lower() in _PODS else before, name)


def _node(word: str) -> str | None:
    """Read ``NAME`` or ``node/NAME``; no name of a node has a slash."""
    kind, slash, name = word.partition("/")
    if not slash:
        return word or None
    return name if name and "/" not in name and kind.lower() in _NODES else None


def _asked(text: str) -> PlanTarget | None:
    if named := _NAMED.fullmatch(text):
        return PlanTarget(text, None, named["kind"], named["namespace"] or "", named["name"])
    if (shape := _SHAPE.fullmatch(text)) is None:
        return None
    memory, cores = (int(amount) if amount else None for amount in shape.group("memory", "cores"))
    return PlanTarget(text, CardWish(int(shape["cards"] or 1), memory, cores, shape["types"] or ""))


def _pair(text: str) -> tuple[str, str] | None:
    key, equals, value = text.partition("=")
    return (key, value) if key and equals else None


_OUTPUT: Final = one_of((Output.TEXT, Output.JSON, Output.YAML))
_PLAIN: Final = FlagKind(str, "", "", "NAME")
_NODE: Final = FlagKind(_node, "write the name of a node", "", "NODE")
_MIB: Final = whole(1, 2**26, "MIB")._replace(remedy=f"write a number of MiB from 1 to {2**26}, such as 20480")
_NAMESPACE: Final = flags.ONE_NAMESPACE
_CONFIG_MAP: Final = flags.judged(flags.OBJECT.read, flags.OBJECT.remedy, flags.OBJECT.metavar)
_POD: Final = FlagKind(
    lambda word: None if (found := _named(word)) and found.kind else found,
    "write NAME or NAMESPACE/NAME",
    Named("", "", ""),
)
_POD_OR_WORKLOAD: Final = FlagKind(
    _named, "write NAME, NAMESPACE/NAME, or KIND/NAME such as job/train", Named("", "", "")
)
_ASKED: Final = FlagKind(
    _asked,
    "write for example '4 x whole A100', '2 x 20000 MiB 30 % T4', pod NAMESPACE/NAME or group NAMESPACE/NAME; cards "
    "and MiB begin at 1, and percent end at 100",
    PlanTarget(""),
    "WHAT",
)
_PAIR: Final = FlagKind(_pair, "write it with an equals sign, as --help shows", ("", ""))


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """How to reach the API server; allowed before or after the command's name."""

    kubeconfig: str = flag(FILE, "kubeconfig file; default as kubectl: KUBECONFIG, ~/.kube/config")
    context: str = flag(_PLAIN, "context in the kubeconfig; default the current one")


@dataclass(frozen=True, kw_only=True)
class _Printed:
    output: Output = flag(_OUTPUT, "output format", name="-o --output")


@dataclass(frozen=True, kw_only=True)
class _Configured(ClusterFlags):
    settings_map: str = flag(
        _CONFIG_MAP,
        "ConfigMap with cardshare's settings, if its name or namespace is another",
        OWN_MAP,
        variable="CARDSHARE_SETTINGS_MAP",
    )

    @property
    def history_map(self) -> str:
        """The ConfigMap in which the controller stores its history: beside the settings, as deploy/ names both."""
        return f"{self.settings_map.removesuffix('-settings')}-history"


@dataclass(frozen=True, kw_only=True)
class _Stored(_Configured):
    snapshot: str = flag(FILE, "read this file of kubectl cards snapshot instead of the cluster")


@dataclass(frozen=True, kw_only=True)
class _Asking(ClusterFlags):
    """How to reach the controller and verify its certificate."""

    controller_url: str = flag(
        URL,
        "https://host:port of the controller's --preview-listen, which knows more than the API server",
        name="--controller",
        variable="CARDSHARE_CONTROLLER",
    )
    token_file: str = flag(
        FILE,
        "token for the controller: kubectl create token --audience cardshare-controller",
        variable="CARDSHARE_TOKEN_FILE",
    )
    controller_ca: str = flag(
        FILE, "its CA certificates (PEM); default the system's", variable="CARDSHARE_CONTROLLER_CA"
    )
    tls_server_name: str = flag(
        _PLAIN, "name in its certificate; default the URL's host", variable="CARDSHARE_TLS_SERVER_NAME"
    )

    @property
    def controller(self) -> Controller | None:
        """The controller to ask; None = only data of the API."""
        if not self.controller_url:
            return None
        return Controller(self.controller_url, self.token_file, self.controller_ca, self.tls_server_name)


@dataclass(frozen=True, kw_only=True)
class Get(_Stored, _Asking):
    """List cards, their usage and the pods that hold them.

    The controller reports what force-deleted pods still hold.
    """

    nodes: tuple[str, ...] = several(_NODE, "only these nodes", name="NODE")
    output: Output = flag(one_of(Output), "output format; wide adds protocol, mode and health", name="-o --output")
    namespace: str = flag(_NAMESPACE, "only cards that pods in this namespace hold; default all", name="-n --namespace")
    all_namespaces: bool = flag(SWITCH, "in all namespaces", name="-A --all-namespaces")
    selector: str = flag(
        _PLAIN, "only nodes with these labels, such as pool=a100", name="-l --selector", metavar="SELECTOR"
    )
    watch: bool = flag(SWITCH, "watch for changes and print changed nodes", name="-w --watch")
    headers: bool = flag(OFF, "omit headings and totals", name="--no-headers")


@dataclass(frozen=True, kw_only=True)
class Explain(_Printed, _Stored, _Asking):
    """Show where a pod was placed, or why it waits."""

    pod: Named = flag(
        _POD_OR_WORKLOAD,
        "NAME, NAMESPACE/NAME, or pod/, deployment/, replicaset/, statefulset/, daemonset/, job/NAME",
        name="POD",
    )
    namespace: str = flag(_NAMESPACE, "namespace; default the kubeconfig's", name="-n --namespace")
    all_namespaces: bool = flag(SWITCH, "in all namespaces", name="-A --all-namespaces")


@dataclass(frozen=True, kw_only=True)
class Why(_Printed, _Configured, _Asking):
    """Show what happened to a pod: what it waited for, and where it went."""

    pod: Named = flag(_POD, "NAME or NAMESPACE/NAME, also of a pod that is gone", name="POD")
    namespace: str = flag(_NAMESPACE, "namespace; default the kubeconfig's", name="-n --namespace")


@dataclass(frozen=True, kw_only=True)
class Waits(_Printed, _Stored):
    """List the pods that wait, why, what helps, and their places in line."""

    namespace: str = flag(_NAMESPACE, "pods of this namespace; default that of the kubeconfig", name="-n --namespace")
    all_namespaces: bool = flag(SWITCH, "in all namespaces", name="-A --all-namespaces")
    by: By = flag(one_of(By), "list pods, or count them by reason or by queue")


@dataclass(frozen=True, kw_only=True)
class Fits(_Printed, _Stored):
    """Count how many pods fit now, on which cards, and show what stops the next."""

    namespace: str = flag(_NAMESPACE, "apply its quotas; default the kubeconfig's", name="-n --namespace")
    memory: int = flag(_MIB, "memory on each card, in MiB; default the whole card")
    cards: int = flag(whole(1, 1024), "cards per pod; default 1")
    cores: int = flag(whole(1, 100, "PERCENT"), "percentage of the cores of each card")
    type: str = flag(_PLAIN, "card types, such as A100,H100", metavar="TYPES")
    file: str = flag(FILE, "pod or workload to count instead, YAML or JSON, - for stdin", name="-f --filename")

    @property
    def wish(self) -> CardWish | None:
        """The requested cards."""
        if not (self.memory or self.cards or self.cores or self.type):
            return None
        return CardWish(self.cards or 1, self.memory or None, self.cores or None, self.type)


@dataclass(frozen=True, kw_only=True)
class Plan(_Stored):
    """Find the fewest pods to move so that others fit, and write a plan to review."""

    output: Output = flag(
        one_of((Output.YAML, Output.TEXT, Output.JSON)),
        "output format; yaml is a file to review and apply",
        name="-o --output",
    )
    asked: PlanTarget = flag(
        _ASKED,
        "'4 x whole A100', '2 x 20000 MiB', pod NAMESPACE/NAME or group NAMESPACE/NAME",
        name="--for",
        missing="write what to make room for, such as '4 x whole A100' or pod NAMESPACE/NAME",
        joins=True,
    )
    pods: int = flag(whole(1, 1000), "how many pods of the shape to make room for", "1")
    moves: int = flag(whole(0, 1000), "most pods to move", "10")
    per_namespace: int = flag(whole(0, 1000), "most pods to move in one namespace", "2")
    priority: int = flag(whole(0, 2_000_000_000), "priority of the pods of the shape; pods of a higher one stay", "0")
    jobs: bool = flag(SWITCH, "also move pods of Jobs and of other controllers that may count a failure for each")


@dataclass(frozen=True, kw_only=True)
class Apply(_Configured):
    """Carry out a plan: evict one pod after another, and stop if one finds no place.

    timeout_s: of each wait. undo: only open its nodes again.
    """

    file: str = flag(FILE, "the output of kubectl cards plan; - for stdin", name="FILE -f --filename")
    yes: bool = flag(SWITCH, "do not ask before the first eviction")
    dry_run: bool = flag(SWITCH, "ask the API server whether it would evict the pods, and change nothing")
    undo: bool = flag(SWITCH, "only reopen the nodes that an interrupted run of this plan left closed")
    timeout_s: int = flag(
        whole(1, 86_400, "SECONDS"), "longest wait for a budget or a replacement", "300", name="--timeout"
    )


@dataclass(frozen=True, kw_only=True)
class Queues(_Printed, _Stored):
    """List the queues, what their pods hold, their limits, and who waits."""


@dataclass(frozen=True, kw_only=True)
class Simulate(_Printed, _Stored, _Asking):
    """Show what would happen if pods or nodes were added, or nodes drained.

    The controller simulates it, or this process if there is none. The fields are those of `core.wire.changes.Change`.
    """

    file: str = flag(FILE, "manifests to add: pods, workloads, nodes, quotas; - for stdin", name="-f --filename")
    namespace: str = flag(_NAMESPACE, "of objects without one; default the kubeconfig's", name="-n --namespace")
    requests: tuple[tuple[str, str], ...] = several(
        _PAIR,
        "change a request of the containers with cards in FILE, KEY= removes it; repeatable",
        name="--request",
        metavar="KEY=VALUE",
        splits=True,
    )
    add_nodes: int = flag(whole(0, NODES_MAX), f"number of nodes to add, at most {NODES_MAX}; needs --like")
    like: str = flag(_NODE, "added nodes are healthy, empty copies of this one")
    drain: tuple[str, ...] = several(_NODE, "cordon nodes and evict their pods; repeatable", splits=True)
    remove: tuple[str, ...] = several(_NODE, "remove nodes with their pods; repeatable", splits=True)
    repartition: tuple[tuple[str, str], ...] = several(
        _PAIR,
        "drain a node of Volcano's plugin and give its cards a mode, or a number of shares; repeatable",
        metavar="NODE=HOW",
        splits=True,
    )
    policy: str = flag(_PLAIN, "binpack, spread or pack; alone, also for pods that run", metavar="POLICY")

    @property
    def controller(self) -> Controller | None:
        """The controller that simulates it; none reads a snapshot."""
        return None if self.snapshot else super().controller


@dataclass(frozen=True, kw_only=True)
class Version:
    """Print the version."""


@dataclass(frozen=True, kw_only=True)
class Doctor(_Printed, ClusterFlags):
    """Find what does not work in the cluster, or is at risk."""

    namespace: str = flag(_NAMESPACE, "namespace of cardshare", "cardshare-system", name="-n --namespace")
    name: str = flag(flags.judged(bool, "write a prefix"), "object name prefix", "cardshare")


@dataclass(frozen=True, kw_only=True)
class Shadow(_Printed, _Asking):
    """Show what a controller with --shadow would do with another scheduler's pods."""


@dataclass(frozen=True, kw_only=True)
class Web(_Configured):
    """Show the cards and the pods that wait in a browser, live."""

    port: int = flag(whole(0, 65_535, "PORT"), "port on 127.0.0.1; default any free one")
    browser: bool = flag(OFF, "only print the address", name="--no-browser")
    namespace: str = flag(_NAMESPACE, "of My pods and of the form; default the kubeconfig's", name="-n --namespace")


@dataclass(frozen=True, kw_only=True)
class Snapshot(_Configured):
    """Save everything that decides placements in a file, for later or for a bug report."""

    file: str = flag(
        FILE, "write to this file", name="-o --output-file", missing="name the file to write, such as cluster.json.gz"
    )
    redact: bool = flag(SWITCH, "replace the names of nodes, pods, namespaces, queues and cards, and label values")


# The commands that can also read a snapshot.
Stored = Get | Explain | Waits | Fits | Queues | Simulate | Plan
Options = Stored | Why | Apply | Snapshot | Web | Doctor | Shadow | Check | Version


# The options of each command, and examples of what follows its name.
_COMMANDS: Final[Mapping[str, tuple[type[Options], tuple[str, ...]]]] = {
    "get": (Get, ("", "gpu-3 -o wide", "-l pool=a100 --watch", "-n team-a", "-o json")),
    "explain": (
        Explain,
        ("train", "team-a/train", "deployment/serve -n team-a", "job/train -A", f"train {_CONTROLLER}"),
    ),
    "why": (Why, ("train", f"team-a/train {_CONTROLLER}")),
    "waiting": (Waits, ("", "-A --by reason", "-A -o json", "-A --snapshot cluster.json.gz")),
    "queues": (Queues, ("", "-o json")),
    "fits": (Fits, ("--memory 40000 --cards 4", "--memory 8000 --type A100,H100 -n team-a", "-f pod.yaml -o json")),
    "plan": (
        Plan,
        (
            "--for '4 x whole A100' > plan.yaml",
            "--for '2 x 20000 MiB' --pods 3 -o text",
            "--for pod team-a/train --moves 4",
            "--for group team-a/ring",
        ),
    ),
    "apply": (Apply, ("plan.yaml --dry-run", "plan.yaml", "plan.yaml --undo")),
    "simulate": (
        Simulate,
        (
            "-f job.yaml",
            "--drain gpu-3",
            "--add-nodes 2 --like gpu-3 --snapshot cluster.json.gz",
            "-f pod.yaml --request volcano.sh/vgpu-memory=8000 --policy spread",
            f"--policy pack {_CONTROLLER}",
        ),
    ),
    "check": (Check, ("-f pod.yaml", "-f jobs.yaml other.yaml -n team-a", "-f - < pod.yaml")),
    "doctor": (Doctor, ("", "-o json")),
    "shadow": (Shadow, (_SHADOW,)),
    "snapshot": (Snapshot, ("-o cluster.json.gz", "-o cluster.json.gz --redact")),
    "web": (Web, ("", "--port 8000 --no-browser")),
    "version": (Version, ("",)),
}
_EXAMPLES: Final = ("get", "explain pod/train -n team-a", "waiting -A", "check -f pod.yaml", "doctor")
COMMON: Final = flags.declared(ClusterFlags, in_process=False)
# The flags of each command.
FLAGS: Final = {name: flags.declared(of, in_process=False) for name, (of, _) in _COMMANDS.items()}


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read the command line.

    Raises:
        SystemExit: ``--help``, ``--version``, or invalid arguments.
    """
    given, unknown = _parser().parse_known_args(argv)
    command: argparse.ArgumentParser = given.parser
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    problems: list[str] = []
    of: Callable[..., Options] = _COMMANDS[given.command][0]
    found = flags.read(of, FLAGS[given.command], given, environ, problems)
    for problem in (*problems, *_conflicts(found, frozenset(vars(given)))):
        command.error(problem)
    return found


def _conflicts(options: Options, given: frozenset[str]) -> Iterator[str]:
    """Return what is wrong with several options together; *given*: the fields whose flags are given."""
    if isinstance(options, _Asking) and not options.controller_url:
        for name in ("token_file", "controller_ca", "tls_server_name"):
            if name in given:
                yield f"--{name.replace('_', '-')}: of no use without --controller; give it too"
    if isinstance(options, Get | Explain | Waits) and options.all_namespaces and options.namespace:
        yield f"-A: found beside -n {quoted(options.namespace, 256)}; leave one of them out"
    match options:
        case Get() if options.watch and options.snapshot:
            yield "--watch: a snapshot does not change; leave out --watch or --snapshot"
        case Explain() | Why() if options.pod.namespace:
            everywhere = isinstance(options, Explain) and options.all_namespaces
            if everywhere or options.namespace not in ("", options.pod.namespace):
                name = f"{options.pod.namespace}/{options.pod.name}"
                those = "-n and -A" if isinstance(options, Explain) else "-n"
                yield f"POD: found {quoted(name, 256)}, which names a namespace; leave {those} out"
        case Fits() if options.file and options.wish is not None:
            yield "-f: found beside --memory, --cards, --cores or --type; leave these out"
        case Fits() if not options.file and options.wish is None:
            yield "--memory: missing; give --memory, --cards, --cores or --type, or a manifest with -f"
        case Plan() if options.asked.wish is None and given & {"pods", "priority"}:
            yield "--pods: only for a shape such as '4 x whole A100', as --priority is; leave both out"
        case Apply() if options.undo and options.dry_run:
            yield "--undo: found beside --dry-run, which changes nothing; leave one of them out"
        # What -o means in every other command would become the name of a file.
        case Snapshot(file="-" | "json" | "yaml" | "text"):
            yield f"-o: found {quoted(options.file, 256)}; it is the file to write: name it, such as cluster.json.gz"
        case Simulate() if options.snapshot and "controller_url" in given:
            yield "--controller: found beside --snapshot, which no controller reads; leave one of them out"
        case Simulate() if bool(options.add_nodes) != bool(options.like):
            yield "--add-nodes: give it together with --like, the node to copy"
        case Simulate(file="", add_nodes=0, drain=(), remove=(), repartition=(), policy=""):
            yield "-f: missing; give -f, --add-nodes, --drain, --remove, --repartition or --policy"
        case Simulate() if options.requests and not options.file:
            yield "--request: it changes the pods of a file; give -f too"


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {escaped(message)}; see {self.prog} --help\n")


def _shown(examples: Iterable[str]) -> str:
    return "\n".join(["Examples:", *(f"kubectl cards {one}".rstrip() for one in examples)])


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kubectl cards",
        allow_abbrev=False,
        description="Shows the GPUs and NPUs of the cluster, who holds them, why pods wait, and what changes would do.",
        epilog=f"{_shown(_EXAMPLES)}\n\n{_EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=TOLD_VERSION)
    flags.add(parser, COMMON)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (of, examples) in _COMMANDS.items():
        told = (of.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(
            name,
            allow_abbrev=False,
            help=told,
            description=told,
            epilog=_shown(f"{name} {one}" for one in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(parser=command)
        flags.add(command, FLAGS[name] | COMMON)
    return parser
