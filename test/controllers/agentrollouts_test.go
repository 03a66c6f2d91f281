package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	controller "k8s4r.io/k8s4r/internal/controllers/rollout"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestRollout_UpdatesAgentsInWaves(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, manager.Config{Controllers: []string{controller.Name}}, caseNamespaces("agents", 3)...)
	runCases(t, "agents", s.namespace, []testCase[*space]{
		{"waves, a failure with its retry, and a revert after the end", updatesAgents},
		{"a newer one supersedes it", supersedesAgents},
		{"only users with the verb updateagents create one, and its target has one form", authorizesAgents},
	})
}

// agentFleet is a set of Robots whose status the test writes, as the server does.
type agentFleet struct {
	*space
	broken map[string]bool // agents whose first try fails
}

func (f *agentFleet) addRobot(name, version string) {
	f.Helper()
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: name}}
	r.Spec.RobotID = name
	f.must(f.Create(f.Context(), r))
	f.updateRobotStatus(name, func(st *v1alpha1.RobotStatus) {
		st.Phase, st.DeviceInfo = string(lifecycle.RobotOnline), &v1alpha1.DeviceInfo{Platform: &v1alpha1.Platform{OS: "linux", Arch: "arm64"}}
		st.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV2, Version: version, UpdatesItself: true}
	})
}

const agentRollout = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {target: {kind: Agent, agent: {version: v2, artifacts: [` +
	`{os: linux, arch: arm64, source: "https://example.com/agent", size: 5, sha256: "%s", signature: "%s=="}]}}, retry: 1, waves: [{name: canary, count: 1}, {name: rest, percent: 100, approval: manual}]}}`

func (s *space) newAgentRollout(change func(string) string) *unstructured.Unstructured {
	text := fmt.Sprintf(agentRollout, strings.Repeat("0a", 32), strings.Repeat("A", 86))
	if change != nil {
		text = change(text)
	}
	return s.named(text)
}

// sendHeartbeat writes a heartbeat of a robot each second. The server has received it 5 seconds ago, so it counts as
// contact at once.
func (f *agentFleet) sendHeartbeat(r *v1alpha1.Robot) {
	f.Helper()
	at := metav1.NewMicroTime(time.Now().Add(-5 * time.Second))
	if last := r.Status.LastHeartbeatTime; last != nil && at.Sub(last.Time) < time.Second {
		return
	}
	f.updateRobotStatus(r.Name, func(st *v1alpha1.RobotStatus) { st.LastHeartbeatTime = &at })
}

// act lets the robots send heartbeats, and act by their orders.
func (f *agentFleet) act(r *v1alpha1.Rollout) error {
	var robots v1alpha1.RobotList
	if err := f.List(f.Context(), &robots, client.InNamespace(f.name)); err != nil {
		return err
	}
	for i := range robots.Items {
		robot := &robots.Items[i]
		f.sendHeartbeat(robot)
		o := rollout.FindAgentOrder(r, robot)
		if o == nil {
			continue
		}
		u := &v1alpha1.AgentUpdate{Rollout: string(o.Rollout), Try: o.Try, IsRevert: o.IsRevert, Version: o.Version, State: v1alpha1.AgentUpdateSettled}
		version := o.Version
		switch {
		case o.IsRevert:
			version = "v1"
		case f.broken[robot.Name] && o.Try == 0:
			u.State, u.Message, version = v1alpha1.AgentUpdateFailed, "the test failed", robot.Status.Agent.Version
		}
		f.updateRobotStatus(robot.Name, func(st *v1alpha1.RobotStatus) { st.Agent.Update, st.Agent.Version = u, version })
	}
	return nil
}

// await lets the robots act until the Rollout is in a phase.
func (f *agentFleet) await(name, phase string) *v1alpha1.Rollout {
	f.Helper()
	var r v1alpha1.Rollout
	testkit.EventuallyNoError(f, waitTimeout, "rollout "+name+" is "+phase, func() error {
		if err := f.Get(f.Context(), f.key(name), &r); err != nil {
			return err
		}
		if err := f.act(&r); err != nil {
			return err
		}
		if r.Status.Phase != phase {
			return fmt.Errorf("%s: %s", r.Status.Phase, r.Status.Message)
		}
		return nil
	})
	return &r
}

// withVersion counts the robots with a version.
func (f *agentFleet) withVersion(version string) (n int) {
	f.Helper()
	var robots v1alpha1.RobotList
	f.must(f.List(f.Context(), &robots, client.InNamespace(f.name)))
	for i := range robots.Items {
		if robots.Items[i].Status.Agent.Version == version {
			n++
		}
	}
	return n
}

func updatesAgents(s *space) {
	f := &agentFleet{space: s, broken: map[string]bool{"agents-b": true}}
	for _, name := range []string{"agents-a", "agents-b", "agents-c"} {
		f.addRobot(name, "v1")
	}
	s.must(s.Create(s.Context(), s.newAgentRollout(nil)))
	r := f.await("r", v1alpha1.RolloutWaitingForApproval)
	if r.Status.Version != "v2" || r.Status.Revision != 0 || r.Status.Counts.Total != 3 || f.withVersion("v2") != 1 {
		s.Errorf("%+v, %d robots have v2", r.Status, f.withVersion("v2"))
	}
	r.Spec.ApprovedWaves = []string{"rest"}
	s.must(s.Update(s.Context(), r))
	r = f.await("r", v1alpha1.RolloutComplete)
	retries := r.Status.Waves[0].Retries + r.Status.Waves[1].Retries
	if r.Status.Counts.Updated != 3 || f.withVersion("v2") != 3 || retries != 1 {
		s.Errorf("%+v, %d robots have v2", r.Status, f.withVersion("v2"))
	}
	r.Spec.DesiredState = v1alpha1.RolloutDesiredReverted
	s.must(s.Update(s.Context(), r))
	f.await("r", v1alpha1.RolloutReverted)
	if f.withVersion("v1") != 3 {
		s.Errorf("%d robots are back at v1", f.withVersion("v1"))
	}
}

func supersedesAgents(s *space) {
	f := &agentFleet{space: s}
	f.addRobot("agents-d", "v1")
	s.must(s.Create(s.Context(), s.newAgentRollout(nil)))
	older := f.await("r", v1alpha1.RolloutWaitingForApproval)
	testkit.Eventually(s, waitTimeout, "creation times, which have seconds, differ", func() bool { return time.Since(older.CreationTimestamp.Time) > time.Second })
	s.must(s.Create(s.Context(), s.newAgentRollout(func(text string) string {
		return strings.NewReplacer("name: r}", "name: newer}", "version: v2", "version: v3").Replace(text)
	})))
	f.await("newer", v1alpha1.RolloutWaitingForApproval)
	f.await("r", v1alpha1.RolloutSuperseded)
	if f.withVersion("v3") != 1 {
		s.Error("the newer one does not decide")
	}
}

// A user who may do all with Rollouts and Jobs, as edit allows, must not replace the agents of robots.
func authorizesAgents(s *space) {
	s.bind("edits", "editor", "k8s4r-edit")
	s.bind("admins", "admin", "k8s4r-admin")
	s.bind("edits-too", "admin", "k8s4r-edit")
	s.allow("updater", "rollouts", "create", "get", "update", "patch")
	s.allow("updater", "robots", "updateagents")
	s.allow("steerer", "rollouts", "create", "get", "update", "patch")
	awaitPolicies(s.T, s)
	editor, admin := s.as("editor"), s.as("admin")
	with := func(old, new string) *unstructured.Unstructured {
		return s.newAgentRollout(func(text string) string {
			if !strings.Contains(text, old) {
				s.Fatalf("no %s in %s", old, text)
			}
			return strings.Replace(text, old, new, 1)
		})
	}
	const refused = "you may not updateagents robots.robot.k8s4r.io in namespace"
	awaitResponses(s, []creation{
		{"editor creates one", editor, s.newAgentRollout(nil), refused},
		{"a user with other verbs on rollouts only creates one", s.as("steerer"), s.newAgentRollout(nil), refused},
		{"a user who may update agents, and not create jobs", s.as("updater"), with("name: r}, spec: {", "name: u}, spec: {desiredState: paused, "), ""},
		{"the same user creates one of a Job", s.as("updater"), s.named(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: other}, spec: {target: {name: j}, waves: [{name: a, percent: 100}]}}`), "you may not create jobs.robot.k8s4r.io"},
		{"a Job that has an agent, too", editor, with("kind: Agent,", "name: j,"), "agent: is for kind Agent only"},
		{"an agent with a name", admin, with("kind: Agent,", "kind: Agent, name: j,"), "name, revision: an Agent has none"},
		{"an agent with a revision", admin, with("kind: Agent,", "kind: Agent, revision: 2,"), "name, revision: an Agent has none"},
		{"neither", admin, s.named(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: other}, spec: {target: {kind: Agent}, waves: [{name: a, percent: 100}]}}`), "agent: is required for kind Agent"},
		{"a Job without a name", admin, s.named(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: other}, spec: {target: {kind: Job}, waves: [{name: a, percent: 100}]}}`), "name: is required"},
		{"a Job with a robotSelector", admin, s.named(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: other}, spec: {target: {name: j}, robotSelector: {site: lab}, waves: [{name: a, percent: 100}]}}`), "robotSelector: is for target.kind Agent only"},
		{"a file on the robot", admin, with("https://example.com/agent", "file:///tmp/agent"), "spec.target.agent.artifacts[0].source"},
		{"a short checksum", admin, with(`sha256: "0a`, `sha256: "`), "sha256"},
		{"a huge program", admin, with("size: 5", "size: 268435457"), "size"},
		{"an approved one", admin, with("retry: 1,", "retry: 1, approvedWaves: [rest],"), "can be set only when the Rollout has found its revision"},
	})
	r := with("retry: 1,", "desiredState: paused, robotSelector: {site: lab},")
	s.must(admin.Create(s.Context(), r))
	awaitResponses(s, []change{
		{"editor resumes", editor, r, `{"spec":{"desiredState":"running"}}`, refused},
		{"editor changes the rate", editor, r, `{"spec":{"rate":{"perMinute":5}}}`, refused},
		{"editor changes maxUnavailable", editor, r, `{"spec":{"maxUnavailable":5}}`, refused},
		{"admin changes the selector", admin, r, `{"spec":{"robotSelector":{"site":"hall"}}}`, "robotSelector: cannot change"},
		{"admin removes the selector", admin, r, `{"spec":{"robotSelector":null}}`, "robotSelector: cannot change"},
		{"admin changes the version", admin, r, `{"spec":{"target":{"agent":{"version":"v3"}}}}`, "target: a Rollout changes one target"},
		{"editor turns it into one of a Job", editor, r, `{"spec":{"target":{"kind":"Job","name":"j","agent":null},"robotSelector":null}}`, "target: a Rollout changes one target"},
		{"admin resumes", admin, r, `{"spec":{"desiredState":"running"}}`, ""},
		{"editor pauses", editor, r, `{"spec":{"desiredState":"paused"}}`, ""},
		{"editor approves before it has started", editor, r, `{"spec":{"approvedWaves":["rest"]}}`, "can be set only when the Rollout has found its revision"},
		{"editor reverts", editor, r, `{"spec":{"desiredState":"reverted"}}`, refused},
		{"admin reverts", admin, r, `{"spec":{"desiredState":"reverted"}}`, ""},
		{"editor aborts", editor, r, `{"spec":{"desiredState":"aborted"}}`, ""},
	})
	job := s.named(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Rollout, metadata: {name: j}, spec: {desiredState: paused, target: {name: none}, waves: [{name: rest, percent: 100}]}}`)
	s.must(editor.Create(s.Context(), job))
	awaitResponses(s, []change{
		{"editor turns one of a Job into one of agents", editor, job, `{"spec":{"target":{"kind":"Agent","name":null,"agent":{"version":"v2","artifacts":[]}}}}`, "target"},
	})
}
