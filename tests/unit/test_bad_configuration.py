"""Broken configurations: each is refused with exit status 2 and a message that helps.

Tables of what is wrong and of everything that is said about it. A message names the
setting as its file spells it, the value unless it may be a secret, and what is right.
"""

# ruff: noqa: E501  messages are kept in one piece, as they are printed

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from tests.harness.configurations import MM2

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

OURS = """\
clusters:
  A: {bootstrap_servers: "a:9092"}
  B: {bootstrap_servers: "b:9092"}
flows:
  A->B: {topics: [orders]}
"""

# What is wrong; what of OURS is put out; what is put in; what is said.
YAML = {
    "a tab": (
        "  A:",
        "\tA:",
        "{file}: not valid YAML: found character '\\t' that cannot start any token in line 2, column 1; indent with spaces, YAML does not allow tabs",
    ),
    "a section twice": (
        "flows:",
        "flows: {A->B: {}}\nflows:",
        '{file}: not valid YAML: found duplicate key "flows" in line 5, column 1',
    ),
    "a mapping that may hold a secret": (
        "  A->B: {topics: [orders]}",
        '  A->B: {transform: "a:b", transform_options: "pw=open-sesame"}',
        'flows."A->B".transform_options: is not a mapping',
    ),
    "a secret that is a number": (
        '  A: {bootstrap_servers: "a:9092"}',
        '  A: {bootstrap_servers: "a:9092", sasl_oauthbearer_parameters: {secret: 1234}}',
        "clusters.A.sasl_oauthbearer_parameters: is not text: write it in quotes",
    ),
    "a setting of a library": (
        "flows:",
        "load_dotenv: true\nflows:",
        "load_dotenv: unknown setting",
    ),
    "a very deep list": (
        "{topics: [orders]}",
        "[" * 500,
        "{file}: not valid YAML: nested too deeply",
    ),
    "a deep list that ends": (
        "{topics: [orders]}",
        "[" * 400 + "]" * 400,
        "{file}: not valid YAML: nested too deeply",
    ),
    "a default that is a number": (
        "flows:",
        "defaults: {1: 2}\nflows:",
        "defaults.1: unknown setting",
    ),
    "a flow twice": (
        "  A->B: {topics: [orders]}",
        "  A->B: {}\n  A->B: {}",
        '{file}: not valid YAML: found duplicate key "A->B" in line 6, column 3',
    ),
    "two spellings of a flow": (
        "  A->B: {topics: [orders]}",
        "  A->B: {}\n  A/B: {}",
        'flows."A/B": the same flow as "A->B"; keep one',
    ),
    "an anchor that is not there": (
        "[orders]",
        "*orders",
        "{file}: not valid YAML: found undefined alias in line 5, column 18; quote a text that begins with *",
    ),
    "an anchor within itself": (
        "[orders]",
        "&a [*a]",
        "{file}: not valid YAML: an anchor (&) is used (*) within itself",
    ),
    "a bracket left open": (
        "[orders]",
        "[orders",
        "{file}: not valid YAML: expected ',' or ']', but got '}' in line 5, column 25",
    ),
    "a second document": (
        "flows:",
        "---\nflows:",
        "{file}: not valid YAML: but found another document in line 4, column 1; keep one, and no line --- before it",
    ),
    "a Python object": (
        "[orders]",
        "!!python/object:os.system x",
        "{file}: not valid YAML: could not determine a constructor for the tag in line 5, column 18; quote a text that begins with !",
    ),
    "a control character": (
        "orders",
        "or\x07ders",
        "{file}: not valid YAML: unreadable characters: U+0007 at position 107",
    ),
    "a section mistyped": (
        "flows:",
        "flow:",
        'flow: unknown setting; did you mean "flows"?\nflows: is missing; at least one is needed',
    ),
    "a setting mistyped": (
        "topics:",
        "topcis:",
        'flows."A->B".topcis: unknown setting; did you mean "topics"?',
    ),
    "a setting of another section": (
        "topics: [orders]",
        "http_port: 8083",
        'flows."A->B".http_port: unknown setting; it belongs to service',
    ),
    "no broker": (
        '"a:9092"',
        '""',
        'clusters.A.bootstrap_servers: at least one broker is needed, such as "broker-1.example.com:9092"',
    ),
    "a broker without a port": (
        '"a:9092"',
        '"a"',
        'clusters.A.bootstrap_servers[0]: "a" is not host:port; use "broker-1.example.com:9092"',
    ),
    "a broker with a scheme": (
        '"a:9092"',
        '"http://a:9092"',
        'clusters.A.bootstrap_servers[0]: "http://a:9092" is not host:port; use "broker-1.example.com:9092"',
    ),
    "a port out of range": (
        '"a:9092"',
        '"a:99999"',
        'clusters.A.bootstrap_servers[0]: "a:99999" is not host:port; use "broker-1.example.com:9092"',
    ),
    "a mapping for a list": (
        '"a:9092"',
        "{a: 9092}",
        "clusters.A.bootstrap_servers: {'a': 9092} is not a list of texts",
    ),
    "an alias with a space": (
        "  A: ",
        '  "A b": ',
        'clusters."A b".alias: "A b" cannot be an alias: aliases become part of topic names, which allow only letters, digits, dot, underscore and hyphen\nflows."A->B": there is no cluster "A"',
    ),
    "an unknown alias": (
        "A->B:",
        "A->C:",
        'flows."A->C": there is no cluster "C"',
    ),
    "another arrow": (
        "A->B:",
        "A=>B:",
        'flows."A=>B": not a flow\'s name; use "A->B"',
    ),
    "a flow onto itself": (
        "A->B:",
        "A->A:",
        'flows."A->A": source and target are the same cluster',
    ),
    "one cluster under two aliases": (
        '"b:9092"',
        '"A:9092"',
        'flows."A->B": A and B are the same cluster: both have a:9092 in bootstrap_servers',
    ),
    "a broken pattern": (
        "[orders]",
        '["pay("]',
        'flows."A->B".topics[0]: "pay(" is not a valid regex: missing ), unterminated subpattern at position 3; did you mean "pay\\("?',
    ),
    "a glob": (
        "[orders]",
        '["*"]',
        'flows."A->B".topics[0]: "*" is not a valid regex: nothing to repeat at position 0; did you mean ".*"?',
    ),
    "a pattern with a space": (
        "[orders]",
        '["a, b c"]',
        'flows."A->B".topics[0]: "a, b c" matches no topic: names have no spaces and no #; a comment cannot follow a value on the same line',
    ),
    "a comment in a value": (
        "[orders]",
        '"orders # all"',
        'flows."A->B".topics[0]: "orders # all" matches no topic: names have no spaces and no #; a comment cannot follow a value on the same line',
    ),
    "a name with an accent": (
        "[orders]",
        '["café"]',
        'flows."A->B".topics[0]: "café" matches no topic: names have no "é", only letters without accents, digits, dot, underscore and hyphen',
    ),
    "nothing in a list": (
        "[orders]",
        "[null]",
        'flows."A->B".topics: null is not text: write it in quotes',
    ),
    "two topics, one copy": (
        "[orders]",
        "[orders, bills], policy: rename, rename: [{match: '.*', to: all}]",
        'flows."A->B": orders and bills of A would both be copied to all on B; leave one out, or rename it',
    ),
    "a circle without stamps": (
        "{topics: [orders]}",
        "{topics: [orders], policy: identity, provenance: off}\n  B->A: {topics: [orders], policy: identity}",
        "flows: A -> B -> A is a circle, and provenance is off on A->B: records would circulate endlessly; turn provenance on",
    ),
    "nothing enabled": (
        "topics: [orders]",
        "enabled: off",
        "flows: none is enabled, so there is nothing to do",
    ),
    "a group in Java's words": (
        "[orders]",
        "['(?<x>a)']",
        'flows."A->B".topics[0]: "(?<x>a)" is not a valid regex: unknown extension ?<x at position 1; did you mean "(?P<x>a)"?',
    ),
    "a set in Java's words": (
        "[orders]",
        "['[a-z&&[^b]]']",
        'flows."A->B".topics[0]: "[a-z&&[^b]]" is not a clear regex: Possible set intersection at position 4',
    ),
    "a number for a flow": (
        "{topics: [orders]}",
        "5",
        'flows."A->B": is not a mapping',
    ),
    "no setting for brokers": (
        'bootstrap_servers: "a:9092"',
        "",
        'clusters.A.bootstrap_servers: is missing; use "broker-1.example.com:9092"',
    ),
}
TOKENS = "security_protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER"
KERBEROS = f"security_protocol: SASL_SSL, sasl_mechanism: gssapi, sasl_kerberos_principal: mirror@EXAMPLE.COM, sasl_kerberos_keytab_file: {__file__}"
# What is wrong; what is added to the settings of a cluster; what is said.
CLUSTER = {
    "the alias again": (
        "alias: A",
        "clusters.A.alias: is already given by the key above; remove it",
    ),
    "an unknown protocol": (
        "security_protocol: TLS",
        'clusters.A.security_protocol: "TLS" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL',
    ),
    "a protocol without credentials": (
        "security_protocol: SASL_SSL",
        "clusters.A.security_protocol: SASL_SSL also needs sasl_mechanism, sasl_username and sasl_password_file (or sasl_password); add it",
    ),
    "both secrets": (
        "security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, sasl_password: s3cret, sasl_password_file: /x",
        "clusters.A.sasl_password_file: the password is set twice; keep one",
    ),
    "a password of digits": (
        "security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, sasl_password: 5309",
        "clusters.A.sasl_password: must be text: write it in quotes",
    ),
    "an unknown mechanism": (
        "security_protocol: SASL_SSL, sasl_mechanism: SCRAM, sasl_username: u, sasl_password: s3cret",
        'clusters.A.sasl_mechanism: "SCRAM" is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI',
    ),
    "credentials without a protocol": (
        "sasl_username: u",
        "clusters.A.sasl_username: security_protocol PLAINTEXT does not use it; set security_protocol to SASL_SSL or SASL_PLAINTEXT",
    ),
    "everyone as mirror's principal": (
        'principal: "User:*"',
        'clusters.A.principal: "User:*" is not what ACLs call a single user; use its kind and name, such as User:mirror',
    ),
    "a name without its kind": (
        "principal: mirror",
        'clusters.A.principal: "mirror" is not what ACLs call a single user; use its kind and name, such as User:mirror',
    ),
    "a missing file": (
        "security_protocol: SSL, ssl_ca_file: /no/ca.pem",
        'clusters.A.ssl_ca_file: there is no file "/no/ca.pem"',
    ),
    "a duration with a unit": (
        "request_timeout_seconds: 30s",
        'clusters.A.request_timeout_seconds: "30s" is not a number; write seconds, without a unit',
    ),
    "a list for a secret": (
        "security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, sasl_password: [s3cret]",
        "clusters.A.sasl_password: must be text: write it in quotes",
    ),
    "a secret under a mistyped name": (
        "security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, sasl_pasword: s3cret",
        'clusters.A.sasl_pasword: unknown setting; did you mean "sasl_password"?',
    ),
    "certificates without TLS": (
        "security_protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN, sasl_username: u, sasl_password: s3cret, ssl_ca_file: /no/such",
        "clusters.A.ssl_ca_file: security_protocol SASL_PLAINTEXT does not use it; set security_protocol to SSL or SASL_SSL",
    ),
    "no source of tokens": (
        TOKENS,
        "clusters.A.sasl_mechanism: OAUTHBEARER needs a source of tokens; add sasl_oauthbearer_token_endpoint_url, or sasl_token_provider",
    ),
    "an endpoint without a client": (
        f"{TOKENS}, sasl_oauthbearer_token_endpoint_url: 'https://id/t'",
        "clusters.A.sasl_oauthbearer_token_endpoint_url: it also needs sasl_oauthbearer_client_credentials_client_id and sasl_oauthbearer_client_credentials_client_secret_file (or sasl_oauthbearer_client_credentials_client_secret); add it",
    ),
    "a password in the endpoint's address": (
        f"{TOKENS}, sasl_oauthbearer_token_endpoint_url: 'https://me:s3cret@id/t'",
        "clusters.A.sasl_oauthbearer_token_endpoint_url: not a valid address of a token endpoint; use https://id.example.com/oauth2/token without user and password, or file:///run/secrets/token",
    ),
    "a scope for a provider": (
        f"{TOKENS}, sasl_token_provider: a, sasl_oauthbearer_scope: x",
        "clusters.A.sasl_oauthbearer_scope: sasl_token_provider does not use it; remove it",
    ),
    "a user beside tokens": (
        f"{TOKENS}, sasl_token_provider: a, sasl_username: x",
        "clusters.A.sasl_username: sasl_mechanism OAUTHBEARER does not use it; use sasl_oauthbearer_client_credentials_client_id and its secret",
    ),
    "a function for a provider's name": (
        f"{TOKENS}, sasl_token_provider: 'subprocess:check_output'",
        'clusters.A.sasl_token_provider: "subprocess:check_output" is a function\'s name, and mirror calls only registered ones: name it in the entry-point group "mirror.token_providers" of an installed package, and give that name here (for Amazon\'s signer "aws-msk-iam", which mirror has); see docs/howto/security.md',
    ),
    "a provider of two words": (
        f"{TOKENS}, sasl_token_provider: a b",
        'clusters.A.sasl_token_provider: "a b" does not name a token provider; use "aws-msk-iam"',
    ),
    "a CA without TLS": (
        f"{TOKENS}, sasl_oauthbearer_token_endpoint_url: 'http://id/t', sasl_oauthbearer_client_credentials_client_id: a, sasl_oauthbearer_client_credentials_client_secret: s3cret, sasl_oauthbearer_ca_file: /ca.pem",
        "clusters.A.sasl_oauthbearer_ca_file: sasl_oauthbearer_token_endpoint_url is not an https: address; make it one, or remove this",
    ),
    "an extension with a digit": (
        f"{TOKENS}, sasl_token_provider: a, sasl_oauthbearer_extensions: {{a1: x}}",
        'clusters.A.sasl_oauthbearer_extensions: "a1" is not a valid name of a SASL extension: letters only, and not auth',
    ),
    "GSSAPI alone": (
        "security_protocol: SASL_SSL, sasl_mechanism: gssapi",
        "clusters.A.sasl_mechanism: GSSAPI also needs sasl_kerberos_principal and sasl_kerberos_keytab_file; add it",
    ),
    "no keytab": (
        "security_protocol: SASL_SSL, sasl_mechanism: gssapi, sasl_kerberos_principal: mirror@EXAMPLE.COM",
        "clusters.A.sasl_mechanism: GSSAPI also needs sasl_kerberos_keytab_file; add it",
    ),
    "a keytab that is not there": (
        "security_protocol: SASL_SSL, sasl_mechanism: gssapi, sasl_kerberos_principal: mirror@EXAMPLE.COM, sasl_kerberos_keytab_file: /no/such",
        'clusters.A.sasl_kerberos_keytab_file: there is no file "/no/such"',
    ),
    "a user beside Kerberos": (
        f"{KERBEROS}, sasl_username: mirror",
        "clusters.A.sasl_username: sasl_mechanism GSSAPI does not use it; use sasl_kerberos_principal and sasl_kerberos_keytab_file",
    ),
    "a token provider beside Kerberos": (
        f"{KERBEROS}, sasl_token_provider: x",
        "clusters.A.sasl_token_provider: sasl_mechanism GSSAPI does not use it; set sasl_mechanism to OAUTHBEARER",
    ),
    "a Kerberos service beside a password": (
        "security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, sasl_password: p, sasl_kerberos_service_name: kafka",
        "clusters.A.sasl_kerberos_service_name: sasl_mechanism PLAIN does not use it; set sasl_mechanism to GSSAPI",
    ),
    "a keytab without SASL": (
        f"security_protocol: SSL, sasl_kerberos_keytab_file: {__file__}",
        "clusters.A.sasl_kerberos_keytab_file: security_protocol SSL does not use it; set security_protocol to SASL_SSL or SASL_PLAINTEXT",
    ),
}
# The same of a flow.
FLOW = {
    "a day that is not there": (
        "start: 2026-02-30",
        '{file}: "2026-02-30" in line 5 is not a date: day is out of range for month',
    ),
    "a part of a task": (
        "tasks: 1.5",
        'flows."A->B".tasks: 1.5 is not a whole number',
    ),
    "no task": (
        "tasks: 0",
        'flows."A->B".tasks: 0 is too small; at least 1',
    ),
    "neither yes nor no": (
        "provenance: maybe",
        'flows."A->B".provenance: "maybe" is neither true nor false',
    ),
    "a word in capitals": (
        "policy: Identity",
        'flows."A->B".policy: "Identity" is not one of default, identity, rename; did you mean "identity"?',
    ),
    "an empty separator": (
        'separator: ""',
        'flows."A->B".separator: "" is not allowed in a topic\'s name; use letters, digits, dot, underscore and hyphen',
    ),
    "a moment in seconds": (
        "start: 1700000000",
        'flows."A->B".start: 1700000000 is before 1973 in epoch milliseconds; use latest, 2026-01-31T08:00:00Z or epoch milliseconds',
    ),
    "no replicas": (
        "replication_factor: 0",
        'flows."A->B".replication_factor: 0 replicas are not possible; use 3, or -1 for the brokers\' default',
    ),
    "more in sync than there are": (
        "replication_factor: 2, min_insync_replicas: 3",
        'flows."A->B".min_insync_replicas: 3 replicas of 2 can never be in sync, so nothing could be written; use 1, or a larger replication_factor',
    ),
    "an interval of nothing": (
        "refresh_topics_seconds: 0",
        'flows."A->B".refresh_topics_seconds: 0 is too small; it must be above 0',
    ),
    "not a number": (
        "lease_seconds: .nan",
        'flows."A->B".lease_seconds: nan is not a number',
    ),
    "offsets without checkpoints": (
        "sync_group_offsets: true, emit_checkpoints: false",
        'flows."A->B".sync_group_offsets: it follows the checkpoints, and emit_checkpoints is off; turn emit_checkpoints on',
    ),
    "a function without its module": (
        "transform: mask",
        'flows."A->B".transform: "mask" does not name a function; use "package.module:function"',
    ),
    "options that nothing uses": (
        "transform_options: {salt: x}",
        'flows."A->B".transform_options: nothing uses it; add transform, or remove it',
    ),
    "fillers without the source's offsets": (
        "fill: visible",
        'flows."A->B".fill: only copies with offsets: same have holes to fill; remove fill, or set offsets: same',
    ),
    "rules without their policy": (
        "rename: [{match: a, to: b}]",
        'flows."A->B": policy default would not use rename; set policy to rename, or rename to []',
    ),
    "a group that a rule does not have": (
        "policy: rename, rename: [{match: '(.*)', to: 'x.\\2'}]",
        'flows."A->B".rename[0]: to "x.\\2" names group 2, but match "(.*)" has 1',
    ),
    "a list for a word": (
        "policy: []",
        'flows."A->B".policy: [] is not one of default, identity, rename',
    ),
    "half a rule": (
        "rename: [{match: 'pay'}]",
        "flows.\"A->B\".rename[0]: is not a rule of two texts, match and to; use {match: 'orders\\.(.*)', to: 'eu.\\1'}",
    ),
    "a rule with a number": (
        "rename: [{match: 'pay', to: 1}]",
        "flows.\"A->B\".rename[0]: is not a rule of two texts, match and to; use {match: 'orders\\.(.*)', to: 'eu.\\1'}",
    ),
    "a rule with a broken pattern": (
        "rename: [{match: 'pay(', to: x}]",
        'flows."A->B".rename[0]: match "pay(" is not a valid regex: missing ), unterminated subpattern at position 3; did you mean "pay\\("?',
    ),
    "a word for rules": (
        "rename: x",
        "flows.\"A->B\".rename: \"x\" is not a list of rules; use {match: 'orders\\.(.*)', to: 'eu.\\1'}",
    ),
    "dead letters that nothing uses": (
        "dead_letter_topic: dead",
        'flows."A->B".dead_letter_topic: nothing uses it; add transform, or remove it',
    ),
    "dead letters where no topic can be": (
        "transform: 'm:f', dead_letter_topic: 'a b'",
        'flows."A->B".dead_letter_topic: "a b" has characters that Kafka does not allow; letters, digits, dot, underscore and hyphen are allowed',
    ),
    "dead letters among Kafka's own": (
        "transform: 'm:f', dead_letter_topic: __dead",
        'flows."A->B".dead_letter_topic: "__dead" is reserved for Kafka or mirror',
    ),
    "a lease that is too long": (
        "lease_seconds: 301",
        'flows."A->B".lease_seconds: 301 is too large; at most 300',
    ),
}
# The same of the service.
SERVICE = {
    "a secret of Spark": (
        "spark: {spark.hadoop.fs.s3a.secret.key: [open-sesame]}",
        "service.spark: is not text: write it in quotes",
    ),
    "a setting that is a number": (
        "8083: open-sesame",
        "service.8083: unknown setting",
    ),
    "a port out of the service's range": (
        "http_port: 70000",
        "service.http_port: 70000 is too large; at most 65535",
    ),
    "an unknown level of the log": (
        "log_level: verbose",
        'service.log_level: "verbose" is not one of debug, info, warning, error',
    ),
}
JAVA_TOKENS = "A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER"
# What is wrong; lines after those of MM2; what is said.
PROPERTIES = {
    "a misspelled alias": (
        "A->BB.enabled = true",
        'A->BB: there is no cluster "BB"; did you mean "B"?',
    ),
    "a broken pattern": (
        "A->B.topics = pay(",
        'A->B.topics[0]: "pay(" is not a valid regex: missing ), unterminated subpattern at position 3; did you mean "pay\\("?',
    ),
    "a word for a number": (
        "A->B.tasks.max = four",
        'A->B.tasks.max: "four" is not a whole number',
    ),
    "no replicas": (
        "replication.factor = 0",
        "replication.factor: 0 replicas are not possible; use 3, or -1 for the brokers' default",
    ),
    "neither true nor false": (
        "A->B.enabled = on please",
        'A->B.enabled: "on please" is neither true nor false',
    ),
    "a policy without its package": (
        "replication.policy.class = IdentityReplicationPolicy",
        'replication.policy.class: there is no replication policy "IdentityReplicationPolicy" here; use org.apache.kafka.connect.mirror.DefaultReplicationPolicy or org.apache.kafka.connect.mirror.IdentityReplicationPolicy; policy rename in a YAML file can name copies as another class does',
    ),
    "a separator that no name has": (
        "replication.policy.separator = /",
        'replication.policy.separator: "/" is not allowed in a topic\'s name; use letters, digits, dot, underscore and hyphen',
    ),
    "an interval with a unit where Java wants seconds": (
        "emit.checkpoints.interval.seconds = 60s",
        'emit.checkpoints.interval.seconds: "60s" is not a number; write seconds, without a unit',
    ),
    "an unknown place": (
        "offset-syncs.topic.location = both",
        'offset-syncs.topic.location: "both" is not one of source, target',
    ),
    "a login that cannot be read": (
        "A.security.protocol = SASL_PLAINTEXT\nA.sasl.mechanism = PLAIN\nA.sasl.jaas.config = org.x.OtherModule required password=s3cret;",
        'A.sasl.jaas.config: the login module "OtherModule" is a Java class, which cannot run here; use PlainLoginModule, ScramLoginModule, Krb5LoginModule or OAuthBearerLoginModule',
    ),
    "a missing trust store": (
        "A.security.protocol = SSL\nA.ssl.truststore.location = /no/such.jks",
        'A.ssl.truststore.location: there is no file "/no/such.jks"',
    ),
    "a missing file of secrets": (
        "A.bootstrap.servers = ${file:/no/secrets:x}",
        "A.bootstrap.servers: there is no file /no/secrets",
    ),
    "a variable that is not set": (
        "A.bootstrap.servers = ${env:NOT_SET}",
        "A.bootstrap.servers: the environment variable NOT_SET is not set",
    ),
    "no broker": (
        "A.bootstrap.servers =",
        'A.bootstrap.servers: at least one broker is needed, such as "broker-1.example.com:9092"',
    ),
    "an unknown codec": (
        "B.producer.compression.type = brotli",
        'B.producer.compression.type: "brotli" is not one of source, none, gzip, snappy, lz4, zstd',
    ),
    "a start that is none": (
        "A.consumer.auto.offset.reset = none",
        'A.consumer.auto.offset.reset: "none" is not one of earliest, latest, nor a time; use latest, 2026-01-31T08:00:00Z or epoch milliseconds',
    ),
    "a Java class": (
        "topic.filter.class = com.example.Mine",
        'topic.filter.class: "com.example.Mine" is a Java class, which cannot run here; use topics and topics.exclude for what it does, or remove it',
    ),
    "Connect's transforms": (
        "transforms = mask",
        "transforms: Connect's transforms are Java classes, which cannot run here; write a function and name it as transform in a YAML configuration",
    ),
    "a broken escape": (
        "topics = \\u12",
        "{file}: the file has a broken escape: Invalid \\u escape sequence: \\u12; use four hex digits after \\u, or two backslashes for one that is meant",
    ),
    "offsets without checkpoints": (
        "sync.group.offsets.enabled = true\nemit.checkpoints.enabled = false",
        "sync.group.offsets.enabled: it follows the checkpoints, and emit_checkpoints is off; turn emit_checkpoints on",
    ),
    "a name of a guide without its pair": (
        "topics.rename.regex = (.*)",
        "topics.rename.regex: needs topics.rename.replacement beside it",
    ),
    "exactly once mistyped": (
        "exactly.once.source.support = enbled",
        'exactly.once.source.support: "enbled" is not one of enabled, preparing, disabled; did you mean "enabled"?',
    ),
    "a store that cannot be read": (
        "A.security.protocol = SSL\nA.ssl.truststore.location = t.jks\nA.ssl.truststore.type = BCFKS",
        "A.ssl.truststore.location: a store of type BCFKS cannot be read; use JKS, PKCS12, PEM: keytool -importkeystore -deststoretype PKCS12 converts it",
    ),
    "a key without its chain": (
        "A.security.protocol = SSL\nA.ssl.keystore.key = x",
        "A.ssl.keystore.key: it has no effect without ssl_certificate_chain; add ssl_certificate_chain",
    ),
    "a password for Kerberos": (
        'A.security.protocol = SASL_SSL\nA.sasl.mechanism = GSSAPI\nA.sasl.jaas.config = x.PlainLoginModule required username="u" password="p";',
        "A.sasl.jaas.config: sasl_mechanism GSSAPI does not use it; use sasl_kerberos_principal and sasl_kerberos_keytab_file",
    ),
    "a protocol mistyped": (
        "A.security.protocol = SSLL",
        'A.security.protocol: "SSLL" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; did you mean "SSL"?',
    ),
    "a renaming after a cluster that is not there": (
        "A->B.topics.rename.regex = x\nA->B.topics.rename.replacement = ${clusters.C}.x",
        'A->B.topics.rename.replacement: there is no cluster "C"',
    ),
    "a duration in words": (
        "emit.heartbeats.interval = soon",
        'emit.heartbeats.interval: "soon" is not a duration; use 30s, 5m or 1h',
    ),
    "a timeout in words": (
        "request.timeout.ms = soon",
        'request.timeout.ms: "soon" is not a number of milliseconds',
    ),
    "an unknown strategy": (
        "sync.topic.configs.strategy = UNION",
        'sync.topic.configs.strategy: "union" is not one of first, intersection, target',
    ),
    "copies that are not created": (
        "target.topic.creation.enable = false",
        "target.topic.creation.enable: missing copies are always created; revoke the right to create topics on the target, or remove this line",
    ),
    "an unsigned token": (
        f'{JAVA_TOKENS}\nA.sasl.jaas.config = x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="a";',
        "A.sasl.jaas.config: unsecuredLoginStringClaim_sub: unsigned tokens are not supported; use sasl.oauthbearer.token.endpoint.url, or sasl_token_provider in a YAML file\nA.sasl.mechanism: OAUTHBEARER needs a source of tokens; add sasl_oauthbearer_token_endpoint_url, or sasl_token_provider",
    ),
    "an option mistyped": (
        f'{JAVA_TOKENS}\nA.sasl.oauthbearer.token.endpoint.url = https://id/t\nA.sasl.jaas.config = x.OAuthBearerLoginModule required clientID="a";',
        "A.sasl.jaas.config: clientID: this option is not known; use clientId, clientSecret, scope, extension_NAME\nA.sasl.oauthbearer.token.endpoint.url: it also needs sasl_oauthbearer_client_credentials_client_id and sasl_oauthbearer_client_credentials_client_secret_file (or sasl_oauthbearer_client_credentials_client_secret); add it",
    ),
    "OAUTHBEARER alone": (
        f"{JAVA_TOKENS}\nA.sasl.jaas.config = x.OAuthBearerLoginModule required;",
        "A.sasl.mechanism: OAUTHBEARER needs a source of tokens; add sasl_oauthbearer_token_endpoint_url, or sasl_token_provider",
    ),
    "Amazon's login without a region": (
        f"{JAVA_TOKENS}\nA.sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required;",
        "A.sasl.mechanism: the region is in no broker's name; write it, as in sasl_token_options: {region: eu-west-1}",
    ),
    "a ticket cache": (
        'A.security.protocol = SASL_PLAINTEXT\nA.sasl.jaas.config = x.Krb5LoginModule required useTicketCache=true principal="m@R";\nA.sasl.kerberos.service.name = kafka',
        'A.sasl.jaas.config: does not log in with a keytab; use Krb5LoginModule with useKeyTab=true keyTab="/etc/mirror/mirror.keytab" principal="mirror@REALM"\nA.sasl.jaas.config: GSSAPI also needs sasl_kerberos_principal and sasl_kerberos_keytab_file; add it',
    ),
    "no keytab and no principal": (
        "A.security.protocol = SASL_PLAINTEXT\nA.sasl.jaas.config = x.Krb5LoginModule required useKeyTab=true;\nA.sasl.kerberos.service.name = kafka",
        'A.sasl.jaas.config: has no keyTab and no principal; use useKeyTab=true keyTab="/etc/mirror/mirror.keytab" principal="mirror@REALM"\nA.sasl.jaas.config: GSSAPI also needs sasl_kerberos_principal and sasl_kerberos_keytab_file; add it',
    ),
    "two names of the service": (
        f'A.security.protocol = SASL_PLAINTEXT\nA.sasl.jaas.config = x.Krb5LoginModule required useKeyTab=true keyTab="{__file__}" principal="m@R" serviceName="other";\nA.sasl.kerberos.service.name = kafka',
        "A.sasl.jaas.config: serviceName is not sasl.kerberos.service.name; use the same, or keep one",
    ),
    "a file that is not there": (
        "topics = ${directory:/nope:x}",
        "topics: there is no file /nope/x",
    ),
    "a file of another folder": (
        "topics = ${directory:/nope:../x}",
        'topics: "../x" is not the name of a file in /nope',
    ),
    "an unknown provider": (
        "topics = ${vault:/x:y}",
        'topics: there is no provider "vault"; declare it in config.providers, or use file, env or directory',
    ),
    "a provider of others": (
        "topics = ${v:/x:y}\nconfig.providers = v\nconfig.providers.v.class = com.example.Vault",
        'topics: the provider "v" is com.example.Vault, which cannot run here; use FileConfigProvider, EnvVarConfigProvider, DirectoryConfigProvider',
    ),
    "a path that is not allowed": (
        "topics = ${f:/etc/passwd:y}\nconfig.providers = f\nconfig.providers.f.class = x.FileConfigProvider\nconfig.providers.f.param.allowed.paths = /run/secrets",
        "topics: config.providers.f.param.allowed.paths does not allow /etc/passwd",
    ),
    "a variable that is not allowed": (
        "topics = ${e:HOME}\nconfig.providers = e\nconfig.providers.e.class = x.EnvVarConfigProvider\nconfig.providers.e.param.allowlist.pattern = MM2_.*",
        "topics: config.providers.e.param.allowlist.pattern does not allow the variable HOME",
    ),
    "no password": (
        'A.security.protocol = SASL_SSL\nA.sasl.mechanism = PLAIN\nA.sasl.jaas.config = x.PlainLoginModule required username="u" pasword="s3cret";',
        "A.sasl.jaas.config: has no password\nA.security.protocol: SASL_SSL also needs sasl_username and sasl_password_file (or sasl_password); add it",
    ),
}
# What is wrong; the file's name and text; what is said.
FILES = {
    "nothing": (
        "mirror.yaml",
        "",
        "{file}: is empty; it must hold a mapping with the keys clusters, flows, defaults and service",
    ),
    "a list": (
        "mirror.yaml",
        "- A\n- B\n",
        "{file}: must hold a mapping with the keys clusters, flows, defaults and service",
    ),
    "a file of properties": (
        "mirror.yaml",
        MM2,
        "{file}: must hold a mapping with the keys clusters, flows, defaults and service; this looks like MirrorMaker 2's: call the file .properties",
    ),
    "YAML": (
        "mm2.properties",
        OURS,
        "{file}: this looks like YAML: call the file .yaml",
    ),
    "JSON": (
        "mm2.properties",
        '{"clusters": {}}\n',
        "{file}: this looks like YAML: call the file .yaml",
    ),
    "no properties": (
        "mm2.properties",
        "",
        "{file}: the file is empty; it must hold at least clusters = A, B",
    ),
    "clusters without commas": (
        "mm2.properties",
        "clusters = A B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n",
        'clusters: "A B" has a space; use clusters = A, B',
    ),
    "no flow": (
        "mm2.properties",
        "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n",
        "A->B.enabled: is missing; at least one is needed",
    ),
    "another ending": (
        "mirror.toml",
        "[clusters]\n",
        "{file}: the name must end in .yaml, or in .properties for MirrorMaker 2",
    ),
    "a text": (
        "mirror.yaml",
        "just text",
        "{file}: must hold a mapping with the keys clusters, flows, defaults and service",
    ),
    "a comment alone": (
        "mm2.properties",
        "# nothing\n",
        "{file}: the file is empty; it must hold at least clusters = A, B",
    ),
    "no clusters": (
        "mm2.properties",
        "A->B.enabled = true\n",
        'A->B: "A" is not among the clusters\nclusters: is missing; at least one is needed\nA->B.enabled: is missing; at least one is needed',
    ),
    "a cluster without brokers": (
        "mm2.properties",
        "clusters = A, B\nB.bootstrap.servers = b:1\nA->B.enabled = true\n",
        'A.bootstrap.servers: is missing; use "broker-1.example.com:9092"',
    ),
}


def refused(file: Path, command: str) -> str:
    """What a command says about a file, without the name of the file."""
    result = CliRunner().invoke(app, [command, "-c", str(file)], prog_name="mirror")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr.replace(str(file), "{file}").removesuffix("\n")


BROKEN = {
    **YAML,
    **{
        name: ('"a:9092"', f'"a:9092", {more}', said)
        for name, (more, said) in CLUSTER.items()
    },
    **{
        name: ("[orders]", f"[orders], {more}", said)
        for name, (more, said) in FLOW.items()
    },
    **{
        name: ("flows:", f"service: {{{more}}}\nflows:", said)
        for name, (more, said) in SERVICE.items()
    },
}


@pytest.mark.parametrize(("old", "new", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_yaml_file(tmp_path: Path, old: str, new: str, said: str) -> None:
    """One thing is wrong in a file that is correct otherwise."""
    assert old in OURS
    file = tmp_path / "mirror.yaml"
    file.write_text(OURS.replace(old, new, 1))
    found = refused(file, "check")
    assert found == said
    assert "s3cret" not in found


@pytest.mark.parametrize(("line", "said"), PROPERTIES.values(), ids=PROPERTIES)
def test_a_broken_properties_file(tmp_path: Path, line: str, said: str) -> None:
    """The same for MirrorMaker 2's file; warnings about other keys may come first."""
    file = tmp_path / "mm2.properties"
    file.write_text(f"{MM2}{line}\n")
    found = refused(file, "check")
    assert found == said
    assert "s3cret" not in found


@pytest.mark.parametrize(("name", "text", "said"), FILES.values(), ids=FILES)
def test_a_file_of_another_kind(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    """The message says what a configuration looks like, or how to name the file."""
    file = tmp_path / name
    file.write_text(text)
    assert refused(file, "check") == said


def test_run_says_the_same_as_check(tmp_path: Path) -> None:
    """A file is refused before anything starts, whatever the command."""
    file = tmp_path / "mirror.yaml"
    file.write_text(OURS.replace("topics:", "topcis:"))
    assert refused(file, "run") == refused(file, "check")
    assert refused(file, "run") == (
        'flows."A->B".topcis: unknown setting; did you mean "topics"?'
    )
