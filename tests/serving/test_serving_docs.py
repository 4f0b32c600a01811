"""docs/serving.md works as written, and its deployment files are what their programs read."""

import configparser
import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import untrained
from support.server import options, running

from headway.serving import probe
from headway.serving.app import MODULES
from headway.serving.limits import ServerLimits

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
PAGE = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return [text for found, text in FENCE.findall(PAGE) if found == kind]


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
    assert int(unit["Service"]["TimeoutStopSec"]) > ServerLimits.drain
    assert int(unit["Service"]["LimitNOFILE"]) > 2 * ServerLimits.connections
    cache = dict(word.split("=") for word in shlex.split(unit["Service"]["Environment"]))["NUMBA_CACHE_DIR"]
    assert cache == f"/var/cache/{unit['Service']['CacheDirectory']}", "a folder that the service may write"
    credential = unit["Service"]["LoadCredential"].partition(":")[0]
    assert words[words.index("--key-file") + 1] == f"%d/{credential}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_unit_file(tmp_path: Path) -> None:
    (text,) = blocks("ini")

    def complaints(text: str) -> str:
        path = tmp_path / "headway.service"
        path.write_text(text.replace("/opt/headway/bin/headway", sys.executable))  # a program that exists
        command = ["systemd-analyze", "verify", "--man=no", str(path)]
        return subprocess.run(command, capture_output=True, text=True).stderr

    assert "headway.service:" not in complaints(text)
    assert "headway.service:" in complaints(text.replace("MemoryMax", "MemoryMost")), "control"


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
    for check in (container["readinessProbe"], container["livenessProbe"]):
        assert check["exec"]["command"][1:] == ["-m", "headway.serving.probe"]
        assert check["timeoutSeconds"] == 5, "longer than the start of Python and the probe's own limit of 4 s"
    assert container["securityContext"]["runAsNonRoot"], "for which the image's user is a number"
    drained = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert min(drained, int(service["stop_grace_period"].rstrip("s"))) > ServerLimits.drain


def test_the_nginx_file() -> None:
    (text,) = blocks("nginx")
    assert text.count("{") == text.count("}")
    statements = [line.strip() for line in text.splitlines() if line.strip() and line.strip()[-1] not in "{}"]
    assert all(line.endswith(";") for line in statements)
    settings = dict(line.rstrip(";").split(None, 1) for line in statements if not line.startswith("proxy_set_header"))
    assert (
        settings["proxy_buffering"] == "off" and int(settings["proxy_read_timeout"].rstrip("s")) > ServerLimits.deadline
    )
    assert int(settings["client_max_body_size"].rstrip("m")) * 2**20 == ServerLimits.media_bytes
    assert {"ssl_certificate", "ssl_certificate_key"} <= set(settings) and settings["listen"] == "443 ssl"


def test_the_table_of_limits_has_every_limit_with_its_value() -> None:
    table = PAGE.split("### Limits")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    shown = {row[0]: row[1] for row in rows[2:]}
    limits = dataclasses.asdict(ServerLimits())
    for name in ("running", "queue", "deadline", "drain"):  # options of the command
        del limits[name]
    numbers = [
        float(number) * (2**20 if unit == "MiB" else 2**10 if unit == "KiB" else 1)
        for value in shown.values()
        for number, unit in re.findall(r"([\d.]+) ?(MiB|KiB|s)?", value)
    ]
    assert sorted(numbers) == sorted(map(float, limits.values()))
    assert all(len(row) == 4 and row[3] for row in rows), "what each is for"
    defaults = {"--running": ServerLimits.running, "--limit": ServerLimits.queue, "--deadline": ServerLimits.deadline,
                "--drain": ServerLimits.drain}  # fmt: skip
    for option, value in defaults.items():
        assert re.search(rf"^\| `{option}` \| {value:g}( s)? \|", PAGE, re.M), option
