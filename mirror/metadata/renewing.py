"""Deletes a copy and creates it again as it was: partitions, replicas, configs.

Main function: `renew`. It may be repeated at any time: what was deleted is not looked
for by name, and a new topic, which a running service may have created first, only gets
what it does not have. ACLs stay when a topic is deleted, and apply to its successor.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import configs, deletion, topic_admin
from mirror.clusters.admin.configs import Origin
from mirror.errors import ClusterError
from mirror.metadata import topics

if TYPE_CHECKING:
    import uuid

    from mirror.clusters.admin.topic_admin import NewTopic
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic

_PATIENCE_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.1


def renew(target: Cluster, old: uuid.UUID, wanted: NewTopic) -> Topic:
    """Delete the topic with the id `old`, and create its successor; returns that.

    Raises:
        ClusterError: the cluster refuses, or does not answer; do it again.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (found := target.views([wanted.name]).agreed(wanted.name)) is None or (
        found.topic_id == old
    ):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"cluster {target.alias}: {wanted.name} was deleted, and brokers do "
                "not show its successor"
            )
        if found is not None:  # under this name: a wrong id deletes no other topic
            deletion.delete(target, old, wanted.name)
        else:
            _, problems = topics.create(target, {wanted.name: wanted})
            if problems:
                raise ClusterError("; ".join(problems))
        time.sleep(_LOOK_AGAIN_SECONDS)
    made = target.wait_for_topic(wanted.name)
    if made.partitions < wanted.partitions:
        topic_admin.add_partitions(target, wanted.name, count=wanted.partitions)
        made = target.wait_for_topic(wanted.name, partitions=wanted.partitions)
    _correct(target, wanted)
    return made


def _correct(target: Cluster, wanted: NewTopic) -> None:
    """Set the configs that somebody else who created the topic did not set."""
    shown = configs.describe(target, [wanted.name])[wanted.name]
    if shown.error is not None:
        raise shown.error
    there = {
        name: each.value
        for name, each in shown.configs.items()
        if each.origin is Origin.TOPIC
    }
    missing = {k: v for k, v in wanted.configs.items() if there.get(k) != v}
    if missing:
        for error in configs.alter(target, {wanted.name: missing}).values():
            raise error
