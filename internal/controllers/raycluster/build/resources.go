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

// gpu names what Ray counts as a GPU: whole ones of any make, and slices of NVIDIA's.
var gpu = regexp.MustCompile(`gpu$|^nvidia\.com/mig-\d+g\.\d+gb$`)

// accelerators are the names, in Ray, of devices that are no GPUs.
var accelerators = map[corev1.ResourceName]string{
	"aws.amazon.com/neuroncore": "neuron_cores",
	resourceTPU:                 "TPU",
}

const resourceTPU corev1.ResourceName = "google.com/tpu"

// addResources tells Ray what the Pod has: as the group says, else as the flags say,
// else as the container's limits say.
func addResources(p map[string]string, n *node) {
	custom := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(n.resources)) {
		q, err := resource.ParseQuantity(n.resources[name])
		if err != nil {
			continue // Validate has said so
		}
		switch strings.ToLower(name) {
		case "cpu":
			p[paramNumCPUs] = whole(q)
		case "gpu":
			p[paramNumGPUs] = whole(q)
		case "memory":
			p[paramMemory] = whole(q)
		default:
			custom[name] = number(q)
		}
	}
	addCustom(p, custom)
	addLimits(p, n.ray())
}

// addLimits is for what neither the group nor a flag says.
func addLimits(p map[string]string, ray *corev1.Container) {
	limits := ray.Resources.Limits
	set := func(param string, q resource.Quantity, ok bool) {
		if _, has := p[param]; !has && ok && !q.IsZero() {
			p[param] = whole(q)
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
			addCustom(p, map[string]any{as: number(q)})
			return
		}
	}
}

// addCustom puts resources of other names into the flag for them. What stands there
// already counts more.
func addCustom(p map[string]string, more map[string]any) {
	if len(more) == 0 {
		return
	}
	all, ok := parseCustom(p[paramResources])
	if !ok {
		return // Ray will say what is wrong with it
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

// parseCustom reads the flag for resources of other names: JSON in quotes of the shell.
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

// whole is the quantity rounded up: Ray counts no parts of a CPU.
func whole(q resource.Quantity) string { return strconv.FormatInt(q.Value(), 10) }

// number is the quantity as JSON has it.
func number(q resource.Quantity) any {
	if n, ok := q.AsInt64(); ok {
		return n
	}
	return q.AsApproximateFloat64()
}
