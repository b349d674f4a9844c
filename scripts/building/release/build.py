"""``scripts/release``: builds what is given away, and checks it.

Into one folder: the source archive and the wheel, the chart, the image (if a builder is here and can pull its base) and
the image's file tree for this machine, kubectl-cards as one file, a bill of materials for each of both locks, the notes
from CHANGELOG.md, a provenance statement, and SHA256SUMS over all. Apart from the image, nothing is fetched: what is
packed is what scripts/setup installed by its hashes.
"""

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from core import names
from scripts.building.release import image, onefile, provenance, tree
from scripts.building.release.sbom import sbom

ROOT: Final = Path(__file__).resolve().parents[3]
CHART: Final = ROOT / "deploy" / "chart"
_RUN_WITHIN_S: Final = 120
_BUILD_WITHIN_S: Final = 1200


class ReleaseError(Exception):
    """What is here cannot be released; the text has every reason, a line each."""


def version() -> str:
    """Of the project."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def mistakes(wanted: str) -> Iterator[str]:
    """What does not say version *wanted*, a line each."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    overlay = yaml.safe_load((ROOT / "deploy/overlays/default/kustomization.yaml").read_text(encoding="utf-8"))
    pages = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("deploy/shadow.yaml", "docs/operators/install.md", "docs/zh/operators/install.md")
    }
    settings = next(yaml.safe_load_all((ROOT / "deploy/base/settings.yaml").read_text(encoding="utf-8")))
    said = {
        "core/names.py, VERSION": names.VERSION,
        "deploy/base/settings.yaml, label app.kubernetes.io/version": str(
            settings["metadata"]["labels"]["app.kubernetes.io/version"]
        ),
        "deploy/chart/Chart.yaml, version": chart["version"],
        "deploy/chart/Chart.yaml, appVersion": chart["appVersion"],
        "deploy/overlays/default/kustomization.yaml, newTag": overlay["images"][0]["newTag"],
    }
    said |= {
        f"{name}, image": found for name, text in pages.items() for found in re.findall(r"cardshare:([0-9.]+)\b", text)
    }
    if not notes(wanted):
        yield f"CHANGELOG.md: no section begins with '## [{wanted}] - ' and a date"
    for where, found in said.items():
        if found != wanted:
            yield f"{where}: found {found}; the project's version is {wanted}"


def notes(wanted: str) -> str:
    """What CHANGELOG.md says of version *wanted*, without its heading; "" if it says nothing."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() + "\n" if found else ""


def build(folder: Path, *, key: Path | None = None, with_image: bool = True) -> tuple[Path, ...]:
    """Build everything into *folder*, which is made; the files, SHA256SUMS last.

    Args:
        folder: where to.
        key: signs the provenance statement (Ed25519, PEM); None leaves it unsigned.
        with_image: build the image too, if a builder is here.

    Raises:
        ReleaseError: versions differ, or what was built does not do what it should.
    """
    wanted = version()
    if found := tuple(mistakes(wanted)):
        raise ReleaseError("\n".join(found))
    folder.mkdir(parents=True, exist_ok=True)
    files = [*_archives(folder), *_made(folder, wanted)]
    if with_image:
        archive = folder / f"cardshare-{wanted}-image.tar"
        try:
            image.build(ROOT, wanted, archive)
            files.append(archive)
        except image.NoImageError as e:
            sys.stderr.write(f"scripts/release: no image: {e}\n")
    if found := tuple(_faults(files, wanted)):
        raise ReleaseError("\n".join(found))
    files.append(_proven(folder, files, wanted, key))
    sums = folder / "SHA256SUMS"
    lines = (f"{provenance.sha256_of(path)}  {path.name}\n" for path in sorted(files))
    sums.write_text("".join(lines), encoding="utf-8")
    return (*files, sums)


def _proven(folder: Path, files: Sequence[Path], wanted: str, key: Path | None) -> Path:
    """The provenance statement about *files*, signed if there is a *key*."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    locks = [ROOT / name for name in ("requirements.lock", "requirements-cli.lock", "requirements-dev.lock")]
    said = provenance.statement(files, version=wanted, commit=commit, is_changed=bool(changes), locks=locks)
    path = folder / f"cardshare-{wanted}.intoto.json{'l' if key else ''}"
    try:
        path.write_bytes(said if key is None else provenance.signed(said, key))
    except provenance.UnusableKeyError as e:
        raise ReleaseError(f"--key: {e}") from e
    return path


def _git(*words: str) -> str:
    """What git prints; "" if this is no checkout."""
    git = shutil.which("git")
    command = [git or "git", "-C", str(ROOT), *words]
    return (
        ""
        if git is None
        else subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    )


def _archives(folder: Path) -> tuple[Path, ...]:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    # One wheel for every machine, unless somebody asks for a compiled one; to compile takes minutes.
    environ = {"CARDSHARE_CORE": "interpreted", **os.environ}
    ended = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=_BUILD_WITHIN_S
    )
    if ended.returncode:
        raise ReleaseError(f"hatchling build: {ended.stderr[-1000:]}")
    return tuple(sorted((*folder.glob("cardshare-*.tar.gz"), *folder.glob("cardshare-*.whl"))))


def _made(folder: Path, wanted: str) -> Iterator[Path]:
    chart = folder / f"cardshare-chart-{wanted}.tgz"
    chart.write_bytes(packed(CHART))
    yield chart
    with tempfile.TemporaryDirectory() as name:
        tree.build(Path(name))
        files = folder / f"cardshare-{wanted}-image-tree.tgz"
        files.write_bytes(packed(Path(name), "."))
    yield files
    one = folder / "kubectl-cards"
    onefile.build(one)
    yield one
    for name, lock in (("cardshare", "requirements.lock"), ("kubectl-cards", "requirements-cli.lock")):
        bill = folder / f"{name}-{wanted}.cdx.json"
        text = (ROOT / lock).read_text(encoding="utf-8")
        bill.write_text(sbom(text, name=name, version=wanted), encoding="utf-8")
        yield bill
    said = folder / f"cardshare-{wanted}-notes.md"
    said.write_text(notes(wanted), encoding="utf-8")
    yield said


def packed(folder: Path, name: str = "cardshare") -> bytes:
    """What is in *folder*, under *name*, as helm packs a chart; the same bytes every time."""
    found = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=found, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(folder)}")
            text = path.read_bytes()
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    return found.getvalue()


def _faults(files: Sequence[Path], wanted: str) -> Iterator[str]:
    """What of the built *files* is not as it should be."""
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    for path in files:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                tops = {name.partition("/")[0] for name in wheel.namelist()}
            tops = {top for top in tops if not top.endswith(".dist-info")}
            if tops != set(rooms["wheel"]["packages"]):
                yield f"{path.name}: found the packages {', '.join(sorted(tops))}"
        if path.name.startswith("cardshare-") and not path.name.startswith((f"cardshare-{wanted}", "cardshare-chart-")):
            yield f"{path.name}: it is not of version {wanted}; empty the folder"
        if path.name == "kubectl-cards":
            with tempfile.TemporaryDirectory() as home:
                said = run_alone(path, Path(home), "--version")
            if said != f"kubectl-cards {wanted}\n":
                yield f"{path.name} --version: found {said!r}"


def run_alone(one: Path, home: Path, *words: str) -> str:
    """What the one file says, run by a Python without any package; it unpacks itself in *home*."""
    # The interpreter that made the environment: its own packages are left out by -I and -S.
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    ended = subprocess.run(
        [str(python), "-I", "-S", str(one), *words],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_RUN_WITHIN_S,
    )
    return ended.stdout + ended.stderr


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``scripts/release``."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=re.sub(r"\s+", " ", (__doc__ or "")))
    parser.add_argument("folder", nargs="?", default="dist", help="where to; default dist")
    parser.add_argument("--key", type=Path, help="sign the provenance statement with this Ed25519 key (PEM)")
    parser.add_argument("--no-image", action="store_true", help="leave the image out, for example without a network")
    options = parser.parse_args(argv)
    try:
        files = build(Path(options.folder), key=options.key, with_image=not options.no_image)
    except ReleaseError as e:
        sys.stderr.write(f"{e}\n")
        return 1
    for path in files:
        sys.stdout.write(f"{path}  {path.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
