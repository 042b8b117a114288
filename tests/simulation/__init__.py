"""Histories from seeds: the real slots and driver against a model of Kafka, in one
process and in virtual time.

One seed decides everything: what is written, which faults strike and when, who dies.
`python -m tests.simulation` runs seeds; `--seed N` replays one and prints its history.

- `world`: virtual time, processes that take turns, the history.
- `network`: lines between processes and brokers.
- `partition`, `coordinator`, `model`: the clusters.
- `requests`, `writing`, `reading`, `serving`: their brokers' protocol.
- `faults`, `sources`, `flows`: what goes wrong, what is written, who copies it.
- `judge`: looks at the clusters from outside and says what is wrong; `mapping` does so
  for the offset map.
- `mutations`: mistakes in the real code that histories have to find.
- `scripts`: what model and real brokers answer alike.
- `histories`: one seed from its first event to the verdict.
"""
