{{/* Unchanged manifests of config/. */}}
{{- define "k8s4r.manifests" -}}
{{- if ne .root.Release.Namespace "k8s4r-system" }}
{{- fail "K8s4r must be installed in the namespace k8s4r-system, where the command line looks for the server: helm install --namespace k8s4r-system --create-namespace" }}
{{- end }}
{{- range $path, $text := .root.Files.Glob .files }}
---
{{ toString $text }}
{{- end }}
{{- end }}

{{- define "k8s4r.image" -}}
{{- $i := .root.Values.image -}}
{{- with $i.registry }}{{ . }}/{{ end }}{{ .program }}:{{ $i.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Pod fields that manager, server and console share. */}}
{{- define "k8s4r.pod" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "k8s4r.container" -}}
image: {{ include "k8s4r.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
livenessProbe:
  httpGet: {path: /healthz, port: health}
readinessProbe:
  httpGet: {path: /readyz, port: health}
resources: {{- toYaml .values.resources | nindent 2 }}
securityContext: {{- include "k8s4r.restricted" . | nindent 2 }}
{{- end }}

{{- define "k8s4r.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "k8s4r.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* "true" if the controllers, written as for --controllers, include one of the names. */}}
{{- define "k8s4r.selectsAny" -}}
{{- $found := "" -}}
{{- range $name := .names -}}
{{- if and (not (has (printf "-%s" $name) $.controllers)) (or (has $name $.controllers) (has "*" $.controllers)) -}}
{{- $found = "true" -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end }}

{{/* The features with selected controllers, as a list in JSON. Each has a role in files/rbac. */}}
{{- define "k8s4r.features" -}}
{{- $selected := list -}}
{{- range $feature, $names := dict "robots" (list "job" "taskgroup" "task" "robot" "robotidentity" "rollout" "maintenancewindow") "flows" (list "jobflow" "jobtemplate" "cronjobflow") "vcjob" (list "vcjob") "raycluster" (list "raycluster") -}}
{{- if include "k8s4r.selectsAny" (dict "controllers" $.Values.manager.controllers "names" $names) -}}
{{- $selected = append $selected $feature -}}
{{- end -}}
{{- end -}}
{{- toJson $selected -}}
{{- end }}

{{/* The selected features with a Deployment and a service account of their own, as a list in JSON. */}}
{{- define "k8s4r.separate" -}}
{{- $separate := list -}}
{{- range $feature := include "k8s4r.features" . | fromJsonArray -}}
{{- if has $feature $.Values.manager.separate -}}
{{- $separate = append $separate $feature -}}
{{- end -}}
{{- end -}}
{{- toJson $separate -}}
{{- end }}
