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
from mirror.config import settings
from mirror.config.load import load
from tests import tools
from tests.harness.cases import cases
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
SERVICES = [each for each in EXAMPLES if each.stem != "cronjob"]
"""Those whose pods run on."""
KUBERNETES = ("1.25", "1.27", "1.30", "1.34", "1.37")
"""The oldest that the chart takes, the newest with schemas, some in between."""
APIS = (
    "monitoring.coreos.com/v1",
    "sparkoperator.k8s.io/v1beta2",
    "spark.apache.org/v1",
)
OURS = {"v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1"} | {
    "rbac.authorization.k8s.io/v1"
}


@pytest.fixture(scope="module")
def helm() -> str:
    return tools.path("helm")


def run(helm: str, values: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(helm, "template", "mirror", str(CHART), "-f", str(values)),
            *("--kube-version", "1.34.0", *more),
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


def secret_settings() -> list[str]:
    """A cluster's settings that are secret, by the model; dots lead into sections."""
    known = yaml.safe_load(settings.for_chart())
    return known["secret"]["clusters"]


def working() -> dict[str, Any]:
    return yaml.safe_load((CHART / "ci" / "small.yaml").read_text())


@pytest.mark.parametrize("version", cases(KUBERNETES, some=("1.25", "1.34", "1.37")))
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(helm: str, example: Path, version: str) -> None:
    """Each example renders for each Kubernetes, and what that itself defines keeps its
    schemas; pod templates of operators do, too.
    """
    documents = render(helm, example, "--kube-version", f"{version}.0")

    for document in documents:
        if document["apiVersion"] in OURS:
            kubernetes_validate.validate(document, version, strict=True)
        else:
            assert document["apiVersion"] in APIS
    if any(document["kind"] == "SparkApplication" for document in documents):
        for role in ("driver", "executor"):
            spec = json.loads(json.dumps(pod(documents, role)))
            spec["containers"][0]["image"] = "mirror"  # the operator sets it
            template = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
            kubernetes_validate.validate(template, version, strict=True)
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
    file = tmp_path / name
    file.write_text(text.replace("/etc/mirror", str(tmp_path)))
    spec = pod(documents)
    mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    for volume in spec["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                there = mounts[volume["name"]].replace("/etc/mirror", str(tmp_path))
                Path(there).mkdir(parents=True, exist_ok=True)
                (Path(there) / item["path"]).write_text("x")

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
        if document["kind"] == "CronJob":
            return document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
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


@pytest.mark.parametrize("example", SERVICES, ids=lambda path: path.stem)
def test_probes_ask_what_they_mean(helm: str, example: Path) -> None:
    """Kubernetes restarts a service that does not answer, and replaces the next pod
    once a new one could lead.
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


def test_upgrades(helm: str) -> None:
    """Two pods, apart if they can be; a new one stands by before an old one ends, and
    a node drain takes one at a time, or any that is not ready.
    """
    documents = render(helm, CHART / "ci" / "small.yaml")
    spec = one(documents, "Deployment")["spec"]
    budget = one(documents, "PodDisruptionBudget")["spec"]
    spread = spec["template"]["spec"]["topologySpreadConstraints"]

    assert spec["replicas"] == 2
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert {each["topologyKey"] for each in spread} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    for each in spread:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"] == spec["selector"]


def test_one_that_shares_no_flows_ends_first(helm: str, tmp_path: Path) -> None:
    """Without a group two instances would both lead, so the old pod ends first."""
    values = working()
    values |= {"replicas": 1}
    values["config"]["service"] = {"group": None}
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))

    spec = one(render(helm, file), "Deployment")["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("example", SERVICES, ids=lambda path: path.stem)
@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_see_a_changed_configuration(helm: str, example: Path, role: str) -> None:
    """The ConfigMap is a folder in the pod, whose files change; a file mounted with
    subPath never would.
    """
    documents = render(helm, example)
    spec = pod(documents, role)
    [container] = spec["containers"]
    [mount] = [m for m in container["volumeMounts"] if m["name"] == "config"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "config"]

    assert mount == {
        "name": "config", "mountPath": "/etc/mirror/config", "readOnly": True
    }  # fmt: skip
    assert set(volume["configMap"]) == {"name"}
    assert not any("subPath" in m for m in container["volumeMounts"])
    assert "[run, -c, /etc/mirror/config/" in rendered(helm, example)


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ("config.flows.us-east->eu-west.topics={orders}", False),
        ("config.flows.us-east->eu-west.tasks=3", False),
        ("config.defaults.compression=zstd", False),
        ("config.service.log_level=debug", False),
        ("config.clusters.us-east.request_timeout_seconds=9", False),
        ("config.recovery.us-east<->eu-west.drill_every_seconds=9", False),
        ("config.clusters.us-east.bootstrap_servers=other:9092", False),
        ("config.flows.us-east->eu-west.policy=identity", True),
        ("config.defaults.exactly_once=false", True),
        ("config.service.metrics_per=topic", True),
        ("config.recovery.us-east<->eu-west.active=us-east", True),
    ],
)
def test_restarts_only_where_needed(helm: str, change: str, *, restarts: bool) -> None:
    """Pods are replaced for what a running service refuses to change; the rest
    reaches the running ones.
    """
    few = CHART / "ci" / "small.yaml"

    assert (needs_restart(helm, few, "--set", change) != needs_restart(helm, few)) is (
        restarts
    )


def needs_restart(helm: str, values: Path, *more: str) -> str:
    deployment = one(render(helm, values, *more), "Deployment")
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    return str(annotations["checksum/needs-restart"])


@pytest.mark.parametrize(
    ("line", "restarts"),
    [
        ("us-east->eu-west.topics = others", False),
        ("us-east.bootstrap.servers : elsewhere:9092", False),
        ("replication.policy.separator = -", True),
    ],
)
def test_restarts_for_properties(
    helm: str, tmp_path: Path, line: str, *, restarts: bool
) -> None:
    """The same for MirrorMaker 2's file, by its keys."""
    values = yaml.safe_load((CHART / "ci" / "mm2.yaml").read_text())
    before = needs_restart(helm, CHART / "ci" / "mm2.yaml")
    values["mm2Properties"] += line + "\n"
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))

    assert (needs_restart(helm, file) != before) is restarts


def test_a_service_that_reads_its_file_once_restarts(helm: str, tmp_path: Path) -> None:
    """Without reload_seconds every change replaces the pods."""
    sums = set()
    for topics in (["a"], ["b"]):
        values = working()
        values["config"]["service"] = {"reload_seconds": None}
        values["config"]["defaults"] = {"topics": topics}
        file = tmp_path / f"{topics[0]}.yaml"
        file.write_text(json.dumps(values))
        sums.add(needs_restart(helm, file))

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


@pytest.mark.parametrize("setting", secret_settings())
def test_each_secret_of_a_cluster_has_a_way(helm: str, setting: str) -> None:
    """Each secret setting of a cluster is refused in config, and a key of
    clusterSecrets serves instead, as a file or as a variable.
    """
    pod_template = (CHART / "templates" / "_pod.tpl").read_text()

    assert (
        f"{setting}_file}}" in pod_template
        or f": {setting}\n" in pod_template
        or (setting == "ssl_key" and "ssl_key_file}" in pod_template)
    )
    change = f"config.clusters.us-east.{setting}=x"
    ended = run(helm, CHART / "ci" / "small.yaml", "--set", change)
    assert f"config.clusters.us-east.{setting}: would be readable" in ended.stderr
    assert ended.returncode != 0


def test_all_cluster_secrets_reach_mirror(helm: str, tmp_path: Path) -> None:
    """Every key of clusterSecrets arrives where mirror looks for it."""
    values = working()
    keys = [
        *("passwordKey", "keytabKey", "clientSecretKey", "tokenKey", "oauthCaKey"),
        *("oauthCaPasswordKey", "certificateKey", "certificatePasswordKey"),
        *("keyKey", "keyPasswordKey", "caKey", "caPasswordKey"),
        *("registryPasswordKey", "registryTokenKey", "registryClientSecretKey"),
        *("registryOauthCaKey", "registryOauthCaPasswordKey"),
        *("registryCaKey", "registryCaPasswordKey"),
        *("registryCertificateKey", "registryCertificatePasswordKey"),
        *("registryKeyKey", "registryKeyPasswordKey"),
    ]
    values["clusterSecrets"] = {
        "us-east": {"secretName": "own", "caSecretName": "ca", **{k: k for k in keys}}
    }
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    schema = json.loads((CHART / "values.schema.json").read_text())
    entry = schema["properties"]["clusterSecrets"]["additionalProperties"]
    documents = render(helm, file)
    settings = yaml.safe_load(one_named(documents, "mirror-config")["mirror.yaml"])
    [container] = pod(documents)["containers"]
    [volume] = [v for v in pod(documents)["volumes"] if v["name"] == "secret-us-east"]
    mounted = {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    variables = {
        each["name"].partition("us_east__")[2]: each["valueFrom"]["secretKeyRef"]
        for each in container["env"]
    }

    assert set(entry["properties"]) == {"secretName", "caSecretName", *keys}
    files = {
        name: value.rpartition("/")[2]
        for name, value in settings["clusters"]["us-east"].items()
        if "/etc/mirror/secrets/us-east/" in value
    }
    assert {name: mounted[path] for name, path in files.items()} == {
        "sasl_password_file": ("own", "passwordKey"),
        "sasl_kerberos_keytab_file": ("own", "keytabKey"),
        "sasl_oauthbearer_client_credentials_client_secret_file": (
            "own", "clientSecretKey",
        ),
        "sasl_oauthbearer_token_endpoint_url": ("own", "tokenKey"),
        "sasl_oauthbearer_ca_file": ("own", "oauthCaKey"),
        "ssl_certificate_file": ("own", "certificateKey"),
        "ssl_key_file": ("own", "keyKey"),
        "ssl_ca_file": ("ca", "caKey"),
    }  # fmt: skip
    registry = settings["clusters"]["us-east"]["schema_registry"]
    assert {
        name: mounted[value.rpartition("/")[2]] for name, value in registry.items()
    } == {
        "password_file": ("own", "registryPasswordKey"),
        "token_file": ("own", "registryTokenKey"),
        "oauth_client_secret_file": ("own", "registryClientSecretKey"),
        "oauth_ca_file": ("own", "registryOauthCaKey"),
        "ssl_ca_file": ("own", "registryCaKey"),
        "ssl_certificate_file": ("own", "registryCertificateKey"),
        "ssl_key_file": ("own", "registryKeyKey"),
    }
    url = settings["clusters"]["us-east"]["sasl_oauthbearer_token_endpoint_url"]
    assert url == "file:///etc/mirror/secrets/us-east/token"
    assert variables == {
        "sasl_oauthbearer_ca_password": {"name": "own", "key": "oauthCaPasswordKey"},
        "ssl_certificate_password": {"name": "own", "key": "certificatePasswordKey"},
        "ssl_key_password": {"name": "own", "key": "keyPasswordKey"},
        "ssl_ca_password": {"name": "ca", "key": "caPasswordKey"},
        **{
            f"schema_registry__{name}": {"name": "own", "key": key}
            for name, key in {
                "oauth_ca_password": "registryOauthCaPasswordKey",
                "ssl_ca_password": "registryCaPasswordKey",
                "ssl_certificate_password": "registryCertificatePasswordKey",
                "ssl_key_password": "registryKeyPasswordKey",
            }.items()
        },
    }


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("us-east.ssl.key.password = geheim", "us-east.ssl.key.password"),
        ("us-east.consumer.ssl.truststore.password:geheim", "ssl.truststore.password"),
        ("ssl.keystore.password geheim", "ssl.keystore.password"),
        ("  us-east.ssl.keystore.key = \\\n   geheim", "us-east.ssl.keystore.key"),
        (
            "sasl.oauthbearer.client.credentials.client.secret=geheim",
            "sasl.oauthbearer.client.credentials.client.secret",
        ),
        ("us-east.some.new.password = geheim", "us-east.some.new.password"),
        (
            'us-east.sasl.jaas.config = o.P required username="u" password="geheim";',
            "us-east.sasl.jaas.config: password",
        ),
        (
            "sasl.jaas.config = o.P required username='u' \\\n password = geheim;",
            "sasl.jaas.config: password",
        ),
        (
            'sasl.jaas.config = o.O required clientId="c" clientSecret="geheim";',
            "sasl.jaas.config: clientSecret",
        ),
        (
            'sasl.jaas.config = o.O required ssl.truststore.password="geheim";',
            "sasl.jaas.config: ssl.truststore.password",
        ),
        ("us-east.ssl.key\\.password = geheim", "has a backslash"),
    ],
)
def test_secrets_in_properties(helm: str, tmp_path: Path, line: str, key: str) -> None:
    """A secret in MirrorMaker 2's file is refused, in JAAS lines too, however the line
    is written; its value is not repeated.
    """
    values = yaml.safe_load((CHART / "ci" / "mm2.yaml").read_text())
    values["mm2Properties"] += line + "\n"

    said = refusal(helm, tmp_path, values)

    assert key in said
    assert "would be readable in a ConfigMap" in said or "backslash" in said
    assert "geheim" not in said


def test_references_in_properties_are_no_secrets(helm: str, tmp_path: Path) -> None:
    """What a reference names, a comment, and an empty value are taken."""
    values = yaml.safe_load((CHART / "ci" / "mm2.yaml").read_text())
    where = "${directory:/etc/mirror/secrets/us-east:password}"
    login = f'sasl.jaas.config = o.P required username="u" password="{where}";'
    values["mm2Properties"] += (
        f"# ssl.key.password = x\n"
        f"us-east.ssl.key.password = {where}\n"
        f"us-east.{login}\n"
        f"eu-west.sasl.jaas.config = {where}\n"
        f"eu-west.ssl.keystore.password =\n"
    )
    values["clusterSecrets"] = {
        "us-east": {"secretName": "x", "passwordKey": "password"}
    }
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))

    mounts = pod(render(helm, file))["containers"][0]["volumeMounts"]

    assert "/etc/mirror/secrets/us-east" in {mount["mountPath"] for mount in mounts}


def test_network_policy(helm: str, tmp_path: Path) -> None:
    """By default only the status port can be reached, and pods reach anything; with
    the brokers' places they reach only these and names. Several instances also reach
    each other.
    """
    few = render(helm, CHART / "ci" / "small.yaml")
    values = working()
    brokers = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    values["networkPolicy"] = {"kafkaTo": brokers, "kafkaPorts": [9094]}
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    strict = one(render(helm, file), "NetworkPolicy")["spec"]
    free = one(few, "NetworkPolicy")["spec"]
    alone = tmp_path / "alone.yaml"
    alone.write_text(json.dumps(working() | {"replicas": 1}))
    single = one(render(helm, alone), "NetworkPolicy")["spec"]
    status = {"ports": [{"port": 8083, "protocol": "TCP"}]}
    selected = {"matchLabels": free["podSelector"]["matchLabels"]}
    ours = [{"podSelector": selected}]

    assert free["policyTypes"] == ["Ingress"]
    assert free["ingress"] == [status, {"from": ours}]
    assert single["ingress"] == [status]
    assert "egress" not in free
    assert strict["policyTypes"] == ["Ingress", "Egress"]
    assert strict["egress"] == [
        {"ports": [{"port": 53, "protocol": each} for each in ("UDP", "TCP")]},
        {"ports": [{"port": 9094, "protocol": "TCP"}], "to": brokers},
        {"to": ours},
    ]


@pytest.mark.parametrize("example", ["kubeflow", "apache"])
def test_executors_may_do_nothing_in_kubernetes(helm: str, example: str) -> None:
    """Executors have an account of their own, without rights and without a token."""
    documents = render(helm, CHART / "ci" / f"{example}.yaml")
    executor = pod(documents, "executor")
    [binding] = [d for d in documents if d["kind"] == "RoleBinding"]
    [account] = [
        d
        for d in documents
        if d["kind"] == "ServiceAccount"
        and d["metadata"]["name"] == executor["serviceAccountName"]
    ]

    assert executor["serviceAccountName"] == "mirror-executor"
    assert executor["automountServiceAccountToken"] is False
    assert account["automountServiceAccountToken"] is False
    assert [subject["name"] for subject in binding["subjects"]] == ["mirror"]
    spec = one(documents, "SparkApplication")["spec"]
    told = spec.get("executor", {}).get("serviceAccount") or spec["sparkConf"].get(
        "spark.kubernetes.authenticate.executor.serviceAccountName"
    )
    assert told == "mirror-executor"


def test_prometheus_checks_the_certificate(helm: str, tmp_path: Path) -> None:
    """With TLS, Prometheus needs a name to check, unless it may take any."""
    values = working()
    values["http"] = {
        "secretName": "x", "certificateKey": "tls.crt", "keyKey": "tls.key"
    }  # fmt: skip
    values["podMonitor"] = {"enabled": True}
    apis = ("--api-versions", ",".join(APIS))
    assert "set http.serverName" in refusal(helm, tmp_path, values, *apis)
    values["podMonitor"]["insecureSkipVerify"] = True
    file = tmp_path / "any.yaml"
    file.write_text(json.dumps(values))

    [asked] = one(render(helm, file), "PodMonitor")["spec"]["podMetricsEndpoints"]

    assert asked["tlsConfig"] == {"insecureSkipVerify": True}


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
    """Every dashboard and every file of rules reaches the cluster, unchanged but for
    the scheme of links to pods that use TLS.
    """
    documents = render(helm, CHART / "ci" / "secured.yaml")
    files = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
    rules = [
        yaml.safe_load(path.read_text().replace("}}http://{{", "}}https://{{"))
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
        (
            {"config": {"service": {"group": None}}},
            "config.service.group: null means that each instance leads every flow",
        ),
        (
            {"config": {"service": {"spark": {"spark.authenticate.secret": "x"}}}},
            "config.service.spark: spark.authenticate.secret would be readable",
        ),
        (
            {"config": {"defaults": {"transform_options": {"a": {"api_key": "x"}}}}},
            "config.defaults.transform_options: api_key would be readable",
        ),
        (
            {"spark": {"conf": {"spark.hadoop.fs.s3a.access.key": "x"}}},
            "spark.conf: spark.hadoop.fs.s3a.access.key would be readable",
        ),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
        ({"mode": "cronjob", "replicas": 2}, "replicas: 2 instances need mode"),
        (
            {"mode": "cronjob", "podMonitor": {"enabled": True}},
            "podMonitor.enabled: a run may end before it is scraped",
        ),
        (
            {"mode": "cronjob", "prometheusRule": {"enabled": True}},
            "prometheusRule.enabled: its alerts are about a service that runs on",
        ),
        ({"cronJob": {"pushGateway": "pushgateway:9091"}}, "pushGateway"),
        pytest.param(
            {"cronJob": {"pushGateway": "http://u:secret@gateway:9091"}},
            "pushGateway",
            id="a password in pushGateway",
        ),
        ({"cronJob": {"schedule": "every hour"}}, "schedule"),
        (
            {
                "mode": "cronjob",
                "cronJob": {"pushGateway": "http://gateway:9091"},
                "networkPolicy": {"kafkaTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
            },
            "networkPolicy.extraEgress: with kafkaTo pods cannot reach",
        ),
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


def test_a_run_now_and_then(helm: str, tmp_path: Path) -> None:
    """The values of docs/howto/run-once.md render a CronJob that runs mirror once,
    never twice at a time, and tries a wrong configuration once; nothing is there that
    only a service that runs on needs.
    """
    [more, _] = [
        yaml.safe_load(block.text)
        for block in blocks(ROOT / "docs" / "howto" / "run-once.md", "yaml")
    ]
    file = tmp_path / "my-values.yaml"
    file.write_text(json.dumps({**working(), **more}))

    documents = render(helm, file)

    kinds = {document["kind"] for document in documents}
    assert kinds == {"ConfigMap", "CronJob", "NetworkPolicy", "ServiceAccount"}
    spec = one(documents, "CronJob")["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("30 2 * * *", "Europe/Berlin")
    assert spec["concurrencyPolicy"] == "Forbid"
    [container] = pod(documents)["containers"]
    assert container["args"] == [
        *("run", "-c", "/etc/mirror/config/mirror.yaml", "--once"),
        *("--push-gateway", "http://pushgateway.monitoring.svc:9091"),
        *("--push-job", "mirror"),
    ]
    wrong, _ = spec["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert wrong["action"] == "FailJob"
    assert wrong["onExitCodes"]["values"] == [2]
    assert wrong["onExitCodes"]["containerName"] == container["name"]


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
    for part in ("version", "jvmOptions", "logging"):
        assert f"#   spec.{part}: left out: " in converted.stdout
    assert "#   spec.rack: a pod's zone is not known here; set the" in converted.stdout
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
