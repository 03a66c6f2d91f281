{{/* The values of environment variables, as a list in JSON. Values from Secrets are unknown here. */}}
{{- define "k8s4r.envValues" -}}
{{- $values := list -}}
{{- range . -}}
{{- $values = append $values (toString (default "" .value)) -}}
{{- end -}}
{{- toJson $values -}}
{{- end }}

{{/* The TCP ports in texts with URLs and addresses, as a list in JSON. */}}
{{- define "k8s4r.portsIn" -}}
{{- $ports := list -}}
{{- range . -}}
{{- range regexFindAll ":[0-9]{2,5}([/?&,]|$)" . -1 -}}
{{- $ports = append $ports (regexFind "[0-9]+" . | atoi) -}}
{{- end -}}
{{- if contains "postgres" . -}}
{{- $ports = append $ports 5432 -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end }}

{{/* Lets in what a program serves, and out what it needs: DNS, the API server, the ports in its URLs. */}}
{{- define "k8s4r.networkPolicy" -}}
{{- $policies := .root.Values.networkPolicies }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  policyTypes:
    - Ingress
    {{- if $policies.restrictEgress }}
    - Egress
    {{- end }}
  {{- with .serves }}
  ingress:
    - ports:
        {{- range . }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
  {{- end }}
  {{- if $policies.restrictEgress }}
  egress:
    - ports: # DNS
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
    - ports: # the API server, and services by HTTPS
        {{- range $policies.apiServerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- with include "k8s4r.portsIn" .urls | fromJsonArray }}
    - ports: # the broker, and what else the arguments name
        {{- range . }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- with concat .egress $policies.egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}
