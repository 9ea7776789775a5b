"""Installation of Odradek beside a project with packages named `broker`, `storage` and `protocol`.

New virtual environments find the libraries of the test environment through a .pth file. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.interop.test_testing_page import TEST, examples

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
# Python keeps the bytecode of hatch_build.py in `__pycache__`. It is not a package of the project.
TOP_LEVEL_FOLDERS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and path.name not in ("odradek", "__pycache__") and path.name.isidentifier()
)
PROJECT_PACKAGES = ("broker", "protocol", "storage")
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shop"
version = "1"

[tool.hatch.build.targets.wheel]
packages = ["broker", "protocol", "storage"]
"""
PYTEST_CONFIGURATION = """[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
PLUGIN_TESTS = """
import pytest
from confluent_kafka import Producer

from odradek.testing import Kafka


@pytest.mark.kafka(brokers=3, topics={"orders": 6})
@pytest.mark.parametrize("number", range(4))
def test_orders(kafka: Kafka, number: int) -> None:
    assert len(kafka.cluster.node_ids) == 3
    producer = Producer(kafka.client_config("confluent-kafka"))
    producer.produce("orders", b"%d" % number)
    assert producer.flush(30) == 0
    assert kafka.values("orders") == [b"%d" % number]
"""
IMPORTS = "import broker, protocol, storage; assert {broker.NAME, protocol.NAME, storage.NAME} == {'shop'}"
APPLICATION = f"""
{IMPORTS}
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import odradek.client
from odradek import LocalCluster

with LocalCluster() as cluster:
    print(Path(f"/proc/{{cluster.pid(1)}}/cmdline").read_text().replace(chr(0), " "))
    producer = Producer({{"bootstrap.servers": cluster.bootstrap, "transactional.id": "shop"}})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"42", partition=0)
    producer.commit_transaction()
    consumer = Consumer({{"bootstrap.servers": cluster.bootstrap, "group.id": "shop"}})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(10).value() == b"42"
    consumer.close()
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def build(tree: Path, target: str, directory: Path) -> Path:
    """Build a wheel or an sdist of `tree` into the new directory `directory`."""
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", directory, cwd=tree)
    [created] = directory.iterdir()
    return created


class Environment:
    """New virtual environment that can import the libraries of the test environment, except Odradek."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run("uv", "venv", "--quiet", "--offline", "--python", sys.executable, path, cwd=path.parent, PATH=PATH)
        self.python = path / "bin" / "python"
        [site_packages] = path.glob("lib/python*/site-packages")
        (site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, *packages: str | Path) -> None:
        options = ("--quiet", "--offline", "--no-deps", "--no-build-isolation", "--python", self.python)
        run("uv", "pip", "install", *options, *packages, cwd=self.path, PATH=PATH)

    def uninstall(self, name: str) -> None:
        run("uv", "pip", "uninstall", "--quiet", "--python", self.python, name, cwd=self.path, PATH=PATH)

    def importable(self, *names: str) -> list[str]:
        program = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
        importable: list[str] = eval(run(self.python, "-c", program, *names, cwd=self.path))
        return importable


PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel") / "out")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "pyproject.toml").write_text(PROJECT)
    for name in PROJECT_PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("NAME = 'shop'\n")
    (folder / "application.py").write_text(APPLICATION)
    return folder


@pytest.fixture(scope="module", params=["editable", "wheel"])
def environment(
    request: pytest.FixtureRequest, wheel: Path, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    created = Environment(tmp_path_factory.mktemp(request.param) / "venv")
    created.install(*(["--editable", ROOT] if request.param == "editable" else [wheel]))
    created.install(project)
    return created


def test_wheel_contains_only_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.split("/")[0] for name in names} == {
        "odradek",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    assert {"odradek/py.typed", "odradek/broker/node.py", "odradek/storage/config.py"} <= set(names)
    assert {"odradek/pipeline/pom.xml", "odradek/pipeline/log4j2.properties"} <= set(names)
    console = ("templates/base.html", "static/tokens.css", "static/vendor/htmx.LICENSE", "static/vendor/uplot.LICENSE")
    assert {f"odradek/console/{name}" for name in console} <= set(names)
    parts = {part for name in names for part in name.split("/")}
    assert [part for part in parts if part == "tests" or part.startswith("test_") or part.endswith(".pyc")] == []


def test_wheel_from_the_sdist_equals_the_wheel_from_the_tree(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as opened:
        opened.extractall(tmp_path / "tree", filter="data")
    [tree] = (tmp_path / "tree").iterdir()
    rebuilt = build(tree, "wheel", tmp_path / "wheel")
    assert hashlib.sha256(rebuilt.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()


def test_installation_exposes_only_odradek_and_the_project(environment: Environment) -> None:
    assert environment.importable("odradek", *TOP_LEVEL_FOLDERS) == ["odradek", *PROJECT_PACKAGES]


def test_application_of_the_project_uses_local_cluster(environment: Environment, project: Path) -> None:
    run(environment.python, "application.py", cwd=project, PYTHONPATH=str(project))


def test_command_line_runs_in_the_project(environment: Environment, project: Path, tmp_path: Path) -> None:
    def odradek(*arguments: str) -> str:
        return run(environment.path / "bin" / "odradek", *arguments, cwd=project, PYTHONPATH=str(project))

    assert odradek("--version").startswith("odradek 0.")
    ready = odradek("up", "--brokers", "1", "--port", "0", "--detach", "--dir", str(tmp_path))
    try:
        bootstrap = ready.removeprefix("ready ").strip()
        odradek("topics", "create", "orders", "--bootstrap", bootstrap)
        assert "orders" in odradek("topics", "list", "--bootstrap", bootstrap)
    finally:
        odradek("down", "--dir", str(tmp_path))


def test_wheel_has_the_marker_of_types_and_the_entry_point_of_the_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        [entry_points] = [name for name in names if name.endswith("/entry_points.txt")]
        assert {"odradek/py.typed", "odradek/testing/plugin.py"} <= set(names)
        assert "[pytest11]\nodradek = odradek.testing.plugin" in files.read(entry_points).decode()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_examples_of_the_page_pass_and_have_complete_types_with_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """A new user installs the wheel in an empty folder, and copies the examples of docs/testing.md."""
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text(f"{PYTEST_CONFIGURATION}asyncio_mode = auto\n")
    tests = 0
    for name, block in examples():
        (folder / name).write_text(block)
        tests += len(TEST.findall(block))
    run(environment.python, "-m", "mypy", "--strict", "--ignore-missing-imports", ".", cwd=folder, MYPYPATH="")
    output = run(environment.python, "-m", "pytest", "-q", "-n", "2", cwd=folder, TMPDIR=str(tmp_path))
    assert f"{tests} passed" in output, output
    assert list(tmp_path.glob("odradek-tests-*/run-*")) == []


@pytest.mark.full
def test_project_with_the_wheel_tests_with_three_brokers_in_two_processes(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text(PYTEST_CONFIGURATION)
    (folder / "test_shop.py").write_text(PLUGIN_TESTS)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    output = run(environment.python, "-m", "pytest", "-q", "-n", "2", cwd=folder, TMPDIR=str(temporary))
    assert "4 passed" in output, output
    assert list(temporary.glob("odradek-tests-*/run-*")) == []


def test_broker_of_an_installation_in_a_target_directory_runs_from_it(
    wheel: Path, project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    options = ("--quiet", "--offline", "--no-deps", "--python", sys.executable, "--target", target)
    run("uv", "pip", "install", *options, wheel, cwd=tmp_path, PATH=PATH)
    path = os.pathsep.join(map(str, [target, project]))
    command_line = run(sys.executable, "application.py", cwd=project, PYTHONPATH=path)
    assert str(target / "odradek") in command_line


@pytest.mark.parametrize("name", ["odradek", "shop"])
def test_uninstallation_of_one_keeps_the_other(wheel: Path, project: Path, tmp_path: Path, name: str) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(wheel, project)
    environment.uninstall(name)
    if name == "odradek":
        run(environment.python, "-c", IMPORTS, cwd=tmp_path)
        assert environment.importable("odradek") == []
    else:
        run(environment.path / "bin" / "odradek", "--version", cwd=tmp_path)
        run(environment.python, "-m", "odradek.broker", "--help", cwd=tmp_path)
        assert environment.importable(*PROJECT_PACKAGES) == []
