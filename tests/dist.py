"""`make dist`: build sdist and wheel, check them, and use the wheel in a new virtual environment.

There, the first example of docs/simulation.md finds its bug.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TIMEOUT_S = 900
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


class StepFailed(Exception):
    """A command failed. The message is its output."""


def run(*command: str | Path, cwd: Path = ROOT, exit_code: int = 0) -> str:
    """Run a command, and return its standard output. Raise StepFailed if it has another exit code."""
    completed = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "120", "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if completed.returncode != exit_code:
        raise StepFailed(f"{' '.join(map(str, command))}\n{completed.stdout}{completed.stderr}")
    return completed.stdout.strip()


def build(uv: Path) -> list[Path]:
    """Build the sdist, and the wheel from the sdist."""
    for old in DIST.glob("odradek-*"):
        old.unlink()
    run(uv, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", DIST)
    artifacts = sorted(DIST.glob("odradek-*"))
    for path in artifacts:
        print(f"built {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes", flush=True)
    run(sys.executable, "-m", "twine", "check", "--strict", *artifacts)
    print("twine check --strict: passed", flush=True)
    return artifacts


def use(uv: Path, wheel: Path, folder: Path) -> None:
    """Install the wheel with its locked dependencies, and run a broker with one committed transaction."""
    environment = folder / "venv"
    python = environment / "bin" / "python"
    run(uv, "venv", "--quiet", "--python", sys.executable, environment)
    install = (uv, "pip", "install", "--quiet", "--python", python)
    run(*install, "--require-hashes", "--requirement", ROOT / "requirements-broker.lock")
    run(*install, "--no-deps", wheel)
    run(uv, "pip", "check", "--quiet", "--python", python)
    print(f"installed {wheel.name} and its dependencies into a new environment; pip check: passed", flush=True)

    def odradek(*arguments: str) -> str:
        output = run(environment / "bin" / "odradek", *arguments, cwd=folder)
        print(f"odradek {' '.join(arguments)}: {output}", flush=True)
        return output

    odradek("--version")
    cluster = ("--dir", str(folder / "cluster"))
    bootstrap = odradek("up", "--brokers", "1", "--port", "0", "--detach", *cluster).removeprefix("ready ")
    try:
        odradek("topics", "create", "payments", "--bootstrap", bootstrap)
        odradek("produce", "payments", "42", "--transaction", "--bootstrap", bootstrap)
        committed = odradek("consume", "payments", "--json", "--bootstrap", bootstrap)
    finally:
        odradek("down", *cluster)
    if '"value": "42"' not in committed:
        raise StepFailed(f"the record of the committed transaction is not in the topic; consume printed: {committed!r}")


def simulate(uv: Path, wheel: Path, folder: Path) -> None:
    """Install the extra for tests and aiokafka, and let the example of the documentation find its bug and replay it."""
    python = folder / "venv" / "bin" / "python"
    requirement = f"odradek[test] @ {wheel.as_uri()}"
    constraints = ("--constraint", ROOT / "requirements.lock")
    run(uv, "pip", "install", "--quiet", "--python", python, *constraints, requirement, "aiokafka")
    example = EXAMPLE.search((ROOT / "docs" / "simulation.md").read_text())
    if example is None:
        raise StepFailed("docs/simulation.md has no example")
    project = folder / "project"
    project.mkdir()
    (project / "test_invoices.py").write_text(example[1])
    report = run(python, "-m", "pytest", "-q", "test_invoices.py", cwd=project, exit_code=1)
    replay = re.search(r"^replay: python (-m odradek.simulation test_invoices.py:.*)$", report, re.MULTILINE)
    finding = re.search(r"^  finding: (input b'order \d+' of orders is 2 times in invoices)$", report, re.MULTILINE)
    trace = re.search(r"^reduced to .* (trace \w+), in ", report, re.MULTILINE)
    if replay is None or finding is None or trace is None:
        raise StepFailed(f"the simulation does not find the bug of the example:\n{report}")
    replayed = run(python, *shlex.split(replay[1]), cwd=project, exit_code=1)
    if finding[1] not in replayed or trace[1] not in replayed:
        raise StepFailed(f"the command does not replay the finding: python {replay[1]}")
    print(f"simulation outside of the tree: found and replayed: {finding[1]}, {trace[1]}", flush=True)


def main() -> int:
    uv = Path(sys.executable).with_name("uv")
    try:
        _, wheel = sorted(build(uv), key=lambda path: path.suffix == ".whl")
        with tempfile.TemporaryDirectory(prefix="odradek-dist-") as folder:
            use(uv, wheel, Path(folder))
            simulate(uv, wheel, Path(folder))
    except StepFailed as failure:
        print(f"make dist failed: {failure}", file=sys.stderr)
        return 1
    print("make dist: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
