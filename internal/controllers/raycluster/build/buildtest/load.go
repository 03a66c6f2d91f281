package buildtest

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// Load reads the cluster in NAME.manifest.yaml and the operator's settings. The first line may be
// "# env NAME=VALUE ...", the environment of the controller; NAME.config.yaml is its settings file,
// if it exists.
func Load(file string) (*build.Settings, *rayv1.RayCluster, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	env := environment(string(text))
	s, err := build.SettingsFrom(func(name string) string { return env[name] })
	if err != nil {
		return nil, nil, err
	}
	s.ReplicaIndex = env["REPLICA_INDEX"] != "off" // a feature gate of the controller
	config, err := os.ReadFile(strings.TrimSuffix(file, ".manifest.yaml") + ".config.yaml")
	if err == nil {
		_, err = s.Configure(config)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	c := &rayv1.RayCluster{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, nil, err
	}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		g.NumOfHosts = max(g.NumOfHosts, 1) // the default in the schema
	}
	return &s, c, nil
}

func environment(manifest string) map[string]string {
	first, _, _ := strings.Cut(manifest, "\n")
	line, _ := strings.CutPrefix(first, "# env ")
	all := map[string]string{}
	for _, pair := range strings.Fields(line) {
		k, v, _ := strings.Cut(pair, "=")
		all[k] = v
	}
	return all
}

// Objects returns all objects of a cluster, with one replica of each group.
func Objects(s *build.Settings, c *rayv1.RayCluster) []client.Object {
	all := []client.Object{build.HeadPod(s, c)}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		for host := range int(g.NumOfHosts) {
			all = append(all, build.WorkerPod(s, c, g, build.Replica{Name: g.GroupName + "-x7k2q", Index: 4, Host: host}))
		}
	}
	for _, o := range []client.Object{
		build.HeadService(s, c), build.ServeService(s, c), build.HeadlessService(s, c), build.ServiceAccount(c), build.BuildAutoscalerRole(c),
		build.RoleBinding(c), build.AuthSecret(c, "c2VjcmV0"), build.RedisCleanupJob(s, c), build.HeadIngress(c),
		build.StorageClaim(c),
	} {
		if !reflect.ValueOf(o).IsNil() {
			all = append(all, o)
		}
	}
	for _, policy := range build.NetworkPolicies(c) {
		all = append(all, policy)
	}
	return all
}
