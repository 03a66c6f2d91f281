package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRayCluster_SurvivesKills scales fifty clusters between 0 and 20 workers while the
// manager is killed again and again in the middle of its work: at no time has a place
// two Pods, and in the end no Pod is missing, surplus or without a cluster.
func TestRayCluster_SurvivesKills(t *testing.T) {
	t.Parallel()
	const clusters, lives, most, work = 50, 8, 20, 60
	s := startServer(t).namespace(t, "kills")
	m := testkit.NewProcess(t, testkit.BinaryPath(t, "k8s4r-manager"), "--kubeconfig", s.up.Kubeconfig, "--leader-elect=false",
		"--controllers="+raycluster.Name, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	p := s.watchPlaces()
	for i := range clusters {
		s.ray(fmt.Sprintf("c%d", i), nil, rayGroup("g", 0))
	}
	for range lives {
		before := p.changes()
		m.Start()
		s.scaleAll(clusters, func() int32 { return rand.Int32N(most + 1) })
		testkit.EventuallyNoError(s, waitTimeout, "the controller makes progress", func() error { return check(p.changes() > before+work, "it has hardly begun") })
		m.Kill()
	}
	m.Start()
	testkit.EventuallyNoError(s, waitTimeout, "every cluster has its Pods", func() error { return s.checkPlaces(p) })
	// What was counted is at rest: an edit of all changes nothing but what it says.
	s.scaleAll(clusters, func() int32 { return 1 })
	testkit.EventuallyNoError(s, waitTimeout, "every cluster has one worker", func() error { return s.checkPlaces(p) })
	if twins := p.doubled(); len(twins) > 0 {
		t.Errorf("slots that had two Pods at the same time:\n%s", strings.Join(twins, "\n"))
	}
}

// scaleAll gives every cluster another number of workers, side by side.
func (s *space) scaleAll(clusters int, replicas func() int32) {
	s.Helper()
	var all sync.WaitGroup
	for i := range clusters {
		all.Go(func() {
			s.editRay(fmt.Sprintf("c%d", i), func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To(replicas()) })
		})
	}
	all.Wait()
}

// places are those of Ray's Pods: the head of a cluster, or a place in a worker group.
type places struct {
	mu    sync.Mutex
	count int
	pods  map[string]map[string]bool // the Pods in each
	past  map[string][]string        // what happened in each
	twins []string
}

// watchPlaces follows all Pods of an empty namespace. None is bound to a node, so each is gone
// when it is being deleted: no process of it can run. The API server deletes in two writes. If the
// client is killed in between, the garbage collector does the second, and the place is filled again
// once the Pod counts as lost.
func (s *space) watchPlaces() *places {
	s.Helper()
	p := &places{pods: map[string]map[string]bool{}, past: map[string][]string{}}
	var none corev1.PodList
	s.must(s.List(s.Context(), &none, client.InNamespace(s.name)))
	// The API server ends a watch of whom it finds slow, so one has to follow another.
	w, err := watchtools.NewRetryWatcherWithContext(s.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.Watch(ctx, &corev1.PodList{}, &client.ListOptions{Namespace: s.name, Raw: &o})
		},
	})
	s.must(err)
	s.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				p.take(e.Type, pod)
			}
		}
	}()
	return p
}

func placeOf(pod *corev1.Pod) string {
	return pod.Labels[rayv1.LabelCluster] + "/" + pod.Labels[rayv1.LabelGroup] + "/" + pod.Labels[rayv1.LabelReplicaIndex]
}

func (p *places) take(what watch.EventType, pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place, gone := placeOf(pod), what == watch.Deleted || pod.DeletionTimestamp != nil
	if gone != p.pods[place][pod.Name] {
		return // it was known
	}
	p.past[place] = append(p.past[place], fmt.Sprintf("%s %s as of %s", what, pod.Name, pod.ResourceVersion))
	p.count++
	if gone {
		delete(p.pods[place], pod.Name)
		return
	}
	if p.pods[place] == nil {
		p.pods[place] = map[string]bool{}
	}
	if p.pods[place][pod.Name] = true; len(p.pods[place]) > 1 {
		p.twins = append(p.twins, place)
	}
}

// changes is how many Pods have come and gone.
func (p *places) changes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *places) doubled() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, place := range p.twins {
		all = append(all, place+": "+strings.Join(p.past[place], ", "))
	}
	return all
}

// of is how many Pods each cluster has.
func (p *places) of() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := map[string]int{}
	for place, pods := range p.pods {
		if cluster, _, _ := strings.Cut(place, "/"); len(pods) > 0 {
			count[cluster] += len(pods)
		}
	}
	return count
}

// checkPlaces compares all Pods with the specs and statuses of the clusters.
func (s *space) checkPlaces(p *places) error {
	var all rayv1.RayClusterList
	if err := s.List(context.Background(), &all, client.InNamespace(s.name)); err != nil {
		return err
	}
	count := p.of()
	for _, c := range all.Items {
		if want := 1 + int(*c.Spec.WorkerGroupSpecs[0].Replicas); count[c.Name] != want {
			return fmt.Errorf("%s has %d Pods, want %d", c.Name, count[c.Name], want)
		}
		delete(count, c.Name)
	}
	return check(len(count) == 0, "there are Pods without a cluster: %v", count)
}
