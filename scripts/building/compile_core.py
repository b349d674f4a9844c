"""Compiles `core` with mypyc: ``python scripts/building/compile_core.py [--in-place TREE]``.

Prints a folder that holds all of `core`, what is compiled beside its source; put before the checkout on PYTHONPATH, it
is what runs. It is kept, and made anew when the sources, Python or mypy differ. With --in-place, TREE/core is compiled
where it is. Exit status 3: this machine has nothing to compile with. Who uses what was compiled is decided elsewhere.
"""

import argparse
import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / ".cache" / "core"
NO_COMPILER: Final = 3

# What is left as it is, and why: patterns, in which * stands for folders too.
INTERPRETED: Final[Mapping[str, str]] = {
    "core/configuration.py": "a generic dataclass with slots fails at import; read only when a text changes",
    "core/errors.py": "mypyc compiles no class made of RuntimeError",
    "core/port/*": "its protocols are bases of dialects, also in tests; nothing extends a class made by mypyc",
    "core/dialects/*/dialect.py": "the same: its base is such a protocol",
    "core/sharing/dialect.py": "the same",
    "core/view/history.py": "msgspec reads its classes from JSON, by types that mypyc does not keep",
    "core/view/plan.py": "the same, from a file",
    "core/wire/*": "msgspec makes its Structs by a metaclass, which mypyc does not; msgspec itself is C",
}
# Warnings are of code that nobody wrote; but mypyc (2.4) has read a pointer that was never set, which ends a process.
_FLAGS: Final = ("-Wno-all", "-Wno-error", "-Werror=uninitialized")
# Points-to analysis takes a third of the time.
_FLAGS_OF_GCC: Final = ("-Werror=maybe-uninitialized", "-fno-tree-pta")
_FLAGS_OF_CLANG: Final = ("-Werror=sometimes-uninitialized",)
_KEPT_MAX: Final = 4


class NothingToCompileWithError(Exception):
    """This machine lacks what compiling needs; the text says what."""


class CompileError(Exception):
    """mypyc or the C compiler refused core."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile as the module says."""
    parser = argparse.ArgumentParser(prog="scripts/compile", description=__doc__)
    parser.add_argument("--in-place", type=Path, metavar="TREE", help="compile TREE/core where it is, print nothing")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        _compile(args.child)
        return 0
    try:
        _check_tools()
        if args.in_place:
            compile_in(args.in_place.resolve())
        else:
            print(compiled())
    except NothingToCompileWithError as e:
        print(f"scripts/compile: {e}; core runs interpreted", file=sys.stderr)
        return NO_COMPILER
    except CompileError:
        told = "core could not be compiled; the file, or its function in C, is named above: mend it, or"
        print(f"scripts/compile: {told} name it in INTERPRETED of compile_core.py with the reason", file=sys.stderr)
        return 1
    return 0


def compiled() -> Path:
    """A folder with this checkout's core, compiled; made if it is not there yet."""
    found = KEPT / _fingerprint()
    KEPT.mkdir(parents=True, exist_ok=True)
    with _alone(KEPT / "lock"):
        if not found.exists():
            print("scripts/compile: compiling core, some minutes", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=KEPT) as folder:
                tree = Path(folder) / "tree"
                shutil.copytree(ROOT / "core", tree / "core", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
                compile_in(tree)
                tree.rename(found)
        found.touch()
        kept = sorted((path for path in KEPT.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for path in kept[:-_KEPT_MAX]:
            shutil.rmtree(path)
    return found


def compile_in(tree: Path) -> None:
    """Compile core in *tree*, next to its sources; raises CompileError once the errors are on stderr."""
    # In a process of its own: mypyc and setuptools work in the current folder, and keep all they read.
    child = [sys.executable, __file__, "--child", str(tree)]
    done = subprocess.run(child, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    for made in ("build", ".mypy_cache"):
        shutil.rmtree(tree / made, ignore_errors=True)
    if done.returncode:
        # Of what makes code slow it warns too: nothing that is wrong.
        print(*(line for line in done.stdout.splitlines() if ": warning: " not in line), sep="\n", file=sys.stderr)
        raise CompileError


def sources(tree: Path) -> list[str]:
    """The files of *tree* that are compiled, relative to it."""
    files = sorted(path.relative_to(tree).as_posix() for path in (tree / "core").rglob("*.py"))
    return [file for file in files if not file.endswith("/__init__.py") and not is_interpreted(file)]


def is_interpreted(file: str) -> bool:
    """Whether *file*, relative to the tree, is left as it is."""
    return any(fnmatch(file, pattern) for pattern in INTERPRETED)


def _compile(tree: Path) -> None:
    from mypyc.build import mypycify  # noqa: PLC0415 (slow, and only there where core is compiled)
    from setuptools import setup  # noqa: PLC0415

    files = sources(tree)
    # Two libraries are compiled at once; more would call each other by pointers more often.
    dialects = [file for file in files if file.startswith("core/dialects/")]
    others = [file for file in files if file not in dialects]
    groups = [(dialects, "core_dialects"), (others, "core_others")]
    extensions = mypycify(
        ["--config-file=", "--ignore-missing-imports", *files],
        opt_level="1",
        debug_level="0",
        separate=[group for group in groups if group[0]],
    )
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *_flags()]
    setup(name="core", packages=[], ext_modules=extensions, script_args=["-q", "build_ext", "--inplace", "-j2"])


def _flags() -> tuple[str, ...]:
    """What the C compiler is asked beside what mypyc asks."""
    said = subprocess.run([*_compiler(), "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return (*_FLAGS, *(_FLAGS_OF_CLANG if "clang" in said else _FLAGS_OF_GCC))


def _compiler() -> list[str]:
    """The words by which the C compiler is called."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def _check_tools() -> None:
    for package in ("mypy", "setuptools"):
        try:
            version(package)
        except PackageNotFoundError:
            raise NothingToCompileWithError(f"{package} is not installed") from None
    compiler = _compiler()[0]
    if shutil.which(compiler) is None:
        raise NothingToCompileWithError(f"there is no C compiler ({compiler}; Debian: apt-get install gcc libc6-dev)")
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if not header.exists():
        raise NothingToCompileWithError(f"{header} is not there (Debian: apt-get install python3-dev)")


def _fingerprint() -> str:
    """Of all that what is compiled is made of."""
    found = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()} {version('mypy')}".encode())
    for path in (Path(__file__), *sorted((ROOT / "core").rglob("*.py"))):
        text = path.read_bytes()
        found.update(f"{path.relative_to(ROOT)} {len(text)} ".encode() + text)
    return found.hexdigest()[:16]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While no other process is in here, where the system can tell."""
    try:
        import fcntl  # noqa: PLC0415 (not on Windows)
    except ImportError:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    raise SystemExit(main())
