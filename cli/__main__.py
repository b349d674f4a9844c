"""The commands of ``kubectl cards``: each fetches and prints, and its exit status shows whether that succeeded."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from cli import cluster, controller, doctor, snapshot, text, watching
from cli.apply import StoppedError, UnusablePlanError, carry_out, plan_in
from cli.cluster import Reads
from cli.doctor_checks import Level
from cli.fits import UnusableFileError, fetch_fits, fits_table, text_in
from cli.options import (
    TOLD_VERSION,
    Apply,
    Controller,
    Doctor,
    Explain,
    Fits,
    Get,
    Options,
    Output,
    Plan,
    Queues,
    Shadow,
    Simulate,
    Snapshot,
    Stored,
    Version,
    Waits,
    Web,
    Why,
    parse,
)
from cli.plan import NothingToPlanError, fetch_plan, plan_comments, plan_table
from cli.simulate import UnreadError, change_of, fetch_simulated, simulated_table
from cli.waiting import fetch_queues, fetch_waiting, queues_table, waiting_table
from cli.why import fetch_why, story
from core.errors import InvalidRequestError, escaped
from core.view.cards import Cards, cards_of, switched_off, with_removed
from core.view.explained import Explained, ExplainedPods, explained
from kube.calls import Calls, namespace_path
from kube.credentials import choose_source, mistake_in
from kube.errors import ApiError, ApiNotFoundError, CredentialsError, UndecodableError
from kube.transport import Transport
from runtime.check import Check, check

_OK, _NOT_TOLD, _WRONG, _AT_RISK, _FAULTY, _LOSING, _NO_HELP = 0, 1, 2, 3, 4, 5, 6
# The exit status that a shell reports after SIGPIPE or SIGINT.
_BROKEN_PIPE: Final = 128 + 13
_INTERRUPTED: Final = 128 + 2
_T = TypeVar("_T")
_USER_AGENT: Final = "kubectl-cards"


async def run(options: Options, environ: Mapping[str, str]) -> int:
    """Run the requested command.

    Returns:
        0 on success, 1 if the object does not exist or a server does not answer, 2 for an unusable kubeconfig.
        ``doctor`` returns 3 for a risk or an unknown state, and 4 for a problem. ``check`` has its own.
    """
    if isinstance(options, Version):
        print(TOLD_VERSION)
        return _OK
    if isinstance(options, Check):
        return check(options, sys.stdin)
    if isinstance(options, Shadow):
        return await _shadow(options)
    if isinstance(options, Stored) and options.snapshot:
        return await _from_snapshot(options)
    kubeconfig = options.kubeconfig or _kubectls(environ)
    if mistake := mistake_in(kubeconfig=kubeconfig, context=options.context, environ=environ):
        return _failed(mistake, _WRONG)
    try:
        source = choose_source(kubeconfig=kubeconfig, context=options.context, environ=environ)
        async with Transport(source, user_agent=_USER_AGENT) as transport:
            if isinstance(options, Get) and options.watch:
                return await _watch(transport, options)
            return await _COMMANDS[type(options)](transport, options)
    except (ApiError, CredentialsError, UndecodableError, InvalidRequestError) as e:
        return _failed(str(e), _NOT_TOLD)


async def _from_snapshot(options: Stored) -> int:
    """Answer from a file."""
    try:
        reads = snapshot.SnapshotReads(await asyncio.to_thread(Path(options.snapshot).read_bytes))
        _note(f"this is the snapshot of {reads.taken}")
        return await _COMMANDS[type(options)](reads, options)
    except (OSError, snapshot.UnusableSnapshotError) as e:
        return _failed(f"--snapshot {options.snapshot}: {getattr(e, 'strerror', None) or e}", _WRONG)
    except (ApiError, UndecodableError, InvalidRequestError) as e:
        return _failed(str(e), _NOT_TOLD)


async def _snapshot(transport: Transport, options: Snapshot) -> int:
    taken = await snapshot.take(transport, options.settings_map)
    for path, found in taken["collections"].items():
        # A kind that is not installed has no objects.
        if only := found.get("only"):
            _note(f"you may not list {path}; the snapshot has those of namespace {only}")
        elif (status := found.get("status")) == HTTPStatus.FORBIDDEN:
            _note(f"you may not list {path}; the snapshot is without them")
        elif status is not None and status != HTTPStatus.NOT_FOUND:
            _note(f"the server answered {status} for {path}; the snapshot is without them")
    if options.redact:
        taken = snapshot.redacted(taken, os.urandom(32))
    try:
        await asyncio.to_thread(Path(options.file).write_bytes, snapshot.packed(taken))
    except OSError as e:
        return _failed(f"-o {options.file}: {e.strerror or e}", _WRONG)
    return _OK


async def fetch_names(kind: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> Sequence[str]:
    """Return the names of all "nodes" or "namespaces", or of the "pods" of one namespace, for completion.

    Args:
        kind: "nodes", "namespaces" or "pods".
        flags: the given flags by long name.
        environ: the environment.

    Raises:
        ApiError, CredentialsError, UndecodableError: the names are unavailable.
    """
    kubeconfig = flags.get("--kubeconfig", "") or _kubectls(environ)
    source = choose_source(kubeconfig=kubeconfig, context=flags.get("--context", ""), environ=environ)
    async with Transport(source, user_agent=_USER_AGENT) as transport:
        if kind in ("nodes", "namespaces"):
            return await cluster.fetch_names(transport, f"/api/v1/{kind}")
        namespace = flags.get("--namespace", "") or transport.namespace or "default"
        return await cluster.fetch_names(transport, f"{namespace_path(namespace)}/pods")


def _kubectls(environ: Mapping[str, str]) -> str:
    """Return the kubeconfig that kubectl would use; "" if there is none and it would use the pod's service account."""
    if named := environ.get("KUBECONFIG", ""):
        return named
    home = environ.get("HOME", "")
    usual = Path(home, ".kube", "config")
    return str(usual) if home and usual.is_file() else ""


async def _get(transport: Reads, options: Get) -> int:
    holdings = await cluster.fetch_holdings(transport, options.selector, own_map=options.settings_map)
    notes = (*holdings.notes, *switched_off(holdings.ledger))
    found = cards_of(holdings.ledger, options.nodes, notes, options.namespace)
    if options.controller is not None:
        try:
            found = with_removed(found, await controller.ask_held(options.controller), options.namespace)
        except controller.NoAnswerError as e:
            _note(str(e))
    print(_shown(found, options))
    return _NOT_TOLD if found.missing else _OK


async def _watch(transport: Transport, options: Get) -> int:
    """Print all cards, then every change, until interrupted."""
    holdings = await cluster.empty_holdings(transport, options.settings_map)
    first = True
    async with aclosing(watching.changes(transport, holdings.ledger, options.selector, _note_if_any)) as following:
        async for names in following:
            changed = [name for name in names if not options.nodes or name in options.nodes]
            if first:
                notes = (*holdings.notes, *switched_off(holdings.ledger))
                found = cards_of(holdings.ledger, options.nodes, notes, options.namespace)
                print(_shown(found, options), flush=True)
            elif changed:
                print(_shown(cards_of(holdings.ledger, changed, (), options.namespace), options, more=True), flush=True)
            first = False
    return _OK


async def _web(transport: Transport, options: Web) -> int:
    from cli.web.local import serve  # noqa: PLC0415 (a server, whose import would slow the other commands)

    try:
        await serve(transport, options, lambda address: print(f"{address}\nCtrl-C ends it.", flush=True))
    except OSError as e:
        return _failed(f"--port {options.port}: {e.strerror or e}", _WRONG)
    return _OK


async def _explain(transport: Reads, options: Explain) -> int:
    kind, namespace, name = options.pod
    namespace = namespace or options.namespace or transport.namespace or "default"
    if not kind and not options.all_namespaces:
        names: Sequence[tuple[str, str]] = [(namespace, name)]
    else:
        names = await cluster.fetch_pods_of(transport, "" if options.all_namespaces else namespace, kind, name)
    where = "any namespace" if options.all_namespaces else f"namespace {namespace}"
    if not names:
        what = f"pod of {kind} {name}" if kind else f"pod {name}"
        return _failed(f"there is no {what} in {where}", _NOT_TOLD)
    found = [one for each in names if (one := await _explain_one(transport, options, *each)) is not None]
    if options.output is Output.TEXT:
        print("\n\n".join(map(str, found)), end="\n" if found else "")
    elif found:
        alone = not kind and not options.all_namespaces
        answer = found[0] if alone else ExplainedPods(pods=tuple(o for o in found if isinstance(o, Explained)))
        print(_for_scripts(answer, options.output))
    return _OK if found else _failed(f"there is no pod {name} in {where}", _NOT_TOLD)


async def _explain_one(transport: Reads, options: Explain, namespace: str, name: str) -> Explained | str | None:
    """Return the explanation of one pod, as text if requested; None if the pod is gone."""
    try:
        pod = await cluster.fetch_pod(Calls(transport), namespace, name)
    except ApiNotFoundError:
        return None
    told = await _ask_controller(options.controller, namespace, name)
    if told is not None and options.output is Output.TEXT:
        return text.answer(pod.key, told)
    holdings = await cluster.fetch_holding(transport, pod, own_map=options.settings_map) if pod.node_name else None
    events = await cluster.fetch_events(transport, pod)
    for note in (*(holdings.notes if holdings is not None else ()), *filter(None, (events.unread,))):
        _note(note)
    found = explained(
        pod,
        events.items,
        holdings.ledger if holdings is not None else None,
        told,
        node_is_read=holdings is None or not holdings.node_unread,
    )
    return text.explanation(found) if options.output is Output.TEXT else found


async def _why(transport: Reads, options: Why) -> int:
    _, namespace, name = options.pod
    namespace = namespace or options.namespace or transport.namespace or "default"
    try:
        found = await fetch_why(transport, options.controller, namespace, name, options.history_map)
    except ApiNotFoundError:
        asked = "" if options.controller is not None else "; a controller may remember it: give --controller"
        return _failed(f"there is no pod {name} in namespace {namespace}{asked}", _NOT_TOLD)
    _show(found, options.output, story)
    return _OK


async def _waiting(transport: Reads, options: Waits) -> int:
    namespace = "" if options.all_namespaces else options.namespace or transport.namespace or "default"
    found = await fetch_waiting(transport, namespace, options.settings_map)
    _show(found, options.output, lambda one: waiting_table(one, options.by, namespace))
    return _OK


async def _queues(transport: Reads, options: Queues) -> int:
    found = await fetch_queues(transport, options.settings_map)
    _show(found, options.output, queues_table)
    return _OK


async def _fits(transport: Reads, options: Fits) -> int:
    try:
        found = await fetch_fits(transport, options, options.namespace or transport.namespace or "default")
    except UnusableFileError as e:
        return _failed(str(e), _WRONG)
    _show(found, options.output, lambda one: fits_table(one, options.wish))
    return _OK


async def _simulate(reads: Reads, options: Simulate) -> int:
    taken_s = reads.taken_s if isinstance(reads, snapshot.SnapshotReads) else None
    try:
        change = change_of(options, options.namespace or reads.namespace or "default")
        if options.controller is not None:
            found = await controller.ask_simulated(options.controller, change)
        else:
            found = await fetch_simulated(reads, change, taken_s, own_map=options.settings_map)
    except (UnusableFileError, controller.UnusableError) as e:
        return _failed(str(e), _WRONG)
    except (UnreadError, controller.NoAnswerError) as e:
        return _failed(str(e), _NOT_TOLD)
    _show(found, options.output, simulated_table)
    return _LOSING if found.losing else _OK


async def _plan(reads: Reads, options: Plan) -> int:
    try:
        found = await fetch_plan(reads, options, reads.namespace or "default")
    except NothingToPlanError as e:
        return _failed(str(e), _NOT_TOLD)
    if options.output is Output.YAML:
        print(plan_comments(found))
    _show(found, options.output, plan_table)
    return _OK if found.helps else _NO_HELP


async def _apply(transport: Transport, options: Apply) -> int:
    try:
        plan = plan_in(await asyncio.to_thread(text_in, options.file))
    except (UnusableFileError, UnusablePlanError) as e:
        return _failed(f"{options.file}: {e}", _WRONG)
    if not plan.moves:
        # The same exit status as of the command that wrote the plan.
        if not plan.helps:
            return _failed(f"{options.file}: no moves to make: {plan.gain}", _NO_HELP)
        print(escaped(f"no moves to make: {plan.gain}"))
        return _OK
    try:
        await carry_out(transport, plan, options, say=lambda line: print(escaped(line), flush=True), ask=_agreed)
    except UnusablePlanError as e:
        return _failed(f"{options.file}: {e}", _WRONG)
    except StoppedError as e:
        return _failed(f"stopped: {e}", _NO_HELP)
    return _OK


async def _agreed(question: str) -> bool:
    """Ask the user at the terminal; without a terminal, the answer is no."""
    if not sys.stdin.isatty():
        _note("standard input is no terminal; --yes agrees to the evictions")
        return False
    print(f"{question} [y/N] ", end="", flush=True)
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    answer: list[bytes] = []

    def wait() -> None:
        with suppress(OSError):  # the terminal is gone
            answer.append(os.read(sys.stdin.fileno(), 1024))
        with suppress(RuntimeError):  # the loop is
            loop.call_soon_threadsafe(typed.set)

    # A thread that is not waited for, so that Ctrl-C ends the command.
    threading.Thread(target=wait, daemon=True).start()
    await typed.wait()
    return b"".join(answer).strip().lower() in (b"y", b"yes")


async def _diagnose(transport: Transport, options: Doctor) -> int:
    report = await doctor.diagnose(transport, options, time.time())
    _show(report, options.output, text.report)
    if report.worst is None:
        return _OK
    return _FAULTY if report.worst is Level.PROBLEM else _AT_RISK


async def _shadow(options: Shadow) -> int:
    if options.controller is None:
        named = "--controller: missing; name the https://host:port of the controller that runs with --shadow"
        return _failed(named, _WRONG)
    try:
        found = await controller.ask_shadow(options.controller)
    except controller.UnreadFileError as e:
        return _failed(str(e), _WRONG)
    except controller.NoAnswerError as e:
        return _failed(str(e), _NOT_TOLD)
    _show(found, options.output, text.shadow_report)
    return _OK


async def _ask_controller(named: Controller | None, namespace: str, pod: str) -> Mapping[str, Any] | None:
    """Return the controller's answer, or None with a note if it is unavailable; the API's data is enough then."""
    if named is None:
        return None
    try:
        return await controller.ask(named, namespace, pod)
    except controller.NoAnswerError as e:
        _note(str(e))
        return None


# The function of each command. Options of type `Stored` read a cluster or a snapshot, the others only a cluster.
_COMMANDS: Final[Mapping[type[Options], Callable[[Any, Any], Awaitable[int]]]] = {
    Get: _get,
    Explain: _explain,
    Waits: _waiting,
    Queues: _queues,
    Fits: _fits,
    Simulate: _simulate,
    Plan: _plan,
    Web: _web,
    Doctor: _diagnose,
    Snapshot: _snapshot,
    Why: _why,
    Apply: _apply,
}


def _shown(found: Cards, options: Get, *, more: bool = False) -> str:
    if options.output in (Output.JSON, Output.YAML):
        return _for_scripts(found, options.output)
    return text.cards_table(
        found,
        all_nodes=not options.nodes and not options.selector,
        namespace=options.namespace,
        wide=options.output is Output.WIDE,
        headers=options.headers and not more,
    )


def _show(found: _T, output: Output, as_text: Callable[[_T], str]) -> None:
    print(as_text(found) if output is Output.TEXT else _for_scripts(found, output))


def _for_scripts(found: object, output: Output) -> str:
    # ASCII only, so that text from a device plugin cannot control a terminal.
    values = msgspec.to_builtins(found)
    if output is Output.YAML:
        return str(yaml.safe_dump(values, sort_keys=False, explicit_start=True)).rstrip("\n")
    return json.dumps(values, indent=2)


def _note_if_any(text: str) -> None:
    if text:
        _note(text)


def _note(text: str) -> None:
    print(f"note: {escaped(text)}", file=sys.stderr)


def _failed(why: str, code: int) -> int:
    print(f"kubectl cards: {escaped(why)}", file=sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``kubectl-cards``."""
    _replace_closed_streams()
    try:
        try:
            options = parse(sys.argv[1:] if argv is None else argv, os.environ)
            return asyncio.run(run(options, os.environ))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe.
        _drop_output()
        return _BROKEN_PIPE
    except OSError as e:
        _drop_output()
        return _failed(f"the answer cannot be written: {e.strerror or e}", _NOT_TOLD)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _replace_closed_streams() -> None:
    """Put the null device in place of streams that the caller closed (``>&-``), because Python then has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the process ends


def _drop_output() -> None:
    """Discard buffered output, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
