package build

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Settings are what an operator has chosen for all clusters.
type Settings struct {
	// ClusterDomain ends the names of Services.
	ClusterDomain string
	// WaitForGCS gives each worker an init container that waits for its head.
	WaitForGCS bool
	// Probes are given to Ray containers that have none.
	Probes bool
	// LoginShell starts Ray by a shell that reads the profile.
	LoginShell bool
	// HeadClusterIP gives the head's Service an address of its own.
	HeadClusterIP bool
	// DeterministicHeadName names a head after its cluster alone.
	DeterministicHeadName bool
	// RedisCleanup removes the keys of a cluster from Redis when it is deleted.
	RedisCleanup bool
	// RandomDelete lets the controller choose the Pods that go, even beside an autoscaler.
	RandomDelete bool
	// ReplicaIndex labels each worker with the number of its replica.
	ReplicaIndex bool
	// Requeue is how long after a look at a cluster the next one is taken in any case.
	Requeue time.Duration
	// Env of each Ray container that does not have the variable.
	Env []corev1.EnvVar
	// Annotations of each Pod whose template does not have them.
	Annotations map[string]string
	// Labels of each Pod whose template does not have them.
	Labels map[string]string
	// HeadSidecars are more containers of each head.
	HeadSidecars []corev1.Container
	// WorkerSidecars are more containers of each worker.
	WorkerSidecars []corev1.Container
}

// DefaultSettings are those of an operator who has chosen nothing.
func DefaultSettings() Settings {
	return Settings{
		ClusterDomain: "cluster.local",
		WaitForGCS:    true,
		Probes:        true,
		RedisCleanup:  true,
		ReplicaIndex:  true,
		Requeue:       300 * time.Second,
	}
}

// SettingsFrom reads the environment of the controller. What is not set there keeps
// its default; what cannot be read is an error that names the variable.
func SettingsFrom(getenv func(string) string) (Settings, error) {
	s := DefaultSettings()
	for name, field := range map[string]*bool{
		"ENABLE_INIT_CONTAINER_INJECTION":    &s.WaitForGCS,
		"ENABLE_PROBES_INJECTION":            &s.Probes,
		"ENABLE_LOGIN_SHELL":                 &s.LoginShell,
		"ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": &s.HeadClusterIP,
		"ENABLE_DETERMINISTIC_HEAD_POD_NAME": &s.DeterministicHeadName,
		"ENABLE_GCS_FT_REDIS_CLEANUP":        &s.RedisCleanup,
		"ENABLE_RANDOM_POD_DELETE":           &s.RandomDelete,
	} {
		switch v := getenv(name); strings.ToLower(v) {
		case "":
		case "true":
			*field = true
		case "false":
			*field = false
		default:
			return s, fmt.Errorf("%s: %q is neither true nor false", name, v)
		}
	}
	if v := getenv("CLUSTER_DOMAIN"); v != "" {
		s.ClusterDomain = v
	}
	const requeue = "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV"
	if v := getenv(requeue); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return s, fmt.Errorf("%s: %q is no number of seconds; write one of 1 or more, such as 300", requeue, v)
		}
		s.Requeue = time.Duration(n) * time.Second
	}
	return s, nil
}
