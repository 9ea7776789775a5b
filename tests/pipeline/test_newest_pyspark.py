"""The tests of sink and source with the newest pyspark 4, in a virtual environment of its own."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1_800)]
NEWEST = "pyspark>4.0.0,<5"
TESTS = ("test_spark_sink.py", "test_spark_source.py")
INSTALL_SECONDS_MAX = 900
RUN_SECONDS_MAX = 900


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with the newest pyspark, and all other packages of this one.

    Fail, and do not skip, if the package registry does not provide it: else this test would show nothing.
    """
    directory = tmp_path_factory.mktemp("newest") / "venv"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, directory], check=True)
    interpreter = directory / "bin" / "python"
    installed = subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", interpreter, NEWEST],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if installed.returncode != 0:
        pytest.fail(f"the registry does not provide {NEWEST}, so no newer version was tested:\n{installed.stderr}")
    [packages] = directory.glob("lib/python*/site-packages")
    folders = [each for each in site.getsitepackages() if Path(each).is_dir()]
    # `addsitedir` appends, so the new pyspark precedes the one of this environment.
    (packages / "base.pth").write_text("".join(f"import site; site.addsitedir({each!r})\n" for each in folders))
    return interpreter


def test_sink_and_source_work_with_the_newest_pyspark(python: Path) -> None:
    version = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert version != pyspark.__version__, f"{version} is the version of all other tests"
    files = [str(Path(__file__).with_name(name)) for name in TESTS]
    command: list[str | Path] = [python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *files]
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYSPARK_PYTHON", "PYTEST_XDIST_WORKER"}
    }
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, env=environment, check=False
    )
    assert finished.returncode == 0, f"with pyspark {version}:\n{finished.stdout[-8_000:]}{finished.stderr[-2_000:]}"
    assert " passed" in finished.stdout
