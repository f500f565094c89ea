"""The wheel as a user gets it: built, unpacked outside the checkout, and run there."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the checkout and return what it printed; its errors fail the test."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--disable-pip-version-check", "--target", target, wheel, cwd=target)
    return target


def test_only_two_names_are_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    metadata = {top for top in tops if top.endswith(".dist-info")}
    assert len(metadata) == 1
    assert tops - metadata == {"iosim", "iosim_validation"}


def test_the_source_distribution_can_be_worked_on(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    needed = {
        "Makefile",
        "CONTRIBUTING.md",
        "requirements",
        "reports",
        "tests",
        "benchmarks",
        "docs",
        "validation",
    }
    assert needed <= tops


def test_data_travels_inside_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    profiles = {f"iosim/hwprofiles/{path.name}" for path in (ROOT / "hwprofiles").glob("*.yaml")}
    assert profiles, "the checkout has no hardware profile"
    assert profiles <= names
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "iosim").rglob("*") if path.is_file()}
    assert {name for name in sources if "__pycache__" not in name} <= names


def test_the_wheel_and_the_package_name_one_version(wheel: Path) -> None:
    import iosim

    assert wheel.name.startswith(f"iosim-{iosim.__version__}-")


def test_the_licence_and_the_command_are_declared(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        named = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        assert "licenses/LICENSE" in named
        assert "iosim = iosim.__main__:run" in archive.read(named["entry_points.txt"]).decode()


def run_installed(installed: Path, cwd: Path, *arguments: str) -> str:
    """Run Python on the unpacked wheel; -S leaves out the .pth of an editable install, -P the cwd."""
    import numpy

    dependencies = Path(numpy.__file__).parents[1]
    path = os.pathsep.join(map(str, (installed, dependencies)))
    return run(sys.executable, "-S", "-P", *arguments, cwd=cwd, PYTHONPATH=path, COLUMNS="120")


def test_the_unpacked_wheel_is_what_runs(installed: Path, tmp_path: Path) -> None:
    printed = run_installed(installed, tmp_path, "-c", "import iosim; print(iosim.__file__)")
    assert Path(printed.strip()).is_relative_to(installed)


def test_the_command_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    assert "simulate" in run_installed(installed, tmp_path, "-m", "iosim", "--help")


def test_profiles_are_found_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    listed = run_installed(installed, tmp_path, "-m", "iosim", "hw", "list")
    for path in (ROOT / "hwprofiles").glob("*.yaml"):
        assert path.stem in listed
