{{/*
What goes into mirror.yaml, after a look at what would not work. The rest is mirror's
own to check: it says all that is wrong at once when it starts, and so does
`mirror check`.
*/}}
{{- define "mirror.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $clusters := default dict $config.clusters -}}
{{- $flows := default dict $config.flows -}}
{{- if not $flows -}}
{{- fail "config.flows: is empty, so nothing would be copied; name at least one flow, such as \"us-east->eu-west\": {topics: [orders]}" -}}
{{- end -}}
{{- range $name, $flow := $flows -}}
{{- $ends := splitList (ternary "->" "/" (contains "->" $name)) $name -}}
{{- if ne (len $ends) 2 -}}
{{- fail (printf "config.flows: %q is not a flow; use source->target" $name) -}}
{{- end -}}
{{- range $ends -}}
{{- if not (hasKey $clusters (trim .)) -}}
{{- fail (printf "config.flows: %q names cluster %q, which is not in config.clusters (%s)" $name (trim .) (keys $clusters | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $service := default dict $config.service -}}
{{- range $setting := list "http_host" "http_port" "state_dir" "spark_master" -}}
{{- if hasKey $service $setting -}}
{{- fail (printf "config.service.%s: the chart sets it; leave it out" $setting) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $service "http_probes_open" -}}
{{- fail "config.service.http_probes_open: Kubernetes' probes send no token; leave it out" -}}
{{- end -}}
{{- if hasKey $service "http_hosts" -}}
{{- fail "config.service.http_hosts: the chart sets it; list further names, such as an ingress's, in http.hosts" -}}
{{- end -}}
{{- if and (include "mirror.onSpark" .) (hasKey $service "spark") -}}
{{- fail (printf "config.service.spark: with mode %s Spark starts before mirror reads it; use spark.conf" .Values.mode) -}}
{{- end -}}
{{- range $alias, $secret := .Values.clusterSecrets -}}
{{- if not (hasKey $clusters $alias) -}}
{{- fail (printf "clusterSecrets.%s: config.clusters has no such cluster (%s)" $alias (keys $clusters | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $cluster := get $clusters $alias -}}
{{- range $key, $file := fromYaml (include "mirror.secretFiles" .) -}}
{{- if get $secret $key -}}
{{- $names := splitList "." $file.setting -}}
{{- $section := $cluster -}}
{{- if eq (len $names) 2 -}}
{{- $section = default dict (get $cluster (first $names)) -}}
{{- $_ := set $cluster (first $names) $section -}}
{{- end -}}
{{- $_ := set $section (last $names) (printf "%s/etc/mirror/secrets/%s/%s" (default "" $file.scheme) $alias $file.path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $fixed := dict "http_host" "0.0.0.0" "http_port" 8083 "http_hosts" (splitList "," (include "mirror.hosts" .)) "state_dir" "/var/lib/mirror/state" "log_format" "json" -}}
{{- $_ := set $config "service" (mergeOverwrite $fixed $service) -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Values that exclude each other. */}}
{{- define "mirror.validate" -}}
{{- include "mirror.refuseSecrets" . -}}
{{- range $key := list "tokenKey" "certificateKey" "keyKey" "caKey" -}}
{{- if and (get $.Values.http $key) (not $.Values.http.secretName) -}}
{{- fail (printf "http.%s: is a key in a Secret; set http.secretName" $key) -}}
{{- end -}}
{{- end -}}
{{- if ne (empty .Values.http.certificateKey) (empty .Values.http.keyKey) -}}
{{- fail "http.certificateKey: TLS needs a certificate and its key; set http.keyKey too, or neither" -}}
{{- end -}}
{{- if and (eq .Values.mode "cronjob") .Values.cronJob.pushGateway .Values.networkPolicy.enabled .Values.networkPolicy.kafkaTo (not .Values.networkPolicy.extraEgress) -}}
{{- fail "networkPolicy.extraEgress: with kafkaTo pods cannot reach cronJob.pushGateway; say where it is" -}}
{{- end -}}
{{- $own := .Values.existingConfigMap.name -}}
{{- $written := or .Values.config.flows .Values.config.clusters -}}
{{- if and $own (or $written .Values.mm2Properties) -}}
{{- fail "existingConfigMap.name: config and mm2Properties would not be used; leave one of them out" -}}
{{- end -}}
{{- if and $written .Values.mm2Properties -}}
{{- fail "mm2Properties: config would not be used; leave one of them out" -}}
{{- end -}}
{{- if and $own (not (or (hasSuffix ".yaml" .Values.existingConfigMap.key) (hasSuffix ".yml" .Values.existingConfigMap.key) (hasSuffix ".properties" .Values.existingConfigMap.key))) -}}
{{- fail (printf "existingConfigMap.key: %q must end in .yaml, or in .properties for MirrorMaker 2" .Values.existingConfigMap.key) -}}
{{- end -}}
{{- if and (ne .Values.mode "deployment") (gt (int .Values.replicas) 1) -}}
{{- fail (printf "replicas: %d instances need mode deployment; with %s there is one %s" (int .Values.replicas) .Values.mode (ternary "driver, which the operator restarts" "pod for each run" (ne (include "mirror.onSpark" .) ""))) -}}
{{- end -}}
{{- if and (include "mirror.alone" .) (gt (int (include "mirror.replicas" .)) 1) -}}
{{- fail "config.service.group: null means that each instance leads every flow; set replicas: 1, or name a group" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.http.certificateKey (not .Values.podMonitor.insecureSkipVerify) (not .Values.http.serverName) -}}
{{- fail "podMonitor.enabled: Prometheus scrapes pods by IP address, which the certificate does not name; set http.serverName to a name in it, or podMonitor.insecureSkipVerify: true" -}}
{{- end -}}
{{- if and (include "mirror.onSpark" .) .Values.resources -}}
{{- fail (printf "resources: is for modes deployment and cronjob; with %s change sizes.%s or spark.conf" .Values.mode .Values.size) -}}
{{- end -}}
{{- if and (eq .Values.mode "cronjob") .Values.podMonitor.enabled -}}
{{- fail "podMonitor.enabled: a run may end before it is scraped; with mode cronjob set cronJob.pushGateway" -}}
{{- end -}}
{{- if and (eq .Values.mode "cronjob") .Values.prometheusRule.enabled -}}
{{- fail "prometheusRule.enabled: its alerts are about a service that runs on; with mode cronjob use the rules of docs/howto/run-once.md" -}}
{{- end -}}
{{- range $name, $enabled := dict "podMonitor" .Values.podMonitor.enabled "prometheusRule" .Values.prometheusRule.enabled -}}
{{- if and $enabled (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail (printf "%s.enabled: this cluster has no monitoring.coreos.com/v1; install the Prometheus operator first (or, to render without a cluster, add --api-versions monitoring.coreos.com/v1)" $name) -}}
{{- end -}}
{{- end -}}
{{- $needs := dict "kubeflow" "sparkoperator.k8s.io/v1beta2" "apache" "spark.apache.org/v1" -}}
{{- $api := get $needs .Values.mode -}}
{{- if and $api (not (.Capabilities.APIVersions.Has $api)) -}}
{{- fail (printf "mode: %s needs %s, which this cluster does not have; install that operator first (or, to render without a cluster, add --api-versions %s)" .Values.mode $api $api) -}}
{{- end -}}
{{- if and (include "mirror.onSpark" .) (not .Values.spark.secretName) -}}
{{- fail (printf "spark.secretName: with mode %s leases with the clusters' passwords go from pod to pod; name a Secret with key %s, made by: kubectl create secret generic mirror-spark --from-literal=%s=\"$(openssl rand -hex 32)\"" .Values.mode .Values.spark.secretKey .Values.spark.secretKey) -}}
{{- end -}}
{{- end -}}
