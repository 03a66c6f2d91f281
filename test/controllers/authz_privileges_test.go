package controllers

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestAuthz_PrivilegesAreRefusedInEachKind tries, for each verb and each kind that brings a task to
// a robot, each privilege of tasks with a user who has the role edit and none of them.
func TestAuthz_PrivilegesAreRefusedInEachKind(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "authz-privileges")
	s.bind("edits", "tenant", "edit")
	s.allow("tenant", "taskgroups", "create", "update", "patch") // no role of ours lets people write TaskGroups
	awaitPolicies(t, s)
	tenant := s.as("tenant")
	testkit.EventuallyNoError(s, waitTimeout, "the rights are in force", func() error {
		return s.submit(tenant, carriers["TaskGroup by hand"](harmless))
	})
	cells, leaks := 0, 0
	for kind, manifest := range carriers {
		stored := s.object(manifest(`{name: t, driver: exec, config: {execConfig: {command: x}}}`))
		stored.SetOwnerReferences(nil) // the owner does not exist
		s.must(s.Create(t.Context(), stored))
		for privilege, p := range privileged {
			for verb, err := range s.writeEachWay(tenant, stored, s.object(manifest(p.task))) {
				cells++
				if err == nil {
					leaks++
					t.Errorf("leak: %s %s with %s", verb, kind, privilege)
				} else if !isSentence(err) {
					t.Errorf("%s %s with %s: the refusal does not name the field and the way out: %v", verb, kind, privilege, err)
				}
			}
		}
	}
	testkit.RecordFigures(t, "privileges", map[string]int{"field_cells": cells, "leaks": leaks})
}

// writeEachWay returns the response to each verb that writes an object. It writes nothing.
func (s *space) writeEachWay(as client.Client, stored, want *unstructured.Unstructured) map[string]error {
	s.Helper()
	changed := stored.DeepCopy()
	changed.Object["spec"] = want.Object["spec"]
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": want.Object["spec"]}})
	s.must(err)
	return map[string]error{
		"create": as.Create(s.Context(), want.DeepCopy(), client.DryRunAll),
		"update": as.Update(s.Context(), changed, client.DryRunAll),
		"patch":  as.Patch(s.Context(), stored.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.DryRunAll),
	}
}
