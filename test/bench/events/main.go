// The program bench/events measures how long it takes from the exit of a process on a robot
// until people see it: in the events that a hundred readers follow, and in the page of a
// browser, all on a real system on this machine.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	readers = flag.Int("readers", 100, "clients that follow the stream of events")
	rounds  = flag.Int("rounds", 30, "jobs of ten tasks, one after the other")
)

const tasksOfJob = 10

// result is the last line of the output.
type result struct {
	Tasks     int     `json:"tasks"`
	Readers   int     `json:"readers"`
	DOMP50    float64 `json:"dom_p50_ms"`
	DOMP99    float64 `json:"dom_p99_ms"`
	EventP50  float64 `json:"event_p50_ms"`
	EventP99  float64 `json:"event_p99_ms"`
	Delivered int     `json:"events_delivered"`
}

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// stand is what is measured on.
type stand struct {
	testing.TB
	up *testkit.Up
	client.Client
	token string

	mu sync.Mutex
	// finished is when each task's process ended, by the robot, which is this machine.
	finished map[string]time.Time
	// heard is when each reader was told so; shown is when the page did so.
	heard map[string][]time.Time
	shown map[string]time.Time
}

func runBenchmark(t testing.TB) {
	up := testkit.StartUp(t, "--robots=4", "--without=node")
	s := &stand{TB: t, up: up, Client: testkit.NewClient(t, up.RESTConfig()), finished: map[string]time.Time{}, heard: map[string][]time.Time{}, shown: map[string]time.Time{}}
	s.token = s.createViewer()
	for range *readers {
		s.followEvents()
	}
	s.watchPage()
	for n := range *rounds {
		s.runJob(n)
	}
	testkit.Eventually(t, time.Minute, "all have heard of all, and the page has shown them", s.isComplete)
	s.printResult()
}

// createViewer makes a token that may see everything.
func (s *stand) createViewer() string {
	ctx := context.Background()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "viewer"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "viewer"}},
	}
	for _, o := range []client.Object{account, binding} {
		if err := s.Create(ctx, o); err != nil {
			s.Fatal(err)
		}
	}
	var request authenticationv1.TokenRequest
	if err := s.SubResource("token").Create(ctx, account, &request); err != nil {
		s.Fatal(err)
	}
	// view is aggregated, which takes a moment.
	testkit.Eventually(s, time.Minute, "the viewer may see tasks", func() bool {
		answer := s.sendRequest(request.Status.Token, "/api/v1/objects/tasks")
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return request.Status.Token
}

func (s *stand) sendRequest(token, path string) *http.Response {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.up.ConsoleURL+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	return answer
}

// followEvents is one reader, until the system ends.
func (s *stand) followEvents() {
	answer := s.sendRequest(s.token, "/api/v1/events?kind=tasks") //nolint:bodyclose // the reader closes it
	if answer.StatusCode != http.StatusOK {
		s.Fatalf("events: %s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	lines.Scan() // it is there
	go func() {
		defer answer.Body.Close()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				s.recordEvent(data, time.Now())
			}
		}
	}()
}

func (s *stand) recordEvent(data string, at time.Time) {
	var e struct {
		Name, From, To string
		Row            *struct{ Finished *metav1.MicroTime }
	}
	if json.Unmarshal([]byte(data), &e) != nil || e.To != "completed" || e.From == e.To || e.Row == nil || e.Row.Finished == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished[e.Name] = e.Row.Finished.Time
	s.heard[e.Name] = append(s.heard[e.Name], at)
}

// watchPage has a browser show the tasks.
func (s *stand) watchPage() {
	cmd := exec.Command("node", "test/measure/dom.mjs")
	cmd.Dir, cmd.Stderr = "web", os.Stderr
	cmd.Env = append(os.Environ(), "K8S4R_CONSOLE_URL="+s.up.ConsoleURL, "K8S4R_TOKEN="+s.token)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatalf("node: %v; the browser's side needs Node and make web", err)
	}
	s.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			s.Logf("the browser: %v", err)
		}
	})
	ready := make(chan struct{})
	go s.readPage(stdout, ready)
	select {
	case <-ready:
	case <-time.After(time.Minute):
		s.Fatal("the browser shows nothing")
	}
}

func (s *stand) readPage(from io.Reader, ready chan struct{}) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var one struct {
			Ready bool
			Name  string
			At    int64
		}
		if json.Unmarshal(lines.Bytes(), &one) != nil {
			continue
		}
		if one.Ready {
			close(ready)
			continue
		}
		s.mu.Lock()
		s.shown[one.Name] = time.UnixMilli(one.At)
		s.mu.Unlock()
	}
}

// runJob runs one job to its end.
func (s *stand) runJob(n int) {
	ctx, count := context.Background(), int32(tasksOfJob)
	job := &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("bench-%03d", n)},
		Spec: v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{Name: "main", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{
			Count: &count, Tasks: []v1alpha1.TaskDefinition{{
				Name: "main", Driver: v1alpha1.DriverExec, Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/sleep", Args: []string{"0.3"}}},
			}},
		}}}},
	}
	if err := s.Create(ctx, job); err != nil {
		s.Fatal(err)
	}
	testkit.Eventually(s, time.Minute, "job "+job.Name+" completes", func() bool {
		return s.Get(ctx, client.ObjectKeyFromObject(job), job) == nil && job.Status.State == "completed"
	})
}

func (s *stand) isComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.finished) != *rounds*tasksOfJob || len(s.shown) < len(s.finished) {
		return false
	}
	for _, all := range s.heard {
		if len(all) != *readers {
			return false
		}
	}
	return true
}

func (s *stand) printResult() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var heard, shown []float64
	for name, end := range s.finished {
		shown = append(shown, ms(s.shown[name].Sub(end)))
		for _, at := range s.heard[name] {
			heard = append(heard, ms(at.Sub(end)))
		}
	}
	r := result{
		Tasks: len(s.finished), Readers: *readers, Delivered: len(heard),
		DOMP50: quantile(shown, 0.5), DOMP99: quantile(shown, 0.99), EventP50: quantile(heard, 0.5), EventP99: quantile(heard, 0.99),
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "from the exit of a process to\tp50 ms\tp99 ms\tcount\t")
	fmt.Fprintf(w, "an event at each of %d readers\t%.0f\t%.0f\t%d\t\n", r.Readers, r.EventP50, r.EventP99, len(heard))
	fmt.Fprintf(w, "the page of a browser\t%.0f\t%.0f\t%d\t\n", r.DOMP50, r.DOMP99, len(shown))
	w.Flush()
	fmt.Println()
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		s.Fatal(err)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func quantile(all []float64, q float64) float64 {
	slices.Sort(all)
	return math.Round(10*all[int(q*float64(len(all)-1))]) / 10
}
