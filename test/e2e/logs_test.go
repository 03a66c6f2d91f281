package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// talker is a robot whose tasks print what a test writes to them.
type talker struct {
	*simrobot.Robot
	mu    sync.Mutex
	lines map[string]chan string // by UID
}

func newTalker(t *testing.T, s *system) *talker {
	t.Helper()
	r := &talker{lines: map[string]chan string{}}
	r.Robot = s.simulateRobot(simrobot.Config{RobotID: "r1", LogDir: t.TempDir(), Output: r.output})
	return r
}

// output prints each line that it receives until the channel is closed. A line that begins with
// "!" goes to standard error.
func (r *talker) output(uid string, _ int32, log *record.Writer, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case line, ok := <-r.of(uid):
			if !ok {
				return
			}
			s := record.Stdout
			if strings.HasPrefix(line, "!") {
				s = record.Stderr
			}
			log.Write(s, []byte(line+"\n"), time.Now())
		}
	}
}

func (r *talker) of(uid string) chan string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lines[uid] == nil {
		r.lines[uid] = make(chan string, 100)
	}
	return r.lines[uid]
}

// reader is a command line that runs.
type reader struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	err   strings.Builder
}

func (s *system) read(args ...string) *reader {
	s.t.Helper()
	r := &reader{t: s.t, cmd: exec.Command(testkit.BinaryPath(s.t, "kubectl-k8s4r"), append([]string{"logs"}, args...)...), lines: make(chan string, 1000)}
	r.cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
	r.cmd.Stderr = &r.err
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.cmd.Process.Kill() })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.lines <- lines.Text()
		}
		close(r.lines)
	}()
	return r
}

// expect waits for the next line.
func (r *reader) expect(want string, within time.Duration) {
	r.t.Helper()
	select {
	case got, ok := <-r.lines:
		if got != want || !ok {
			r.t.Fatalf("%q came (%v), not %q", got, ok, want)
		}
	case <-time.After(within):
		r.t.Fatalf("%q did not come within %s", want, within)
	}
}

// end waits until the command has ended.
func (r *reader) end() {
	r.t.Helper()
	for line := range r.lines {
		r.t.Errorf("%q came too", line)
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("it ended with %v: %s", err, r.err.String())
	}
}

// writeUntilShown writes lines until a reader that is still starting shows one, and then reads all
// of them. old is a reader that shows every line.
func writeUntilShown(t *testing.T, say chan<- string, old, starting *reader) {
	t.Helper()
	const prefix = "[talk-main-0-say] tick "
	line := func(n int) string { return fmt.Sprintf("%s%03d", prefix, n) }
	sent, first := 0, ""
	for first == "" {
		if sent == 300 {
			t.Fatal("the reader shows none of 300 lines")
		}
		text := strings.TrimPrefix(line(sent), "[talk-main-0-say] ")
		say <- text
		old.expect(text, 30*time.Second)
		sent++
		select {
		case first = <-starting.lines:
		case <-time.After(200 * time.Millisecond):
		}
	}
	for n := range sent {
		if line(n) > first {
			starting.expect(line(n), 30*time.Second)
		}
	}
	if !strings.HasPrefix(first, prefix) {
		t.Errorf("the reader shows %q", first)
	}
}

func TestLogs_AreFollowedLive(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0")
	robot := newTalker(t, s)
	s.awaitRobot("r1", "Online", time.Minute)
	s.create(jobOf("talk", 1, shell("say", "true")))
	task := s.awaitTask("talk-main-0-say", "running", time.Minute)
	say := robot.of(string(task.UID))

	follow := s.read("-f", task.Name)
	say <- "hello"
	follow.expect("hello", 30*time.Second) // the command starts
	var took []time.Duration
	const lines = 50
	for i := range lines {
		began := time.Now()
		say <- fmt.Sprint("line ", i)
		follow.expect(fmt.Sprint("line ", i), 30*time.Second)
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(took)
	t.Logf("from the task to the terminal: median %s, maximum %s", took[lines/2].Round(time.Millisecond), took[lines-1].Round(time.Millisecond))
	// A part that polls delays every line, a busy machine only most of them.
	if took[lines/2] > 200*time.Millisecond {
		t.Errorf("half of the lines take more than %s", took[lines/2])
	}

	t.Run("a server that is killed loses nothing and doubles nothing", func(t *testing.T) {
		s.Kill()
		for i := range 20 {
			say <- fmt.Sprint("away ", i)
		}
		s.Start()
		testkit.EventuallyNoError(t, time.Minute, "the robot is back", func() error { return robot.Reconnect(t.Context()) })
		for i := range 20 {
			follow.expect(fmt.Sprint("away ", i), time.Minute)
		}
	})
	t.Run("what is asked for is shown", func(t *testing.T) {
		say <- "!an error"
		follow.expect("!an error", 30*time.Second)
		tail := s.read("--tail", "2", task.Name)
		tail.expect("away 19", 30*time.Second)
		tail.expect("!an error", 30*time.Second)
		tail.end()
		only := s.read("--stderr", task.Name)
		only.expect("!an error", 30*time.Second)
		only.end()
		job := s.read("--job", "talk", "--tail", "1")
		job.expect("[talk-main-0-say] !an error", 30*time.Second)
		job.end()
	})
	t.Run("only who may read a log reads it", func(t *testing.T) { s.testRights(t, task.Name) })

	jobFollow := s.read("--job", "talk", "-f", "--since", "0s")
	writeUntilShown(t, say, follow, jobFollow)
	close(say)
	follow.end()
	jobFollow.end()
	s.awaitJob("talk", "completed", time.Minute)
	if notes := follow.err.String(); !strings.Contains(notes, "task changed state running -> completed") {
		t.Errorf("beside the log it printed:\n%s", notes)
	}
	for args, want := range map[string]string{
		"outsider":                    `task "outsider" not found in namespace default`,
		"--attempt=7 talk-main-0-say": "has had 1 attempts",
	} {
		out, err := s.RunProgram("kubectl-k8s4r", append([]string{"logs"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("logs %s: %v\n%s", args, err, out)
		}
	}
}

// testRights reads with tokens of service accounts, with and without the role
// view.
func (s *system) testRights(t *testing.T, task string) {
	ctx := t.Context()
	for _, name := range []string{"viewer", "outsider"} {
		s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "k8s4r-view"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "viewer"}},
	})
	var at corev1.ConfigMap
	if err := s.Get(ctx, nameOf("k8s4r-system", "k8s4r-server"), &at); err != nil {
		t.Fatal(err)
	}
	get := func(token string) (int, string) { return getWithToken(t, at.Data, token, task) }
	testkit.EventuallyNoError(t, 10*time.Second, "the viewer may read", func() error {
		if status, text := get(s.tokenOf("viewer")); status != 200 || !strings.Contains(text, "away 19") {
			return fmt.Errorf("%d: %.200s", status, text)
		}
		return nil
	})
	if status, text := get(s.tokenOf("outsider")); status != 403 || !strings.Contains(text, "tasks/log") {
		t.Errorf("outsider: %d: %.300s", status, text)
	}
	for _, token := range []string{"", "made-up"} {
		if status, text := get(token); status != 401 {
			t.Errorf("token %q: %d: %.300s", token, status, text)
		}
	}
	out, err := s.RunProgram("kubectl-k8s4r", "logs", "--as", "another-user", task)
	if err == nil {
		t.Errorf("another user's log is shown:\n%s", out)
	}
}

func (s *system) tokenOf(account string) string {
	s.t.Helper()
	hour := int64(3600)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}}
	if err := s.SubResource("token").Create(context.Background(), sa, token); err != nil {
		s.t.Fatal(err)
	}
	return token.Status.Token
}

func nameOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// getWithToken sends a request to the server, verified by the certificate that it has published.
func getWithToken(t *testing.T, at map[string]string, token, task string) (status int, text string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(at["ca.crt"]))
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: at["server-name"]}}}
	request, err := http.NewRequest(http.MethodGet, at["url"]+"/v1/namespaces/default/tasks/"+task+"/logs?timestamps=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}
