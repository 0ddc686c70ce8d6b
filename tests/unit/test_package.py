"""The package as it is installed: what the wheel holds, that installing leaves the library intact, and what importing costs."""

import configparser
import importlib.metadata
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentinductor.kernel_cache import maintenance
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.kernel_cache.tiers import LIBRARY, library

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
HIDDEN = {".gitattributes"}  # for git, not for users


def python(code: str, **more) -> dict:
    """What `code` prints as JSON, from a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built without the network and away from the sources, where it would leave its build directory."""
    if int(importlib.metadata.version("setuptools").split(".")[0]) < 77:
        pytest.skip("needs setuptools>=77, which pyproject.toml's dev extra has")
    source, out = tmp_path_factory.mktemp("source") / "project", tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "agentinductor", source / "agentinductor", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    done = subprocess.run([*PIP, "wheel", source, "--no-deps", "--no-build-isolation", "-w", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_every_module_and_the_library(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {path for path in (ROOT / "agentinductor").rglob("*.py") if LIBRARY not in path.parents}
    shipped = {path for path in LIBRARY.rglob("*") if path.is_file() and "__pycache__" not in path.parts and path.name not in HIDDEN}
    assert held - {f"agentinductor/library/{name}" for name in HIDDEN} == {
        path.relative_to(ROOT).as_posix() for path in modules | shipped}


def test_the_wheel_names_its_commands_and_its_backend(wheel):
    archive, entries = zipfile.ZipFile(wheel), configparser.ConfigParser()
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
    entries.read_file(io.TextIOWrapper(archive.open(name), "utf-8"))
    assert {section: dict(entries[section]) for section in entries.sections()} == {
        "console_scripts": {"agentinductor": "agentinductor.cli.main:main"},
        "torch_dynamo_backends": {"agentinductor": "agentinductor.api:agentinductor"}}


def test_an_installed_library_is_intact(wheel, tmp_path):
    """pip compiles each kernel.py to bytecode, beside it."""
    subprocess.run([*PIP, "install", "--quiet", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    assert any("library" in path.parts for path in (tmp_path / "site").rglob("__pycache__")) or not any(LIBRARY.rglob("*.py"))
    installed = KernelCache(tmp_path / "site/agentinductor/library", writable=False, check_owner=False)
    assert maintenance.verify(installed).sound
    assert installed.content_digest() == library().content_digest()
    for definition in library().definitions():
        assert installed.solutions(definition.digest) == library().solutions(definition.digest)


def test_importing_torch_imports_nothing_of_ours(tmp_path):
    """The entry point is read when a backend is asked for by name, not before."""
    found = python("import json, sys, torch; print(json.dumps([m for m in sys.modules if m.split('.')[0] == 'agentinductor']))",
                   cwd=tmp_path)
    assert found == []


def test_importing_us_costs_little_beyond_torch(tmp_path):
    code = ("import json, sys, time, torch; before = set(sys.modules); start = time.process_time(); import agentinductor; "
            "print(json.dumps([time.process_time() - start, sorted(set(sys.modules) - before)]))")
    seconds, modules = python(code, cwd=tmp_path)
    assert modules == ["agentinductor"]
    assert seconds < 0.05
