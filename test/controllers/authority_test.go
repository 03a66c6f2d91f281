package controllers

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestAdmission_OperatorsCannotChangeCommands has the operator of examples/rbac, who may update
// what is there and create nothing, beside a tenant who may do both.
func TestAdmission_OperatorsCannotChangeCommands(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "site-a")
	s.example("operator.yaml")
	s.bind("edits", "tenant", "k8s4r-edit")
	s.bindEverywhere("manager", "k8s4r-manager-robots")
	s.allow("operator", "jobtemplates", "patch")
	s.allowFlows("operator")
	awaitPolicies(t, s)
	operator, tenant, itself := s.as("operator", "site-a-operators"), s.as("tenant"), s.as("manager")
	made := map[string]*unstructured.Unstructured{
		"Job":         s.object(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, spec: {taskGroups: [{name: g, tasks: [` + other + `]}]}}`),
		"JobTemplate": s.object(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: JobTemplate, spec: {taskGroups: [{name: g, tasks: [` + other + `]}]}}`),
		"Task":        s.object(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Task, spec: ` + other + `}`),
		"JobFlow":     s.object(`{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: {jobRetainPolicy: retain, flows: [{name: a}]}}`),
		"CronJobFlow": s.object(`{apiVersion: flow.k8s4r.io/v1alpha1, kind: CronJobFlow, spec: {schedule: "0 0 1 1 *", jobFlowTemplate: {spec: {jobRetainPolicy: retain, flows: [{name: a}]}}}}`),
	}
	for _, o := range made {
		s.must(s.Create(t.Context(), o))
	}
	rewritten := `[{"op":"replace","path":"/spec/taskGroups/0/tasks/0/config/execConfig/command","value":"mine"}]`
	task := `{"metadata":{"labels":{"robot.k8s4r.io/revision":"mine"}},"spec":{"config":{"execConfig":{"command":"mine"}}}}`
	forbidden := func(resource string) string { return "you may not create " + resource + " in namespace site-a; " }
	awaitResponses(s, []change{
		{"operator rewrites the command of a Job", operator, made["Job"], rewritten, forbidden("jobs.robot.k8s4r.io")},
		{"operator changes the meta of a Job's commands", operator, made["Job"], `{"spec":{"meta":{"a":"b"}}}`, forbidden("jobs.robot.k8s4r.io")},
		{"operator scales a Job", operator, made["Job"], `[{"op":"replace","path":"/spec/taskGroups/0/count","value":9}]`, forbidden("jobs.robot.k8s4r.io")},
		{"operator cancels a Job", operator, made["Job"], `{"spec":{"desiredState":"canceled"}}`, ""},
		{"operator gives a Job another priority", operator, made["Job"], `{"spec":{"priority":7}}`, ""},
		{"operator labels a Job", operator, made["Job"], `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"operator rewrites a Task that waits", operator, made["Task"], task, forbidden("tasks.robot.k8s4r.io")},
		{"operator evicts a Task", operator, made["Task"], `{"spec":{"evictAttempt":1}}`, ""},
		{"operator suspends a JobFlow", operator, made["JobFlow"], `{"spec":{"suspend":true}}`, ""},
		{"operator adds a step to a JobFlow", operator, made["JobFlow"], `{"spec":{"flows":[{"name":"a"},{"name":"b"}]}}`, forbidden("jobflows.flow.volcano.sh")},
		{"operator gives a JobFlow other params", operator, made["JobFlow"], `{"spec":{"params":{"a":"b"}}}`, forbidden("jobflows.flow.volcano.sh")},
		{"operator suspends a CronJobFlow", operator, made["CronJobFlow"], `{"spec":{"suspend":true}}`, ""},
		{"operator changes what a CronJobFlow starts", operator, made["CronJobFlow"], `{"spec":{"jobFlowTemplate":{"spec":{"flows":[{"name":"b"}]}}}}`, forbidden("cronjobflows.flow.k8s4r.io")},
		{"operator who may update templates too rewrites one", operator, made["JobTemplate"], rewritten, forbidden("jobtemplates.robot.k8s4r.io")},
		{"tenant rewrites the command of a Job", tenant, made["Job"], rewritten, ""},
		{"tenant rewrites a JobTemplate", tenant, made["JobTemplate"], rewritten, ""},
		{"tenant rewrites a Task that waits", tenant, made["Task"], task, ""},
		{"tenant adds a step to a JobFlow", tenant, made["JobFlow"], `{"spec":{"flows":[{"name":"a"},{"name":"b"}]}}`, ""},
		{"tenant changes what a CronJobFlow starts", tenant, made["CronJobFlow"], `{"spec":{"jobFlowTemplate":{"spec":{"flows":[{"name":"b"}]}}}}`, ""},
	})
	t.Run("manager rewrites a Task that waits", func(t *testing.T) {
		o := made["Task"].DeepCopy()
		o.SetLabels(map[string]string{"robot.k8s4r.io/revision": "mine"})
		s.must(unstructured.SetNestedField(o.Object, "mine", "spec", "config", "execConfig", "command"))
		testkit.EventuallyNoError(t, waitTimeout, "its right is in force", func() error { return itself.Update(t.Context(), o.DeepCopy(), client.DryRunAll) })
	})
}

// TestAdmission_ApprovalAndUnlockOfRobotsNeedVerbs has the operator of examples/rbac and the admin of a
// namespace.
func TestAdmission_ApprovalAndUnlockOfRobotsNeedVerbs(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).namespace(t, "site-a")
	s.example("operator.yaml")
	s.bind("admins", "admin", "k8s4r-admin")
	s.allow("one", "robots", "update", "patch")
	s.allow("one", "robots/rover-1", "approve")
	s.allow("unlocker", "robots", "update", "patch")
	s.allow("unlocker", "robots/rover-1", "unlock")
	s.bindEverywhere("fleet-admin", "k8s4r-admin")
	s.bindEverywhere("server", "k8s4r-server")
	awaitPolicies(t, s)
	operator, admin, one, unlocker := s.as("operator", "site-a-operators"), s.as("admin"), s.as("one"), s.as("unlocker")
	fleetAdmin, server := s.as("fleet-admin"), s.as("server")
	robot := func(id, more string) *unstructured.Unstructured {
		o := s.object(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Robot, spec: {robotId: ` + id + more + `}}`)
		o.SetName(id)
		return o
	}
	first, second := robot("rover-1", ""), robot("rover-2", ", identity: {revoked: true}, unlockMaintenance: m1")
	s.must(s.Create(t.Context(), first))
	s.must(s.Create(t.Context(), second))
	key := "sha256:" + strings.Repeat("a", 64)
	approve, revoke := `{"spec":{"identity":{"approvedKey":"`+key+`"}}}`, `{"spec":{"identity":{"revoked":true}}}`
	readmit, word := `{"spec":{"identity":null}}`, `{"metadata":{"annotations":{"robot.k8s4r.io/approved":"true"}}}`
	forbidden := func(field, id string) string {
		return field + `, and you may not approve robots.robot.k8s4r.io "` + id + `" in namespace site-a; leave it unchanged, or ask an administrator for the verb approve`
	}
	const identity, annotation = "spec.identity: selects the key that may act as the robot", "metadata.annotations[robot.k8s4r.io/approved]: approves the robot for tasks"
	unlock, unlockNext, forget := `{"spec":{"unlockMaintenance":"m1"}}`, `{"spec":{"unlockMaintenance":"m2"}}`, `{"spec":{"unlockMaintenance":null}}`
	locked := func(id string) string {
		return `spec.unlockMaintenance: ends the maintenance of the robot, and you may not unlock robots.robot.k8s4r.io "` + id + `" in namespace site-a; leave it unchanged, or ask an administrator for the verb unlock`
	}
	awaitResponses(s, []change{
		{"operator unlocks a robot", operator, first, unlock, locked("rover-1")},
		{"operator unlocks the next maintenance", operator, second, unlockNext, locked("rover-2")},
		{"operator removes an unlock", operator, second, forget, locked("rover-2")},
		{"who may approve a robot unlocks it", one, first, unlock, locked("rover-1")},
		{"who may unlock a robot approves it", unlocker, first, approve, forbidden(identity, "rover-1")},
		{"who may unlock one robot unlocks it", unlocker, first, unlock, ""},
		{"who may unlock one robot unlocks another", unlocker, second, unlockNext, locked("rover-2")},
		{"admin unlocks a robot", admin, first, unlock, ""},
		{"admin unlocks the next maintenance", admin, second, unlockNext, ""},
		{"operator approves a key", operator, first, approve, forbidden(identity, "rover-1")},
		{"operator revokes a robot", operator, first, revoke, forbidden(identity, "rover-1")},
		{"operator takes a revocation back", operator, second, readmit, forbidden(identity, "rover-2")},
		{"operator lets a robot have work", operator, first, word, forbidden(annotation, "rover-1")},
		{"operator cordons a robot", operator, first, `{"spec":{"unschedulable":true}}`, ""},
		{"operator drains a revoked robot", operator, second, `{"spec":{"drain":true}}`, ""},
		{"operator labels a robot", operator, first, `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`, ""},
		{"admin approves a key", admin, first, approve, ""},
		{"admin revokes a robot", admin, first, revoke, ""},
		{"admin takes a revocation back", admin, second, readmit, ""},
		{"admin lets a robot have work", admin, first, word, ""},
		{"who may approve one robot approves it", one, first, approve, ""},
		{"who may approve one robot approves another", one, second, approve, forbidden(identity, "rover-2")},
	})
	t.Run("server labels a robot", func(t *testing.T) {
		o := first.DeepCopy()
		s.must(unstructured.SetNestedField(o.Object, "b", "spec", "labels", "a"))
		// This permission was granted last, in all namespaces: once it has an effect, all others have.
		testkit.EventuallyNoError(t, waitTimeout, "its right is in force", func() error { return server.Update(t.Context(), o.DeepCopy(), client.DryRunAll) })
	})
	for _, c := range []creation{
		{"admin of a namespace takes an id of the cluster", admin, robot("rover-3", ""), "spec.robotId: robot ids are unique in the cluster, and you may not create robots.robot.k8s4r.io in all namespaces"},
		{"server creates one", server, robot("rover-3", ""), ""},
		{"server creates one that is approved", server, robot("rover-3", `, identity: {approvedKey: "`+key+`"}`), forbidden(identity, "rover-3")},
		{"fleet admin creates one that is approved", fleetAdmin, robot("rover-3", `, identity: {approvedKey: "`+key+`"}`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.checkDryRun(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// example applies a manifest of examples/rbac.
func (s *space) example(file string) {
	s.Helper()
	text, err := os.ReadFile("../../examples/rbac/" + file)
	s.must(err)
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else {
			s.must(err)
		}
		s.must(s.Create(s.Context(), o))
	}
}

// allowFlows lets a user patch workflows.
func (s *space) allowFlows(user string) {
	s.Helper()
	s.must(s.Create(s.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "steers-flows"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"flow.volcano.sh"}, Resources: []string{"jobflows"}, Verbs: []string{"patch"}},
			{APIGroups: []string{"flow.k8s4r.io"}, Resources: []string{"cronjobflows"}, Verbs: []string{"patch"}},
		},
	}))
	s.must(s.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "steers-flows"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "steers-flows"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}
