package build

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// gpu matches the resources that Ray counts as GPUs: GPUs of any vendor, and MIG slices of NVIDIA.
var gpu = regexp.MustCompile(`gpu$|^nvidia\.com/mig-\d+g\.\d+gb$`)

// accelerators maps other devices to their names in Ray.
var accelerators = map[corev1.ResourceName]string{
	"aws.amazon.com/neuroncore": "neuron_cores",
	resourceTPU:                 "TPU",
}

const resourceTPU corev1.ResourceName = "google.com/tpu"

// addResources sets the resource flags from the group's resources, or else the user's flags, or
// else the limits of the container.
func addResources(p map[string]string, n *node) {
	custom := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(n.resources)) {
		q, err := resource.ParseQuantity(n.resources[name])
		if err != nil {
			continue // Validate reports it
		}
		switch strings.ToLower(name) {
		case "cpu":
			p[paramNumCPUs] = roundUp(q)
		case "gpu":
			p[paramNumGPUs] = roundUp(q)
		case "memory":
			p[paramMemory] = roundUp(q)
		default:
			custom[name] = toJSONNumber(q)
		}
	}
	addCustom(p, custom)
	addLimits(p, n.rayContainer())
}

// addLimits sets the resources that neither the group nor a flag sets.
func addLimits(p map[string]string, ray *corev1.Container) {
	limits := ray.Resources.Limits
	set := func(param string, q resource.Quantity, ok bool) {
		if _, has := p[param]; !has && ok && !q.IsZero() {
			p[param] = roundUp(q)
		}
	}
	cpu, ok := limits[corev1.ResourceCPU]
	if !ok || cpu.IsZero() {
		cpu, ok = ray.Resources.Requests[corev1.ResourceCPU]
	}
	set(paramNumCPUs, cpu, ok)
	memory, ok := limits[corev1.ResourceMemory]
	set(paramMemory, memory, ok)
	names := slices.Sorted(maps.Keys(limits))
	if i := slices.IndexFunc(names, func(n corev1.ResourceName) bool { q := limits[n]; return gpu.MatchString(string(n)) && !q.IsZero() }); i >= 0 {
		set(paramNumGPUs, limits[names[i]], true)
	}
	for _, name := range names {
		q := limits[name]
		if as, known := accelerators[name]; known && !q.IsZero() {
			addCustom(p, map[string]any{as: toJSONNumber(q)})
			return
		}
	}
}

// addCustom adds custom resources to their flag. Entries that exist win.
func addCustom(p map[string]string, more map[string]any) {
	if len(more) == 0 {
		return
	}
	all, ok := parseCustom(p[paramResources])
	if !ok {
		return // Ray reports the error
	}
	for name, v := range all {
		more[name] = v
	}
	text, err := json.Marshal(more)
	if err != nil {
		return
	}
	p[paramResources] = "'" + string(text) + "'"
}

// parseCustom parses the flag for custom resources: JSON in shell quotes.
func parseCustom(text string) (map[string]any, bool) {
	all := map[string]any{}
	if text == "" {
		return all, true
	}
	switch {
	case len(text) > 1 && text[0] == '\'' && text[len(text)-1] == '\'':
		text = text[1 : len(text)-1]
	case len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"':
		text = strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	}
	return all, json.Unmarshal([]byte(text), &all) == nil
}

// roundUp returns the quantity rounded up: Ray counts whole CPUs.
func roundUp(q resource.Quantity) string { return strconv.FormatInt(q.Value(), 10) }

// toJSONNumber returns the quantity as a JSON number.
func toJSONNumber(q resource.Quantity) any {
	if n, ok := q.AsInt64(); ok {
		return n
	}
	return q.AsApproximateFloat64()
}
