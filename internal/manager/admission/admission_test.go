package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// clock is a clock that the test advances.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// run serves until the test ends or stop is called.
func run(t *testing.T, c client.Client, cfg Config) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listener, cfg.Every = l, time.Millisecond
	if cfg.URL != "" {
		cfg.URL = "https://" + l.Addr().String()
	}
	s := &server{cfg: cfg.withDefaults(), client: c, live: c, log: testr.New(t)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// registered returns the current registration.
func registered(t *testing.T, c client.Client) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	out := &admissionv1.ValidatingWebhookConfiguration{}
	err := c.Get(t.Context(), types.NamespacedName{Name: "k8s4r-jobflows"}, out)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return out
}

// ask connects as an API server does that trusts the registration, and returns the certificate.
func ask(t *testing.T, c client.Client, now func() time.Time, address, name string) (*x509.Certificate, error) {
	hooks := registered(t, c).Webhooks
	if len(hooks) == 0 {
		return nil, fmt.Errorf("not registered")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hooks[0].ClientConfig.CABundle)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: name, Time: now})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// inCluster returns a client of a cluster with the objects of kubectl apply -k config.
func inCluster(t *testing.T) client.Client {
	t.Helper()
	registrations, err := (&Config{RecordActions: true}).buildRegistrations()
	if err != nil {
		t.Fatal(err)
	}
	return fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(registrations...).Build()
}

func TestServer_ReplicasShareAndRenewCertificate(t *testing.T) {
	cluster, hour := inCluster(t), &clock{at: time.Now()}
	one, _ := run(t, cluster, Config{Now: hour.now})
	two, _ := run(t, cluster, Config{Now: hour.now})
	var first *x509.Certificate
	same := func(other *x509.Certificate) {
		t.Helper()
		testkit.EventuallyNoError(t, 10*time.Second, "both replicas show one certificate that is trusted", func() error {
			a, err := ask(t, cluster, hour.now, one, host)
			if err != nil {
				return err
			}
			b, err := ask(t, cluster, hour.now, two, host)
			if err != nil {
				return err
			}
			if !a.Equal(b) || a.Equal(other) {
				return fmt.Errorf("serial numbers %s and %s", a.SerialNumber, b.SerialNumber)
			}
			first = a
			return nil
		})
	}
	same(nil)
	hour.pass(servingLife * 3 / 4)
	same(first)
	secret := &corev1.Secret{}
	if err := cluster.Get(t.Context(), types.NamespacedName{Namespace: "k8s4r-system", Name: "k8s4r-webhook"}, secret); err != nil || secret.Type != corev1.SecretTypeTLS {
		t.Errorf("%v, type %s", err, secret.Type)
	}
	for _, w := range registered(t, cluster).Webhooks {
		if w.Name == "validatejobflow.volcano.sh" && (*w.FailurePolicy != admissionv1.Fail || w.ClientConfig.Service == nil) {
			t.Errorf("the registration of the cluster was changed: %+v", w)
		}
	}
}

func TestServer_CreatesAndRemovesRegistrationByURL(t *testing.T) {
	for _, c := range []struct {
		unreachable bool
		want        admissionv1.FailurePolicyType
	}{{false, admissionv1.Fail}, {true, admissionv1.Ignore}} {
		t.Run(string(c.want), func(t *testing.T) {
			cluster := fakeapi.NewBuilder(clientgoscheme.Scheme).Build()
			address, stop := run(t, cluster, Config{URL: "https://", Unreachable: c.unreachable})
			testkit.EventuallyNoError(t, 10*time.Second, "it is registered and trusted", func() error {
				_, err := ask(t, cluster, time.Now, address, "127.0.0.1")
				return err
			})
			w := registered(t, cluster).Webhooks[0]
			if *w.ClientConfig.URL != "https://"+address+PathJobFlows || w.ClientConfig.Service != nil || *w.FailurePolicy != c.want {
				t.Errorf("%+v", w)
			}
			stop()
			if left := registered(t, cluster); len(left.Webhooks) > 0 {
				t.Error("it is still registered, so no flow can be created")
			}
		})
	}
}

// The API server uses a registration some time after it was written.
func TestServer_ReadyOnceAPIServerCallsIt(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), flowv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := &server{cfg: Config{URL: "https://127.0.0.1:1"}.withDefaults(), log: testr.New(t)}
	tries := []error{nil, errors.New(`failed calling webhook "validatejobflow.volcano.sh": connection refused`), errors.New(`admission webhook "validatejobflow.volcano.sh" denied the request: jobflow Flow is not DAG`)}
	s.client = fakeapi.NewBuilder(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*flowv1.JobFlow); !ok {
				return c.Create(ctx, o, opts...)
			}
			if s.checkReady(nil) == nil {
				t.Error("ready before the API server asks")
			}
			err := tries[0]
			tries = tries[1:]
			return err
		},
	}).Build()
	s.live = s.client
	if err := s.renewCertificate(t.Context()); err != nil || s.checkReady(nil) != nil || len(tries) > 0 {
		t.Errorf("%v, ready: %v, %d tries left", err, s.checkReady(nil), len(tries))
	}
}

func TestServer_ExplainsMissingRegistration(t *testing.T) {
	s := &server{cfg: Config{}.withDefaults(), log: testr.New(t)}
	s.client = fakeapi.NewBuilder(clientgoscheme.Scheme).Build()
	s.live = s.client
	if err := s.renewCertificate(t.Context()); err == nil || !strings.Contains(err.Error(), "apply config/webhook") {
		t.Error(err)
	}
	if s.checkReady(nil) == nil {
		t.Error("ready though no client can reach it")
	}
}

// With a directory, no certificate is issued and the registration is not changed.
func TestServer_UsesCertificateFromDirectory(t *testing.T) {
	dir := t.TempDir()
	data, _ := next(t, time.Now(), nil)
	write(t, dir, data)
	cluster := inCluster(t)
	address, _ := run(t, cluster, Config{CertDir: dir})
	shows := func(data map[string][]byte) {
		t.Helper()
		want, _ := parsePair(data[keyCertificate], data[keyKey])
		testkit.EventuallyNoError(t, 20*time.Second, "it shows the certificate of the directory", func() error {
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer conn.Close()
			if got := conn.ConnectionState().PeerCertificates[0]; !got.Equal(want.Leaf) {
				return fmt.Errorf("it shows %s", got.SerialNumber)
			}
			return nil
		})
	}
	shows(data)
	renewed, _ := next(t, time.Now(), nil)
	write(t, dir, renewed)
	shows(renewed)
	secrets := &corev1.SecretList{}
	if err := cluster.List(t.Context(), secrets); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%v, %d Secrets made", err, len(secrets.Items))
	}
	for _, w := range registered(t, cluster).Webhooks {
		if len(w.ClientConfig.CABundle) > 0 {
			t.Error("it registered itself")
		}
	}
}

// jobFlow returns a JobFlow with this spec, which is YAML.
func jobFlow(t *testing.T, spec string) *flowv1.JobFlow {
	t.Helper()
	out := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Name: "jf", Namespace: "ns"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &out.Spec); err != nil {
		t.Fatal(err)
	}
	return out
}

// review sends an admission request and returns the message for the API server's client.
func review(t *testing.T, flow, old *flowv1.JobFlow) string {
	t.Helper()
	raw := func(f *flowv1.JobFlow) runtime.RawExtension {
		if f == nil {
			return runtime.RawExtension{}
		}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: data}
	}
	in := admissionapi.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionapi.AdmissionRequest{UID: "u", Object: raw(flow), OldObject: raw(old)},
	}
	body, _ := json.Marshal(in)
	r, _ := http.NewRequest(http.MethodPost, PathJobFlows, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := &answer{header: http.Header{}}
	newHandler(&actionHandler{}).ServeHTTP(w, r)
	var out admissionapi.AdmissionReview
	if err := json.Unmarshal(w.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("%v: %s", err, w.String())
	}
	if out.Response.Allowed {
		return ""
	}
	return out.Response.Result.Message
}

// answer records a response.
type answer struct {
	bytes.Buffer
	header http.Header
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(int)     {}

func TestJobFlow_Validation(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"undefined", `flows: [{name: a, dependsOn: {targets: [nosuch]}}]`, "jobflow Flow is not DAG: vertex is not defined: nosuch"},
		{"self", `flows: [{name: a, dependsOn: {targets: [a]}}]`, "jobflow Flow is not DAG"},
		{"cycle of 2", `flows: [{name: a, dependsOn: {targets: [b]}}, {name: b, dependsOn: {targets: [a]}}]`, "jobflow Flow is not DAG"},
		{"empty", `{}`, ""},
		{"duplicate names", `flows: [{name: a}, {name: a}]`, ""},
		{"when", `flows: [{name: a, when: "1"}]`, "spec.flows[a].when: returns int; must return true or false, so add a comparison"},
		{"a Job that could not be created", `flows: [{name: A_b}]`, `spec.flows[A_b].name: its Job would be called "jf-A_b", which is not a valid name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); choose another step name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			flow := jobFlow(t, c.spec)
			for verb, got := range map[string]string{
				"CREATE": review(t, flow, nil), "UPDATE": review(t, flow, jobFlow(t, `flows: [{name: before}]`)),
			} {
				if got != c.want {
					t.Errorf("%s: %q, want %q", verb, got, c.want)
				}
			}
		})
	}
}

// A flow from before the webhook can still be labeled and deleted.
func TestJobFlow_InvalidStoredFlowCanBeDeleted(t *testing.T) {
	bad := jobFlow(t, `flows: [{name: a, dependsOn: {targets: [a]}}]`)
	labeled := bad.DeepCopy()
	labeled.Labels = map[string]string{"x": "y"}
	if got := review(t, labeled, bad); got != "" {
		t.Error(got)
	}
	leaving := jobFlow(t, `flows: [{name: b, dependsOn: {targets: [b]}}]`)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if got := review(t, leaving, bad); got != "" {
		t.Error(got)
	}
}

func write(t *testing.T, dir string, data map[string][]byte) {
	t.Helper()
	for _, key := range []string{keyKey, keyCertificate} {
		if err := os.WriteFile(filepath.Join(dir, key), data[key], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
