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

{{/* Of clusterSecrets: what is mounted as a file, and the setting that names it. */}}
{{- define "mirror.secretFiles" -}}
passwordKey: {path: password, setting: sasl_password_file}
keytabKey: {path: keytab, setting: sasl_kerberos_keytab_file}
clientSecretKey: {path: client-secret, setting: sasl_oauthbearer_client_credentials_client_secret_file}
tokenKey: {path: token, setting: sasl_oauthbearer_token_endpoint_url, scheme: "file://"}
oauthCaKey: {path: oauth-ca.pem, setting: sasl_oauthbearer_ca_file}
caKey: {path: ca.pem, setting: ssl_ca_file}
certificateKey: {path: certificate.pem, setting: ssl_certificate_file}
keyKey: {path: key.pem, setting: ssl_key_file}
registryPasswordKey: {path: registry-password, setting: schema_registry.password_file}
registryTokenKey: {path: registry-token, setting: schema_registry.token_file}
registryClientSecretKey: {path: registry-client-secret, setting: schema_registry.oauth_client_secret_file}
registryOauthCaKey: {path: registry-oauth-ca.pem, setting: schema_registry.oauth_ca_file}
registryCaKey: {path: registry-ca.pem, setting: schema_registry.ssl_ca_file}
registryCertificateKey: {path: registry-certificate.pem, setting: schema_registry.ssl_certificate_file}
registryKeyKey: {path: registry-key.pem, setting: schema_registry.ssl_key_file}
{{- end -}}

{{/* What no setting reads from a file: it becomes a variable. */}}
{{- define "mirror.secretVariables" -}}
oauthCaPasswordKey: sasl_oauthbearer_ca_password
caPasswordKey: ssl_ca_password
certificatePasswordKey: ssl_certificate_password
keyPasswordKey: ssl_key_password
registryOauthCaPasswordKey: schema_registry.oauth_ca_password
registryCaPasswordKey: schema_registry.ssl_ca_password
registryCertificatePasswordKey: schema_registry.ssl_certificate_password
registryKeyPasswordKey: schema_registry.ssl_key_password
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
      {{- range $value, $file := fromYaml (include "mirror.secretFiles" $) }}
      {{- with get $secret $value }}
      - secret:
          name: {{ ternary (default $secret.secretName $secret.caSecretName) $secret.secretName (eq $value "caKey") }}
          items:
            - key: {{ . }}
              path: {{ $file.path }}
      {{- end }}
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
- name: config
  mountPath: /etc/mirror/config
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
{{- range $value, $setting := fromYaml (include "mirror.secretVariables" $) }}
{{- with get $secret $value }}
- name: MIRROR_CLUSTERS__{{ $alias | replace "-" "_" | replace "." "_" }}__{{ $setting | replace "." "__" }}
  valueFrom:
    secretKeyRef:
      name: {{ ternary (default $secret.secretName $secret.caSecretName) $secret.secretName (eq $value "caPasswordKey") }}
      key: {{ . }}
{{- end }}
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

{{/*
Where pods should not be together: on a node, and instances, of which one takes over
from the other, in a zone. A rule that cannot be kept delays no pod.
*/}}
{{- define "mirror.spread" -}}
{{- if .Values.topologySpreadConstraints -}}
{{ toYaml .Values.topologySpreadConstraints }}
{{- else -}}
{{- range $key := ternary (list "kubernetes.io/hostname" "topology.kubernetes.io/zone") (list "kubernetes.io/hostname") (eq .Values.mode "deployment") }}
- topologyKey: {{ $key }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "mirror.selectorLabels" $ | nindent 6 }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mirror.annotations" -}}
{{- if not .Values.existingConfigMap.name }}
checksum/needs-restart: {{ include "mirror.needsRestart" . | sha256sum }}
{{- end }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where pods may run; the same for all of them. */}}
{{- define "mirror.placement" -}}
topologySpreadConstraints:
  {{- include "mirror.spread" . | trim | nindent 2 }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
