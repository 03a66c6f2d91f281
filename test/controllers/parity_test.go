package controllers

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// kindsAround are the kinds of which a sample lists each object that is not its input.
var kindsAround = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
}

// paritySystem returns the system of all samples, with its policies in force.
func paritySystem(t *testing.T) *system {
	t.Helper()
	share(t, rayServer, onlyVCJob)
	s := share(t, rayServer, onlyRay)
	awaitPolicies(t, s)
	return s
}

var kindPod = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// runSamples applies all samples of a folder of test/parity at once, each in a namespace of its own,
// and records how many there are and how many lead to what they describe. It returns the number of
// samples.
func runSamples(t *testing.T, s *system, folder string) int {
	samples := loadSamples(t, folder)
	var equal atomic.Int64
	t.Run("all", func(t *testing.T) {
		for i := range samples {
			t.Run(samples[i].file, func(t *testing.T) {
				t.Parallel()
				p := parity{s.namespace(t, fmt.Sprintf("parity-%s-%d", folder, i)), &samples[i]}
				for _, line := range p.compare() {
					t.Error(line)
				}
				if !t.Failed() {
					equal.Add(1)
				}
			})
		}
	})
	testkit.RecordFigures(t, "parity-"+folder, map[string]int{"samples": len(samples), "equal": int(equal.Load())})
	return len(samples)
}

// parity compares one sample with what the controllers make of it.
type parity struct {
	*space
	sample *sample
}

// compare applies the input, and returns a line for each difference to what the sample describes.
func (p parity) compare() (lines []string) {
	warnings := &warningRecorder{}
	err := p.apply(client.WithFieldValidation(p.withWarnings(warnings), metav1.FieldValidationStrict))
	if p.sample.Warns != "" && !strings.Contains(strings.Join(warnings.list(), "\n"), p.sample.Warns) {
		lines = append(lines, fmt.Sprintf("warnings %q, want %q", warnings.list(), p.sample.Warns))
	}
	switch {
	case p.sample.Refused != "" && err == nil:
		return append(lines, fmt.Sprintf("it is accepted, want %q", p.sample.Refused))
	case p.sample.Refused != "" && strings.Contains(err.Error(), p.sample.Refused):
		return lines
	case err != nil:
		return append(lines, fmt.Sprintf("create: %v, want %q", err, p.sample.Refused))
	}
	lines = append(lines, p.compareStored()...)
	p.runDependencies()
	pods, err := p.sample.expand(p.sample.Pods, p.name)
	p.must(err)
	objects, err := p.sample.expand(p.sample.Objects, p.name)
	p.must(err)
	lines = append(lines, p.compareObjects(pods, p.await("pods", len(pods), kindPod))...)
	return append(lines, p.compareObjects(objects, p.await("objects", len(objects), kindsAround...))...)
}

// apply creates the input, and sets the value uid to that of the subject.
func (p parity) apply(c client.Client) error {
	for _, object := range p.sample.Input {
		o := &unstructured.Unstructured{Object: copyFields(object)}
		namespaced, err := p.IsObjectNamespaced(o)
		p.must(err)
		if namespaced {
			o.SetNamespace(p.name)
		}
		if err := c.Create(p.Context(), o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		p.sample.setValue("uid", string(o.GetUID())) // the subject is the last
	}
	return nil
}

// await waits until there are n objects of the kinds that are not part of the input.
func (p parity) await(what string, n int, kinds ...schema.GroupVersionKind) (found []unstructured.Unstructured) {
	p.Helper()
	testkit.EventuallyNoError(p, waitTimeout, fmt.Sprintf("%d %s", n, what), func() error {
		found = nil
		var names []string
		for _, kind := range kinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := p.List(p.Context(), list, client.InNamespace(p.name)); err != nil {
				return err
			}
			for _, o := range slices.DeleteFunc(list.Items, p.isGiven) {
				found, names = append(found, o), append(names, o.GetKind()+" "+o.GetName())
			}
		}
		return check(len(found) == n, "there are %v", names)
	})
	return found
}

// isGiven reports whether an object is part of the input, or of every namespace.
func (p parity) isGiven(o unstructured.Unstructured) bool {
	if o.GetKind() == "ServiceAccount" && o.GetName() == "default" || o.GetName() == "kube-root-ca.crt" {
		return true
	}
	return slices.ContainsFunc(p.sample.Input, func(in fields) bool {
		given := unstructured.Unstructured{Object: in}
		return given.GetKind() == o.GetKind() && given.GetName() == o.GetName()
	})
}

// compareObjects finds the object of each expectation, and returns the differences.
func (p parity) compareObjects(want []expected, got []unstructured.Unstructured) (lines []string) {
	for i := range want {
		at, diff := p.findObject(&want[i], got)
		lines = append(lines, diff...)
		if at >= 0 {
			got = slices.Delete(got, at, at+1)
		}
	}
	for i := range got {
		lines = append(lines, fmt.Sprintf("%s %s is not expected", got[i].GetKind(), got[i].GetName()))
	}
	return lines
}

// findObject returns the index of the object that is as expected, or of the most similar one with the
// differences.
func (p parity) findObject(want *expected, got []unstructured.Unstructured) (at int, diff []string) {
	at, diff = -1, []string{fmt.Sprintf("%v %s: there is none", want.object["kind"], want.name)}
	for i := range got {
		if ok, err := path.Match(want.name, got[i].GetName()); err != nil || !ok || got[i].GetKind() != want.object["kind"] {
			continue
		}
		is := p.diffObject(want, &got[i])
		if at < 0 || len(is) < len(diff) {
			at, diff = i, is
		}
		if len(is) == 0 {
			break
		}
	}
	return at, diff
}

// diffObject returns the differences between an object and the expected one with the API server's
// defaults.
func (p parity) diffObject(want *expected, got *unstructured.Unstructured) []string {
	is := copyFields(got.Object)
	wanted := &unstructured.Unstructured{Object: fillAny(copyFields(want.object), is).(fields)}
	if lines := diffLabels(wanted, got); len(lines) > 0 { // cheaper than the API server's defaults
		return lines
	}
	wanted.SetNamespace(p.name)
	wanted.SetName("")
	wanted.SetGenerateName("expected-")
	wanted.SetOwnerReferences(ownersAs(want.owner, got.GetOwnerReferences()))
	if err := p.Create(p.Context(), wanted, client.DryRunAll); err != nil {
		return []string{fmt.Sprintf("%s: the expected object is not valid: %v", want.name, err)}
	}
	wanted.SetName(got.GetName())
	removeVolatile(wanted.Object)
	removeVolatile(is)
	removeContents(wanted.Object, is)
	return diffFields(got.GetKind()+" "+got.GetName(), wanted.Object, is)
}

func diffLabels(want, got *unstructured.Unstructured) []string {
	labels := func(o *unstructured.Unstructured) any {
		v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", "labels")
		if v == nil {
			v = fields{}
		}
		return v
	}
	return diffFields(got.GetKind()+" "+got.GetName()+".metadata.labels", labels(want), labels(got))
}

// ownersAs returns the expected reference to the owner, KIND/NAME, with version and UID of the actual
// one.
func ownersAs(owner string, got []metav1.OwnerReference) []metav1.OwnerReference {
	kind, name, found := strings.Cut(owner, "/")
	if !found {
		return nil
	}
	yes := true
	want := metav1.OwnerReference{Kind: kind, Name: name, APIVersion: "v1", UID: "none", Controller: &yes, BlockOwnerDeletion: &yes}
	for _, is := range got {
		if is.Kind == kind && is.Name == name {
			want.APIVersion, want.UID = is.APIVersion, is.UID
		}
	}
	return []metav1.OwnerReference{want}
}

// removeVolatile removes what differs between two equal objects: times, identifiers, addresses, the
// volume of the account's token.
func removeVolatile(o fields) {
	delete(o, "status")
	if meta, ok := o["metadata"].(fields); ok {
		for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "generateName"} {
			delete(meta, name)
		}
	}
	spec, _ := o["spec"].(fields)
	switch o["kind"] {
	case "Pod":
		removeToken(spec)
	case "Service":
		removeAddresses(spec)
	}
}

// removeContents removes what a Secret has under the keys of which only the presence is expected.
func removeContents(want, got fields) {
	if want["kind"] != "Secret" {
		return
	}
	wanted, _ := want["data"].(fields)
	is, _ := got["data"].(fields)
	for key := range is {
		if wanted[key] == "" {
			is[key] = ""
		}
	}
}

// removeToken removes the volume with the token of the service account from a Pod.
func removeToken(spec fields) {
	removeNamed(spec, "volumes")
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			removeNamed(c.(fields), "volumeMounts")
		}
	}
}

func removeNamed(in fields, list string) {
	all, _ := in[list].([]any)
	all = slices.DeleteFunc(all, func(v any) bool {
		name, _ := v.(fields)["name"].(string)
		return strings.HasPrefix(name, "kube-api-access-")
	})
	if in[list] = all; len(all) == 0 {
		delete(in, list)
	}
}

// removeAddresses removes the addresses and ports that the API server allocates for a Service.
func removeAddresses(spec fields) {
	if spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	ports, _ := spec["ports"].([]any)
	for _, port := range ports {
		delete(port.(fields), "nodePort")
	}
}
