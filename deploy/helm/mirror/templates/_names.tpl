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

{{/* Labels of pods: `role` is service, driver or executor. */}}
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

{{- define "mirror.configFile" -}}
{{- if .Values.existingConfigMap.name -}}
{{- .Values.existingConfigMap.key -}}
{{- else if .Values.mm2Properties -}}
mirror.properties
{{- else -}}
mirror.yaml
{{- end -}}
{{- end -}}

{{/* Host names that requests to the HTTP port may use: the Service's, and the user's. */}}
{{- define "mirror.hosts" -}}
{{- $service := include "mirror.fullname" . -}}
{{- $inside := printf "%s.%s" $service .Release.Namespace -}}
{{- concat (list $service $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside)) .Values.http.hosts | join "," -}}
{{- end -}}
