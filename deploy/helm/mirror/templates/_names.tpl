{{- define "mirror.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "mirror.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "mirror.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mirror.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mirror.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mirror.labels" -}}
{{ include "mirror.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels of pods: `role` is service, run, driver or executor. */}}
{{- define "mirror.podLabels" -}}
{{ include "mirror.selectorLabels" .root }}
app.kubernetes.io/component: {{ .role }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mirror.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "mirror.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Executors never talk to Kubernetes: their account can do nothing. */}}
{{- define "mirror.executorAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-executor" (include "mirror.fullname" .)) .Values.serviceAccount.executorName -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.executorName -}}
{{- end -}}
{{- end -}}

{{/* Not empty if an operator starts a Spark driver and its executors. */}}
{{- define "mirror.onSpark" -}}
{{- if has .Values.mode (list "kubeflow" "apache") }}true{{ end -}}
{{- end -}}

{{/* One leads each flow and the other stands by; operators start one driver. */}}
{{- define "mirror.replicas" -}}
{{- ternary (default 2 .Values.replicas) 1 (eq .Values.mode "deployment") -}}
{{- end -}}

{{/* Not empty if pods talk to each other. */}}
{{- define "mirror.severalPods" -}}
{{- if or (include "mirror.onSpark" .) (gt (include "mirror.replicas" . | int) 1) }}true{{ end -}}
{{- end -}}

{{/* Not empty if instances do not share the flows: two must never run at once. */}}
{{- define "mirror.alone" -}}
{{- $service := default dict .Values.config.service -}}
{{- if and (hasKey $service "group") (not $service.group) }}true{{ end -}}
{{- end -}}

{{- define "mirror.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "mirror.configMap" -}}
{{- default (printf "%s-config" (include "mirror.fullname" .)) .Values.existingConfigMap.name -}}
{{- end -}}

{{/*
In a folder of its own: a file that is mounted with subPath never changes in a running
pod, a folder does.
*/}}
{{- define "mirror.configFile" -}}
{{- $name := ternary "mirror.properties" "mirror.yaml" (ne .Values.mm2Properties "") -}}
{{- if .Values.existingConfigMap.name }}{{ $name = .Values.existingConfigMap.key }}{{ end -}}
{{- printf "/etc/mirror/config/%s" $name -}}
{{- end -}}

{{/* Host names that requests to the HTTP port may use: the Service's, and the user's. */}}
{{- define "mirror.hosts" -}}
{{- $service := include "mirror.fullname" . -}}
{{- $inside := printf "%s.%s" $service .Release.Namespace -}}
{{- concat (list $service $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside)) .Values.http.hosts | join "," -}}
{{- end -}}
