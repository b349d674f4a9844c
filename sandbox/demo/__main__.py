"""``python -m sandbox.demo``: a cluster, the product beside it, the examples applied, and their outcomes.

It starts everything, follows the events, judges every declared outcome, and stops everything at its end, however it
ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from certs.files import why_not_written
from runtime.process import first
from sandbox.client import ApiClient
from sandbox.demo import jobs
from sandbox.demo.examples import Example, ExampleError, find
from sandbox.demo.outcomes import Sighting
from sandbox.demo.picture import CardBar, cards, environment, lines
from sandbox.demo.play import KINDS, ExampleVerdict, Play, can_apply
from sandbox.demo.processes import Processes, ProcessFailedError, watch
from sandbox.demo.product import show_settings
from sandbox.demo.stage import Stage, hami_stays, running_stage, switched
from sandbox.demo.story import Chapters, fullest, one_of_each
from sandbox.players.provisioner import provided

_EXAMPLES: Final = Path(__file__).resolve().parents[2] / "docs" / "examples"
# The story shows at most this many holders of one card.
_PARTS_SHOWN: Final = 3
_LOOK_EVERY_S: Final = 0.1
# The time limit of one round of outcomes; placing takes a fraction of a second.
_ROUND_S: Final = 60.0
# Stopping both processes takes at most twice the limit of each; a longer time means that something hangs.
_END_WITHIN_S: Final = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The command line; seconds bounds the whole run."""

    files: tuple[Path, ...]
    verbose: bool
    keep: bool
    seconds: float
    logs: Path | None


@dataclass(slots=True, kw_only=True)
class Teller:
    """Prints lines with the seconds since the start.

    Attributes:
        verbose: print every line, not only those of the story.
    """

    verbose: bool
    started_s: float = field(default_factory=time.monotonic)

    def __call__(self, line: str, *, mark: str = " ") -> None:
        """Print *line* if verbose; *mark* is one character in front of it."""
        if self.verbose:
            self.story(line, mark=mark)

    def story(self, line: str, *, mark: str = " ") -> None:
        """Print *line*."""
        print(f"{time.monotonic() - self.started_s:6.1f} s {mark} {line}", flush=True)


def parse(argv: Sequence[str]) -> DemoOptions:
    """Read the command line.

    Raises:
        SystemExit: ``--help``, or an unknown flag.
    """
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Starts a Kubernetes cluster in one process with GPU and NPU nodes, cardshare's webhook and "
        "controller beside it, applies the examples, and shows which cards their pods hold and why the others wait.",
        epilog="Exit status: 0 if every outcome is as declared beside the manifests, also where nothing is "
        "declared; 1 if not; 2 for a wrong command or a file that cannot be applied.",
    )
    parser.add_argument("files", nargs="*", type=Path, help="manifests or folders; default docs/examples")
    parser.add_argument(
        "--verbose", action="store_true", help="print every event, card and environment; always so with files"
    )
    parser.add_argument("--keep", action="store_true", help="keep the cluster running, with a kubeconfig for kubectl")
    parser.add_argument("--seconds", type=float, default=180.0, help="seconds after which it gives up (180)")
    parser.add_argument("--logs", type=Path, help="folder for logs and kubeconfigs; it is kept")
    found = parser.parse_args(argv)
    files = tuple(found.files) or (_EXAMPLES,)
    if found.logs is not None:
        try:
            found.logs.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=found.logs).close()
        except OSError as e:
            parser.error(f"--logs: {why_not_written(found.logs, e)}")
    verbose = found.verbose or bool(found.files)
    return DemoOptions(files=files, verbose=verbose, keep=found.keep, seconds=found.seconds, logs=found.logs)


async def run(options: DemoOptions, environ: Mapping[str, str]) -> int:
    """Run the demo; return the exit code."""
    examples = find(options.files)
    for example in examples:
        _check(example)
    folder = options.logs or Path(tempfile.mkdtemp(prefix="cardshare-demo-"))
    code = 1
    try:
        async with (
            asyncio.timeout(options.seconds) as limit,
            running_stage(folder, environ, volcano=True) as stage,
            provided(stage.admin, [one for example in examples for one in example.manifests]),
        ):
            code = await _show(stage, examples, with_jobs=options.files == (_EXAMPLES,), verbose=options.verbose)
            if options.keep:
                limit.reschedule(None)
                await show_settings(stage.admin, stage.product)
                await hami_stays(stage, {key: one for each in examples for key, one in each.cluster.hami.items()})
                async with Processes(folder / "logs", environ) as processes:
                    await _keep(stage, await _page(processes, stage))
            elif not options.verbose:
                _next_steps()
    except* TimeoutError:
        print(f"\nThe demo is not over after {options.seconds:g} s; --seconds allows more. Logs: {folder / 'logs'}")
        code = 1
    except* ProcessFailedError as failed:
        print(f"\n{first(failed)}\nThe demo is over.")
        code = 1
    finally:
        if code == 0 and options.logs is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"Logs and kubeconfigs are in {folder}")
    return code


def _check(example: Example) -> None:
    for manifest in example.manifests:
        if not can_apply(manifest):
            kind = f"{manifest.get('apiVersion', '')} {manifest['kind']}".strip()
            raise ExampleError(f"{example.path}: {kind}: the demo applies only {', '.join(KINDS)}; remove it")


async def _show(stage: Stage, examples: Sequence[Example], *, with_jobs: bool, verbose: bool) -> int:
    tell = Teller(verbose=verbose)
    chapters = Chapters(examples={example.name for example in examples})
    play = Play(
        user=stage.person,
        env_of=stage.records.of,
        tell=tell,
        judged=lambda verdict: _tell_verdict(verdict, tell),
    )

    def tell_chapter(example: str, verdicts: Sequence[ExampleVerdict]) -> None:
        mark, line = chapters.ended(example, verdicts)
        if line:
            tell.story(line, mark=mark)

    nodes = len(await stage.admin.list("/api/v1/nodes"))
    tell.story(f"cluster {stage.url} is up with {nodes} nodes; webhook and controller are ready")
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(stage.admin, tell), name="events")
        verdicts = await _show_jobs(stage, tell) if with_jobs else []
        if not verbose:
            tell_chapter(jobs.FOLDER.name, verdicts)
        for example in examples:
            tell(f"kubectl apply -f {_shown(example.path)}", mark="$")
            async with switched(stage, example.cluster, tell):
                found = await play.run(example, within_s=_ROUND_S)
            verdicts += found
            if not verbose:
                tell_chapter(example.name, found)
        following.cancel()
    again = [verdict for verdict in await play.final() if verdict.problems]
    wrong = [verdict for verdict in verdicts if verdict.problems]
    over = await _picture(stage, await play.sightings(), verbose=verbose)
    return _sum_up(len(verdicts), wrong, [v for v in again if v not in wrong], over)


async def _show_jobs(stage: Stage, tell: Teller) -> list[ExampleVerdict]:
    """Play Volcano's Jobs from their creation to their end; afterwards they hold nothing."""
    tell(f"kubectl apply -f {_shown(jobs.FOLDER)}", mark="$")
    manifests, declared = await asyncio.to_thread(jobs.read)
    async with jobs.controllers(stage.admin):
        verdicts = await jobs.play(stage.admin, manifests, declared, within_s=_ROUND_S, tell=tell)
        tell(f"kubectl delete -f {_shown(jobs.FOLDER)}", mark="$")
        await jobs.remove(stage.admin, declared)
    for verdict in verdicts:
        _tell_verdict(verdict, tell)
    return list(verdicts)


async def _follow(client: ApiClient, tell: Teller) -> None:
    """Print the cluster's events as they occur."""
    async for event in client.follow("/api/v1/events"):
        if event.type != "DELETED":
            about = event.object.get("involvedObject", {})
            said = f"{event.object.get('reason', '')}: {event.object.get('message', '')}"
            tell(f"{about.get('kind', '')} {about.get('name', '')}: {said}", mark="·")


def _tell_verdict(verdict: ExampleVerdict, tell: Teller) -> None:
    if not verdict.problems:
        tell(f"{verdict.claim}, as declared", mark="✓")
    for problem in verdict.problems:
        tell.story(f"declared: {verdict.claim}; but {problem}", mark="✗")


async def _picture(stage: Stage, seen: Mapping[str, Sighting], *, verbose: bool) -> list[str]:
    """Print cards and reasons; return the cards that hold more than they have."""
    nodes = await stage.admin.list("/api/v1/nodes")
    pods = await stage.admin.list("/api/v1/pods")
    bars = cards(nodes, pods)
    if verbose:
        _whole_picture(bars, seen)
    else:
        _head(f"{len(fullest(bars))} of the {len(bars)} cards, and who holds how much of each")
        print("\n".join(lines(fullest(bars), most_parts=_PARTS_SHOWN)))
        _head("What people see")
        for what, answer in one_of_each(seen):
            print(f"{what}: {answer}")
    return [f"{bar.node} {bar.card}" for bar in bars if bar.overcommitted]


def _whole_picture(bars: Sequence[CardBar], seen: Mapping[str, Sighting]) -> None:
    _head("Cards")
    print("\n".join(lines(bars)))
    _head("What the containers received")
    for name, sighting in seen.items():
        for container, env in sighting.env_by_container.items() if sighting.phase == "Running" else ():
            print(f"{name}/{container}: {environment(env)}")
    _head("Waiting pods, and why")
    for name, sighting in seen.items():
        if sighting.pod is not None and not sighting.node:
            print(f"{name}: {sighting.waiting_reason or _unscheduled(sighting.pod)}")
    _head("Denied pods")
    for name, sighting in seen.items():
        if sighting.denial:
            print(f"{name}: {sighting.denial}")


def _unscheduled(pod: Mapping[str, Any]) -> str:
    return f"belongs to the scheduler {pod['spec'].get('schedulerName', '')!r}, which does not run here"


def _sum_up(count: int, wrong: Sequence[ExampleVerdict], drifted: Sequence[ExampleVerdict], over: Sequence[str]) -> int:
    _head("Outcome")
    for verdict in (*wrong, *drifted):
        for problem in verdict.problems:
            print(f"✗ {verdict.example}: declared: {verdict.claim}; but {problem}")
    for card in over:
        print(f"✗ {card} holds more than it has")
    if wrong or drifted or over:
        print(f"{len(wrong)} of {count} outcomes are not as declared, {len(drifted)} did not last")
        return 1
    said = "the one outcome is as declared" if count == 1 else f"all {count} outcomes are as declared"
    print(said if count else "nothing was declared, so nothing was checked")
    return 0


def _next_steps() -> None:
    _head("Next")
    print("scripts/demo --verbose       every event, card, environment and refusal")
    print("scripts/demo my-pod.yaml     your own manifests, on the same cards")
    print("scripts/demo --keep          keep the cluster, and use kubectl")
    print("docs/operators/install.md    install cardshare on your cluster")


async def _page(processes: Processes, stage: Stage) -> str:
    """Serve the page of the cluster's cards; return its address.

    Raises:
        ProcessFailedError: it ended.
    """
    # The log of an earlier run has another address.
    (processes.logs / "web.log").unlink(missing_ok=True)
    served = await processes.start("web", "cli", ("web", "--no-browser", "--kubeconfig", str(stage.kubeconfig)))
    while served.process.returncode is None:
        said = await asyncio.to_thread(served.log.read_text, encoding="utf-8")
        if said.startswith("http") and "\n" in said:
            return said.partition("\n")[0]
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ProcessFailedError(f"kubectl cards web ended: {served.log_tail()}")


async def _keep(stage: Stage, page: str) -> None:
    """Print how to reach the cluster and wait for Ctrl-C.

    Raises:
        ProcessFailedError: webhook or controller ended, so the cluster no longer matches the output.
    """
    print(f"\nThe cluster stays up. Its cards in a browser:\n\n  {page}\n")
    print(f"In another terminal:\n\n  export KUBECONFIG={stage.kubeconfig}")
    # kubectl finds the plugin there.
    print(f"  export PATH={Path(sys.executable).parent}:$PATH\n  kubectl get pods\n  kubectl cards get\n")
    print("It runs only pods: Deployments and Jobs get none, and kubectl logs and exec do not work.")
    product = stage.product
    print("A dry run shows where a pod would go: kubectl apply --dry-run=server -f docs/examples/memory-only.yaml")
    print("Why a pod waits, node by node, what happened to it, and what a change would do, from the controller:\n")
    print(f"  export CARDSHARE_CONTROLLER={product.asked_at} CARDSHARE_CONTROLLER_CA={product.ca_file}")
    print(f"  export CARDSHARE_TOKEN_FILE={product.explain_token}")
    print("  kubectl cards explain POD\n  kubectl cards why POD\n  kubectl cards simulate --drain t4-a\n")
    print(f"Settings, which both processes read again after an edit: {product.settings[0]}/cardshare.yaml")
    print(f"Controller: {stage.product.controller_url}   logs: {stage.product.controller.log.parent}")
    print("Ctrl-C ends it.", flush=True)
    await watch(stage.product.webhook, stage.product.controller)


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _head(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")


async def _until_told(options: DemoOptions, environ: Mapping[str, str]) -> int:
    """Run until completion or a signal, which stops all processes in order."""
    task = asyncio.ensure_future(run(options, environ))
    loop = asyncio.get_running_loop()

    def end() -> None:
        task.cancel()
        loop.call_later(_END_WITHIN_S, _end_now)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        return await task
    except asyncio.CancelledError:
        return 0 if options.keep else 1


def _end_now() -> None:
    """Exit without cleaning up, and report what did not end; the guard ends the processes."""
    names = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks()))
    print(
        f"demo: not over {_END_WITHIN_S:g} s after it was told to end; waited for: {names}", file=sys.stderr, flush=True
    )
    os._exit(1)


def main() -> int:
    """Entry point."""
    options = parse(sys.argv[1:])
    try:
        return asyncio.run(_until_told(options, os.environ))
    except ExampleError as e:
        print(f"demo: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
