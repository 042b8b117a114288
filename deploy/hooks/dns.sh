#!/usr/bin/env bash
# Hook redirect_producers: a name in DNS leads to the cluster that is active now, and in
# a switch the other one's port for clients is closed. Clients that rebootstrap
# (metadata.recovery.strategy=rebootstrap) ask DNS again only when none of the brokers
# that they know can be reached, and in a switch those are still there.
#
# Its arguments: for each cluster where the name leads to, and the cluster's brokers, if
# their ports are to be closed.
#
#   redirect_producers:
#     command:
#       - /etc/mirror/hooks/dns.sh
#       - A=kafka-a.example.com.,a-1.example.com,a-2.example.com,a-3.example.com
#       - B=kafka-b.example.com.,b-1.example.com,b-2.example.com,b-3.example.com
#
# Environment, of the machine that runs `mirror switch`:
#   DNS_API        PowerDNS's, such as https://dns.example.com:8081/api/v1/servers/localhost
#   DNS_KEY_FILE   holds the API key only
#   DNS_ZONE       example.com.
#   DNS_NAME       kafka.example.com., which clients have in bootstrap.servers
#   CLIENT_PORT    9092, if it is not set. Only clients use it: mirror and the brokers
#                  themselves need another listener, which stays open.
#
# It needs ssh to the brokers, and there `sudo nft`. Exit code 0: done. 75: DNS or a
# broker does not answer now, so mirror calls again. Else: something refuses.
set -euo pipefail

: "${MIRROR_FROM:?mirror sets it}" "${MIRROR_TO:?}" "${MIRROR_PLANNED:?}"
: "${DNS_API:?}" "${DNS_KEY_FILE:?}" "${DNS_ZONE:?}" "${DNS_NAME:?}"
port=${CLIENT_PORT:-9092}

ends_of() {
    local pair
    for pair in "${arguments[@]}"; do
        if [[ ${pair%%=*} == "$1" ]]; then
            echo "${pair#*=}"
            return
        fi
    done
    echo "no argument is about $1" >&2
    return 1
}

# Runs nft on brokers; the rules are its input.
on_brokers() {
    local broker why
    for broker in ${1//,/ }; do
        why=0
        ssh -o BatchMode=yes -o ConnectTimeout=5 "$broker" sudo nft -f - <<<"$2" || why=$?
        if ((why == 255)); then
            echo "$broker does not answer now"
            exit 75
        elif ((why)); then
            echo "$broker refuses: nft says $why"
            exit 1
        fi
    done
}

# First `add`, so that it can be deleted where it never was.
open="add table inet mirror_closed
delete table inet mirror_closed"
close="$open
table inet mirror_closed {
    chain clients {
        type filter hook input priority -10;
        tcp dport $port reject with tcp reset
    }
}"

point() {
    local status why=0
    # The key goes through a pipe: other users see arguments.
    status=$(curl --silent --show-error --max-time 5 --request PATCH \
        --header @<(echo "X-API-Key: $(<"$DNS_KEY_FILE")") \
        --header 'Content-Type: application/json' \
        --data @- --output /dev/null --write-out '%{http_code}' \
        "$DNS_API/zones/$DNS_ZONE" <<END
{"rrsets": [{"name": "$DNS_NAME", "type": "CNAME", "ttl": 5, "changetype": "REPLACE",
 "records": [{"content": "$1", "disabled": false}]}]}
END
    ) || why=$?
    case $why:$status in
    0:2??) echo "$DNS_NAME leads to $1" ;;
    6:* | 7:* | 28:* | 52:* | 56:* | 0:429 | 0:5??)
        echo "DNS does not answer now: status $status"
        exit 75
        ;;
    *)
        echo "DNS refuses: status $status"
        exit 1
        ;;
    esac
}

arguments=("$@")
to=$(ends_of "$MIRROR_TO")
from=$(ends_of "$MIRROR_FROM")
on_brokers "${to#"${to%%,*}"}" "$open"
point "${to%%,*}"
# In a failover the brokers are gone.
if [[ $MIRROR_PLANNED == true ]]; then on_brokers "${from#"${from%%,*}"}" "$close"; fi
