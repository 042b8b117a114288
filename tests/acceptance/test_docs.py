"""The README and the quick start, followed to the letter on real clusters.

Their configurations are used as they are; only the addresses are ours, set by the
variables that a reader could use too.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad
from tests.harness.pages import ROOT, blocks
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Clusters

pytestmark = pytest.mark.acceptance


def test_the_first_configuration_copies(
    make_clusters: Callable[..., Clusters], tmp_path: Path
) -> None:
    """With the first configuration in a file and the first command in a terminal, which
    both pages agree on, a reader has `A.orders` and `A.payments.eu` on B, with every
    record once, and nothing else in that folder.
    """
    pages = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]
    texts = [
        block.text
        for page in pages
        for block in blocks(page, "yaml")
        if "flows:" in block.text
    ]
    assert len(texts) == len(pages)
    assert yaml.safe_load(texts[0]) == yaml.safe_load(texts[1])
    [command] = {
        block.text.strip()
        for page in pages
        for block in blocks(page, "sh")
        if "mirror run -c mirror.yaml" in block.text
    }
    clusters = make_clusters("a", "b")
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    loads = []
    for topic in ("orders", "payments.eu", "other"):
        create_topic(source, topic, 2)
        load = NumberedLoad(source, topic, 2)
        load.send(500)
        loads.append(load)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "mirror.yaml").write_text(texts[0])
    words = shlex.split(command)
    assert words[0].endswith("mirror")

    ended = subprocess.run(
        [sys.executable, "-m", "mirror", *words[1:], "--once"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={
            **os.environ,
            "MIRROR_CLUSTERS__A__bootstrap_servers": source,
            "MIRROR_CLUSTERS__B__bootstrap_servers": target,
            "MIRROR_SERVICE__http_port": "0",
        },
    )

    assert ended.returncode == 0, ended.stderr
    assert [each.name for each in folder.iterdir()] == ["mirror.yaml"]
    assert_exactly_once(order_of(target, "A.orders"), loads[0].order)
    assert_exactly_once(order_of(target, "A.payments.eu"), loads[1].order)
