"""docs/serving.md works as written, and its deployment files are what their programs read."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from support import untrained
from support.commands import headway
from support.server import running

from headway.cli import app
from headway.serving import probe
from headway.serving.app import MODULES

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
PAGE = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return [text for found, text in FENCE.findall(PAGE) if found == kind]


def options(command: str = "serve") -> set[str]:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {option for parameter in commands[command].params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_three_models_behind_one_address(tmp_path: Path, capsys: Any) -> None:
    """The page's requests, against the server that the page starts; its trainings have little data and two steps."""
    lines = [line for text in blocks("") for line in text.splitlines()]
    served = shlex.split(next(line for line in lines if line.startswith("headway serve")))[2:]
    trained = dict(re.findall(r"headway train (\S+) --out (\S+)", "\n".join(lines)))
    assert list(trained.values()) == served and len(served) == 3
    for task, folder in trained.items():
        untrained.of_task(task, tmp_path / folder, vocab=300, **({"target_limit": 12} if task == "translate" else {}))
    with running(*(tmp_path / folder for folder in served)) as server:
        requests = [line for line in lines if line.startswith("curl ")]
        for request in requests:
            command = shlex.split(request.replace("http://127.0.0.1:8000", server.url))
            done = subprocess.run([*command, "-f"], capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout, (request, done.stderr)
        for block in blocks("python"):
            exec(compile(block.replace("http://127.0.0.1:8000", server.url), "serving.md", "exec"), {})
        assert len(requests) == 4 and len(blocks("python")) == 2
        assert probe.main(server.port) == 0
    assert probe.main(1) == 1
    assert capsys.readouterr().out


def test_every_route_and_option_of_the_page_exists() -> None:
    routes = {route.path for module in MODULES for route in module.router.routes}
    table = PAGE.split("## Routes")[1].split("\n## ")[0]
    named = {
        path.replace("NAME", "{name:path}").replace("ID", "{id}")
        for path in re.findall(r"`(?:GET |POST )?(/[^`\s]*)`", table)
    }
    named = {"/v1/audio/translations" if path == "/translations" else path for path in named}
    assert len(named) > 18 and named <= routes, named - routes
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options() | options("train")


def test_the_unit_file() -> None:
    (text,) = blocks("ini")
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(text)
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[1] == "serve" and {word for word in words if word.startswith("--")} <= options()
    assert int(unit["Service"]["TimeoutStopSec"]) > 60 and int(unit["Service"]["LimitNOFILE"]) > 512
    if shutil.which("systemd-analyze"):
        assert "Unknown" not in subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True).stderr


def test_the_yaml_files() -> None:
    compose, kubernetes = blocks("yaml")
    service = yaml.safe_load(compose)["services"]["headway"]
    assert service["ports"] == ["127.0.0.1:8000:8000"] and "HEADWAY_KEY" in service["environment"]
    assert {word for word in service["command"] if word.startswith("--")} <= options()
    deployment, address = yaml.safe_load_all(kubernetes)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {word for word in container["args"] if word.startswith("--")} <= options()
    port = container["ports"][0]["containerPort"]
    assert address["spec"]["ports"][0]["targetPort"] == port == 8000
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert deployment["spec"]["selector"]["matchLabels"] == address["spec"]["selector"]
    assert container["readinessProbe"]["exec"]["command"][1:] == ["-m", "headway.serving.probe"]


def test_the_nginx_file() -> None:
    (text,) = blocks("nginx")
    assert text.count("{") == text.count("}")
    statements = [line.strip() for line in text.splitlines() if line.strip() and line.strip()[-1] not in "{}"]
    assert all(line.endswith(";") for line in statements)
    settings = dict(line.rstrip(";").split(None, 1) for line in statements if not line.startswith("proxy_set_header"))
    assert settings["proxy_buffering"] == "off" and int(settings["proxy_read_timeout"].rstrip("s")) > 600


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_dockerfile_has_what_it_copies_and_starts_what_exists() -> None:
    steps = dockerfile()
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}
    assert {name for name, _ in steps} == known
    for name, given in steps:
        if name == "COPY" and not given.startswith("--from"):
            *sources, _ = given.split()
            assert all((REPOSITORY / source).exists() for source in sources), given
        if name == "FROM":
            assert ":" in given and ":latest" not in given
    assert [given for name, given in steps if name == "USER"] == ["headway"], "it does not run as root"
    (entry,) = [yaml.safe_load(given) for name, given in steps if name == "ENTRYPOINT"]
    assert entry[:2] == ["headway", "serve"] and {word for word in entry if word.startswith("--")} <= options()
    (check,) = [given for name, given in steps if name == "HEALTHCHECK"]
    assert "headway.serving.probe" in check
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    (install,) = [given for name, given in steps if name == "RUN" and "pip install" in given]
    extras = re.search(r"\.\[([\w,]+)\]", install)[1].split(",")  # type: ignore[index]
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)


def test_the_command_of_the_image_refuses_to_start_without_a_key(tmp_path: Path, language_model: Path) -> None:
    (entry,) = [yaml.safe_load(given) for name, given in dockerfile() if name == "ENTRYPOINT"]
    refused = headway(*entry[1:], language_model, cwd=tmp_path)
    assert refused.returncode == 2 and "HEADWAY_KEY" in refused.stderr
