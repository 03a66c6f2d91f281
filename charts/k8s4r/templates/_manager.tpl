{{/* A Deployment of the manager. Only the main one validates workflows. */}}
{{- define "k8s4r.manager" -}}
{{- $root := .root }}
{{- $values := .root.Values.manager }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ .name }}
spec:
  replicas: {{ $values.replicas }} # one is the leader, the others are on standby
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .name }}
      {{- with $values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      securityContext: {{- include "k8s4r.unprivileged" $root | nindent 8 }}
      {{- with include "k8s4r.pod" (dict "root" $root "values" $values) }}{{ . | nindent 6 }}{{ end }}
      containers:
        - name: manager
          {{- include "k8s4r.container" (dict "root" $root "values" $values "program" "k8s4r-manager") | nindent 10 }}
          args:
            - --leader-elect
            - --leader-elect-resource-name={{ .name }}
            - --metrics-bind-address=:8080
            - --health-probe-bind-address=:8081
            - --api-bind-address=:8444
            - --controllers={{ join "," .controllers }}
            - --approve-robots={{ $values.approveRobots }}
            - --offline-after={{ $root.Values.offlineAfter }}
            {{- if $values.finishedRetention }}
            - --finished-retention={{ $values.finishedRetention }}
            - --finished-max-objects={{ int64 $values.finishedMaxObjects }}
            {{- end }}
            {{- with $values.watchNamespaces }}
            - --watch-namespace={{ join "," . }}
            {{- end }}
            {{- if and .isMain $values.webhook }}
            - --webhook-bind-address=:9443
            {{- end }}
            {{- with $values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $values.env }}
          env: {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - {name: metrics, containerPort: 8080}
            - {name: health, containerPort: 8081}
            - {name: api, containerPort: 8444}
            {{- if .isMain }}
            - {name: webhook, containerPort: 9443}
            {{- end }}
{{- end }}
