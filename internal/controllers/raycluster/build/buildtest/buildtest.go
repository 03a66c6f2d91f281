// Package buildtest has test cases for the validation of RayClusters, for which admission and the
// controller must agree.
package buildtest

import (
	_ "embed"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Case is a cluster and a part of the message with which it is rejected. If the message is empty,
// the cluster is accepted.
type Case struct {
	Name    string
	Want    string
	Cluster *rayv1.RayCluster
	// OnlyOnCreate is set if admission accepts the cluster as an update.
	OnlyOnCreate bool
}

//go:embed cases.yaml
var cases []byte

// row is a Case in the file: the differences to a plain cluster.
type row struct {
	Name         string         `json:"name"`
	Want         string         `json:"want"`
	OnlyOnCreate bool           `json:"onlyOnCreate"`
	Metadata     map[string]any `json:"metadata"`
	Spec         map[string]any `json:"spec"`
	Head         map[string]any `json:"head"`     // spec.headGroupSpec
	HeadRay      map[string]any `json:"headRay"`  // its first container
	Group        map[string]any `json:"group"`    // the worker group
	HeadPod      map[string]any `json:"headPod"`  // the spec of the head's template
	GroupPod     map[string]any `json:"groupPod"` // the spec of the workers' template
}

// Cases returns all cases.
func Cases() ([]Case, error) {
	var rows []row
	if err := yaml.UnmarshalStrict(cases, &rows); err != nil {
		return nil, err
	}
	var all []Case
	for i := range rows {
		c, err := rows[i].cluster()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rows[i].Name, err)
		}
		all = append(all, Case{Name: rows[i].Name, Want: rows[i].Want, Cluster: c, OnlyOnCreate: rows[i].OnlyOnCreate})
	}
	return all, nil
}

func (r *row) cluster() (*rayv1.RayCluster, error) {
	headRay := map[string]any{"name": "ray-head", "image": "ray"}
	headPod := map[string]any{"containers": []any{headRay}}
	head := map[string]any{"template": map[string]any{"spec": headPod}}
	groupPod := map[string]any{"containers": []any{map[string]any{"name": "ray-worker", "image": "ray"}}}
	group := map[string]any{
		"groupName": "small", "replicas": 1, "minReplicas": 0, "maxReplicas": 3, "numOfHosts": 1,
		"template": map[string]any{"spec": groupPod},
	}
	spec := map[string]any{"rayVersion": "2.52.0", "headGroupSpec": head, "workerGroupSpecs": []any{group}}
	metadata := map[string]any{"name": "plain"}
	for to, from := range map[*map[string]any]map[string]any{
		&headRay: r.HeadRay, &headPod: r.HeadPod, &head: r.Head, &groupPod: r.GroupPod, &group: r.Group, &spec: r.Spec, &metadata: r.Metadata,
	} {
		for k, v := range from {
			(*to)[k] = v
		}
	}
	c := &rayv1.RayCluster{TypeMeta: metav1.TypeMeta{APIVersion: rayv1.GroupVersion.String(), Kind: "RayCluster"}}
	text, err := yaml.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return nil, err
	}
	return c, yaml.UnmarshalStrict(text, c)
}
