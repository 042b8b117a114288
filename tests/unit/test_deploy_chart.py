"""The Helm chart: what it renders, what it refuses, and that the plain files are it.

Needs helm, and the package kubernetes-validate, which has Kubernetes' own schemas.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
import subprocess
from typing import Any

import pytest
from typer.testing import CliRunner
import yaml

import mirror
from mirror.cli.main import app
from mirror.config.load import load
from tests import tools
from tests.harness.pages import blocks

pytestmark = [pytest.mark.unit, pytest.mark.needs("helm")]

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="no kubernetes-validate: make install"
)

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "mirror"
PLAIN = ROOT / "deploy" / "kubernetes"
MANIFEST = Path(__file__).with_name("kafka-mirror-maker-2.yaml")
EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = ("1.30", "1.34")
APIS = (
    "monitoring.coreos.com/v1",
    "sparkoperator.k8s.io/v1beta2",
    "spark.apache.org/v1",
)
OURS = {"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1"} | {
    "rbac.authorization.k8s.io/v1"
}


@pytest.fixture(scope="module")
def helm() -> str:
    return tools.path("helm")


def run(helm: str, values: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(helm, "template", "mirror", str(CHART), "-f", str(values), *more),
            *("--kube-version", "1.34.0"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def render(helm: str, values: Path, *more: str) -> list[dict[str, Any]]:
    documents = yaml.load_all(rendered(helm, values, *more), yaml.CSafeLoader)
    return [document for document in documents if document]


@functools.cache
def rendered(helm: str, values: Path, *more: str) -> str:
    """Renders each example once, since many tests look at the same few."""
    apis = ("--api-versions", ",".join(APIS))
    ended = run(helm, values, *apis, *more)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def one(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [found] = [document for document in documents if document["kind"] == kind]
    return found


def refusal(helm: str, folder: Path, values: dict[str, Any], *more: str) -> str:
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))
    ended = run(helm, file, *more)
    assert ended.returncode != 0, ended.stdout
    return ended.stderr


def working() -> dict[str, Any]:
    return yaml.safe_load((CHART / "ci" / "small.yaml").read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(helm: str, example: Path) -> None:
    """Each example renders, and what Kubernetes itself defines keeps its schemas."""
    documents = render(helm, example)

    for document in documents:
        if document["apiVersion"] in OURS:
            for version in KUBERNETES:
                kubernetes_validate.validate(document, version, strict=True)
        else:
            assert document["apiVersion"] in APIS
    names = [(d["kind"], d["metadata"]["name"]) for d in documents]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_configuration_is_one_that_mirror_takes(
    helm: str, example: Path, tmp_path: Path
) -> None:
    """mirror reads the chart's ConfigMap without a warning, with the credentials where
    they are mounted.
    """
    documents = render(helm, example)
    maps = [d for d in documents if d["metadata"]["name"] == "mirror-config"]
    if not maps:
        pytest.skip("its ConfigMap is made elsewhere")
    [(name, text)] = maps[0]["data"].items()
    secrets = tmp_path / "secrets"
    file = tmp_path / name
    file.write_text(text.replace("/etc/mirror/secrets", str(secrets)))
    for volume in pod(documents)["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                alias = volume["name"].removeprefix("secret-")
                (secrets / alias).mkdir(parents=True, exist_ok=True)
                (secrets / alias / item["path"]).write_text("x")

    config, warnings = load(file, environ={})

    assert warnings == ()
    assert [flow.name for flow in config.flows.values()] == ["us-east->eu-west"]


@pytest.mark.parametrize("mode", ["deployment", "kubeflow", "apache"])
def test_the_page_s_values_render(helm: str, tmp_path: Path, mode: str) -> None:
    """The values of docs/howto/kubernetes.md render a pod with that flow, and with the
    lines for an operator a SparkApplication.
    """
    page = ROOT / "docs" / "howto" / "kubernetes.md"
    written = [yaml.safe_load(block.text) for block in blocks(page, "yaml")]
    [values] = [each for each in written if "config" in each]
    [more] = [each for each in written if "mode" in each]
    if mode != "deployment":
        values |= {**more, "mode": mode}
    file = tmp_path / "my-values.yaml"
    file.write_text(json.dumps(values))

    documents = render(helm, file)

    kinds = {document["kind"] for document in documents}
    assert ("SparkApplication" in kinds) is (mode != "deployment")
    settings = yaml.safe_load(one_named(documents, "mirror-config")["mirror.yaml"])
    assert settings["flows"] == values["config"]["flows"]
    image = f"registry.example.com/platform/mirror:{mirror.__version__}"
    assert image in json.dumps(documents)


def pod(documents: list[dict[str, Any]], role: str = "driver") -> dict[str, Any]:
    """The pod template that the service runs in, whatever the mode."""
    for document in documents:
        if document["kind"] == "Deployment":
            return document["spec"]["template"]["spec"]
        if document["kind"] == "SparkApplication":
            spec = document["spec"]
            if "driverSpec" in spec:
                return spec[f"{role}Spec"]["podTemplateSpec"]["spec"]
            return spec[role]["template"]["spec"]
    raise AssertionError(documents)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_may_do_little(helm: str, example: Path, role: str) -> None:
    """No pod runs as root, writes to its image or gains rights, and it writes only to
    volumes of its own.
    """
    spec = pod(render(helm, example), role)
    [container] = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {
        mount["mountPath"]
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    }
    assert writable == {"/var/lib/mirror", "/tmp"}
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_probes_ask_what_they_mean(helm: str, example: Path) -> None:
    """Kubernetes restarts a service that does not answer, and sends no traffic to one
    whose flows do not run.
    """
    [container] = pod(render(helm, example))["containers"]
    paths = {
        probe: container[f"{probe}Probe"]["httpGet"]["path"]
        for probe in ("startup", "liveness", "readiness")
    }

    assert paths == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert container["ports"] == [{"name": "http", "containerPort": 8083}]


@pytest.mark.parametrize(
    ("example", "replicas", "strategy"),
    [("small", 1, "Recreate"), ("secured", 2, "RollingUpdate")],
)
def test_upgrades(helm: str, example: str, replicas: int, strategy: str) -> None:
    """A single pod ends before its successor starts; of several one is replaced at a
    time, while another leads its flows.
    """
    documents = render(helm, CHART / "ci" / f"{example}.yaml")
    spec = one(documents, "Deployment")["spec"]

    assert (spec["replicas"], spec["strategy"]["type"]) == (replicas, strategy)
    assert spec["strategy"].get("rollingUpdate", {}).get("maxSurge", 0) == 0


def test_changed_configuration_restarts_the_pod(helm: str) -> None:
    """The pod's template changes with the configuration."""
    few = CHART / "ci" / "small.yaml"
    sums = {
        one(render(helm, few, *more), "Deployment")["spec"]["template"]["metadata"][
            "annotations"
        ]["checksum/config"]
        for more in ((), ("--set", "config.defaults.compression=zstd"))
    }

    assert len(sums) == 2


@pytest.mark.parametrize("size", ["low", "medium", "high"])
def test_memory_fits_the_slots(helm: str, size: str) -> None:
    """A pod has the memory that its slots and its driver use at full speed: 730 MB, and
    400 MB for each core of its limit.
    """
    deployment = one(
        render(helm, CHART / "ci" / "small.yaml", "--set", f"size={size}"), "Deployment"
    )
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]

    assert limits["memory"].endswith("Gi")
    mebibytes = int(limits["memory"].removesuffix("Gi")) * 1024
    assert mebibytes >= (730 + 400 * int(limits["cpu"])) * 1e6 / 2**20


def test_credentials_stay_in_secrets(helm: str) -> None:
    """Secrets are mounted by reference; the ConfigMap only names their files."""
    documents = render(helm, CHART / "ci" / "secured.yaml")
    settings = yaml.safe_load(one_named(documents, "mirror-config")["mirror.yaml"])

    east = settings["clusters"]["us-east"]
    assert east["sasl_password_file"] == "/etc/mirror/secrets/us-east/password"
    assert "Secret" not in {document["kind"] for document in documents}
    [container] = pod(documents)["containers"]
    assert container["env"][-1] == {
        "name": "MIRROR_CLUSTERS__eu_west__ssl_key_password",
        "valueFrom": {"secretKeyRef": {"name": "mirror-user", "key": "user.password"}},
    }


def test_who_may_ask_stays_in_a_secret(helm: str) -> None:
    """Token and certificate of the HTTP port are files of a Secret: mirror gets their
    paths, probes use TLS, Prometheus sends the token and checks the certificate.
    """
    documents = render(helm, CHART / "ci" / "secured.yaml")
    spec = pod(documents)
    [container] = spec["containers"]
    told = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    [mounted] = [m for m in container["volumeMounts"] if m["name"] == "http"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "http"]
    [asked] = one(documents, "PodMonitor")["spec"]["podMetricsEndpoints"]

    assert told == {
        "MIRROR_SERVICE__http_certificate_file": "/etc/mirror/http/tls.crt",
        "MIRROR_SERVICE__http_key_file": "/etc/mirror/http/tls.key",
        "MIRROR_SERVICE__http_token_file": "/etc/mirror/http/token",
    }
    assert mounted["mountPath"] == "/etc/mirror/http"
    assert volume["secret"]["secretName"] == "mirror-http"
    for probe in ("startup", "liveness", "readiness"):
        assert container[f"{probe}Probe"]["httpGet"]["scheme"] == "HTTPS"
    assert asked["scheme"] == "https"
    assert asked["tlsConfig"] == {
        "ca": {"secret": {"name": "mirror-http", "key": "ca.crt"}},
        "serverName": "mirror.kafka.svc",
    }
    assert asked["authorization"]["credentials"] == {
        "name": "mirror-http",
        "key": "token",
    }


def one_named(documents: list[dict[str, Any]], name: str) -> dict[str, str]:
    [found] = [d for d in documents if d["metadata"]["name"] == name]
    return found["data"]


def test_dashboards_and_rules_are_those_of_the_project(helm: str) -> None:
    """Every dashboard and every file of rules reaches the cluster, unchanged."""
    documents = render(helm, CHART / "ci" / "secured.yaml")
    files = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
    rules = [
        yaml.safe_load(path.read_text())
        for path in sorted((ROOT / "dashboards" / "prometheus").glob("*.yaml"))
    ]

    shown = {
        key: json.loads(text)
        for document in documents
        if document["metadata"]["labels"].get("grafana_dashboard")
        for key, text in document["data"].items()
    }
    assert shown == {path.name: json.loads(path.read_text()) for path in files}
    found = [d["spec"]["groups"] for d in documents if d["kind"] == "PrometheusRule"]
    assert found == [file["groups"] for file in rules if "groups" in file]


def test_runbooks_stand_where_the_values_say(helm: str) -> None:
    """With an address for runbooks, each alert's link is its page there."""
    where = "prometheusRule.runbookUrl=https://wiki.example.com/mirror/"
    documents = render(helm, CHART / "ci" / "secured.yaml", "--set", where)
    links = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for document in documents
        if document["kind"] == "PrometheusRule"
        for group in document["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }

    assert links
    for alert, link in links.items():
        assert link == f"https://wiki.example.com/mirror/{alert}.md"


def test_groups_of_rules_are_optional(helm: str) -> None:
    """Each group that may be left out is left out alone, and no empty file stays."""
    for name in ("mirror-as-mirrormaker2", "mirror-alerts"):
        chosen = f"prometheusRule.exclude={{{name}}}"
        documents = render(helm, CHART / "ci" / "secured.yaml", "--set", chosen)
        groups = [
            d["spec"]["groups"] for d in documents if d["kind"] == "PrometheusRule"
        ]
        assert all(groups)
        every = {"mirror-alerts", "mirror-as-mirrormaker2", "mirror-recording"}
        names = {group["name"] for file in groups for group in file}
        assert names == (every | {"mirror-slo"}) - {name}, name


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"config": {"flows": {}}}, "config.flows: is empty"),
        (
            {"config": {"flows": {"us-east->mars": {}}}},
            'names cluster "mars", which is not in config.clusters (eu-west, us-east)',
        ),
        ({"config": {"flows": {"us-east": {}}}}, "use source->target"),
        (
            {"config": {"clusters": {"us-east": {"sasl_password": "x"}}}},
            "config.clusters.us-east.sasl_password: would be readable in a ConfigMap",
        ),
        (
            {"config": {"service": {"http_port": 1}}},
            "config.service.http_port: the chart sets it",
        ),
        (
            {"clusterSecrets": {"moon": {"secretName": "x"}}},
            "clusterSecrets.moon: config.clusters has no such cluster",
        ),
        (
            {"config": {"service": {"http_token": "x"}}},
            "config.service.http_token: would be readable in a ConfigMap",
        ),
        (
            {"config": {"service": {"http_hosts": ["mirror.example.com"]}}},
            "config.service.http_hosts: the chart sets it",
        ),
        ({"http": {"tokenKey": "token"}}, "set http.secretName"),
        (
            {"http": {"secretName": "x", "certificateKey": "tls.crt"}},
            "TLS needs a certificate and its key",
        ),
        ({"mm2Properties": "clusters = A"}, "config would not be used"),
        ({"existingConfigMap": {"name": "x"}}, "config and mm2Properties would not"),
        ({"podMonitor": {"enabled": True}}, "install the Prometheus operator first"),
        ({"mode": "kubeflow"}, "mode: kubeflow needs sparkoperator.k8s.io/v1beta2"),
        ({"size": "huge"}, "/size"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 2, "mode": "apache"}, "replicas: 2 instances need mode"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_values_that_would_not_work(
    helm: str, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    """A wrong value is refused with a message that names it and says what is right."""
    values = working()
    for key, new in change.items():
        if key == "config":
            for section, entries in new.items():
                old = values["config"].get(section, {})
                values["config"][section] = entries and {**old, **entries}
        else:
            values[key] = new

    assert told in refusal(helm, tmp_path, values)


@pytest.mark.parametrize("mode", ["kubeflow", "apache"])
def test_pods_of_spark_share_a_secret(helm: str, tmp_path: Path, mode: str) -> None:
    """With an operator the chart asks for a Secret; driver and executors read it from a
    file, and it is in no pod's environment.
    """
    apis = ("--api-versions", ",".join(APIS))
    told = refusal(helm, tmp_path, {**working(), "mode": mode}, *apis)
    assert f"spark.secretName: with mode {mode} leases with the clusters'" in told

    documents = render(helm, CHART / "ci" / f"{mode}.yaml")
    conf = one(documents, "SparkApplication")["spec"]["sparkConf"]
    assert conf["spark.authenticate"] == "true"
    file = Path(conf["spark.authenticate.secret.file"])
    for role in ("driver", "executor"):
        spec = pod(documents, role)
        [mount] = [
            each
            for each in spec["containers"][0]["volumeMounts"]
            if each["mountPath"] == str(file.parent)
        ]
        [volume] = [each for each in spec["volumes"] if each["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == "mirror-spark"
        assert "mirror-spark" not in json.dumps(spec["containers"][0].get("env", []))


@pytest.mark.parametrize("example", ["mm2", "small"])
def test_the_service_answers_to_its_names(helm: str, example: str) -> None:
    """The names of the chart's Service work, and those in http.hosts."""
    documents = render(
        helm,
        CHART / "ci" / f"{example}.yaml",
        *("--set", "http.hosts={mirror.example.com}", "--namespace", "data"),
    )
    service = one(documents, "Service")["metadata"]["name"]
    if example == "small":
        config = yaml.safe_load(one_named(documents, "mirror-config")["mirror.yaml"])
        hosts = config["service"]["http_hosts"]
    else:
        env = pod(documents)["containers"][0]["env"]
        [hosts] = [
            each["value"].split(",")
            for each in env
            if each["name"] == "MIRROR_SERVICE__http_hosts"
        ]

    assert {service, f"{service}.data.svc", "mirror.example.com"} <= set(hosts)


def test_plain_files_are_those_of_the_chart(helm: str) -> None:
    """deploy/kubernetes is what the chart renders (`make kubernetes`)."""
    rendered = run(helm, PLAIN / "values.yaml")
    assert rendered.returncode == 0, rendered.stderr

    assert (PLAIN / "mirror.yaml").read_text() == rendered.stdout


def test_a_manifest_of_strimzi_converts_as_a_whole(helm: str, tmp_path: Path) -> None:
    """`convert --values` keeps replicas, resources, placement, metrics, variables and
    secrets: the chart renders them, and mounts each secret where the configuration
    looks for it. What has no counterpart is a comment by name.
    """
    asking = ["config", "convert", "--values", str(MANIFEST)]
    converted = CliRunner().invoke(app, asking)
    assert converted.exit_code == 0, converted.output
    for part in ("version", "jvmOptions", "logging", "rack"):
        assert f"#   spec.{part}: left out: " in converted.stdout
    assert "about pods" not in converted.stdout
    values = tmp_path / "values.yaml"
    values.write_text(converted.stdout)
    documents = render(helm, values)
    deployment = one(documents, "Deployment")["spec"]
    assert deployment["replicas"] == 2
    pod = deployment["template"]["spec"]
    asked = yaml.safe_load(MANIFEST.read_text())["spec"]
    container = pod["containers"][0]
    assert container["resources"] == asked["resources"]
    wanted = asked["template"]["pod"]
    for field in ("affinity", "tolerations", "topologySpreadConstraints"):
        assert pod[field] == wanted[field]
    assert pod["priorityClassName"] == "high"
    assert pod["securityContext"]["runAsUser"] == 1000
    assert {each["name"] for each in container["env"]} == {"REGION", "TZ"}
    assert one(documents, "PodMonitor")
    assert one(documents, "ServiceAccount")["metadata"]["annotations"] == {
        "iam": "role"
    }

    volumes = {each["name"]: each for each in pod["volumes"]}
    mounted = {
        f"{mount['mountPath']}/{path}": secret
        for mount in container["volumeMounts"]
        for secret, path in secrets_of(volumes[mount["name"]])
    }
    config = yaml.safe_load(one(documents, "ConfigMap")["data"]["mirror.yaml"])
    files = {
        (alias, setting): str(value)
        for alias, cluster in config["clusters"].items()
        for setting, value in cluster.items()
        if setting.endswith("_file")
    }
    found = {
        each: [secret for path, secret in mounted.items() if file.startswith(path)]
        for each, file in files.items()
    }
    oauth = "sasl_oauthbearer_client_credentials_client_secret_file"
    assert found == {
        ("source", "sasl_password_file"): ["source-user"],
        ("source", "ssl_ca_file"): ["source-ca"],
        ("target", "ssl_certificate_file"): ["me"],
        ("target", "ssl_key_file"): ["me"],
        ("target", "ssl_ca_file"): ["target-ca"],
        ("cloud", "ssl_ca_file"): ["cloud-ca"],
        ("cloud", oauth): ["cloud-client"],
        ("cloud", "sasl_oauthbearer_ca_file"): ["sso-ca"],
    }


def secrets_of(volume: dict[str, Any]) -> list[tuple[str, str]]:
    """The secrets in a volume, and their files; the folder where all are files."""
    if "secret" in volume:
        return [(volume["secret"]["secretName"], "")]
    return [
        (source["secret"]["name"], item["path"])
        for source in volume.get("projected", {}).get("sources", ())
        for item in source["secret"]["items"]
    ]
