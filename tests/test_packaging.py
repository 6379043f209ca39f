"""What pip installs is everything in the three folders, under `guarded_moments` and under no other name."""

import shutil
import subprocess
import sys
import zipfile
from importlib import import_module, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FOLDERS = ("reference", "oracle", "proofs")
DISTRIBUTION = "guarded-moments"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The paths in a wheel, built from a copy of the source so that the checkout stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, "dist"], cwd=source, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def outside(command: str, cwd: Path) -> str:
    """What Python prints for ``command``, run in another folder than the checkout."""
    done = subprocess.run([sys.executable, "-c", command], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_every_module_of_the_three_folders_is_built(wheel: set[str]) -> None:
    modules = {path.relative_to(ROOT).as_posix() for name in FOLDERS for path in (ROOT / name).rglob("*.py")}

    assert {path for path in wheel if path.endswith(".py")} == {f"guarded_moments/{path}" for path in modules}


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for name in FOLDERS for path in (ROOT / name).rglob("*.py")}

    assert {folder for folder in folders if not (folder / "__init__.py").exists()} == set()


def test_nothing_is_built_under_another_name(wheel: set[str]) -> None:
    assert {path.split("/")[0] for path in wheel} == {
        "guarded_moments",
        f"guarded_moments-{metadata.version(DISTRIBUTION)}.dist-info",
    }
    assert "guarded_moments/__init__.py" not in wheel


@pytest.mark.parametrize("folder", FOLDERS)
def test_annotations_are_published(wheel: set[str], folder: str) -> None:
    assert f"guarded_moments/{folder}/py.typed" in wheel


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_the_long_name_imports(folder: str, tmp_path: Path) -> None:
    found = f"import guarded_moments.{folder} as it; print(it.__file__)"
    short = f"from importlib.util import find_spec; print(find_spec({folder!r}))"

    assert outside(found, tmp_path) == import_module(f"guarded_moments.{folder}").__file__
    assert outside(short, tmp_path) == "None"


@pytest.mark.parametrize(("group", "name"), [("console_scripts", "gmc"), ("pytest11", "guarded_moments")])
def test_entry_points_load(group: str, name: str) -> None:
    (entry,) = metadata.entry_points(group=group, name=name)

    assert entry.load() is not None


def test_constraints_pin_every_package_that_is_installed_with_ours() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pins = {canonicalize_name(pin.name): pin.specifier for pin in requirements}

    assert [str(pin) for pin in requirements if not str(pin.specifier).startswith("==")] == []

    waiting = {f"{DISTRIBUTION}[dev]"}
    seen: set[str] = set()
    while waiting:
        seen.add(text := waiting.pop())
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name != DISTRIBUTION:
            assert name in pins, f"{text} is not pinned"
            assert pins[name].contains(Version(metadata.version(name)).public), f"{name} is not the pinned one"
        for child in map(Requirement, metadata.requires(name) or []):
            extras = requirement.extras or {""}
            if child.marker is None or any(child.marker.evaluate({"extra": extra}) for extra in extras):
                waiting |= {str(child)} - seen
