"""Checks manifest files against the admission rules offline, and prints the findings of `core.admission.manifests`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import exists, isdir
from pathlib import Path
from typing import Final, TextIO

from core.admission.manifests import is_judged, judge, lacks_spec
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.configuration import Configuration
from core.errors import ConfigError, quoted
from core.units import counted
from core.wire.manifests import Unreadable, read_manifests
from runtime import flags
from runtime.files import Files, read_once
from runtime.flags import flag, several

_OK, _DENIED, _UNUSABLE = 0, 1, 2
_STDIN: Final = "-"
_SUFFIXES: Final = (".json", ".yaml", ".yml")
EXIT_STATUS: Final = "0 all is admitted, 1 something is denied, 2 files or flags cannot be used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Check manifests against the admission rules, without a cluster."""

    files: tuple[str, ...] = several(
        flags.FILE,
        "YAML or JSON files or directories, - for stdin; repeatable",
        name="-f --file --filename",
        missing="name the files to judge, - is stdin",
    )
    namespace: str = flag(
        flags.ONE_NAMESPACE,
        "namespace of objects without one",
        "default",
        name="-n --namespace",
    )
    settings: str = flag(
        flags.FILE, "cardshare.yaml, or a directory with it and volcano-scheduler.conf", variable="CARDSHARE_SETTINGS"
    )
    device_config: str = flag(
        flags.FILE, "device-config.yaml of the device plugins", variable="CARDSHARE_DEVICE_CONFIG"
    )


def check(options: Check, stdin: TextIO) -> int:
    """Judge files. Print findings to stdout and errors to stderr.

    Returns:
        0 if everything is admitted, 1 if something is denied, 2 if files or flags are unusable.
    """
    try:
        found = _configuration(options)
    except ConfigError as e:
        for problem in e.problems:
            print(f"check: {problem}", file=sys.stderr)
        return _UNUSABLE
    book = rulebook(found.settings, found.tables, standard_catalog())
    for note in found.notes:
        print(f"check: note: {note}", file=sys.stderr)
    code, count, judged, denied = _OK, 0, 0, 0
    for name in (file for named in options.files for file in _files(named)):
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
            if lacks_spec(one):
                kind = str(one.value["kind"])
                print(f"check: {name}:{one.line}: write the spec of this {kind}; it has none", file=sys.stderr)
                code = _UNUSABLE
            if not is_judged(one):
                continue
            judged += 1
            findings = tuple(judge(one, f"{name}:{one.line}", book, options.namespace))
            for finding in findings:
                print(f"{finding.where}: {finding.text}")
            denied += any(finding.denied for finding in findings)
        if judged == judged_before:
            print(f"{name}: nothing in it was judged: it holds no pod or workload with a spec")
    print(
        f"{counted(count, 'objects')}, {denied} denied" + (f", {count - judged} not judged" if count > judged else "")
    )
    return code or (_DENIED if denied else _OK)


def _files(name: str) -> list[str]:
    """Return the manifests of the directory *name*, as kubectl does; *name* itself if it is none or has none."""
    if name == _STDIN or not isdir(name):
        return [name]
    return sorted(str(one) for one in Path(name).glob("*") if one.suffix in _SUFFIXES and one.is_file()) or [name]


def _why_unread(error: OSError | UnicodeDecodeError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case IsADirectoryError():
            return f"no file in this directory ends in {', '.join(_SUFFIXES)}; name files, or another directory"
        case OSError():
            return f"it cannot be read: {(error.strerror or str(error)).lower()}"
        case _:
            return "it is not UTF-8 text"


def _configuration(options: Check) -> Configuration:
    named = flags.declared(Check, in_process=False)
    missing = [
        f"{named[field]}: found {quoted(path, 256)}; there is no such file"
        for field in ("settings", "device_config")
        if (path := getattr(options, field)) and not exists(path)
    ]
    if missing:
        raise ConfigError(missing)
    settings, devices = (Path(path) if path else None for path in (options.settings, options.device_config))
    return read_once(Files(settings=settings, devices=devices), standard_catalog())


def parse(argv: Sequence[str], environ: Mapping[str, str], prog: str) -> Check:
    """Read the command line of *prog*.

    Raises:
        SystemExit: ``--help``, or invalid arguments.
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Checks manifests of pods and workloads against the admission rules, without a cluster. The "
        "limits of the cluster's own cards are unknown.",
        epilog=f"Exit status: {EXIT_STATUS}.",
        allow_abbrev=False,
    )
    declared, problems = flags.declared(Check, in_process=False), list[str]()
    flags.add(parser, declared)
    found = flags.read(Check, declared, parser.parse_args(argv), environ, problems)
    for problem in problems:
        parser.error(problem)
    return found
