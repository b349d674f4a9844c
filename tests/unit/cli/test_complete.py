"""What may stand next on the command line, as kubectl's completion asks for it."""

from collections.abc import Mapping, Sequence

import pytest

from cli.complete import candidates

NAMES = {"nodes": ("gpu-1", "gpu-2", "cpu-1"), "namespaces": ("default", "team"), "pods": ("train", "eval")}


async def fetched(kind: str, flags: Mapping[str, str]) -> Sequence[str]:
    return NAMES[kind] if flags.get("--namespace", "") in ("", "team") else ("other",)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            [""],
            [
                "apply",
                "check",
                "doctor",
                "explain",
                "fits",
                "get",
                "plan",
                "queues",
                "shadow",
                "simulate",
                "snapshot",
                "version",
                "waiting",
                "web",
                "why",
            ],
        ),
        (["explain", "-n", "t"], ["team"]),
        (["get", "--al"], ["--all-namespaces"]),
        (["check", "--f"], ["--file", "--filename"]),
        (["check", "-f", ""], []),
        (["version", ""], []),
        (["e"], ["explain"]),
        (["get", ""], ["cpu-1", "gpu-1", "gpu-2"]),
        (["get", "gpu-1", "g"], ["gpu-2"]),
        (["--context", "c", "get", "c"], ["cpu-1"]),
        (["explain", ""], ["eval", "train"]),
        (["explain", "-n", "team", "t"], ["train"]),
        (["why", ""], ["eval", "train"]),
        (["explain", "--namespace=far", ""], ["other"]),
        (["explain", "train", ""], []),
        (["get", "-o", ""], ["json", "text", "wide", "yaml"]),
        (["explain", "-o", "w"], []),
        (["get", "--no"], ["--no-headers"]),
        (["--kube"], ["--kubeconfig"]),
        (["--kubeconfig", ""], []),
        (["waiting", ""], []),
        (["waiting", "--by", ""], ["pod", "queue", "reason"]),
        (["waiting", "-n", "t"], ["team"]),
        (["fits", "--m"], ["--memory"]),
        (["fits", "--memory", ""], []),
        (["plan", "--p"], ["--per-namespace", "--pods", "--priority"]),
        (["plan", "-o", ""], ["json", "text", "yaml"]),
        (
            ["apply", "--"],
            ["--context", "--dry-run", "--filename", "--kubeconfig", "--settings-map", "--timeout", "--undo", "--yes"],
        ),
        (["nonsense", ""], []),
    ],
)
async def test_what_may_stand_next(words, expected):
    assert await candidates(words, fetched) == expected
