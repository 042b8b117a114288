"""A program: hands a lease's plan to an executor, as the driver does, without brokers.

It takes the service's settings as JSON and the password that the plan has. The
executor answers with the password's length, which this program prints.
"""

from __future__ import annotations

import json
import sys

from mirror.copying.lease import LeasePlan
from mirror.service.session import session
from tests.harness.configurations import configuration


def main() -> None:
    service, password = json.loads(sys.argv[1]), sys.argv[2]
    config = configuration(
        {
            "clusters": {
                "A": {
                    "bootstrap_servers": "a:9092",
                    "security_protocol": "SASL_SSL",
                    "sasl_mechanism": "PLAIN",
                    "sasl_username": "mirror",
                    "sasl_password": password,
                },
                "B": {"bootstrap_servers": "b:9092"},
            },
            "flows": {"A->B": {"topics": "orders"}},
            "service": service,
        }
    )
    plan = LeasePlan(
        flow=config.flows["A->B"],
        source=config.clusters["A"],
        target=config.clusters["B"],
        source_id="a",
        target_id="b",
    )
    spark = session(config.service, slots=1)

    def length(_: int) -> int:
        secret = plan.source.sasl_password
        return len(secret.get_secret_value()) if secret else 0

    sys.stdout.write(f"{spark.sparkContext.parallelize([0], 1).map(length).collect()}")
    spark.stop()


if __name__ == "__main__":
    main()
