package build

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// The flags of ray start that the controller handles.
const (
	paramPort          = "port"
	paramDashboardPort = "dashboard-port"
	paramMetricsPort   = "metrics-export-port"
	paramAgentPort     = "dashboard-agent-listen-port"
	paramPlasma        = "plasma-directory"
	paramRedisUsername = "redis-username"
	paramRedisPassword = "redis-password"
	paramNumCPUs       = "num-cpus"
	paramNumGPUs       = "num-gpus"
	paramMemory        = "memory"
	paramResources     = "resources"
	paramLabels        = "labels"
)

// valued lists the flags that take true or false as a value. Other boolean flags are present if
// true and absent if false.
var valued = []string{"log-color", "include-dashboard", "include-log-monitor"}

// startParams returns the flags of ray start: the user's and the defaults for missing ones.
func startParams(s *Settings, c *rayv1.RayCluster, n *node) map[string]string {
	p := map[string]string{
		paramMetricsPort: "8080",
		paramAgentPort:   "52365",
	}
	if n.isHead() {
		p["dashboard-host"] = "0.0.0.0"
	} else {
		p["address"] = headFQDN(s, c) + ":" + headPort(c)
	}
	maps.Copy(p, n.params)
	// Ray must stay in the foreground, because the container ends with its main process.
	p["block"] = "true"
	if n.isHead() {
		addHeadParams(c, p)
	}
	addLabels(p, n.labels)
	addResources(p, n)
	return p
}

func addHeadParams(c *rayv1.RayCluster, p map[string]string) {
	if hasAutoscaler(c) {
		// The autoscaler runs in its own container, so Ray must not start one.
		p["no-monitor"] = "true"
	}
	if o := c.Spec.GcsFaultToleranceOptions; o != nil {
		if o.RedisUsername != nil {
			p[paramRedisUsername] = "$" + rayv1.EnvRedisUsername
		}
		if o.RedisPassword != nil {
			p[paramRedisPassword] = "$" + rayv1.EnvRedisPassword
		}
	}
}

// addLabels sets the flag for the labels of the group.
func addLabels(p, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, k+"="+labels[k])
	}
	p[paramLabels] = strings.Join(all, ",")
}

// headPort returns the port at which workers connect to the head.
func headPort(c *rayv1.RayCluster) string {
	return firstNonEmpty(c.Spec.HeadGroupSpec.RayStartParams[paramPort], "6379")
}

// dashboardPort returns the port of the dashboard on the head.
func dashboardPort(c *rayv1.RayCluster) string {
	return firstNonEmpty(c.Spec.HeadGroupSpec.RayStartParams[paramDashboardPort], "8265")
}

// metricsPort returns the port that Prometheus scrapes.
func metricsPort(n *node) int32 { return portNumber(firstNonEmpty(n.params[paramMetricsPort], "8080")) }

func firstNonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// startCommand returns the command line that starts Ray. Each flag is surrounded by spaces, because
// users match the text.
func startCommand(n *node, params map[string]string) string {
	var b strings.Builder
	b.WriteString("ray start ")
	if n.isHead() {
		b.WriteString("--head ")
	}
	for _, k := range slices.Sorted(maps.Keys(params)) {
		switch v := params[k]; {
		case slices.Contains(valued, k):
			b.WriteString(" --" + k + "=" + v + " ")
		case strings.EqualFold(v, "true"):
			b.WriteString(" --" + k + " ")
		case strings.EqualFold(v, "false"):
		default:
			b.WriteString(" --" + k + "=" + v + " ")
		}
	}
	return b.String()
}

// setCommand makes the Ray container start Ray, unless the user's command already does.
func setCommand(s *Settings, c *rayv1.RayCluster, pod *corev1.Pod, start string) {
	ray := &pod.Spec.Containers[0]
	var own string
	for _, token := range slices.Concat(ray.Command, ray.Args) {
		own += " " + token + " "
	}
	if strings.EqualFold(c.Annotations[rayv1.AnnotationOverwriteCommand], "true") || strings.Contains(own, "ray start") {
		return
	}
	if own != "" {
		own += " && "
	}
	ray.Command = shellCommand(s)
	ray.Args = []string{own + "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; " + start}
}

// shellCommand returns the command that runs a script.
func shellCommand(s *Settings) []string {
	flags := "-c"
	if s.LoginShell {
		flags = "-cl"
	}
	return []string{"/bin/bash", flags, "--"}
}
