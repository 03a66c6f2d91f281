package build

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// The flags of ray start that mean something here.
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

// valued are the flags that take true and false as values. Every other flag is there
// when it is true, and is not when it is false.
var valued = []string{"log-color", "include-dashboard", "include-log-monitor"}

// startParams are the flags of ray start: the user's, and what is missing there.
func startParams(s *Settings, c *rayv1.RayCluster, n *node) map[string]string {
	p := map[string]string{
		paramMetricsPort: "8080",
		paramAgentPort:   "52365",
	}
	if n.head() {
		p["dashboard-host"] = "0.0.0.0"
	} else {
		p["address"] = fqdn(s, c) + ":" + headPort(c)
	}
	maps.Copy(p, n.params)
	// Ray must stay in the foreground, for the container ends with it.
	p["block"] = "true"
	if n.head() {
		addHeadParams(c, p)
	}
	addLabels(p, n.labels)
	addResources(p, n)
	return p
}

func addHeadParams(c *rayv1.RayCluster, p map[string]string) {
	if autoscaled(c) {
		// The autoscaler is a container of its own. Ray shall not start another.
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

// addLabels tells Ray the labels of the group.
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

// headPort is where workers find the head.
func headPort(c *rayv1.RayCluster) string {
	return or(c.Spec.HeadGroupSpec.RayStartParams[paramPort], "6379")
}

// dashboardPort is where the head has its dashboard.
func dashboardPort(c *rayv1.RayCluster) string {
	return or(c.Spec.HeadGroupSpec.RayStartParams[paramDashboardPort], "8265")
}

// metricsPort is where Prometheus finds a Pod's numbers.
func metricsPort(n *node) int32 { return portNumber(or(n.params[paramMetricsPort], "8080")) }

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// startCommand starts Ray. Each flag stands between spaces of its own, as users
// compare it as text.
func startCommand(n *node, params map[string]string) string {
	var b strings.Builder
	b.WriteString("ray start ")
	if n.head() {
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

// setCommand makes the Ray container start Ray, unless the user says that it already does.
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
	ray.Command = shell(s)
	ray.Args = []string{own + "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; " + start}
}

// shell runs one text.
func shell(s *Settings) []string {
	flags := "-c"
	if s.LoginShell {
		flags = "-cl"
	}
	return []string{"/bin/bash", flags, "--"}
}
