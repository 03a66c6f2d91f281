// The program bench/events measures the time from the exit of a process on a robot until users see
// it: in the event streams of a hundred readers, and in a page in a browser. It runs a real system on
// this machine.
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

// bench is the system under test, with the measured times.
type bench struct {
	testing.TB
	up *testkit.Up
	client.Client
	token string

	mu sync.Mutex
	// finished is when the process of each task ended, by the clock of this machine.
	finished map[string]time.Time
	// receivedAt is when each reader received the event; shownAt is when the page showed it.
	receivedAt map[string][]time.Time
	shownAt    map[string]time.Time
}

func runBenchmark(t testing.TB) {
	up := testkit.StartUp(t, "--robots=4", "--without=node")
	s := &bench{TB: t, up: up, Client: testkit.NewClient(t, up.RESTConfig()), finished: map[string]time.Time{}, receivedAt: map[string][]time.Time{}, shownAt: map[string]time.Time{}}
	s.token = s.createViewer()
	for range *readers {
		s.followEvents()
	}
	s.watchPage()
	for n := range *rounds {
		s.runJob(n)
	}
	testkit.Eventually(t, time.Minute, "all readers have received all events, and the page has shown them", s.isComplete)
	s.printResult()
}

// createViewer creates a token that may read everything.
func (s *bench) createViewer() string {
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
	// The ClusterRole view is aggregated with a delay.
	testkit.Eventually(s, time.Minute, "the viewer may see tasks", func() bool {
		answer := s.sendRequest(request.Status.Token, "/api/v1/objects/tasks")
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return request.Status.Token
}

func (s *bench) sendRequest(token, path string) *http.Response {
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

// followEvents follows the events as one reader until the system stops.
func (s *bench) followEvents() {
	answer := s.sendRequest(s.token, "/api/v1/events?kind=tasks") //nolint:bodyclose // the reader closes it
	if answer.StatusCode != http.StatusOK {
		s.Fatalf("events: %s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	lines.Scan() // the stream is open
	go func() {
		defer answer.Body.Close()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				s.recordEvent(data, time.Now())
			}
		}
	}()
}

func (s *bench) recordEvent(data string, at time.Time) {
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
	s.receivedAt[e.Name] = append(s.receivedAt[e.Name], at)
}

// watchPage opens the page of tasks in a browser.
func (s *bench) watchPage() {
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

func (s *bench) readPage(from io.Reader, ready chan struct{}) {
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
		s.shownAt[one.Name] = time.UnixMilli(one.At)
		s.mu.Unlock()
	}
}

// runJob runs one job to its end.
func (s *bench) runJob(n int) {
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

func (s *bench) isComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.finished) != *rounds*tasksOfJob || len(s.shownAt) < len(s.finished) {
		return false
	}
	for _, all := range s.receivedAt {
		if len(all) != *readers {
			return false
		}
	}
	return true
}

func (s *bench) printResult() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var receivedAt, shownAt []float64
	for name, end := range s.finished {
		shownAt = append(shownAt, ms(s.shownAt[name].Sub(end)))
		for _, at := range s.receivedAt[name] {
			receivedAt = append(receivedAt, ms(at.Sub(end)))
		}
	}
	r := result{
		Tasks: len(s.finished), Readers: *readers, Delivered: len(receivedAt),
		DOMP50: quantile(shownAt, 0.5), DOMP99: quantile(shownAt, 0.99), EventP50: quantile(receivedAt, 0.5), EventP99: quantile(receivedAt, 0.99),
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "from the exit of a process to\tp50 ms\tp99 ms\tcount\t")
	fmt.Fprintf(w, "an event at each of %d readers\t%.0f\t%.0f\t%d\t\n", r.Readers, r.EventP50, r.EventP99, len(receivedAt))
	fmt.Fprintf(w, "the page of a browser\t%.0f\t%.0f\t%d\t\n", r.DOMP50, r.DOMP99, len(shownAt))
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
