"""``python -m webhook check``: the rules of admission on manifests, offline, for whoever writes them."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from core.admission.mutate import judge_at_once, unreadable
from core.admission.rulebook import Rulebook, rulebook
from core.admission.templates import judge_workload
from core.admission.verdict import Verdict
from core.catalog import standard_catalog
from core.configuration import Configuration
from core.errors import ConfigError, InvalidRequestError, quoted
from core.units import counted
from core.wire import templates
from core.wire.manifests import Manifest, Unreadable, read_manifests, review_of
from core.wire.reviews import decode_review
from core.wire.templates import decode_workload
from runtime.configuration import Files, read_once
from webhook.options import variable

_OK, _DENIED, _UNUSABLE = 0, 1, 2
_STDIN: Final = "-"
_POD: Final = ("", "Pod")


class _Finding(NamedTuple):
    """One line for people, and whether the API server would refuse the object."""

    where: str
    text: str
    denied: bool


def check(argv: Sequence[str], environ: Mapping[str, str], stdin: TextIO) -> int:
    """Judge the files that *argv* names; findings go to stdout, what keeps us from judging to stderr.

    Returns:
        0 where everything is admitted, 1 where something is denied, 2 where files or flags cannot be used.
    """
    flags = _parser(environ).parse_args(argv)
    try:
        found = _configuration(flags)
    except ConfigError as e:
        for problem in e.problems:
            print(f"check: {problem}", file=sys.stderr)
        return _UNUSABLE
    book = rulebook(found.settings, found.tables, standard_catalog())
    for note in found.notes:
        print(f"check: note: {note}", file=sys.stderr)
    code, count, judged, denied = _OK, 0, 0, 0
    for name in flags.file:
        try:
            text = stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            print(f"check: {name}: {_why_unread(e)}", file=sys.stderr)
            code = _UNUSABLE
            continue
        judged_before = judged
        for one in read_manifests(text):
            if isinstance(one, Unreadable):
                print(f"check: {name}:{one.line}: {one.problem}", file=sys.stderr)
                code = _UNUSABLE
                continue
            count += 1
            if not _is_judged(one):
                continue
            judged += 1
            findings = tuple(_judge(one, f"{name}:{one.line}", book, flags.namespace))
            for finding in findings:
                print(f"{finding.where}: {finding.text}")
            denied += any(finding.denied for finding in findings)
        if judged == judged_before:
            print(f"{name}: nothing in it was judged: it holds no pod and no workload with a spec")
    print(
        f"{counted(count, 'objects')}, {denied} denied" + (f", {count - judged} not judged" if count > judged else "")
    )
    return code or (_DENIED if denied else _OK)


def _why_unread(error: OSError | UnicodeDecodeError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case IsADirectoryError():
            return "it is a directory; name the files in it"
        case OSError():
            return f"it cannot be read: {(error.strerror or str(error)).lower()}"
        case _:
            return "it is not UTF-8 text"


def _is_judged(one: Manifest) -> bool:
    group, kind = _kind(one)
    return bool(one.value.get("spec")) and ((group, kind) == _POD or (group, kind) in templates.KINDS)


def _kind(one: Manifest) -> tuple[str, str]:
    return str(one.value.get("apiVersion") or "").rpartition("/")[0], str(one.value.get("kind") or "")


def _judge(one: Manifest, where: str, book: Rulebook, namespace: str) -> Iterator[_Finding]:
    kind = _kind(one)[1]
    metadata = one.value.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    name = str(named.get("name") or named.get("generateName") or "")
    what = f"{kind} {quoted(name, 253)[1:-1]}"
    verdict = _verdict(
        review_of(one.value, namespace), str(named.get("namespace") or namespace), book, is_pod=_kind(one) == _POD
    )
    if not verdict.allowed:
        yield _Finding(where, f"{what}: denied: {verdict.message}", True)
    for warning in verdict.warnings:
        yield _Finding(where, f"{what}: warning: {warning}", False)


def _verdict(review: bytes, namespace: str, book: Rulebook, *, is_pod: bool) -> Verdict:
    try:
        return (
            judge_at_once(decode_review(review), book)
            if is_pod
            else judge_workload(decode_workload(review), namespace, book)
        )
    except InvalidRequestError as e:
        return unreadable(e)


def _configuration(flags: argparse.Namespace) -> Configuration:
    named = {"settings": flags.settings, "device-config": flags.device_config}
    missing = [
        f"--{flag} ({_variable(flag)}): found {quoted(path, 256)}; there is no such file"
        for flag, path in named.items()
        if path and not Path(path).exists()
    ]
    if missing:
        raise ConfigError(missing)
    settings, devices = (Path(path) if path else None for path in named.values())
    return read_once(Files(settings=settings, devices=devices), standard_catalog())


def _variable(flag: str) -> str:
    return variable(flag.replace("-", "_"))


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m webhook check",
        description="Judges manifests of pods and of workloads by the rules of admission, without a cluster. What the "
        "cluster's cards could never hold is not known here.",
        epilog="Exit status: 0 all is admitted, 1 something is denied, 2 files or flags cannot be used.",
        allow_abbrev=False,
    )
    parser.add_argument(
        *("-f", "--file"),
        action="extend",
        nargs="+",
        required=True,
        metavar="FILE",
        help="YAML or JSON; - is stdin; may be repeated",
    )
    parser.add_argument("-n", "--namespace", default="default", help="of objects that name none (default 'default')")
    for flag, text in (
        ("settings", "cardshare.yaml, or a directory with it and volcano-scheduler.conf"),
        ("device-config", "device-config.yaml, as device plugins have it"),
    ):
        default = environ.get(_variable(flag)) or ""
        parser.add_argument(f"--{flag}", default=default, help=text)
    return parser
