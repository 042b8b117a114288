{{/*
The part of the configuration that a running service refuses to change: pods are
replaced when it does, and only then. Everything else takes effect in the running pods.
*/}}
{{- define "mirror.needsRestart" -}}
{{- $known := .Files.Get "settings.yaml" | fromYaml -}}
{{- if .Values.mm2Properties -}}
{{- range $line := splitList "\n" (include "mirror.propertiesLines" .) -}}
{{- $key := regexFind "^[^=:[:space:]]+" $line -}}
{{- range $name := $known.properties.restart -}}
{{- if or (eq $key $name) (hasSuffix (printf ".%s" $name) $key) }}
{{ $line }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- $config := include "mirror.config" . | fromYaml -}}
{{- $service := get $config "service" -}}
{{- if and (hasKey $service "reload_seconds") (not $service.reload_seconds) -}}
{{/* The file is read at the start only. */}}
{{- toYaml $config -}}
{{- else -}}
{{- $kept := dict -}}
{{- range $kind := list "clusters" "flows" "recovery" -}}
{{- range $name, $entry := default dict (get $config $kind) -}}
{{- include "mirror.keep" (dict "kept" $kept "name" (printf "%s.%s" $kind $name) "entry" $entry "settings" (get $known.restart $kind)) -}}
{{- end -}}
{{- end -}}
{{- include "mirror.keep" (dict "kept" $kept "name" "defaults" "entry" $config.defaults "settings" $known.restart.flows) -}}
{{- include "mirror.keep" (dict "kept" $kept "name" "service" "entry" $service "settings" $known.restart.service) -}}
{{- toYaml $kept -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Keep of an entry what is in the list; an entry without any of it leaves no trace. */}}
{{- define "mirror.keep" -}}
{{- $some := dict -}}
{{- range $setting := .settings -}}
{{- if hasKey (default dict $.entry) $setting }}{{ $_ := set $some $setting (get $.entry $setting) }}{{ end -}}
{{- end -}}
{{- if $some }}{{ $_ := set .kept .name $some }}{{ end -}}
{{- end -}}
