"""Where the real API server's binaries come from, with a Go that is a shell script."""

import threading
from pathlib import Path

import pytest

from tests.support.servers.realapi_binaries import BUILD_COMMAND, RealApiUnavailable, cache_folder, find, find_or_build

# Answers `go env GOVERSION`; for `go build ... -o OUTPUT PACKAGE` it makes a program and notes that it was asked.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.0; exit 0; fi
for word; do package=$word; if [ "$before" = -o ]; then output=$word; fi; before=$word; done
echo "$package" >> "$ASKED"
sleep 0.05
printf '#!/bin/sh\\n' > "$output" && chmod +x "$output"
"""


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine with a shell's tools and nothing else."""
    return {
        "PATH": f"{tmp_path / 'bin'}:/nowhere",
        "CARDSHARE_CACHE": str(tmp_path / "cache"),
        "ASKED": str(tmp_path / "asked"),
    }


@pytest.fixture
def with_go(tmp_path: Path, environ: dict[str, str]) -> dict[str, str]:
    program(tmp_path / "bin" / "go", GO)
    return environ | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


def test_without_go_and_binaries_the_reason_says_what_to_install_or_name(environ: dict[str, str]):
    with pytest.raises(RealApiUnavailable, match=r"^Go 1\.26 not found; install Go 1\.26, or name .*KUBE_APISERVER"):
        find(environ)


def test_a_go_that_is_too_old_is_quoted(tmp_path: Path, environ: dict[str, str]):
    program(tmp_path / "bin" / "go", "#!/bin/sh\necho 'go.mod requires go >= 1.26.0' >&2\nexit 1\n")
    with pytest.raises(RealApiUnavailable, match=r"Go 1\.26 not found \(go\.mod requires go >= 1\.26\.0\)"):
        find(environ)


def test_with_go_alone_the_reason_names_the_command_that_builds(with_go: dict[str, str]):
    with pytest.raises(RealApiUnavailable) as raised:
        find(with_go)
    assert BUILD_COMMAND in raised.value.reason


def test_what_a_variable_names_wins_over_the_assets_and_these_over_the_cache(tmp_path: Path, with_go: dict[str, str]):
    built = find_or_build(with_go)
    assert built.etcd == cache_folder(with_go) / "etcd"
    asset = program(tmp_path / "assets" / "etcd")
    with_assets = with_go | {"KUBEBUILDER_ASSETS": str(asset.parent)}
    assert find(with_assets).etcd == asset
    assert find(with_assets).kube_apiserver == built.kube_apiserver
    named = program(tmp_path / "named" / "my-etcd")
    assert find(with_assets | {"ETCD": str(named)}).etcd == named


def test_a_variable_that_names_no_program_is_reported_by_name(tmp_path: Path, with_go: dict[str, str]):
    with pytest.raises(RealApiUnavailable, match=r"KUBE_APISERVER names .*/absent, which is no program"):
        find(with_go | {"KUBE_APISERVER": str(tmp_path / "absent")})


def test_who_names_server_and_etcd_needs_no_go_and_builds_nothing(tmp_path: Path, environ: dict[str, str]):
    named = {"ETCD": str(program(tmp_path / "e")), "KUBE_APISERVER": str(program(tmp_path / "k"))}
    assert find_or_build(environ | named).kube_scheduler is None
    assert not (tmp_path / "cache").exists()


def test_two_builders_at_once_build_once(tmp_path: Path, with_go: dict[str, str]):
    builders = [threading.Thread(target=find_or_build, args=(with_go,)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert len(asked) == len(set(asked)) == 7
    assert sorted(path.name for path in cache_folder(with_go).iterdir()) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ]


def test_a_build_that_fails_leaves_no_folder_and_quotes_the_compiler(tmp_path: Path, with_go: dict[str, str]):
    program(tmp_path / "bin" / "go", GO.replace("sleep 0.05", "echo no space left; exit 1"))
    with pytest.raises(
        RealApiUnavailable, match=r"(?s)go build go\.etcd\.io/etcd.* failed, exit code 1:\nno space left"
    ):
        find_or_build(with_go)
    assert [path.name for path in cache_folder(with_go).parent.iterdir()] == [f"{cache_folder(with_go).name}.lock"]
