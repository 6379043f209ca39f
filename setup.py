"""Name every package to install, so that a new subpackage cannot be forgotten.

All other metadata is in `pyproject.toml`. This file exists for one thing that its tables cannot say:
setuptools finds packages only under the names that their folders have, and ours install under
another one (`reference/` as `guarded_moments.reference`). Which folder gets which name is read from
`[tool.setuptools.package-dir]`, and stands nowhere else.
"""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

PROJECT = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]

setup(
    packages=[
        name
        for package, folder in FOLDERS.items()
        for name in (package, *(f"{package}.{subpackage}" for subpackage in find_packages(folder)))
    ],
)
