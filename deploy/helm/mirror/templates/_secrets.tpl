{{/*
Refuses what would be readable in a ConfigMap or in a SparkApplication. settings.yaml is
made from mirror's own model: which settings are secret, and under which keys of
MirrorMaker 2.
*/}}
{{- define "mirror.refuseSecrets" -}}
{{- $known := .Files.Get "settings.yaml" | fromYaml -}}
{{- $config := .Values.config -}}
{{- range $kind := list "clusters" "flows" "recovery" -}}
{{- range $name, $entry := default dict (get $config $kind) -}}
{{- $advice := printf "put it into a Secret and set clusterSecrets.%s, or a variable with extraEnv" $name -}}
{{- if ne $kind "clusters" }}{{ $advice = "put it into a Secret and set it as a variable, with extraEnv" }}{{ end -}}
{{- include "mirror.refuseSecretsOf" (dict "known" $known "kind" $kind "place" (printf "config.%s.%s" $kind $name) "entry" $entry "advice" $advice) -}}
{{- end -}}
{{- end -}}
{{- include "mirror.refuseSecretsOf" (dict "known" $known "kind" "flows" "place" "config.defaults" "entry" $config.defaults "advice" "put it into a Secret and set it as a variable, with extraEnv") -}}
{{- include "mirror.refuseSecretsOf" (dict "known" $known "kind" "service" "place" "config.service" "entry" $config.service "advice" "put it into a Secret and set http, or a variable with extraEnv") -}}
{{- include "mirror.refuseSecretKeys" (dict "place" "spark.conf" "pattern" $known.mappings.service.spark "entry" .Values.spark.conf "advice" "put it into a Secret, mount that with extraVolumes and use the setting that names a file, such as spark.authenticate.secret.file") -}}
{{- include "mirror.refuseSecretProperties" . -}}
{{- end -}}

{{/* One cluster, flow, pair, or the service. */}}
{{- define "mirror.refuseSecretsOf" -}}
{{- $entry := default dict .entry -}}
{{- range $setting := get .known.secret .kind -}}
{{- $found := dict -}}
{{- include "mirror.find" (dict "entry" $entry "setting" $setting "into" $found) -}}
{{- if $found.value -}}
{{- fail (printf "%s.%s: would be readable in a ConfigMap; %s" $.place $setting $.advice) -}}
{{- end -}}
{{- end -}}
{{- range $setting, $pattern := get .known.mappings .kind -}}
{{- $found := dict -}}
{{- include "mirror.find" (dict "entry" $entry "setting" $setting "into" $found) -}}
{{- include "mirror.refuseSecretKeys" (dict "place" (printf "%s.%s" $.place $setting) "pattern" $pattern "entry" $found.value "advice" $.advice) -}}
{{- end -}}
{{- end -}}

{{/* Puts a setting's value into a dict; dots lead into a section of the section. */}}
{{- define "mirror.find" -}}
{{- $value := .entry -}}
{{- range $name := splitList "." .setting -}}
{{- if kindIs "map" $value }}{{ $value = get $value $name }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{- $_ := set .into "value" $value -}}
{{- end -}}

{{/* A mapping: keys that look like secrets, at any depth. What names a file is none. */}}
{{- define "mirror.refuseSecretKeys" -}}
{{- $keys := regexFindAll "\"(?:[^\"\\\\]|\\\\.)*\":(?:\"[^\"]|[0-9])" (toJson (default dict .entry)) -1 -}}
{{- range $found := $keys -}}
{{- $key := index (splitList "\":" $found) 0 | trimPrefix "\"" -}}
{{- if and (regexMatch $.pattern $key) (not (regexMatch "(?i)file$" $key)) -}}
{{- fail (printf "%s: %s would be readable in a ConfigMap; %s" $.place $key $.advice) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* MirrorMaker 2's file. A reference such as ${directory:/folder:name} is no secret. */}}
{{- define "mirror.refuseSecretProperties" -}}
{{- $known := (.Files.Get "settings.yaml" | fromYaml).properties -}}
{{- range $line := splitList "\n" (include "mirror.propertiesLines" .) -}}
{{- $key := regexFind "^[^=:[:space:]]+" $line -}}
{{- $value := regexReplaceAll "^[^=:[:space:]]+[[:space:]]*[=:]?[[:space:]]*" $line "" | trim -}}
{{- if contains "\\" $key -}}
{{- fail (printf "mm2Properties: the key %s has a backslash; write it without" $key) -}}
{{- end -}}
{{- $secret := regexMatch "(?i)(password|secret)$" $key -}}
{{- range $name := $known.secret -}}
{{- if or (eq $key $name) (hasSuffix (printf ".%s" $name) $key) }}{{ $secret = true }}{{ end -}}
{{- end -}}
{{- $advice := "mount it from a Secret with clusterSecrets, and write ${directory:/etc/mirror/secrets/ALIAS:password} in its place" -}}
{{- if and $secret $value (not (regexMatch "^\\$\\{[^}]+\\}$" $value)) -}}
{{- fail (printf "mm2Properties: %s: would be readable in a ConfigMap; %s" $key $advice) -}}
{{- end -}}
{{- if or (eq $key "sasl.jaas.config") (hasSuffix ".sasl.jaas.config" $key) -}}
{{- range $option := regexFindAll "[A-Za-z0-9_.]+[[:space:]]*=[[:space:]]*(\"(?:[^\"\\\\]|\\\\.)*\"|'[^']*'|[^[:space:];]+)" $value -1 -}}
{{- $name := regexFind "^[A-Za-z0-9_.]+" $option -}}
{{- $given := regexReplaceAll "^[A-Za-z0-9_.]+[[:space:]]*=[[:space:]]*" $option "" | trimAll "\"'" -}}
{{- if and $given (or (has $name $known.login) (regexMatch "(?i)(password|secret)$" $name)) (not (regexMatch "^\\$\\{[^}]+\\}$" $given)) -}}
{{- fail (printf "mm2Properties: %s: %s would be readable in a ConfigMap; %s" $key $name $advice) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Its lines: without comments, and those that go on after a backslash as one. */}}
{{- define "mirror.propertiesLines" -}}
{{- $whole := .Values.mm2Properties | replace "\r\n" "\n" | replace "\r" "\n" -}}
{{- $whole = regexReplaceAll "(?m)^[ \t\f]*[#!].*$" $whole "" -}}
{{- $whole = regexReplaceAll "\\\\\n[ \t\f]*" $whole "" -}}
{{- range $line := splitList "\n" $whole -}}
{{- with trim $line }}
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}
