package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// change is a patch of an existing object by one user.
type change struct {
	name  string
	as    client.Client
	of    *unstructured.Unstructured
	patch string
	// want is part of the refusal. If empty, the change is allowed.
	want string
}

// creation is the creation of an object by one user.
type creation struct {
	name string
	as   client.Client
	of   *unstructured.Unstructured
	// want is part of the refusal. If empty, the creation is allowed.
	want string
}

// attempt is a change or a creation.
type attempt interface {
	// checkDryRun returns an error if the API server's response is not the wanted one. It writes
	// nothing, so that all attempts find the same objects.
	checkDryRun(context.Context) error
}

func (c change) checkDryRun(ctx context.Context) error {
	kind := types.MergePatchType
	if strings.HasPrefix(c.patch, "[") {
		kind = types.JSONPatchType
	}
	err := c.as.Patch(ctx, c.of.DeepCopy(), client.RawPatch(kind, []byte(c.patch)), client.DryRunAll)
	return compareResponse(c.name, c.want, err)
}

func (c creation) checkDryRun(ctx context.Context) error {
	return compareResponse(c.name, c.want, c.as.Create(ctx, c.of.DeepCopy(), client.DryRunAll))
}

// compareResponse returns an error unless err contains want, or is nil if want is empty.
func compareResponse(name, want string, err error) error {
	switch {
	case err == nil && want != "":
		return fmt.Errorf("%s: it is allowed, want %q", name, want)
	case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
		return fmt.Errorf("%s: %w, want %q", name, err, want)
	}
	return nil
}

// awaitResponses checks all attempts once policies and rights are in force: the API server watches
// each kind separately, and may observe them in any order.
func awaitResponses[A attempt](s *space, all []A) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "the policies and rights are in force", func() (err error) {
		for _, a := range all {
			err = errors.Join(err, a.checkDryRun(s.Context()))
		}
		return err
	})
}
