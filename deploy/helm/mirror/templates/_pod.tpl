{{/* What pods of all modes have in common. */}}

{{- define "mirror.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ . }}
runAsGroup: 0
fsGroup: 0
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "mirror.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "mirror.volumes" -}}
- name: config
  configMap:
    name: {{ include "mirror.configMap" . }}
- name: scratch
  emptyDir:
    sizeLimit: {{ .Values.scratch.sizeLimit }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.scratch.sizeLimit }}
{{- range $alias, $secret := .Values.clusterSecrets }}
- name: secret-{{ $alias | lower | replace "_" "-" | replace "." "-" }}
  projected:
    defaultMode: 0440
    sources:
      {{- $own := dict "password" $secret.passwordKey "certificate.pem" $secret.certificateKey "key.pem" $secret.keyKey }}
      {{- $items := list }}
      {{- range $path, $key := $own }}{{ if $key }}{{ $items = append $items (dict "key" $key "path" $path) }}{{ end }}{{ end }}
      {{- with $items }}
      - secret:
          name: {{ $secret.secretName }}
          items:
            {{- toYaml . | nindent 12 }}
      {{- end }}
      {{- with $secret.caKey }}
      - secret:
          name: {{ default $secret.secretName $secret.caSecretName }}
          items:
            - key: {{ . }}
              path: ca.pem
      {{- end }}
{{- end }}
{{- with .Values.http.secretName }}
- name: http
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mirror.volumeMounts" -}}
# Only the file: secrets are mounted next to it.
- name: config
  mountPath: /etc/mirror/{{ include "mirror.configFile" . }}
  subPath: {{ include "mirror.configFile" . }}
  readOnly: true
- name: scratch
  mountPath: /var/lib/mirror
- name: tmp
  mountPath: /tmp
{{- range $alias, $secret := .Values.clusterSecrets }}
- name: secret-{{ $alias | lower | replace "_" "-" | replace "." "-" }}
  mountPath: /etc/mirror/secrets/{{ $alias }}
  readOnly: true
{{- end }}
{{- if .Values.http.secretName }}
- name: http
  mountPath: /etc/mirror/http
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mirror.env" -}}
{{- if or .Values.mm2Properties .Values.existingConfigMap.name }}
- name: MIRROR_SERVICE__http_host
  value: 0.0.0.0
- name: MIRROR_SERVICE__http_port
  value: "8083"
- name: MIRROR_SERVICE__http_hosts
  value: {{ include "mirror.hosts" . }}
- name: MIRROR_SERVICE__state_dir
  value: /var/lib/mirror/state
{{- end }}
{{- range $setting, $file := fromYaml (include "mirror.http" .) }}
- name: MIRROR_SERVICE__{{ $setting }}
  value: {{ $file }}
{{- end }}
{{- range $alias, $secret := .Values.clusterSecrets }}
{{- with $secret.keyPasswordKey }}
- name: MIRROR_CLUSTERS__{{ $alias | replace "-" "_" | replace "." "_" }}__ssl_key_password
  valueFrom:
    secretKeyRef:
      name: {{ $secret.secretName }}
      key: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Settings of the HTTP port, and the files that hold their values. */}}
{{- define "mirror.http" -}}
{{- with .Values.http }}
{{- range $setting, $key := dict "http_token_file" .tokenKey "http_certificate_file" .certificateKey "http_key_file" .keyKey }}
{{- with $key }}
{{ $setting }}: /etc/mirror/http/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "mirror.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.http.certificateKey "") }}
{{- end -}}

{{- define "mirror.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ include "mirror.scheme" . }}}
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ include "mirror.scheme" . }}}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ include "mirror.scheme" . }}}
  {{- toYaml .Values.readinessProbe | nindent 2 }}
{{- end -}}

{{- define "mirror.affinity" -}}
{{- if .Values.affinity -}}
{{ toYaml .Values.affinity }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ include "mirror.name" . }}
{{- end -}}
{{- end -}}

{{- define "mirror.annotations" -}}
{{- if not .Values.existingConfigMap.name }}
checksum/config: {{ include (print .Template.BasePath "/configmap.yaml") . | sha256sum }}
{{- end }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where pods may run; the same for all of them. */}}
{{- define "mirror.placement" -}}
affinity:
  {{- include "mirror.affinity" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
