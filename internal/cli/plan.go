package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/plan"
)

// Exit statuses of plan.
const (
	exitPlanFailed  = 1
	exitPlanChanges = 2
)

// The bounds of what plan reads.
const (
	maxPlanBytes   = 8 << 20
	maxPlanObjects = 100
)

type planOptions struct {
	conn         connection
	files        []string
	output       string
	server       string
	serverSide   bool
	fieldManager string
	stdin        io.Reader
}

func planCommand(d *deps) *cobra.Command {
	o := planOptions{stdin: os.Stdin}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what applying a Job would do, without doing it",
		Long: `Shows which tasks applying a file would create, change, restart and stop, in which order, on
which robots, and what has no room and why. It changes nothing: the API server validates
the objects in a dry run, and the manager runs its planners on copies of what exists.

The file may have several Jobs; - reads standard input. Each is compared with what exists
as ` + "`kubectl apply`" + ` does it, or with --server-side as ` + "`kubectl apply --server-side`" + `.
Each Job is planned on its own: Jobs of one file do not compete for room.

It exits with 0 if nothing would change, with 2 if something would, and with 1 if it failed.
You need the right to apply the objects; robots and tasks that you may not list are counted
and not named.`,
		Example: "  " + d.program + " plan -f demo.yaml\n  " + d.program + " plan -f demo.yaml -o json\n  kustomize build . | " + d.program + " plan -f -",
		Args: func(cmd *cobra.Command, args []string) error {
			return withStatus(exitPlanFailed, checkArgs(cobra.NoArgs)(cmd, args))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return withStatus(exitPlanFailed, err)
			}
			return withStatus(exitPlanFailed, d.withCluster(&o.conn, func(c *cluster) error { return o.runPlan(cmd.Context(), d, c) }))
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return withStatus(exitPlanFailed, err) })
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "file with Jobs, as YAML or JSON; - reads standard input; may be repeated")
	f.StringVarP(&o.output, "output", "o", "", "output format: json or yaml; defaults to text for people")
	f.BoolVar(&o.serverSide, "server-side", false, "compare as kubectl apply --server-side does")
	f.StringVar(&o.fieldManager, "field-manager", "kubectl", "name of the manager of the fields, with --server-side")
	f.StringVar(&o.server, "plan-server", "", "URL of k8s4r-manager's API, such as https://127.0.0.1:8444; defaults to the published address")
	o.conn.addFlags(f)
	completeFlag(cmd, "output", outputJSON, outputYAML)
	return cmd
}

func (o *planOptions) check() error {
	return errors.Join(
		errorUnless(len(o.files) > 0, "--filename: name a file, or - for standard input"),
		checkFormat(o.output, outputJSON, outputYAML),
		errorUnless(o.fieldManager != "" && len(o.fieldManager) <= 128, "--field-manager: must have 1 to 128 characters"),
	)
}

// runPlan plans all objects of the files. It plans none if one cannot be read.
func (o *planOptions) runPlan(ctx context.Context, d *deps, c *cluster) error {
	var objects []*unstructured.Unstructured
	for _, file := range o.files {
		read, err := o.readObjects(file)
		if err != nil {
			return err
		}
		objects = append(objects, read...)
	}
	if n := len(objects); n == 0 || n > maxPlanObjects {
		return fmt.Errorf("--filename: has %d objects, must have 1 to %d", n, maxPlanObjects)
	}
	plans := []plan.Plan{}
	for _, object := range objects {
		if object.GetNamespace() == "" {
			object.SetNamespace(c.namespace)
		}
		p, err := o.planObject(ctx, c, object)
		if err != nil {
			return fmt.Errorf("Job %s: %w", object.GetName(), err)
		}
		plans = append(plans, p)
	}
	if err := o.print(d.Out, plans); err != nil {
		return err
	}
	for i := range plans {
		if plans[i].HasChanges() {
			return &outcomeError{exitPlanChanges}
		}
	}
	return nil
}

// readObjects reads the documents of a file.
func (o *planOptions) readObjects(file string) (objects []*unstructured.Unstructured, err error) {
	from := o.stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		defer opened.Close()
		from = opened
	}
	limited := &io.LimitedReader{R: from, N: maxPlanBytes + 1}
	documents := utilyaml.NewYAMLOrJSONDecoder(limited, 4096)
	for {
		var object unstructured.Unstructured
		err := documents.Decode(&object.Object)
		switch {
		case limited.N <= 0:
			return nil, fmt.Errorf("%s: is larger than %d MiB; plan its objects in several files", file, maxPlanBytes>>20)
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case len(object.Object) == 0:
			continue // an empty document
		}
		if err := checkPlanned(&object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		objects = append(objects, &object)
	}
}

// checkPlanned refuses an object that cannot be planned.
func checkPlanned(object *unstructured.Unstructured) error {
	if object.GetAPIVersion() != robotv1.GroupVersion.String() || object.GetKind() != jobKind.kind {
		return fmt.Errorf("%s %s of %s: only a Job of %s can be planned; put other objects into files of their own, and use kubectl diff for them",
			object.GetKind(), object.GetName(), object.GetAPIVersion(), robotv1.GroupVersion)
	}
	return errorUnless(object.GetName() != "", "metadata.name: must be set; a plan compares the Job with the one of this name")
}

// planObject applies an object in a dry run, and asks the manager what would follow.
func (o *planOptions) planObject(ctx context.Context, c *cluster, object *unstructured.Unstructured) (plan.Plan, error) {
	if err := o.applyDry(ctx, c, object); err != nil {
		return plan.Plan{}, err
	}
	object.SetManagedFields(nil)
	data, err := json.Marshal(object)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("encode: %w", err)
	}
	return c.plan(ctx, o.server, data)
}

// applyDry replaces an object by what the API server would store.
func (o *planOptions) applyDry(ctx context.Context, c *cluster, object *unstructured.Unstructured) error {
	if o.serverSide {
		//nolint:staticcheck // its replacement takes typed apply configurations only
		return c.Patch(ctx, object, client.Apply, client.DryRunAll, client.FieldOwner(o.fieldManager))
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(object), live)
	if apierrors.IsNotFound(err) {
		if err := setLastApplied(object); err != nil {
			return err
		}
		return c.Create(ctx, object, client.DryRunAll)
	}
	if err != nil {
		return err
	}
	patch, err := threeWayPatch(live, object)
	if err != nil {
		return err
	}
	*object = *live
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
}

// threeWayPatch returns the patch that kubectl apply sends: fields that the last applied file had, and the new one
// does not, are removed.
func threeWayPatch(live, wanted *unstructured.Unstructured) ([]byte, error) {
	last := []byte(live.GetAnnotations()[lastApplied])
	current, err := json.Marshal(live)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(last) > 0 { // otherwise kubectl apply adds the annotation, which is no change that a user asked for
		if err := setLastApplied(wanted); err != nil {
			return nil, err
		}
	}
	modified, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare with the last applied file: %w", err)
	}
	return patch, nil
}

// lastApplied is the annotation in which kubectl apply keeps the file.
const lastApplied = corev1.LastAppliedConfigAnnotation

// setLastApplied sets the annotation as kubectl apply does.
func setLastApplied(object *unstructured.Unstructured) error {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, lastApplied)
	object.SetAnnotations(annotations)
	data, err := object.MarshalJSON() // ends with a line feed, as kubectl's does
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	annotations[lastApplied] = string(data)
	object.SetAnnotations(annotations)
	return nil
}

func (o *planOptions) print(w io.Writer, plans []plan.Plan) error {
	if o.output != "" {
		return encodeObject(w, o.output, map[string]any{"plans": plans})
	}
	for i := range plans {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writePlan(w, &plans[i])
	}
	return nil
}
