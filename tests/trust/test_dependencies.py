"""The lower bounds of what Headway depends on, and the pinned versions, are without published flaws."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[2]
FIXED = {  # package → the first version without the flaws, and the last of them
    "torch": ("2.10", "CVE-2026-24747: memory corruption by weights_only, which `convert --allow-pickle` uses"),
    "pillow": ("12.3", "writes beyond the heap, decompression bombs"),
    "jinja2": ("3.1.6", "CVE-2025-27516: out of the sandbox, in which chat templates run"),
    "numpy": ("1.22", "CVE-2021-41496"),
    "pyarrow": ("23.0.1", "CVE-2023-47248: code of a Parquet file is run; CVE-2026-25087"),
    "openpyxl": ("2.4.2", "CVE-2017-5992: entities of XML"),
    "scikit-learn": ("1.5", "CVE-2024-5206"),
    "pyyaml": ("5.4", "CVE-2020-14343"),
    "python-multipart": ("0.0.30", "CVE-2026-53538; CVE-2026-42561 and CVE-2026-40347: denial of service"),
    "starlette": ("1.3.1", "limits of forms; PYSEC-2026-248 and CVE-2026-48710: the host of a request; CVE-2025-62727"),
    "fastapi": ("0.133", "the first that takes such a starlette"),
    "h11": ("0.16", "CVE-2025-43859: requests smuggled in chunks"),
    "uvicorn": ("0.11.7", "CVE-2020-7694"),
    "scipy": ("1.10", "CVE-2023-25399"),
    "mkdocs-material": ("9.5.32", "scripts in the search of the documentation"),
}
UNTESTED = ("dev", "docs")  # extras that no user installs: they are pinned


def requirements(text: str) -> list[Requirement]:
    project = tomllib.loads(text)["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in UNTESTED}
    needs = [Requirement(each) for each in [*project["dependencies"], *(e for needs in extras.values() for e in needs)]]
    return [need for need in needs if need.name != "headway"]


def lower_bound(need: Requirement) -> Version | None:
    return max((Version(each.version) for each in need.specifier if each.operator in (">=", "==")), default=None)


def faults(text: str) -> list[str]:
    found = []
    for need in requirements(text):
        bound = lower_bound(need)
        fixed = FIXED.get(canonicalize_name(need.name))
        if bound is None:
            found.append(f"{need}: no lower bound")
        elif fixed is not None and bound < Version(fixed[0]):
            found.append(f"{need}: {fixed[1]}")
    return found


def test_lower_bounds_have_no_published_flaws() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert faults(text) == []
    named = {canonicalize_name(need.name) for need in requirements(text)}
    assert FIXED.keys() - named == {"mkdocs-material"}


@pytest.mark.parametrize(("right", "wrong"), [('"pillow>=13"', '"pillow"'), ('"jinja2>=3.1.6"', '"jinja2>=3.1.5"')])
def test_control_a_flawed_bound_is_found(right: str, wrong: str) -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert right in text and faults(text.replace(right, wrong))


def test_the_pinned_versions_are_within_the_bounds() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if "==" in line)}
    for need in requirements((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")):
        assert pins[canonicalize_name(need.name)] in need.specifier, need
    for name, (version, _) in FIXED.items():
        assert pins[name] in SpecifierSet(f">={version}"), name
