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

{{/* CEL: whoever writes is no scheduler of the pod that it writes; empty where there is no scheduler beside cardshare. */}}
{{- define "cardshare.others" -}}
{{- $parts := list }}
{{- range $name, $account := .Values.otherSchedulers }}
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
{{- if .Values.otherSchedulers -}}
|
        [
          {{- range $i, $name := keys .Values.otherSchedulers | sortAlpha }}{{ if $i }},{{ end }}
          '{{ $name }}={{ get $.Values.otherSchedulers $name }}'
          {{- end }}
        ]
{{- else -}}
"[]"
{{- end }}
{{- end }}

{{/* CEL: whoever binds is neither the controller nor a scheduler beside it. */}}
{{- define "cardshare.schedulers" -}}
{{- $accounts := append (values .Values.otherSchedulers) (include "cardshare.account" .) | uniq | sortAlpha -}}
!(request.userInfo.username in [
  '{{ join "',\n  '" $accounts }}'
])
{{- end }}
