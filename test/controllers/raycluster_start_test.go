package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// rayStart are the exact commands that start Ray, as they reach the API server.
var rayStart = []rayCase{
	{"the exact commands of head and worker", rayCommands},
	{"CPUs are rounded up, from the request if there is no limit; memory comes from limits only", rayProcessors},
	{"GPU, MIG, TPU and neuron cores", rayAccelerators},
	{"resources and labels of a group override what is derived", rayOverrides},
	{"a user's command runs first; one that starts Ray is kept", rayOwnCommand},
	{"a kept command has Ray's command in its environment", rayKeptCommand},
	{"probes by version and port; own ones are kept", rayProbes},
}

const (
	openFiles = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "
	headStart = "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0 "
	withPort  = " --metrics-export-port=8080 "
)

// headOf creates a cluster of a head alone and returns its Ray container.
func (s *space) headOf(name string, f func(*rayv1.RayCluster, *corev1.Container)) corev1.Container {
	s.Helper()
	s.ray(name, func(c *rayv1.RayCluster) { f(c, &c.Spec.HeadGroupSpec.Template.Spec.Containers[0]) })
	return s.awaitHead(name).Spec.Containers[0]
}

// starts checks what a container runs.
func (s *space) starts(what string, c corev1.Container, want string) {
	s.Helper()
	if !slices.Equal(c.Command, []string{"/bin/bash", "-c", "--"}) || !slices.Equal(c.Args, []string{want}) {
		s.Errorf("%s: %q %q, want %q", what, c.Command, c.Args, want)
	}
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func envOf(c corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func rayCommands(s *space) {
	s.ray("c", nil, rayGroup("g", 1))
	s.starts("head", s.awaitHead("c").Spec.Containers[0], openFiles+headStart+withPort)
	s.starts("worker", s.awaitNodes("c", "g", 1)[0].Spec.Containers[0],
		openFiles+"ray start  --address=c-head-svc."+s.name+".svc.cluster.local:6379  --block  --dashboard-agent-listen-port=52365 "+withPort)
}

func rayProcessors(s *space) {
	limits := s.headOf("limits", func(_ *rayv1.RayCluster, c *corev1.Container) {
		c.Resources.Limits = quantities("cpu", "1500m", "memory", "1Gi")
	})
	s.starts("limits", limits, openFiles+headStart+" --memory=1073741824 "+withPort+" --num-cpus=2 ")
	requests := s.headOf("requests", func(_ *rayv1.RayCluster, c *corev1.Container) {
		c.Resources.Requests = quantities("cpu", "2100m", "memory", "1Gi")
	})
	s.starts("requests", requests, openFiles+headStart+withPort+" --num-cpus=3 ")
}

func rayAccelerators(s *space) {
	for name, c := range map[string]struct{ resource, want string }{
		"gpu":    {"nvidia.com/gpu", " --num-gpus=2 "},
		"mig":    {"nvidia.com/mig-1g.5gb", " --num-gpus=2 "},
		"tpu":    {"google.com/tpu", ` --resources='{"TPU":2}' `},
		"neuron": {"aws.amazon.com/neuroncore", ` --resources='{"neuron_cores":2}' `},
	} {
		head := s.headOf(name, func(_ *rayv1.RayCluster, r *corev1.Container) {
			r.Resources.Limits = quantities(c.resource, "2")
			r.Resources.Requests = quantities(c.resource, "2")
		})
		s.starts(name, head, openFiles+headStart+withPort+c.want)
	}
}

func rayOverrides(s *space) {
	head := s.headOf("c", func(c *rayv1.RayCluster, r *corev1.Container) {
		r.Resources.Limits = quantities("cpu", "4", "memory", "8Gi")
		c.Spec.HeadGroupSpec.Resources = map[string]string{"CPU": "0", "arm": "2"}
		c.Spec.HeadGroupSpec.Labels = map[string]string{"zone": "north", "grade": "a"}
	})
	s.starts("head", head, openFiles+headStart+" --labels=grade=a,zone=north  --memory=8589934592 "+withPort+` --num-cpus=0  --resources='{"arm":2}' `)
	both := &rayv1.RayCluster{Spec: rayv1.RayClusterSpec{HeadGroupSpec: rayv1.HeadGroupSpec{
		Template: rayTemplate(), Resources: map[string]string{"CPU": "0"}, RayStartParams: map[string]string{"num-cpus": "1"},
	}}}
	both.Name = "both"
	s.refusedOr(both, "InvalidRayClusterSpec", "num-cpus")
}

func rayOwnCommand(s *space) {
	own := s.headOf("own", func(_ *rayv1.RayCluster, c *corev1.Container) {
		c.Command, c.Args = []string{"echo"}, []string{"hello"}
	})
	s.starts("own", own, " echo  hello  && "+openFiles+headStart+withPort)
	whole := s.headOf("whole", func(_ *rayv1.RayCluster, c *corev1.Container) {
		c.Command, c.Args = []string{"/bin/sh", "-c"}, []string{"ray start --head --block"}
	})
	if !slices.Equal(whole.Command, []string{"/bin/sh", "-c"}) || !slices.Equal(whole.Args, []string{"ray start --head --block"}) {
		s.Errorf("a command that starts Ray became %q %q", whole.Command, whole.Args)
	}
}

func rayKeptCommand(s *space) {
	head := s.headOf("c", func(c *rayv1.RayCluster, r *corev1.Container) {
		c.Annotations = map[string]string{rayv1.AnnotationOverwriteCommand: "true"}
		r.Command, r.Args = []string{"/bin/sh", "-c"}, []string{"exec mine"}
	})
	if !slices.Equal(head.Command, []string{"/bin/sh", "-c"}) || !slices.Equal(head.Args, []string{"exec mine"}) {
		s.Errorf("it became %q %q", head.Command, head.Args)
	}
	if got, want := envOf(head, rayv1.EnvStartCommand), headStart+withPort; got != want {
		s.Errorf("its environment has %q, want %q", got, want)
	}
}

func rayProbes(s *space) {
	modern := s.headOf("modern", func(*rayv1.RayCluster, *corev1.Container) {})
	if p := modern.ReadinessProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/api/healthz" || p.HTTPGet.Port.IntValue() != 52365 || p.InitialDelaySeconds != 10 {
		s.Errorf("2.53: %+v", p)
	}
	port := s.headOf("port", func(c *rayv1.RayCluster, _ *corev1.Container) {
		c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"dashboard-agent-listen-port": "52000"}
	})
	if p := port.LivenessProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Port.IntValue() != 52000 || p.FailureThreshold != 120 {
		s.Errorf("another port: %+v", p)
	}
	early := s.headOf("early", func(c *rayv1.RayCluster, _ *corev1.Container) {
		c.Spec.RayVersion = "2.52.0"
		c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"dashboard-port": "8266"}
	})
	want := "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success && wget --tries 1 -T 10 -q -O- http://localhost:8266/api/gcs_healthz | grep success"
	if p := early.LivenessProbe; p == nil || p.Exec == nil || strings.Join(p.Exec.Command, " ") != "bash -c "+want {
		s.Errorf("2.52: %+v", p)
	}
	own := s.headOf("own", func(_ *rayv1.RayCluster, c *corev1.Container) {
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 7}
	})
	if p := own.ReadinessProbe; p.Exec == nil || p.PeriodSeconds != 7 || own.LivenessProbe == nil {
		s.Errorf("own: %+v", p)
	}
}
