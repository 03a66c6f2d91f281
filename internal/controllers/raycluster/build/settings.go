package build

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Settings are the operator's settings for all clusters.
type Settings struct {
	// ClusterDomain is the domain of Service names.
	ClusterDomain string
	// WaitForGCS adds an init container to workers that waits for the head.
	WaitForGCS bool
	// Probes adds probes to Ray containers that have none.
	Probes bool
	// LoginShell starts Ray with a login shell, which reads the profile.
	LoginShell bool
	// HeadClusterIP gives the head's Service a cluster IP.
	HeadClusterIP bool
	// DeterministicHeadName derives the name of the head from the cluster's name alone.
	DeterministicHeadName bool
	// RedisCleanup removes the keys of a cluster from Redis when it is deleted.
	RedisCleanup bool
	// RandomDelete lets the controller choose the Pods to delete, even if there is an autoscaler.
	RandomDelete bool
	// ReplicaIndex labels each worker with the index of its replica.
	ReplicaIndex bool
	// Requeue is the longest time between two reconciles of a cluster.
	Requeue time.Duration
	// Env is added to each Ray container that does not have the variable.
	Env []corev1.EnvVar
	// Annotations are added to each Pod whose template does not have them.
	Annotations map[string]string
	// Labels are added to each Pod whose template does not have them.
	Labels map[string]string
	// HeadSidecars are additional containers of each head.
	HeadSidecars []corev1.Container
	// WorkerSidecars are additional containers of each worker.
	WorkerSidecars []corev1.Container
}

// DefaultSettings returns the settings of an operator that sets none.
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

// SettingsFrom reads settings from the environment of the controller. Unset variables keep the
// default; an invalid value is an error that names the variable.
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
			return s, fmt.Errorf("%s: %q must be true or false", name, v)
		}
	}
	if v := getenv("CLUSTER_DOMAIN"); v != "" {
		s.ClusterDomain = v
	}
	const requeue = "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV"
	if v := getenv(requeue); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return s, fmt.Errorf("%s: %q must be a number of seconds of at least 1, such as 300", requeue, v)
		}
		s.Requeue = time.Duration(n) * time.Second
	}
	return s, nil
}
