{{- define "cardshare.name" -}}
{{ .Values.name }}
{{- end }}

{{- define "cardshare.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ if hasPrefix "sha256:" $tag }}@{{ else }}:{{ end }}{{ $tag }}
{{- end }}

{{- define "cardshare.replicas" -}}
{{ .Values.replicas }}
{{- end }}

{{/* The account of the controller, which writes assignments. */}}
{{- define "cardshare.account" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.name }}-controller
{{- end }}

{{/* The Lease by which controllers agree who decides, where it is not the default of --lease. */}}
{{- define "cardshare.lease" -}}
{{- if ne (printf "%s/%s" .Release.Namespace .Values.name) "cardshare-system/cardshare" -}}
{{ .Release.Namespace }}/{{ .Values.name }}-controller
{{- end }}
{{- end }}

{{/* HAMi's ConfigMap, NAMESPACE/NAME. */}}
{{- define "cardshare.hamiConfig" -}}
{{ .Values.hamiConfig.namespace }}/{{ .Values.hamiConfig.name }}
{{- end }}

{{/* Removes what is null from a map, at every depth: of a key that the chart has no value of, helm keeps a null. */}}
{{- define "cardshare.unsetNulls" -}}
{{- range $key, $value := . }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $ $key }}
{{- else if kindIs "map" $value }}
{{- include "cardshare.unsetNulls" $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* The other schedulers, as JSON: the scheduler name of their pods, and the account. */}}
{{- define "cardshare.otherSchedulers" -}}
{{- $pairs := deepCopy (.Values.otherSchedulers | default dict) }}
{{- include "cardshare.unsetNulls" $pairs }}
{{- toJson $pairs }}
{{- end }}

{{/* CEL: whoever writes is no scheduler of the pod that it writes; empty where there is no scheduler beside cardshare. */}}
{{- define "cardshare.others" -}}
{{- $parts := list }}
{{- range $name, $account := include "cardshare.otherSchedulers" . | fromJson }}
{{- $who := printf "request.userInfo.username == '%s'" $account }}
{{- $parts = append $parts (printf "%s\n    && oldObject.spec.?schedulerName.orValue('') == '%s'" $who $name) }}
{{- end }}
{{- if eq (len $parts) 1 -}}
!({{ first $parts }})
{{- else if $parts -}}
!(({{ join ")\n  || (" $parts }}))
{{- end }}
{{- end }}

{{/* CEL: the other schedulers, each with its account. */}}
{{- define "cardshare.pairs" -}}
{{- $others := include "cardshare.otherSchedulers" . | fromJson }}
{{- if $others -}}
|
        [
          {{- range $i, $name := keys $others | sortAlpha }}{{ if $i }},{{ end }}
          '{{ $name }}={{ get $others $name }}'
          {{- end }}
        ]
{{- else -}}
"[]"
{{- end }}
{{- end }}

{{/* CEL: whoever binds is neither the controller nor a scheduler beside it. */}}
{{- define "cardshare.schedulers" -}}
{{- $accounts := append (include "cardshare.otherSchedulers" . | fromJson | values) (include "cardshare.account" .) | uniq | sortAlpha -}}
!(request.userInfo.username in [
  '{{ join "',\n  '" $accounts }}'
])
{{- end }}
