package raycluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// model is an API server and the kubelets of one cluster's Pods. The planner sees the Pods as they
// were some steps ago, as in a cache.
type model struct {
	t       fataler
	now     time.Time
	opts    Options
	cluster *rayv1.RayCluster
	pods    map[string]*corev1.Pod
	history []map[string]*corev1.Pod // states that the cache may show, the oldest first
	serial  int
	rolls   bool // the spec was changed in a way that breaks the cluster under strategy None

	// The controller's memory.
	memory   memory
	creating map[string]types.UID // Pods that the cache may not show
	flights  []flight
	delay    int            // of the next flights
	parallel int            // how many creates are in flight when the controller crashes
	late     map[string]int // by group: workers created that way, after another controller had taken over
	deleting map[types.UID]bool
}

// flight is a create that was in flight when the controller crashed. It arrives after some more
// passes of the next controller.
type flight struct {
	pod    *corev1.Pod
	passes int
}

type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

func newModel(t fataler, c *rayv1.RayCluster) *model {
	m := &model{t: t, now: t0, opts: testOptions(), cluster: c, pods: map[string]*corev1.Pod{}, late: map[string]int{}}
	m.restart()
	m.snapshot()
	return m
}

// restart discards the controller's memory, and fills its cache again.
func (m *model) restart() {
	m.memory, m.creating, m.deleting = newMemory(), map[string]types.UID{}, map[types.UID]bool{}
	m.history = m.history[max(0, len(m.history)-1):]
}

func (m *model) snapshot() {
	all := map[string]*corev1.Pod{}
	for name, pod := range m.pods {
		all[name] = pod.DeepCopy()
	}
	m.history = append(m.history, all)
}

// observeInput returns what observe reads from a lagging cache.
func (m *model) observeInput(lag int) Input {
	m.history = m.history[max(0, len(m.history)-1-lag):] // a cache never goes back
	view := m.history[0]
	w := Input{Cluster: m.cluster.DeepCopy(), Creating: map[string]bool{}, Deleting: map[types.UID]bool{}, MissingNodes: map[string]bool{"gone": true}}
	for _, name := range slices.Sorted(maps.Keys(view)) {
		pod := view[name]
		if !belongsToCluster(m.cluster, pod) {
			continue
		}
		w.Pods = append(w.Pods, pod)
		if m.creating[name] == pod.UID {
			delete(m.creating, name)
		}
		if pod.DeletionTimestamp != nil {
			delete(m.deleting, pod.UID)
		}
	}
	for name, uid := range m.creating {
		if m.shownGone(name, uid) {
			delete(m.creating, name)
		} else {
			w.Creating[name] = true
		}
	}
	maps.DeleteFunc(m.deleting, func(uid types.UID, _ bool) bool { return !m.everShows(uid) })
	maps.Copy(w.Deleting, m.deleting)
	w.Generations = generationsOf(w.Cluster)
	m.memory.recordPods(w.Pods, w.Generations)
	m.memory.fillInput(m.now, &w)
	return w
}

// shownGone reports whether the cache has shown the Pod and its deletion.
func (m *model) shownGone(name string, uid types.UID) bool {
	pod := m.pods[name]
	return !m.everShows(uid) && len(m.history) == 1 && (pod == nil || pod.UID != uid)
}

func (m *model) everShows(uid types.UID) bool {
	for _, view := range m.history {
		for _, pod := range view {
			if pod.UID == uid {
				return true
			}
		}
	}
	return false
}

// reconcileOnce runs the controller with a lagging cache. If diesAfter is not negative, it crashes
// after that many writes and restarts. It reports whether there was anything to do.
func (m *model) reconcileOnce(lag, diesAfter int) bool {
	w := m.observeInput(lag)
	s := Plan(m.now, m.opts, w)
	for _, r := range s.Rejections {
		m.t.Fatalf("rejected: %s", r.Message)
	}
	acts := m.acts(w, s)
	dies := diesAfter >= 0 && diesAfter < len(acts)
	var open []*corev1.Pod
	if dies {
		open, acts = m.openCreates(acts[diesAfter:]), acts[:diesAfter]
	}
	for _, act := range acts {
		act.do()
	}
	m.deliverCreates(1)
	m.snapshot()
	if dies {
		for _, pod := range open {
			m.flights = append(m.flights, flight{pod, m.delay})
		}
		m.restart()
	}
	return len(acts) > 0
}

// openCreates returns the creates that are in flight when the controller crashes before these writes:
// m.parallel of those that it sends at once. A head is created alone.
func (m *model) openCreates(acts []act) (open []*corev1.Pod) {
	for _, a := range acts {
		if a.creates == nil || isHead(a.creates) && len(open) > 0 || len(open) == m.parallel {
			return open
		}
		if open = append(open, a.creates); isHead(a.creates) {
			return open
		}
	}
	return open
}

// deliverCreates applies the creates in flight that arrive within so many passes. Another controller
// is running already.
func (m *model) deliverCreates(passes int) {
	all := m.flights
	m.flights = nil
	for _, f := range all {
		if f.passes -= passes; f.passes < 0 {
			m.deliverCreate(f.pod)
		} else {
			m.flights = append(m.flights, f)
		}
	}
}

func (m *model) deliverCreate(pod *corev1.Pod) {
	if m.pods[pod.Name] != nil {
		return
	}
	for _, other := range m.podsOfGroup(pod.Labels[rayv1.LabelGroup]) {
		if slotOf(other) == slotOf(pod) && other.Labels[rayv1.LabelHostIndex] == pod.Labels[rayv1.LabelHostIndex] {
			m.t.Fatalf("Pod %s is created in the slot of %s", pod.Name, other.Name)
		}
	}
	m.put(pod)
	if !isHead(pod) {
		m.late[pod.Labels[rayv1.LabelGroup]]++
	}
}

// act is one write. If it creates a Pod, creates is that Pod.
type act struct {
	do      func()
	creates *corev1.Pod
}

// acts returns the writes of the actions in their order.
func (m *model) acts(w Input, s Actions) []act {
	var acts []act
	for _, r := range s.Restamp {
		acts = append(acts, act{do: func() {
			if is := m.pods[r.Pod.Name]; is != nil && is.UID == r.Pod.UID {
				maps.Copy(is.Annotations, r.Annotations)
			}
		}})
	}
	if s.Forget {
		m.creating, m.deleting = map[string]types.UID{}, map[types.UID]bool{}
	}
	for _, d := range s.Delete {
		acts = append(acts, act{do: func() { m.deletedByUs(d) }})
	}
	if (s.Generations != nil || len(s.Create) > 0) && m.shown(w) {
		if s.Generations != nil {
			acts = append(acts, act{do: func() {
				m.cluster.Annotations = map[string]string{rayv1.AnnotationRefilled: formatGenerations(s.Generations)}
			}})
		}
		for _, pod := range s.Create {
			acts = append(acts, act{do: func() { m.create(pod) }, creates: pod})
		}
	}
	status := ComputeStatus(m.now, m.opts, w, s, nil)
	if due, needed := statusDue(m.opts.Tick, m.memory.statusTimes, &m.cluster.Status, status); needed && !due.After(m.now) {
		acts = append(acts, act{do: func() { m.write(status) }})
	}
	return acts
}

// shown is the controller's check of its cache before its first create.
func (m *model) shown(w Input) bool {
	if !m.memory.readBack.IsZero() {
		return true
	}
	for _, pod := range m.pods {
		known := slices.ContainsFunc(w.Pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
		if belongsToCluster(m.cluster, pod) && !known {
			return false
		}
	}
	m.memory.readBack = m.now
	return true
}

func (m *model) write(s *rayv1.RayClusterStatus) {
	for _, c := range s.Conditions {
		if !reasonPattern.MatchString(c.Reason) || c.Status == "" {
			m.t.Fatalf("the API server rejects %+v", c)
		}
		if !isListedCondition(c) {
			m.t.Fatalf("no row of the table of conditions is %+v", c)
		}
	}
	m.memory.statusTimes.recordWrite(m.now, isUrgentChange(&m.cluster.Status, s))
	m.cluster.Status = *s.DeepCopy()
}

func (m *model) deletedByUs(d Deletion) {
	if !belongsToCluster(m.cluster, d.Pod) {
		m.t.Fatalf("Pod %s of another cluster is deleted", d.Pod.Name)
	}
	m.deleting[d.Pod.UID] = true
	if d.Retry {
		s := slotOf(d.Pod)
		m.memory.retries[s] = countRetries(m.memory.retries[s], d.Pod, m.now)
	}
	m.delete(d.Pod)
}

func (m *model) delete(pod *corev1.Pod) {
	is := m.pods[pod.Name]
	if is == nil || is.UID != pod.UID || is.DeletionTimestamp != nil {
		return
	}
	if is.Spec.NodeName == "" || is.Status.Phase == corev1.PodFailed || is.Status.Phase == corev1.PodSucceeded {
		delete(m.pods, pod.Name)
		return
	}
	at := metav1.NewTime(m.now.Add(30 * time.Second))
	is.DeletionTimestamp = &at
}

// create fails if the name is taken.
func (m *model) create(pod *corev1.Pod) {
	if is := m.pods[pod.Name]; is != nil {
		if metav1.IsControlledBy(is, m.cluster) {
			m.creating[pod.Name] = is.UID
		} else {
			m.memory.takenNames[pod.Name] = true
		}
		return
	}
	made := m.put(pod)
	m.memory.statusTimes.created = m.now
	m.creating[pod.Name] = made.UID
	m.checkLimits(made)
}

func (m *model) put(pod *corev1.Pod) *corev1.Pod {
	made := pod.DeepCopy()
	m.flights = slices.DeleteFunc(m.flights, func(f flight) bool { return f.pod.Name == pod.Name }) // AlreadyExists
	m.serial++
	made.UID, made.CreationTimestamp = types.UID(fmt.Sprint(m.serial)), metav1.NewTime(m.now)
	made.Status.Phase = corev1.PodPending
	m.pods[pod.Name] = made
	return made
}

// checkLimits checks that there are never more Pods, except lost ones, than wanted. A worker from a
// delayed create may be one too many until the next reconcile, because its slot may have been given
// up. A head may not.
func (m *model) checkLimits(made *corev1.Pod) {
	there := len(m.podsOfGroup(made.Labels[rayv1.LabelGroup]))
	want := 1
	if !isHead(made) {
		_, pods := build.DesiredReplicas(m.group(made.Labels[rayv1.LabelGroup]))
		want = int(pods) + m.late[made.Labels[rayv1.LabelGroup]]
	}
	if there > want {
		m.t.Fatalf("Pod %s is created, but there are %d of %s, want %d", made.Name, there, made.Labels[rayv1.LabelGroup], want)
	}
}

func (m *model) group(name string) *rayv1.WorkerGroupSpec {
	for i := range m.cluster.Spec.WorkerGroupSpecs {
		if g := &m.cluster.Spec.WorkerGroupSpecs[i]; g.GroupName == name {
			return g
		}
	}
	m.t.Fatalf("a Pod is created for unknown group %s", name)
	return nil
}

// podsOfGroup returns the Pods of a group that are not lost.
func (m *model) podsOfGroup(group string) []*corev1.Pod {
	p := &plan{now: m.now, Input: Input{MissingNodes: map[string]bool{"gone": true}}}
	var all []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if pod := m.pods[name]; belongsToCluster(m.cluster, pod) && pod.Labels[rayv1.LabelGroup] == group && p.isPresent(pod) {
			all = append(all, pod)
		}
	}
	return all
}

// changePod changes one Pod as its kubelet or its user might.
func (m *model) changePod(pod *corev1.Pod, what string) {
	switch {
	case what == "start" && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil && m.canWork(pod):
		pod.Spec.NodeName = "node"
		setRunning(pod, true)
	case what == "unready" && pod.Status.Phase == corev1.PodRunning:
		setRunning(pod, false)
	case what == "fail" && pod.DeletionTimestamp == nil:
		pod.Status.Phase = corev1.PodFailed
	case what == "exit" && pod.Status.Phase == corev1.PodRunning:
		setRunning(pod, false)
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	case what == "delete":
		m.delete(pod)
	case what == "lose" && pod.Spec.NodeName != "":
		pod.Spec.NodeName = "gone"
		m.delete(pod)
	case what == "vanish":
		delete(m.pods, pod.Name)
	case what == "end" && pod.DeletionTimestamp != nil:
		delete(m.pods, pod.Name)
	}
	m.snapshot()
}

// noRayImage is an image without Ray.
const noRayImage = "no-ray"

// canWork reports whether a Pod can work: a worker needs a working head at the port that it was
// given.
func (m *model) canWork(pod *corev1.Pod) bool {
	if isHead(pod) {
		return pod.Spec.Containers[0].Image != noRayImage
	}
	return slices.ContainsFunc(m.podsOfGroup(rayv1.HeadGroup), func(head *corev1.Pod) bool {
		return head.DeletionTimestamp == nil && isReady(head) && rayPort(head) == rayPort(pod)
	})
}

func rayPort(pod *corev1.Pod) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == rayv1.EnvRayPort {
			return e.Value
		}
	}
	return ""
}

// edit changes the spec as a user or an autoscaler might, once all creates have arrived: a request
// takes less time.
func (m *model) edit(t *rapid.T) {
	m.deliverCreates(math.MaxInt)
	spec := &m.cluster.Spec
	g := &spec.WorkerGroupSpecs[rapid.IntRange(0, len(spec.WorkerGroupSpecs)-1).Draw(t, "group")]
	switch rapid.SampledFrom([]string{"replicas", "replicas", "choose", "suspend", "suspend group", "image", "head image", "strategy", "groups", "hosts", "port", "no head image"}).Draw(t, "edit") {
	case "replicas":
		g.Replicas = ptr.To(rapid.Int32Range(0, 4).Draw(t, "replicas"))
	case "choose":
		g.ScaleStrategy.WorkersToDelete = nil
		for _, name := range slices.Sorted(maps.Keys(m.pods)) {
			if rapid.IntRange(0, 3).Draw(t, "chosen") == 0 {
				g.ScaleStrategy.WorkersToDelete = append(g.ScaleStrategy.WorkersToDelete, name)
			}
		}
	case "suspend":
		spec.Suspend = ptr.To(rapid.Bool().Draw(t, "suspend"))
	case "suspend group":
		g.Suspend = ptr.To(!hasAutoscaler(m.cluster) && rapid.Bool().Draw(t, "suspend"))
	case "image":
		m.serial++
		g.Template.Spec.Containers[0].Image = fmt.Sprint("image:", m.serial)
	case "hosts":
		g.NumOfHosts = rapid.Int32Range(1, 2).Draw(t, "hosts")
	case "head image":
		m.serial++
		spec.HeadGroupSpec.Template.Spec.Containers[0].Image = fmt.Sprint("image:", m.serial)
	case "port":
		m.rolls = true
		spec.HeadGroupSpec.RayStartParams = map[string]string{"port": rapid.SampledFrom([]string{"6379", "6380"}).Draw(t, "port")}
	case "no head image":
		m.rolls = true
		spec.HeadGroupSpec.Template.Spec.Containers[0].Image = noRayImage
	case "strategy":
		kind := rapid.SampledFrom([]rayv1.UpgradeType{rayv1.UpgradeNone, rayv1.UpgradeRecreate, rayv1.UpgradeRollingUpdate}).Draw(t, "type")
		spec.UpgradeStrategy = &rayv1.RayClusterUpgradeStrategy{Type: &kind}
	case "groups":
		if len(spec.WorkerGroupSpecs) > 1 {
			spec.WorkerGroupSpecs = spec.WorkerGroupSpecs[:1]
		} else {
			spec.WorkerGroupSpecs = append(spec.WorkerGroupSpecs, testGroup("b", 1, 2))
		}
	}
}

// Workers that wait for the head and a head that waits for the workers must not block each other,
// whatever was broken before and whatever changes.
func TestPlan_RollingUpdateCompletes(t *testing.T) {
	image := func(is string) func(*rayv1.RayCluster) {
		return func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image = is }
	}
	for name, edits := range map[string][]func(*rayv1.RayCluster){
		"a head that does not start is fixed": {image(noRayImage), image("fixed")},
		"and the workers change meanwhile":    {image(noRayImage), newImage, image("fixed")},
		"another port":                        {newPort},
		"another port, and back":              {newPort, func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.RayStartParams = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, testCluster(testGroup("a", 4, 1), testGroup("b", 2, 2)))
			strategy(rayv1.UpgradeRollingUpdate)(m.cluster)
			m.newForeignPod()
			m.settle()
			for _, edit := range edits {
				edit(m.cluster)
				for range 10 {
					m.pass()
				}
			}
			m.settle()
		})
	}
}

// One edit of an adopted cluster sets RollingUpdate and changes templates: all Pods are replaced. The
// takeover alone replaces none.
func TestPlan_AdoptedClusterRollsAfterOneEdit(t *testing.T) {
	newPodsEnv := func(c *rayv1.RayCluster) {
		for _, t := range []*corev1.PodTemplateSpec{&c.Spec.HeadGroupSpec.Template, &c.Spec.WorkerGroupSpecs[0].Template} {
			t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		}
	}
	newImages := func(c *rayv1.RayCluster) { newImage(c); newHeadImage(c) }
	for _, c := range []struct {
		name           string
		edit           func(*rayv1.RayCluster)
		beforeTakeover bool
	}{
		{"new images", newImages, false},
		{"new environment", newPodsEnv, false},
		{"new images, before the takeover", newImages, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newModel(t, testCluster(testGroup("a", 4, 1)))
			m.newForeignPod()
			m.settle()
			old := map[types.UID]bool{}
			for _, pod := range m.podsOfGroup(rayv1.HeadGroup) {
				ofKubeRay(pod)
			}
			for _, pod := range m.podsOfGroup("a") {
				ofKubeRay(pod)
			}
			for _, pod := range m.pods {
				old[pod.UID] = belongsToCluster(m.cluster, pod)
			}
			m.restart()
			m.snapshot()
			if !c.beforeTakeover {
				m.settle()
				for _, pod := range m.pods {
					if _, was := old[pod.UID]; !was {
						t.Errorf("the takeover creates Pod %s", pod.Name)
					}
				}
			}
			strategy(rayv1.UpgradeRollingUpdate)(m.cluster)
			c.edit(m.cluster)
			m.settle()
			for _, pod := range m.pods {
				if old[pod.UID] {
					t.Errorf("Pod %s is not replaced: %v", pod.Name, pod.Annotations)
				}
			}
		})
	}
}

// The spec changes, Pods fail, are deleted or lost, caches lag and controllers crash. Afterwards
// all failures end: then exactly the wanted Pods exist and replicas are complete. There were never
// two heads, and the Pods of another cluster are unchanged.
func TestPlan_ConvergesAfterAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, testCluster(testGroup("a", 2, 1), testGroup("b", 1, 2)))
		m.cluster.Spec.EnableInTreeAutoscaling = ptr.To(rapid.Bool().Draw(t, "autoscaler"))
		foreignPod := m.newForeignPod()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second)
			names := slices.Sorted(maps.Keys(m.pods))
			names = slices.DeleteFunc(names, func(name string) bool { return name == foreignPod.Name })
			switch what := rapid.SampledFrom([]string{"look", "look", "look", "die", "edit", "start", "start", "unready", "fail", "exit", "delete", "lose", "vanish", "end"}).Draw(t, "what"); {
			case what == "look":
				m.reconcileOnce(rapid.IntRange(0, 4).Draw(t, "lag"), -1)
			case what == "die":
				m.delay, m.parallel = rapid.IntRange(0, 1).Draw(t, "delay"), rapid.IntRange(1, 3).Draw(t, "parallel")
				m.reconcileOnce(rapid.IntRange(0, 4).Draw(t, "lag"), rapid.IntRange(0, 4).Draw(t, "writes"))
			case what == "edit":
				m.edit(t)
			case len(names) > 0:
				m.changePod(m.pods[rapid.SampledFrom(names).Draw(t, "pod")], what)
			}
		}
		m.settle()
		if !equality.Semantic.DeepEqual(m.pods[foreignPod.Name], foreignPod) {
			t.Fatalf("Pod of another cluster is %+v", m.pods[foreignPod.Name])
		}
	})
}

// newForeignPod returns a Pod of an earlier cluster of the same name.
func (m *model) newForeignPod() *corev1.Pod {
	other := m.cluster.DeepCopy()
	other.UID = "other"
	g := &other.Spec.WorkerGroupSpecs[0]
	pod := build.WorkerPod(&m.opts.Build, other, g, build.Replica{})
	pod.Name, pod.UID = "foreign-pod", "foreign-pod"
	m.pods[pod.Name] = pod
	m.snapshot()
	return pod.DeepCopy()
}

// settle runs without failures until nothing is left to do, and checks the Pods.
func (m *model) settle() {
	m.t.Helper()
	m.cluster.Spec.Suspend = ptr.To(false)
	m.cluster.Spec.EnableInTreeAutoscaling = nil
	if m.rolls {
		strategy(rayv1.UpgradeRollingUpdate)(m.cluster)
	}
	if ray := &m.cluster.Spec.HeadGroupSpec.Template.Spec.Containers[0]; ray.Image == noRayImage {
		ray.Image = "mended"
	}
	for i := range m.cluster.Spec.WorkerGroupSpecs {
		m.cluster.Spec.WorkerGroupSpecs[i].ScaleStrategy.WorkersToDelete = nil
	}
	idle := 0
	for range 400 {
		if m.pass() {
			idle = 0
		} else if idle++; idle == 3 {
			m.checkPods()
			return
		}
	}
	m.t.Fatalf("still changing after 400 minutes: %+v", m.cluster.Status)
}

// pass runs one minute without failures. It reports whether the controller had anything to do.
func (m *model) pass() bool {
	m.now = m.now.Add(time.Minute)
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if pod := m.pods[name]; belongsToCluster(m.cluster, pod) {
			m.recover(pod)
		}
	}
	return m.reconcileOnce(0, -1)
}

func (m *model) recover(pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil:
		m.changePod(pod, "end")
	case pod.Status.Phase == corev1.PodPending:
		m.changePod(pod, "start")
	case pod.Status.Phase == corev1.PodRunning && (rayEnded(pod) == nil || pod.Spec.RestartPolicy != corev1.RestartPolicyNever):
		setRunning(pod, m.canWork(pod))
		m.snapshot()
	}
}

// checkPods checks the Pods after everything has settled.
func (m *model) checkPods() {
	m.t.Helper()
	if m.cluster.Status.State != rayv1.StateReady || !meta.IsStatusConditionTrue(m.cluster.Status.Conditions, rayv1.RayClusterProvisioned) {
		m.t.Fatalf("final status is %+v", m.cluster.Status)
	}
	all := len(m.podsOfGroup(rayv1.HeadGroup))
	if all != 1 {
		m.t.Fatalf("there are %d heads", all)
	}
	for i := range m.cluster.Spec.WorkerGroupSpecs {
		all += m.checkGroup(&m.cluster.Spec.WorkerGroupSpecs[i])
	}
	if all != len(m.pods)-1 {
		m.t.Fatalf("want %d Pods, have %v, including one of another cluster", all, slices.Sorted(maps.Keys(m.pods)))
	}
	m.checkTemplates()
}

func (m *model) checkGroup(g *rayv1.WorkerGroupSpec) int {
	m.t.Helper()
	_, want := build.DesiredReplicas(g)
	pods := m.podsOfGroup(g.GroupName)
	slots, names := map[string]bool{}, map[string]int{}
	for _, pod := range pods {
		slots[pod.Labels[rayv1.LabelReplicaIndex]+"/"+pod.Labels[rayv1.LabelHostIndex]] = true
		names[pod.Labels[rayv1.LabelReplicaName]]++
	}
	if len(pods) != int(want) || len(slots) != int(want) {
		m.t.Fatalf("group %s: %d Pods in %d slots, want %d", g.GroupName, len(pods), len(slots), want)
	}
	if g.NumOfHosts == 1 && want > 0 && names[""] != int(want) {
		m.t.Fatalf("group %s has one host, but its Pods belong to replicas %v", g.GroupName, names)
	}
	if g.NumOfHosts > 1 {
		for name, n := range names {
			if n != int(g.NumOfHosts) {
				m.t.Fatalf("replica %s has %d hosts", name, n)
			}
		}
	}
	return len(pods)
}

// checkTemplates checks that changes were applied as the strategy requires.
func (m *model) checkTemplates() {
	m.t.Helper()
	p := &plan{c: m.cluster, now: m.now, index: newPodIndex(nil)}
	for _, pod := range m.pods {
		if !belongsToCluster(m.cluster, pod) {
			continue
		}
		switch p.upgradeStrategy() {
		case rayv1.UpgradeRollingUpdate:
			if p.isOutdated(pod) {
				m.t.Fatalf("Pod %s has an older template", pod.Name)
			}
		case rayv1.UpgradeRecreate:
			if isHead(pod) && pod.Annotations[rayv1.AnnotationRecreateHash] != build.RecreateHash(m.cluster) {
				m.t.Fatalf("head %s has an older spec", pod.Name)
			}
		}
	}
}

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func testOptions() Options {
	return Options{Build: build.DefaultSettings(), Gates: DefaultGates()}.withDefaults()
}

func testTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "ray", Image: "ray"}}}}
}

func testGroup(name string, replicas, hosts int32) rayv1.WorkerGroupSpec {
	return rayv1.WorkerGroupSpec{
		GroupName: name, Replicas: &replicas, MinReplicas: ptr.To[int32](0), MaxReplicas: ptr.To[int32](100),
		NumOfHosts: hosts, Template: testTemplate(),
	}
}

func testCluster(groups ...rayv1.WorkerGroupSpec) *rayv1.RayCluster {
	return &rayv1.RayCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", Generation: 1, CreationTimestamp: metav1.NewTime(t0)},
		Spec:       rayv1.RayClusterSpec{HeadGroupSpec: rayv1.HeadGroupSpec{Template: testTemplate()}, WorkerGroupSpecs: groups},
	}
}

// setRunning sets the phase Running.
func setRunning(pod *corev1.Pod, ready bool) {
	pod.Status.Phase = corev1.PodRunning
	is := corev1.ConditionFalse
	if ready {
		is = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
}

// names returns the names of Pods, for messages.
func names(pods []*corev1.Pod) string {
	all := make([]string, len(pods))
	for i, pod := range pods {
		all[i] = pod.Name
	}
	return strings.Join(all, " ")
}
