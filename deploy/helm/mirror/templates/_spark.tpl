{{/* Settings for both operators. The image's entry point handles Spark's `driver` and `executor`. */}}

{{- define "mirror.sparkConf" -}}
{{- $executors := (get .Values.sizes .Values.size).executors -}}
{{- $conf := dict
  "spark.executor.instances" ($executors.instances | toString)
  "spark.executor.cores" ($executors.cores | toString)
  "spark.executor.memory" "512m"
  "spark.executor.memoryOverhead" (printf "%dm" (add 200 (mul 500 (int $executors.cores))))
  "spark.driver.memory" "512m"
  "spark.driver.memoryOverhead" "512m"
  "spark.local.dir" "/tmp"
  "spark.kubernetes.local.dirs.tmpfs" "false"
  "spark.kubernetes.executor.deleteOnTermination" "true"
  "spark.authenticate" "true"
  "spark.authenticate.secret.file" (printf "/etc/mirror/spark/%s" .Values.spark.secretKey)
-}}
{{- toYaml (mergeOverwrite $conf .Values.spark.conf) -}}
{{- end -}}

{{/* The pod templates: driver and executors differ by port, probes and arguments. */}}
{{- define "mirror.sparkPod" -}}
metadata:
  labels:
    {{- include "mirror.podLabels" . | nindent 4 }}
  {{- with include "mirror.annotations" .root | trim }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  {{- if eq .role "driver" }}
  serviceAccountName: {{ include "mirror.serviceAccount" .root }}
  {{- else }}
  serviceAccountName: {{ include "mirror.executorAccount" .root }}
  automountServiceAccountToken: false
  {{- end }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "mirror.podSecurityContext" .root | nindent 4 }}
  {{- include "mirror.placement" .root | nindent 2 }}
  containers:
    - name: spark-kubernetes-{{ .role }}
      {{- with include "mirror.env" .root | trim }}
      env:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if eq .role "driver" }}
      ports:
        - name: http
          containerPort: 8083
      {{- include "mirror.probes" .root | nindent 6 }}
      {{- end }}
      securityContext:
        {{- include "mirror.securityContext" .root | nindent 8 }}
      volumeMounts:
        {{- include "mirror.volumeMounts" .root | nindent 8 }}
        - name: spark-secret
          mountPath: /etc/mirror/spark
          readOnly: true
  volumes:
    {{- include "mirror.volumes" .root | nindent 4 }}
    - name: spark-secret
      secret:
        secretName: {{ .root.Values.spark.secretName }}
        defaultMode: 0440
{{- end -}}

{{- define "mirror.sparkArguments" -}}
[run, -c, {{ include "mirror.configFile" . }}]
{{- end -}}
