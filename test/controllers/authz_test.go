package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// copiedObjects returns those of the objects that a controller creates which differ because of a
// field. If there are none, the field is not copied.
func (k *authoredKind) copiedObjects(f authoredField) []client.Object {
	without, with := k.newObject(), k.newObject()
	if f.prepare != nil {
		f.prepare(without)
	}
	f.set(with)
	k.completeObject(without)
	k.completeObject(with)
	plain := map[string]bool{}
	for _, o := range k.build(without) {
		plain[describeObject(o)] = true
	}
	return slices.DeleteFunc(k.build(with), func(o client.Object) bool { return plain[describeObject(o)] })
}

func describeObject(o client.Object) string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // all kinds have JSON tags
	}
	return fmt.Sprintf("%T %s", o, text)
}

// newObject returns an object as the controller reads it.
func (k *authoredKind) newObject() client.Object {
	o := k.base()
	o.SetName("f")
	o.SetNamespace("authz")
	o.SetUID("0a1b2c3d-0000-4000-8000-00000000000a")
	return o
}

func (k *authoredKind) completeObject(o client.Object) {
	if k.complete != nil {
		k.complete(o)
	}
}

// kindsOf returns the sorted kinds of objects.
func kindsOf(objects []client.Object) (kinds []string) {
	for _, o := range objects {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", o), "*"))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// TestAuthz_FieldsAreClassified fails if a kind has a new field, or if a controller copies another
// one. Review what it gives to users before -update.
func TestAuthz_FieldsAreClassified(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, k := range authoredKinds() {
		for _, f := range k.fields {
			kinds := strings.Join(kindsOf(k.copiedObjects(f)), " ")
			if kinds == "" {
				kinds = "-"
			}
			fmt.Fprintf(&b, "%s %s: %s\n", k.name, f.path, kinds)
		}
	}
	golden.Equal(t, "authz-fields", b.String())
}

// exception is a field that reaches an object which its author could not have created, and why
// that gives the author nothing.
type exception struct {
	kind, path string // beginnings; empty: any
	object     string // beginning of the kind of the created object; empty: any
	steers     bool   // also for users who may not create the kind itself
	reason     string
}

var exceptions = []exception{
	{"", "", "v1.Role", false, "ours: the rules for Ray's autoscaler, and a binding to an account that the author's Pods may use"},
	{"", "", "v1.ServiceAccount", false, "ours: the account of Ray's autoscaler"},
	{"", "", "v1.ConfigMap", false, "ours: the host names of the Job's own Pods"},
	{"vcjob", "", "v1.NetworkPolicy", false, "ours: selects the Job's own Pods"},
	{"", "", "v1alpha1.TaskGroup", false, "ours: carries out a Job; admission has checked the same tasks in the Job"},
	{"RayCluster", "", "v1.Job", false, "ours: our command in a Pod of the head's template"},
	{"vcjob", "spec.plugins", "v1.Service", false, "ours: for the Job's own Pods, inside the cluster"},
	{"vcjob", "spec.plugins", "v1.Secret", false, "ours: keys for the Job's own Pods, generated or the author's own"},
	{"RayCluster", "spec.headGroupSpec.template", "v1.Service", false, "labels and ports of the author's own Pods, in a headless Service"},
	{"RayCluster", "spec.headGroupSpec.labels", "v1.Service", false, "labels of the author's own Pods"},
	{"RayCluster", "spec.headGroupSpec.rayStartParams", "v1.Service", false, "ports of the author's own Pods"},
	{"RayCluster", "spec.workerGroupSpecs[].numOfHosts", "v1.Service", false, "ours: headless, for the cluster's own Pods"},
	{"RayCluster", "metadata.annotations[ray.io/enable-serve-service]", "v1.Service", false, "ports of the author's own Pods, inside the cluster"},
	{"JobFlow", "spec.params", "", false, "fills what a template offers, whose author may create the Job"},
	{"JobFlow", "spec.flows[].params", "", false, "fills what a template offers, whose author may create the Job"},
	{"JobFlow", "spec.flows[].name", "", false, "names the Job of a template, whose author may create it"},
	{"vcjob", "spec.tasks[].replicas", "", true, "scales what another user has defined, as the subresource scale does"},
}

// matches reports whether an exception is about a field that reaches an object.
func (e *exception) matches(k *authoredKind, f authoredField, o client.Object, mayCreate bool) bool {
	return strings.HasPrefix(k.name, e.kind) && strings.HasPrefix(f.path, e.path) &&
		strings.HasPrefix(kindsOf([]client.Object{o})[0], e.object) && (mayCreate || e.steers)
}

// author is a user who writes objects of one kind.
type author struct {
	name string
	verb string
	client.Client
	// mayCreate reports whether the user may create the kind.
	mayCreate bool
	// hasAll reports whether the user has the role edit.
	hasAll bool
}

// authz tries the fields of all kinds.
type authz struct {
	*space
	itself client.Client // the manager

	mu            sync.Mutex // guards what follows
	cells, leaks  int
	usedException map[int]bool
}

// addCell counts a cell and reports what leaks in it.
func (z *authz) addCell(t *testing.T, leaks []string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	z.cells++
	if len(leaks) > 0 {
		z.leaks++
		t.Errorf("leak: %s", strings.Join(leaks, "; "))
	}
}

// TestAuthz_AuthorsNeedTheRightsToWhatIsCreated tries, for each verb, each kind and each field that
// a controller copies, whether its author could have set it in the created object directly.
func TestAuthz_AuthorsNeedTheRightsToWhatIsCreated(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "authz")
	s.bind("edits", "editor", "edit")
	s.must(s.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "x"}})) // of Pods
	awaitPolicies(t, s)
	z := &authz{space: s, itself: s.managerAccount(), usedException: map[int]bool{}}
	t.Run("kinds", func(t *testing.T) {
		for i, k := range authoredKinds() {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				z.tryKind(t, &k, fmt.Sprint(i))
			})
		}
	})
	for i, e := range exceptions {
		if !z.usedException[i] {
			t.Errorf("the exception for %s %s %s is not used: remove it", e.kind, e.path, e.object)
		}
	}
	if z.cells < 500 {
		t.Errorf("only %d cells, want at least 500", z.cells)
	}
	testkit.RecordFigures(t, "fields", map[string]int{"field_cells": z.cells, "leaks": z.leaks})
}

// managerAccount returns a client that acts as the account of these controllers, or of all.
func (s *space) managerAccount(controllers ...string) client.Client {
	s.Helper()
	c, err := client.New(s.managerConfig(manager.Config{Controllers: controllers}), client.Options{Scheme: manager.NewScheme()})
	s.must(err)
	return c
}

// TestAuthz_ControllersOfWorkflowsNeedNoPods has the account of these controllers: it creates what
// admission has allowed for the authors of templates and patches, and no Pods.
func TestAuthz_ControllersOfWorkflowsNeedNoPods(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "authz-flows")
	awaitPolicies(t, s)
	account := s.managerAccount("jobflow", "jobtemplate", "cronjobflow")
	if isAllowed(t, account, "create pods") || isAllowed(t, account, "create persistentvolumeclaims") {
		t.Error("it may create Pods or claims")
	}
	spec := `{volumes: [{mountPath: /data, volumeClaim: {}}], tasks: [{name: t, replicas: 1, template: {spec: {containers: [{name: c, image: x}]}}}]}`
	for _, manifest := range []string{
		`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: ` + spec + `}`,
		`{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: {flows: [{name: a, patch: {jobSpec: ` + spec + `}}]}}`,
	} {
		if err := s.submit(account, manifest); err != nil {
			t.Error(err)
		}
	}
}

func (z *authz) tryKind(t *testing.T, k *authoredKind, suffix string) {
	stored := k.base()
	stored.SetNamespace(z.name)
	stored.SetName("stored-" + suffix)
	if err := z.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	authors := z.authorsOf(t, k, suffix)
	for _, f := range k.fields {
		objects := k.copiedObjects(f)
		if len(objects) == 0 {
			continue
		}
		for _, a := range authors {
			z.tryField(t, k, f, a, stored, objects)
		}
	}
}

// authorsOf returns users with all rights of edit, and with one or two of them.
func (z *authz) authorsOf(t *testing.T, k *authoredKind, suffix string) []author {
	t.Helper()
	creates, mostly, updates, patches := "creates-"+suffix, "mostly-"+suffix, "updates-"+suffix, "patches-"+suffix
	z.allowIn(creates, k.resource, "create")
	z.allowIn(updates, k.resource, "update")
	z.allowIn(patches, k.resource, "patch")
	authors := []author{
		{"a user with the role edit", "create", z.as("editor"), true, true},
		{"a user who may only create " + k.resource, "create", z.as(creates), true, false},
		{"a user who may only update " + k.resource, "update", z.as(updates), false, false},
		{"a user who may only patch " + k.resource, "patch", z.as(patches), false, false},
	}
	if k.covers != "" {
		z.allowIn(mostly, k.resource, "create")
		z.allowIn(mostly, k.covers, "create")
		z.awaitRight(t, mostly, "create", k.covers)
		authors = append(authors, author{"a user who may only create " + k.resource + " and " + k.covers, "create", z.as(mostly), true, false})
	}
	if testing.Short() { // for admission, update is the same operation as patch
		authors = slices.DeleteFunc(authors, func(a author) bool { return a.verb == "update" })
	}
	for user, verb := range map[string]string{"editor": "create", creates: "create", updates: "update", patches: "patch"} {
		z.awaitRight(t, user, verb, k.resource)
	}
	return authors
}

// awaitRight waits until a user has a right.
func (z *authz) awaitRight(t *testing.T, user, verb, resource string) {
	t.Helper()
	group, resource, _ := strings.Cut(resource, "/")
	testkit.Eventually(t, waitTimeout, user+" may "+verb+" "+resource, func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: z.name, Verb: verb, Group: group, Resource: resource},
		}}
		return z.Create(t.Context(), review) == nil && review.Status.Allowed
	})
}

// tryField is one cell: an author writes a field from which a controller creates objects.
func (z *authz) tryField(t *testing.T, k *authoredKind, f authoredField, a author, stored client.Object, objects []client.Object) {
	t.Helper()
	err := z.write(t.Context(), k, f, a, stored)
	var leaks []string
	switch {
	case err == nil:
		for _, o := range objects {
			if leak := z.findLeak(t.Context(), k, f, a, o); leak != "" {
				leaks = append(leaks, leak)
			}
		}
	case a.hasAll && slices.ContainsFunc(objects, func(o client.Object) bool { return z.createDirectly(t.Context(), a, o) == nil }):
		t.Errorf("%s: %s sets %s, which is allowed in the created object: %v", k.name, a.name, f.path, err)
	case !isSentence(err):
		t.Errorf("%s: %s sets %s: the refusal does not name the field and the way out: %v", k.name, a.name, f.path, err)
	}
	z.addCell(t, leaks)
}

// write writes an object with the field, as a dry run.
func (z *authz) write(ctx context.Context, k *authoredKind, f authoredField, a author, stored client.Object) error {
	if a.verb == "create" {
		o := k.base()
		o.SetNamespace(z.name)
		o.SetGenerateName("a-")
		f.set(o)
		k.completeObject(o)
		return a.Create(ctx, o, client.DryRunAll)
	}
	if a.verb == "update" {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			o := stored.DeepCopyObject().(client.Object)
			if err := z.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			f.set(o)
			k.completeObject(o)
			return a.Update(ctx, o, client.DryRunAll)
		})
	}
	o := stored.DeepCopyObject().(client.Object)
	f.set(o)
	k.completeObject(o)
	patch, err := patchTo(o)
	if err != nil {
		return err
	}
	return a.Patch(ctx, stored.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, patch), client.DryRunAll)
}

// patchTo returns a patch of all that users write in an object.
func patchTo(o client.Object) ([]byte, error) {
	patch := []map[string]any{{"op": "replace", "path": "/spec", "value": reflect.ValueOf(o).Elem().FieldByName("Spec").Interface()}}
	for path, value := range map[string]map[string]string{"/metadata/labels": o.GetLabels(), "/metadata/annotations": o.GetAnnotations()} {
		if len(value) > 0 {
			patch = append(patch, map[string]any{"op": "add", "path": path, "value": value})
		}
	}
	return json.Marshal(patch)
}

// isSentence reports whether a refusal names a field and says what to do.
func isSentence(err error) bool {
	contains := func(part string) bool { return strings.Contains(err.Error(), part) }
	return slices.ContainsFunc([]string{"spec", "metadata"}, contains) && slices.ContainsFunc([]string{"; ", "set ", "omit ", "supported values"}, contains)
}

// findLeak returns what is wrong with an object that a controller creates, unless its author could
// have created it or there is an exception.
func (z *authz) findLeak(ctx context.Context, k *authoredKind, f authoredField, a author, o client.Object) string {
	err := z.createDirectly(ctx, a, o)
	if !apierrors.IsForbidden(err) {
		return "" // the API server rejects it for the manager as well
	}
	for i, e := range exceptions {
		if e.matches(k, f, o, a.mayCreate) {
			z.mu.Lock()
			defer z.mu.Unlock()
			z.usedException[i] = true
			return ""
		}
	}
	if z.createDirectly(ctx, z.itself, o) != nil {
		return ""
	}
	return fmt.Sprintf("%s: %s sets %s and gets a %s: %v", k.name, a.name, f.path, kindsOf([]client.Object{o})[0], err)
}

// createDirectly creates an object as a user, as a dry run.
func (z *authz) createDirectly(ctx context.Context, as client.Client, o client.Object) error {
	o = o.DeepCopyObject().(client.Object)
	o.SetNamespace(z.name)
	o.SetUID("")
	return as.Create(ctx, o, client.DryRunAll)
}
