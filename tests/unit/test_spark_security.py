"""How Spark's processes are told to protect leases."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from mirror.errors import ConfigError
from mirror.service.session import PROTECTION, protection

pytestmark = pytest.mark.unit

SECRET = {"spark.authenticate.secret": "s"}
FILE = {"spark.authenticate.secret.file": "/etc/mirror/spark/secret"}


@pytest.mark.parametrize("master", ["local", "local[4]", "local[4,2]", "local[*]"])
def test_one_process_needs_none(master: str):
    """In local mode nothing leaves the process, so nothing is set."""
    assert protection(master, {}) == {}


@pytest.mark.parametrize(
    ("master", "given"),
    [
        ("spark://spark.example.com:7077", SECRET),
        ("local-cluster[2,1,512]", SECRET),
        ("yarn", {}),
        ("k8s://https://10.0.0.1", FILE),
    ],
)
def test_protection_is_on(master: str, given: dict[str, str]):
    """On a cluster everything is authenticated and encrypted, without a warning; what
    the user has set stays as it is.
    """
    with capture_logs() as logs:
        assert protection(master, given) == PROTECTION
        assert "spark.io.encryption.enabled" not in protection(
            master, {**given, "spark.io.encryption.enabled": "true"}
        )
    assert logs == []


@pytest.mark.parametrize(
    "given",
    # A file counts on Kubernetes only: Spark reads it nowhere else.
    [{}, FILE, {"spark.authenticate": "true"}],
)
@pytest.mark.parametrize("master", ["spark://a:7077", "local-cluster[2,1,512]"])
def test_no_start_without_a_secret(master: str, given: dict[str, str]):
    """Where Spark makes no secret itself, a missing one is refused, by its name."""
    with pytest.raises(ConfigError, match=r"spark\.authenticate\.secret: .* needs a"):
        protection(master, given)


def test_turned_off_by_the_user():
    """What the user turns off stays off, and the log names it."""
    with capture_logs() as logs:
        assert protection("spark://a:7077", {"spark.authenticate": "false"}) == {}
        crypto = {**SECRET, "spark.network.crypto.enabled": "FALSE"}
        assert "spark.io.encryption.enabled" in protection("spark://a:7077", crypto)
    assert [each["settings"] for each in logs] == [
        "spark.authenticate",
        "spark.network.crypto.enabled",
    ]


def test_a_secret_in_pod_specs():
    """On Kubernetes Spark makes a secret, which everyone who may read pods can read:
    the log says how to keep it in a file.
    """
    with capture_logs() as logs:
        assert protection("k8s://https://10.0.0.1", {}) == PROTECTION
    assert [each["setting"] for each in logs] == ["spark.authenticate.secret.file"]
