package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	admissionv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/crds"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestUp_KeepsForeignDefinitions installs a kind of the same name from another project, which
// lacks most fields.
func TestUp_KeepsForeignDefinitions(t *testing.T) {
	t.Parallel()
	ctx, up := t.Context(), startBare(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(up.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "k8s4r-vcjobs"}}
	ours := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "jobs.batch.volcano.sh"}}
	for _, o := range []client.Object{policy, ours} {
		if err := c.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	theirs := theirDefinition()
	testkit.EventuallyNoError(t, within, "their definition is installed", func() error { return c.Create(ctx, theirs.DeepCopy()) })
	// An API server that is stopped before it has established a definition does so minutes after its next start.
	testkit.EventuallyNoError(t, within, "their definition is established", func() error {
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		if err := c.Get(ctx, client.ObjectKeyFromObject(theirs), is); err != nil {
			return err
		}
		if !crds.IsEstablished(is) {
			return fmt.Errorf("conditions: %v", is.Object["status"])
		}
		return nil
	})
	up.Stop()
	up.Start()

	is := theirs.DeepCopy()
	if err := c.Get(ctx, client.ObjectKeyFromObject(theirs), is); err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, is.Spec.Versions), text(t, theirs.Spec.Versions); got != want || len(is.Labels) != 0 {
		t.Errorf("their definition became %s", got)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(policy), policy); !apierrors.IsNotFound(err) {
		t.Errorf("our rules about their kind: %v", err)
	}
	if output := logs(t, up); !strings.Contains(output, "CRD jobs.batch.volcano.sh was not installed by K8s4r and is left unchanged; its schema lacks these fields, which are dropped: .spec.") {
		t.Errorf("the missing fields are not logged: %s", output)
	}

	// kubectl apply as in README.md leaves the definition unchanged, too, and reports it.
	out, err := up.RunProgram("k8s4r", "kubectl", "apply", "--server-side", "--field-manager=k8s4r", "-k", "../../config")
	if err == nil || !strings.Contains(out, "conflict") || !strings.Contains(out, "jobs.batch.volcano.sh") && !strings.Contains(out, ".spec.versions") {
		t.Errorf("kubectl apply does not refuse: %v\n%s", err, out)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(theirs), is); err != nil || text(t, is.Spec.Versions) != text(t, theirs.Spec.Versions) {
		t.Errorf("kubectl apply has changed their definition: %v", err)
	}
	out, err = up.RunProgram("k8s4r", "doctor", "-n", "default")
	for _, want := range []string{
		"WARN  CRD jobs.batch.volcano.sh: was not installed by K8s4r; its schema lacks these fields",
		"WARN  admission policies: k8s4r-vcjobs of K8s4r validates objects of jobs.batch.volcano.sh",
		"FAIL  manager: does not run", // this process runs without the manager
	} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("doctor does not report %q: %v\n%s", want, err, out)
		}
	}
}

// TestUp_RestoresItsPolicies keeps policies of other owners.
func TestUp_RestoresItsPolicies(t *testing.T) {
	t.Parallel()
	ctx, up := t.Context(), startBare(t)
	c, err := client.New(up.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(name, by string) *admissionv1.ValidatingAdmissionPolicy {
		spec := admissionv1ac.ValidatingAdmissionPolicySpec().
			WithMatchConstraints(admissionv1ac.MatchResources().WithResourceRules(admissionv1ac.NamedRuleWithOperations().
				WithAPIGroups("robot.k8s4r.io").WithAPIVersions("*").WithResources("jobs").WithOperations(admissionv1.Create))).
			WithValidations(admissionv1ac.Validation().WithExpression("false"))
		for _, o := range []runtime.ApplyConfiguration{
			admissionv1ac.ValidatingAdmissionPolicy(name).WithSpec(spec),
			admissionv1ac.ValidatingAdmissionPolicyBinding(name).WithSpec(admissionv1ac.ValidatingAdmissionPolicyBindingSpec().
				WithPolicyName(name).WithValidationActions(admissionv1.Audit)),
		} {
			if err := c.Apply(ctx, o, client.FieldOwner(by)); err != nil {
				t.Fatal(err)
			}
		}
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	old, theirs := apply("k8s4r-of-yesterday", "k8s4r"), apply("theirs", "another-owner")
	if out, _ := up.RunProgram("k8s4r", "doctor", "-n", "default"); !strings.Contains(out, "WARN  admission policies: k8s4r-of-yesterday is from another version") {
		t.Errorf("doctor does not report the old policy:\n%s", out)
	}
	changed := &admissionv1.ValidatingAdmissionPolicy{}
	if err := c.Get(ctx, client.ObjectKey{Name: "k8s4r-jobs"}, changed); err != nil {
		t.Fatal(err)
	}
	rules := len(changed.Spec.Validations)
	changed.Spec.Validations = changed.Spec.Validations[:1]
	if err := c.Update(ctx, changed); err != nil {
		t.Fatal(err)
	}
	deleted := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "k8s4r-jobs"}}
	if err := c.Delete(ctx, deleted); err != nil {
		t.Fatal(err)
	}
	up.Stop()
	up.Start()
	if err := c.Get(ctx, client.ObjectKeyFromObject(changed), changed); err != nil || len(changed.Spec.Validations) != rules {
		t.Errorf("a policy that a user changed has %d of %d rules, %v", len(changed.Spec.Validations), rules, err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(deleted), deleted); err != nil {
		t.Errorf("a binding that a user deleted: %v", err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
		t.Errorf("the old policy: %v", err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: old.Name}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); !apierrors.IsNotFound(err) {
		t.Errorf("its binding: %v", err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("the policy of another owner: %v", err)
	}
}

func theirDefinition() *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "jobs.batch.volcano.sh"}}
	d.Spec.Group, d.Spec.Scope = "batch.volcano.sh", apiextensionsv1.NamespaceScoped
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "jobs", Singular: "job", Kind: "Job", ListKind: "JobList"}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"queue": {Type: "string"}}}
	d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1alpha1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
		}},
	}}
	return d
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// logs returns the contents of all log files of the last start.
func logs(t *testing.T, up *testkit.Up) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(up.DataDir, "logs"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
