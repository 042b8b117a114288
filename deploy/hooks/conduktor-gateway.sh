#!/usr/bin/env bash
# Hook redirect_producers: Conduktor Gateway leads its clients to the cluster that is
# active now. Its arguments name Gateway's cluster for each of mirror's:
#
#   redirect_producers:
#     command: [/etc/mirror/hooks/conduktor-gateway.sh, A=main, B=failover]
#
# Environment, of the machine that runs `mirror switch`:
#   GATEWAYS                the API of every instance; each one switches by itself
#   GATEWAY_USER            admin, if it is not set
#   GATEWAY_PASSWORD_FILE   holds the password only
#
# Exit code 0: every instance has switched. 75: one does not answer now, so mirror calls
# again, also those that have switched. Else: one refuses.
set -euo pipefail

: "${MIRROR_TO:?mirror sets it}" "${GATEWAYS:?}" "${GATEWAY_PASSWORD_FILE:?}"

to=
for pair in "$@"; do
    if [[ ${pair%%=*} == "$MIRROR_TO" ]]; then to=${pair#*=}; fi
done
if [[ -z $to ]]; then
    echo "no argument names Gateway's cluster for $MIRROR_TO" >&2
    exit 1
fi

login=$(printf %s "${GATEWAY_USER:-admin}:$(<"$GATEWAY_PASSWORD_FILE")" | base64 -w 0)

switch() {
    local status why=0
    # The login goes through a pipe: other users see arguments.
    status=$(curl --silent --show-error --max-time 5 --request POST \
        --header @<(echo "Authorization: Basic $login") \
        --output /dev/null --write-out '%{http_code}' \
        "$1/admin/pclusters/v1/pcluster/main/switch?to=$to") || why=$?
    case $why:$status in
    0:2??) echo "$1 leads to $to" ;;
    6:* | 7:* | 28:* | 52:* | 56:* | 0:429 | 0:5??)
        echo "$1 does not answer now: status $status"
        return 75
        ;;
    *)
        echo "$1 refuses: status $status"
        return 1
        ;;
    esac
}

code=0
for gateway in $GATEWAYS; do
    switch "$gateway" || { last=$?; ((code == 1)) || code=$last; }
done
exit "$code"
